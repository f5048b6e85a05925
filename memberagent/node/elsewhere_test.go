// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
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
	t.Parallel()
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

// TestAPodClaimsANodesAddress: what listens on all addresses of a gateway is not reached from other clusters by the
// gateway's own address among the pods either, when a pod of another node says to have that address. With several
// gateways, what is for other nodes' pods is not tracked.
func TestAPodClaimsANodesAddress(t *testing.T) {
	t.Parallel()
	n := highlyAvailable(t)
	inNetworkOf(t, n.gw1.holder, func() error {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ":10250")
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	from := []*machine{n.gw2, n.gw3, n.worker2}
	reached := func(address string) bool {
		return slices.ContainsFunc(from, func(m *machine) bool {
			c, err := dialFor(t, time.Second, m.pod, "tcp", net.JoinHostPort(address, "10250"))
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	own := []string{n.gw1.pods + ".1", netip.MustParseAddr(n.gw1.pods6 + "::1").String()}
	n.elsewhere = []v1alpha1.NodeNetwork{{ObjectMeta: metav1.ObjectMeta{Name: n.worker1.name},
		Spec: v1alpha1.NodeNetworkSpec{PodCIDRs: []string{own[0] + "/32", own[1] + "/128"}}}}
	n.tell(t, v1alpha1.MemberActive)
	for i, f := range []string{"ip", "ip6"} {
		eventually(t, 20*time.Second, "the claim is believed", func() bool {
			return strings.Contains(n.gw1.run(t, "nft list set "+f+" sealane transit"), own[i])
		})
		if reached(own[i]) {
			t.Errorf("port 10250 of the gateway is reached at %s", own[i])
		}
	}
}
