// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sealane-io/sealane/e2e/suite"
)

// The rules that drop what came by a translation of kube-proxy.
const (
	notToOwnNode   = `udp dport 4800 ip saddr != @nodes`
	notToOtherNode = `udp dport 4800 ip daddr @nodes ct state`
	notRelayed     = `iifname "sl-c*" oifname "sl-c*"`
)

// TestNoServiceLeadsIntoTheOverlay: a tenant of c2 makes Services whose endpoint is the VXLAN socket of a node.
func TestNoServiceLeadsIntoTheOverlay(t *testing.T) {
	s := suite.NewNamespace(t, "c2")
	overlays := map[string]*corev1.Service{}
	for _, node := range []string{"c2-gw", "c2-worker"} {
		overlays[node] = overlayService(s, node)
	}
	clusterIP := func(node string) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(overlays[node].Spec.ClusterIP), 53)
	}
	nodePort := func(node string) netip.AddrPort {
		return netip.AddrPortFrom(suite.NodeAddr("c2-gw"), uint16(overlays[node].Spec.Ports[0].NodePort))
	}
	var mac net.HardwareAddr
	suite.InNetns(t, "c2-gw", func() error {
		l, err := net.InterfaceByName("sl-vx")
		if err == nil {
			mac = l.HardwareAddr
		}
		return err
	})
	fromPod := func(cluster, pod string) func(context.Context, netip.AddrPort, []byte) {
		return func(ctx context.Context, to netip.AddrPort, _ []byte) {
			if out, err := suite.InPod(ctx, cluster, pod, "udp", "-timeout=50ms", to.String(), "64"); err == nil {
				t.Errorf("somebody answers a pod at %s: %s", to, out)
			}
		}
	}
	// A machine that is no node of c2.
	fromOutside := func(ctx context.Context, to netip.AddrPort, packet []byte) {
		suite.SendUDP(ctx, t, "c1-worker", to, packet)
	}
	capture := suite.NewCapture(t, "c2-gw")
	pod := netip.AddrPortFrom(netip.MustParseAddr(suite.PodIP(t, "c2", "server-c2-gw")), 8080)
	from := netip.AddrPortFrom(netip.MustParseAddr(suite.PodIP(t, "c1", "client-c1-gw")), 40000)
	for i, c := range []struct {
		name              string
		send              func(context.Context, netip.AddrPort, []byte)
		to, inner         netip.AddrPort
		node, chain, rule string
	}{
		{"a ClusterIP, to the pod's own node", fromPod("c2", "client-c2-worker"), clusterIP("c2-worker"), pod,
			"c2-worker", "host", notToOwnNode},
		{"a ClusterIP, to another node", fromPod("c2", "client-c2-worker"), clusterIP("c2-gw"), pod,
			"c2-worker", "forward", notToOtherNode},
		{"a NodePort, to that node", fromOutside, nodePort("c2-gw"), pod, "c2-gw", "host", notToOwnNode},
		{"a NodePort, to another node", fromOutside, nodePort("c2-worker"), pod, "c2-gw", "forward", notToOtherNode},
		{"a NodePort, with a packet to the node itself", fromOutside, nodePort("c2-gw"),
			netip.AddrPortFrom(suite.NodeAddr("c2-gw"), 8080), "c2-gw", "host", notToOwnNode},
		{"another cluster, to the gateway", fromPod("c1", "client-c1-worker"), clusterIP("c2-gw"), pod,
			"c2-gw", "host", notToOwnNode},
		{"another cluster, to a worker", fromPod("c1", "client-c1-worker"), clusterIP("c2-worker"), pod,
			"c2-gw", "forward", notToOtherNode},
	} {
		t.Run(c.name, func(t *testing.T) {
			word := fmt.Sprintf("%stranslated-%d ", suite.Marked, i)
			inner := suite.Datagram{From: from, To: c.inner, Payload: []byte(word)}.Marshal()
			counts(t, c.node, c.chain, c.rule, func(ctx context.Context) { c.send(ctx, c.to, suite.VXLAN(inner, mac)) })
			if slices.Contains(capture.Where(word), "> sl-vx") {
				t.Error("unpacked")
			}
		})
	}
}

// overlayService makes a Service of type NodePort in c2: port 53/UDP is the VXLAN port of a node.
func overlayService(s suite.Namespace, node string) *corev1.Service {
	s.Helper()
	service := suite.Service(suite.Ports(corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}),
		func(o *corev1.Service) { o.Name, o.Spec.Type = node, corev1.ServiceTypeNodePort })
	slice := suite.EndpointSlice(service, discoveryv1.Endpoint{Addresses: []string{suite.NodeAddr(node).String()}})
	*slice.Ports[0].Port = vxlanPort
	s.Create("c2", service, slice)
	return service
}

// counts sends until a rule of a node drops something: kube-proxy may not know the Service yet.
func counts(t *testing.T, node, chain, rule string, send func(context.Context)) {
	t.Helper()
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		before, err := suite.Dropped(ctx, node, chain, rule)
		if err != nil {
			return err
		}
		send(ctx)
		after, err := suite.Dropped(ctx, node, chain, rule)
		if err == nil && after == before {
			err = fmt.Errorf("nothing dropped by %q in chain %s on %s", rule, chain, node)
		}
		return err
	})
}

// TestAClusterIsNoRelay: a pod of c2 asks c1's ClusterIP of an import whose only backends are in c2.
func TestAClusterIsNoRelay(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	s.Serve("c2")
	s.Export("c2")
	s.WaitEndpoints("c1", map[string]int{"c2": 1})
	imported := s.WaitImported(suite.ExportedBy("c2"), "c1")
	if len(imported.Spec.IPs) == 0 {
		t.Fatalf("expected a ClusterSetIP, found %+v", imported.Spec)
	}
	address := netip.AddrPortFrom(netip.MustParseAddr(imported.Spec.IPs[0]), 80)
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), address.String(), "c2")
	counts(t, "c1-gw", "forward", notRelayed, func(ctx context.Context) {
		if a, err := suite.Ask(ctx, "c2", suite.ClientOf("c2"), "http://"+address.String()); err == nil {
			t.Errorf("c1 relayed the request; the server saw %s", a.Client)
		}
	})
}
