// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/services"
	"github.com/sealane-io/sealane/internal/clip"
)

// maxNamed is how many clusters a message names.
const maxNamed = 10

// Accept returns the Accepted condition of a policy: members are the clusters of all ClusterSets, and
// exporters those that export the service. It is pure. What is wrong is said together, and the worst is
// the reason.
func Accept(p *v1alpha1.ServicePolicy, members, exporters []string) metav1.Condition {
	out := metav1.Condition{
		Type: v1alpha1.ServicePolicyAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ServicePolicyReasonAccepted,
		Message: "in force", ObservedGeneration: p.Generation,
	}
	var texts []string
	wrong := func(reason, text string) {
		if len(texts) == 0 {
			out.Status, out.Reason = metav1.ConditionFalse, reason
		}
		texts = append(texts, text)
	}
	if err := services.Importers(p); err != nil {
		wrong(v1alpha1.ServicePolicyReasonInvalid, fmt.Sprintf(
			"importers: %v; until it is corrected it selects no cluster, and only clusters that are named, or export the "+
				"service themselves, import it", err))
	}
	if err := services.Exporters(p); err != nil {
		wrong(v1alpha1.ServicePolicyReasonInvalid, fmt.Sprintf(
			"exporters: %v; until it is corrected it selects no cluster, and only clusters that are named export it", err))
	}
	if unknown := unknown(p, members); len(unknown) > 0 {
		wrong(v1alpha1.ServicePolicyReasonUnknownCluster, fmt.Sprintf(
			"%s: not in any ClusterSet; correct the names or let the clusters join, the rest of the policy is in force",
			clip.List(unknown, maxNamed)))
	}
	if len(exporters) == 0 {
		wrong(v1alpha1.ServicePolicyReasonNoExport, fmt.Sprintf("no cluster exports %s/%s: the policy waits for a "+
			"ServiceExport of that name", p.Namespace, p.Name))
	}
	if len(texts) > 0 {
		out.Message = strings.Join(texts, ". ")
	}
	return out
}

// unknown returns the clusters that a policy names and that are not members, sorted.
func unknown(p *v1alpha1.ServicePolicy, members []string) []string {
	var names []string
	if s := p.Spec.Importers; s != nil {
		names = append(names, s.ClusterNames...)
	}
	if s := p.Spec.Exporters; s != nil {
		names = append(names, s.ClusterNames...)
	}
	if c := p.Spec.Choice; c != nil {
		if c.Failover != nil {
			names = append(names, c.Failover.Clusters...)
		}
		for _, w := range c.Weights {
			names = append(names, w.Cluster)
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		return n == v1alpha1.LocalCluster ||
			slices.Contains(members, n)
	})
	slices.Sort(names)
	return slices.Compact(names)
}
