// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// maxIPsecNamed is how many gateways, and how many clusters, a message names.
const maxIPsecNamed = 5

// withoutIPsec adds to v1alpha1.PeeringGatewaysReady the gateways that have no container for cables by IPsec, where
// other clusters are to be reached by these: whoever chose the driver may not have installed it. Agents are those that
// speak for their nodes; a gateway without one, or of which it is not known, is left out.
func withoutIPsec(c metav1.Condition, remotes []v1alpha1.RemoteCluster, gateways []v1alpha1.Gateway,
	agents []nodeAgent) metav1.Condition {
	var clusters, bare []string
	for i := range remotes {
		if remotes[i].Cable == v1alpha1.CableIPsec {
			clusters = append(clusters, remotes[i].Name)
		}
	}
	for _, a := range agents {
		isGateway := slices.ContainsFunc(gateways, func(g v1alpha1.Gateway) bool {
			return g.Name == a.node && g.DeletionTimestamp == nil
		})
		if a.bare && isGateway {
			bare = append(bare, a.node)
		}
	}
	if len(clusters) == 0 || len(bare) == 0 {
		return c
	}
	slices.Sort(clusters)
	slices.Sort(bare)
	if c.Status == metav1.ConditionTrue {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonNoIPsecContainer
	}
	c.Message += fmt.Sprintf("; %s are to be reached by ipsec, and the container that runs it is missing on the gateways "+
		"%s: run kubectl karmada sealane install again, with --ipsec beside the flags of the first time, or give these "+
		"pairs the driver wireguard", clip.List(clusters, maxIPsecNamed), clip.List(bare, maxIPsecNamed))
	return c
}
