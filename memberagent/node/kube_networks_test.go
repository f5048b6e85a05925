// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/node"
)

// testNodeNetworks: a gateway knows those of all nodes, and any other node its own alone, also when that changes.
func testNodeNetworks(t *testing.T, k *node.Kube, c client.Client) {
	network := func(name, cidr string) *v1alpha1.NodeNetwork {
		return &v1alpha1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.NodeNetworkSpec{PodCIDRs: []string{cidr}}}
	}
	know := func(want string) {
		t.Helper()
		got := ""
		eventually(t, 10*time.Second, "the networks "+want, func() bool {
			o, known, err := k.Objects(t.Context())
			var names []string
			for _, n := range o.NodeNetworks {
				names = append(names, n.Name+"="+strings.Join(n.Spec.PodCIDRs, ","))
			}
			slices.Sort(names)
			got = strings.Join(names, " ")
			return err == nil && known && got == want
		})
		t.Log(got)
	}
	create(t, c, network("n1", "10.8.7.0/26"), network("n2", "10.8.8.0/26"))
	know("n1=10.8.7.0/26 n2=10.8.8.0/26")
	gateway := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	remove(t, c, gateway)
	know("n1=10.8.7.0/26")
	create(t, c, &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, network("n3", "10.8.9.0/26"))
	know("n1=10.8.7.0/26 n2=10.8.8.0/26 n3=10.8.9.0/26")
	remove(t, c, network("n1", ""))
	remove(t, c, network("n2", ""))
	remove(t, c, network("n3", ""))
	know("")
}
