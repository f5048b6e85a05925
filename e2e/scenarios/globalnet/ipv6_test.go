// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// ofGateways6 is what ofGateways is for IPv6.
var ofGateways6 = netip.MustParsePrefix("fd51::/16")

// dualStack gives a Service both families, and the servers of the namespace as backends.
func dualStack(app string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		both := corev1.IPFamilyPolicyRequireDualStack
		s.Spec.IPFamilyPolicy, s.Spec.Selector = &both, map[string]string{"app": app}
	}
}

// TestTwinsReachEachOtherByIPv6: of two clusters with the same networks of IPv6, one exports a service, whose name
// leads to the other's own ClusterSetIP, and that to its servers; they see global addresses of the client's cluster.
// Both ways.
func TestTwinsReachEachOtherByIPv6(t *testing.T) {
	const name = "six"
	for from, to := range map[string]string{"g1": "g2", "g2": "g1"} {
		t.Run(from+" to "+to, func(t *testing.T) {
			service := suite.Service(dualStack("server"))
			service.Name = name
			s := suite.Namespace{T: t, Name: "sample"}
			s.Create(to, service)
			t.Cleanup(func() {
				if err := s.API(to).Delete(context.WithoutCancel(t.Context()), service); err != nil {
					t.Error(err)
				}
			})
			suite.Exported(t, to, name)
			imported := &mcs.ServiceImport{ObjectMeta: suite.Named(name)}
			var address string
			suite.WaitFor(s, from, imported, func(i *mcs.ServiceImport) error {
				at := slices.IndexFunc(i.Spec.IPs, func(ip string) bool { return netip.MustParseAddr(ip).Is6() })
				if at < 0 {
					return errors.New("it has no IPv6 address yet")
				}
				address = i.Spec.IPs[at]
				return nil
			})
			suite.Resolves(t, from, name+".sample.svc.clusterset.local", "AAAA", address)
			pod := "client-" + from + "-worker"
			seen := seenByIPv6(t, from, pod, "http://["+address+"]", to, 30)
			if block := block6(t, from); !slices.ContainsFunc(seen, block.Contains) {
				t.Errorf("no server on the gateway that led to it has seen an address of %s: %s", block, seen)
			}
			// A packet of either family is followed through both translations and one of two gateways at each end.
			followed(t, from+"/sample/"+pod, "["+address+"]:80", to)
			followed(t, from+"/sample/"+pod, name+".sample.svc.clusterset.local:80", to)
		})
	}
}

// followed sends a packet and sees it, and its answer, on nodes of both clusters.
func followed(t *testing.T, source, to, cluster string) {
	t.Helper()
	tries := 0
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		tries++
		out, err := suite.TryPlugin(ctx, "explain", source, to, "--live")
		if err == nil && !regexp.MustCompile(`ok +`+cluster+`/\S+ +answer seen`).MatchString(out) {
			err = errors.New("the answer was not seen in " + cluster)
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	t.Logf("%s to %s: followed at the %d. try", source, to, tries)
}

// TestPodsOfTwinsHaveNamesOfIPv6: each pod behind an exported headless service has a global address of IPv6, by which
// the other of two clusters with the same networks reaches it by its name.
func TestPodsOfTwinsHaveNamesOfIPv6(t *testing.T) {
	const replicas = 2
	from, to := "g1", "g2"
	s := namespace{suite.NewNamespace(t)}
	s.Create(to, suite.Service(suite.Headless, dualStack("web")), suite.StatefulSet("web", replicas))
	s.Export(to)
	global := s.globalAddresses(to, replicas)
	given := &v1alpha1.GlobalIngressIP{ObjectMeta: suite.Named("web")}
	suite.WaitFor(s.Namespace, to, given, func(g *v1alpha1.GlobalIngressIP) error {
		for _, p := range g.Status.Pods {
			global[p.Name] = p.GlobalIPv6
			if p.GlobalIPv6 == "" || p.IPv6 == "" {
				return fmt.Errorf("%s has no IPv6 address yet: %+v", p.Name, p)
			}
		}
		return nil
	})
	for pod, ip := range global {
		if a, err := netip.ParseAddr(ip); err != nil || !block6(t, to).Contains(a) {
			t.Errorf("%s has the global address %q, expected one of %s", pod, ip, block6(t, to))
		}
		suite.Resolves(t, from, s.DNSName(pod, to), "AAAA", ip)
		seenByIPv6(t, from, suite.ClientOf(from), "http://["+ip+"]:8080", "", 3)
	}
}

// block6 is the block of IPv6 that a member is known by.
func block6(t *testing.T, cluster string) netip.Prefix {
	t.Helper()
	p, err := netip.ParsePrefix(memberSays(t, cluster, "globalIPv6CIDR"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// seenByIPv6 waits until count requests are answered, and returns the clients' addresses that the servers have seen:
// global ones of the client's cluster, or those of the gateways of their own.
func seenByIPv6(t *testing.T, from, pod, url, by string, count int) []netip.Addr {
	t.Helper()
	block := block6(t, from)
	var seen []netip.Addr
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		answers, err := suite.Requests(ctx, from, pod, url, count)
		if err != nil {
			return err
		}
		seen = nil
		for _, a := range answers {
			client, err := netip.ParseAddr(a.Client)
			if err != nil || by != "" && a.Cluster != by || !block.Contains(client) && !ofGateways6.Contains(client) {
				return fmt.Errorf("%s: answered by %q, which sees %s; expected %s and one of %s or %s", url, a.Cluster, a.Client,
					by, block, ofGateways6)
			}
			seen = append(seen, client)
		}
		return nil
	})
	return seen
}
