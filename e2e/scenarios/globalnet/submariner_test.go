// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// submariner is what its cases of Globalnet have: the twin that everybody knows by its block, whose connections are
// seen by c1 as they leave it, and the other.
type submariner struct {
	namespace
	twin, other string
}

// TestCasesOfSubmariner are the end-to-end cases of its Globalnet, in their order and by their names, without DNS.
// Those with hosts outside the clusters are TestHostOutside.
func TestCasesOfSubmariner(t *testing.T) {
	s := submariner{namespace{suite.NewNamespace(t)}, "g1", "g2"}
	if memberSays(t, s.twin, "globalScope") != string(v1alpha1.GlobalToAll) {
		s.twin, s.other = s.other, s.twin
	}
	ends := map[string]string{"a gateway": "-gw1", "not a gateway": "-worker"}
	for on, to := range ends {
		name := "web" + to
		s.serveOn(s.other, name, s.other+to)
		address := s.globalIP(s.other, name)
		for from, node := range ends {
			t.Run("a pod on "+from+" connects to the global address of a remote service on "+on, func(t *testing.T) {
				s.reaches("client-"+s.twin+node, address+":80", "server-"+s.other+to)
			})
		}
	}
	all := s.egress("all", nil)
	for from, node := range ends {
		t.Run("a pod on "+from+" that matches the egress addresses of its namespace", func(t *testing.T) {
			s.seenAs("client-"+s.twin+node, all)
		})
	}
	selected := s.egress("selected", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}})
	for from, node := range ends {
		t.Run("a pod on "+from+" that matches the egress addresses of a pod selector", func(t *testing.T) {
			s.seenAs("client-"+s.twin+node, selected)
		})
	}
	cluster := &v1alpha1.ClusterGlobalEgressIP{ObjectMeta: suite.Named(v1alpha1.ClusterEgressName)}
	suite.WaitFor(suite.Namespace{T: t}, s.twin, cluster, func(*v1alpha1.ClusterGlobalEgressIP) error { return nil })
	for from, node := range ends {
		t.Run("a pod with host networking on "+from, func(t *testing.T) {
			s.seenAs("host-"+s.twin+node, s.ownOfGateways(cluster.Status.Addresses))
		})
	}
	t.Run("headless", func(t *testing.T) { s.headless(t, ends) })
}

// serveOn exports a service of a cluster whose backend is the server on a node.
func (s submariner) serveOn(cluster, name, node string) {
	s.Helper()
	service := suite.Service(func(o *corev1.Service) { o.Name = name })
	s.Create(cluster, service, suite.EndpointSlice(service, s.Server(node)),
		&mcs.ServiceExport{ObjectMeta: suite.Named(name)})
}

// globalIP waits for the global address of a service.
func (s submariner) globalIP(cluster, name string) string {
	s.Helper()
	g := &v1alpha1.GlobalIngressIP{ObjectMeta: suite.Named(name)}
	suite.WaitFor(s.Namespace, cluster, g, func(g *v1alpha1.GlobalIngressIP) error {
		if g.Status.IP == "" {
			return errors.New("it has no global address yet")
		}
		return nil
	})
	return g.Status.IP
}

// reaches asks from a pod of the twin until a server of the other answers, which sees one of the twin's addresses.
func (s submariner) reaches(pod, address, server string) {
	s.Helper()
	clients := append(seenFrom(s.T, s.twin, "", true), ofGateways)
	suite.Eventually(s.T, suite.Patience, func(ctx context.Context) error {
		a, err := suite.Ask(ctx, s.twin, pod, "http://"+address)
		if err != nil {
			return err
		}
		client, err := netip.ParseAddr(a.Client)
		if err != nil || a.Pod != server ||
			!slices.ContainsFunc(clients, func(p netip.Prefix) bool { return p.Contains(client) }) {
			return fmt.Errorf("%s is answered by %q, which sees %q: expected %s to see one of %s", address, a.Pod, a.Client,
				server, clients)
		}
		return nil
	})
}

// egress gives the twin's namespace sample, where the clients are, or selected pods of it, addresses of their own.
func (s submariner) egress(name string, selector *metav1.LabelSelector) []v1alpha1.GatewayAddresses {
	s.Helper()
	o := &v1alpha1.GlobalEgressIP{ObjectMeta: suite.Named(name),
		Spec: v1alpha1.GlobalEgressIPSpec{NumberOfIPs: 2, PodSelector: selector}}
	sample := suite.Namespace{T: s.T, Name: "sample"}
	sample.Create(s.twin, o)
	s.Cleanup(func() {
		if err := s.API(s.twin).Delete(context.WithoutCancel(s.Context()), o); err != nil {
			s.Error(err)
		}
	})
	suite.WaitFor(sample, s.twin, o, func(o *v1alpha1.GlobalEgressIP) error {
		if len(o.Status.Addresses) != 2 {
			return fmt.Errorf("expected addresses of two gateways, found %+v", o.Status)
		}
		return nil
	})
	return o.Status.Addresses
}

// ownOfGateways adds to ranges of addresses those that gateways themselves send from.
func (s submariner) ownOfGateways(ranges []v1alpha1.GatewayAddresses) []v1alpha1.GatewayAddresses {
	out := slices.Clone(ranges)
	for _, r := range ranges {
		own := netip.MustParseAddr(r.First).Prev().String() // of each share the one before the others
		out = append(out, v1alpha1.GatewayAddresses{Gateway: r.Gateway, First: own, Last: own})
	}
	return out
}

// seenAs asks a server of c1 from a pod of the twin until it sees an address of the ranges. c1 has one gateway, and
// translates nothing.
func (s submariner) seenAs(pod string, ranges []v1alpha1.GatewayAddresses) {
	s.Helper()
	address := suite.PodIP(s.T, "c1", "server-c1-gw") + ":8080"
	suite.Eventually(s.T, suite.Patience, func(ctx context.Context) error {
		a, err := suite.Ask(ctx, s.twin, pod, "http://"+address)
		if err != nil {
			return err
		}
		client, err := netip.ParseAddr(a.Client)
		if err != nil || !slices.ContainsFunc(ranges, func(r v1alpha1.GatewayAddresses) bool {
			return !client.Less(netip.MustParseAddr(r.First)) && !netip.MustParseAddr(r.Last).Less(client)
		}) {
			return fmt.Errorf("the server sees %q, expected one of %+v", a.Client, ranges)
		}
		return nil
	})
}

// headless has pods of the twin reach pods behind a headless service of the other, and these reach a service of the
// twin's in return.
func (s submariner) headless(t *testing.T, ends map[string]string) {
	const replicas = 2
	s.T = t
	s.Create(s.other, suite.Service(suite.Headless, func(web *corev1.Service) {
		web.Spec.Selector = map[string]string{"app": "web"}
	}), suite.StatefulSet("web", replicas))
	s.Export(s.other)
	for pod, address := range s.globalAddresses(s.other, replicas) {
		for from, node := range ends {
			t.Run("a pod on "+from+" connects to the global address of "+pod, func(t *testing.T) {
				s := s
				s.T = t
				s.reaches("client-"+s.twin+node, address+":8080", pod)
			})
		}
	}
	s.serveOn(s.twin, "reverse", s.twin+"-worker")
	address := s.globalIP(s.twin, "reverse")
	for from, node := range ends {
		t.Run("in reverse, a pod on "+from, func(t *testing.T) {
			r := submariner{namespace{suite.Namespace{T: t, Name: s.Name}}, s.other, s.twin}
			r.reaches("client-"+r.twin+node, address+":80", "server-"+r.other+"-worker")
		})
	}
}
