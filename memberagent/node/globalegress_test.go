// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// egressOf is what a GlobalEgressIP of the namespace sample has: addresses of these numbers for these pods.
func egressOf(name string, first, last int32, selects bool, pods ...string) v1alpha1.GlobalAllocation {
	a := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalEgress, Namespace: "sample", Name: name})
	a.Spec.Egress = &v1alpha1.PodEgressAllocation{EgressRange: v1alpha1.EgressRange{First: first, Last: last},
		Selected: selects, Pods: pods}
	return *a
}

// ingressOf is what a GlobalIngressIP of the namespace sample has.
func ingressOf(name string, ingress v1alpha1.IngressAllocation) v1alpha1.GlobalAllocation {
	a := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "sample", Name: name})
	a.Spec.Ingress = &ingress
	return *a
}

// TestEgressOfTwinClusters: what servers see of a pod is an address of the range that selects it, or else its own, or
// else one of its namespace's range, or of the cluster's; of nodes and pods on the host network, always the cluster's.
func TestEgressOfTwinClusters(t *testing.T) {
	t.Parallel()
	n := newTwins(t, nil)
	for _, m := range n.all() {
		m.serve(t)
	}
	eventually(t, time.Minute, "gateways connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
	n.seenFrom(t, "no range", n.worker1.pod, "120.1.0.129", "120.1.0.132")
	both := []string{"10.7.0.10", "10.7.1.10"}
	n.egress = map[string][]v1alpha1.GlobalAllocation{"c1": {egressOf("all", 5, 5, false, both...)}}
	n.tellAgain(t)
	t.Run("namespace, from a pod on a worker", func(t *testing.T) {
		n.seenFrom(t, "", n.worker1.pod, "120.1.0.133",
			"120.1.0.133")
	})
	t.Run("namespace, from a pod on a gateway", func(t *testing.T) {
		n.seenFrom(t, "", n.gw1.pod, "120.1.0.133",
			"120.1.0.133")
	})
	t.Run("host network, on a worker", func(t *testing.T) {
		n.seenFrom(t, "", n.worker1.holder, "120.1.0.129",
			"120.1.0.132")
	})
	t.Run("host network, on a gateway", func(t *testing.T) {
		n.seenFrom(t, "", n.gw1.holder, "120.1.0.128",
			"120.1.0.128")
	})

	kept, err := dialFrom(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
	if err != nil {
		t.Fatal(err)
	}
	n.gw1.run(t, `nft add table ip test; nft add chain ip test post '{ type filter hook postrouting priority 400; }'
		nft add rule ip test post oifname sl-c0 ip saddr != 120.0.0.0/8 counter comment shown`)
	rules := func() string { return n.gw1.run(t, "nft -a list chain ip sealane nullsnat") }
	before := rules()
	n.egress["c1"] = []v1alpha1.GlobalAllocation{egressOf("all", 5, 5, false, "10.7.0.10"),
		egressOf("client", 6, 7, true, "10.7.1.10")}
	n.tellAgain(t)
	t.Run("pod selector, from a pod on a worker", func(t *testing.T) {
		n.seenFrom(t, "", n.worker1.pod, "120.1.0.134",
			"120.1.0.135")
	})
	t.Run("not selected", func(t *testing.T) { n.seenFrom(t, "", n.gw1.pod, "120.1.0.133", "120.1.0.133") })
	if after := rules(); after != before {
		t.Errorf("rules changed with the pods:\n%s\n%s", before, after)
	}
	if _, err := kept.Write([]byte("still there?")); err != nil {
		t.Error(err)
	}
	buffer := make([]byte, 64)
	if k, err := kept.Read(buffer); err != nil || !strings.Contains(string(buffer[:k]), "120.1.0.133") {
		t.Errorf("a connection that was there: %q, %v", buffer[:k], err)
	}
	t.Run("errors reach the real sender", func(t *testing.T) {
		if _, _, err := ask(t, n.worker1.pod, "udp4", serviceOfTwin2+":81"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("pods with an address of their own", n.egressOfOwn)
	if shown := n.gw1.counted(t, "shown"); shown != 0 {
		t.Errorf("%d packets left with an address that is not global", shown)
	}
	t.Run("nothing is left", func(t *testing.T) {
		n.tellTwins(t, v1alpha1.MemberLeaving, nil)
		for _, m := range n.all() {
			m.becomes(t, 20*time.Second, "")
		}
	})
}

// egressOfOwn gives both pods an address of their own, of which one is selected and the other of the namespace.
func (n *twins) egressOfOwn(t *testing.T) {
	n.pods = podsOfTwins()
	n.egress["c1"] = []v1alpha1.GlobalAllocation{egressOf("all", 5, 5, false, "10.7.1.10"),
		egressOf("client", 6, 7, true, "10.7.0.10")}
	n.tellAgain(t)
	n.seenFrom(t, "headless", n.worker1.pod, "120.1.0.21", "120.1.0.21")
	n.seenFrom(t, "headless and selected", n.gw1.pod, "120.1.0.134", "120.1.0.135")
	server, _, err := ask(t, n.worker2.pod, "tcp4", "120.1.0.20:8080")
	if err != nil || server != "gw1" {
		t.Errorf("the selected pod is reached by its own address: %q, %v", server, err)
	}
}

func (n *twins) tellAgain(t *testing.T) {
	t.Helper()
	n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.0.10", "10.7.1.10"})
}

// seenFrom waits until a service of the other cluster sees a client by one of a range of addresses, by TCP and by UDP.
func (n *twins) seenFrom(t *testing.T, what string, from *exec.Cmd, first, last string) {
	t.Helper()
	for _, network := range []string{"tcp4", "udp4"} {
		saw := ""
		eventually(t, 20*time.Second, fmt.Sprintf("%s: %s seen from %s to %s", what, network, first, last), func() bool {
			_, client, err := ask(t, from, network, serviceOfTwin2+":80")
			if now := fmt.Sprint(client, err); now != saw {
				saw = now
				t.Logf("%s: seen %s", network, now)
			}
			return err == nil && !client.Less(netip.MustParseAddr(first)) && !netip.MustParseAddr(last).Less(client)
		})
	}
}
