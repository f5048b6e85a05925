// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// moves gives the machine's pod another address, with a host route to it, as plugins do that take addresses from
// anywhere.
func (m *machine) moves(t *testing.T, pod, pod6 string) {
	t.Helper()
	m.run(t, fmt.Sprintf("ip route add %s dev cni0; ip -6 route add %s dev cni0", pod, pod6))
	if out, err := within(m.pod, fmt.Sprintf("ip addr add %s/32 dev eth0; ip addr add %s/128 dev eth0 nodad", pod,
		pod6)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestPodsElsewhere: pods are reached on the node that a NodeNetwork names, whatever node's range their address is of:
// nobody's, that of another worker, or the gateway's own.
func TestPodsElsewhere(t *testing.T) {
	n := newNetwork(t)
	from := n.gw2
	for _, c := range []struct {
		what      string
		on        *machine
		pod, pod6 string
	}{
		{"in nobody's range", n.worker1, "10.8.7.9", "fd08:0:0:7::9"},
		{"in the gateway's range, on a worker", n.worker1, n.gw1.pods + ".77", n.gw1.pods6 + "::77"},
		{"in a worker's range, on the gateway", n.gw1, n.worker1.pods + ".77", n.worker1.pods6 + "::77"},
	} {
		c.on.moves(t, c.pod, c.pod6)
		n.elsewhere = append(n.elsewhere, v1alpha1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: c.on.name},
			Spec: v1alpha1.NodeNetworkSpec{PodCIDRs: []string{c.pod + "/32", c.pod6 + "/128"}}})
	}
	// One object for each node.
	n.elsewhere[0].Spec.PodCIDRs = append(n.elsewhere[0].Spec.PodCIDRs, n.elsewhere[1].Spec.PodCIDRs...)
	n.elsewhere = []v1alpha1.NodeNetwork{n.elsewhere[0], n.elsewhere[2]}
	n.tell(t, v1alpha1.MemberActive)
	for _, address := range []string{"10.8.7.9", "fd08:0:0:7::9", n.gw1.pods + ".77", n.gw1.pods6 + "::77",
		n.worker1.pods + ".77", n.worker1.pods6 + "::77", n.worker1.pods + ".10", n.gw1.pods + ".10"} {
		eventually(t, 20*time.Second, "an answer of "+address, func() bool {
			return within(from.pod, "ping -c1 -W1 -I "+source(from, address)+" "+address).Run() == nil
		})
	}
	n.elsewhere = nil
	n.tell(t, v1alpha1.MemberActive)
	eventually(t, 20*time.Second, "no way to what is nobody's", func() bool {
		return within(from.pod, "ping -c1 -W1 10.8.7.9").Run() != nil
	})
}

// source is the address of a machine's pod of the family of another.
func source(m *machine, address string) string {
	if strings.Contains(address, ":") {
		return m.pods6 + "::10"
	}
	return m.pods + ".10"
}
