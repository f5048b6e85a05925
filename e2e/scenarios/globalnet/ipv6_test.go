// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestTwinsReachEachOtherByIPv6: a service of IPv6 alone of one of two clusters with the same networks has a global
// address of it, by which its name leads there from the other, and a server sees a global address of IPv6, too.
func TestTwinsReachEachOtherByIPv6(t *testing.T) {
	for from, to := range map[string]string{"g1": "g2", "g2": "g1"} {
		t.Run(from+" to "+to, func(t *testing.T) {
			s := suite.Namespace{T: t, Name: "sample"} // where a server is on each node
			service := suite.Service(func(web *corev1.Service) {
				web.Spec.Selector = map[string]string{"app": "server"}
				web.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
				web.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
			})
			s.Create(to, service)
			t.Cleanup(func() {
				if err := s.API(to).Delete(context.WithoutCancel(t.Context()), service); err != nil {
					t.Error(err)
				}
			})
			suite.Exported(t, to, "web")
			address := &v1alpha1.GlobalIngressIP{ObjectMeta: suite.Named("web")}
			suite.WaitFor(s, to, address, func(g *v1alpha1.GlobalIngressIP) error {
				if g.Status.IPv6 == "" {
					return errors.New("it has no global address of IPv6 yet")
				}
				return nil
			})
			suite.Resolves(t, from, s.DNSName(), "AAAA", address.Status.IPv6)
			suite.Resolves(t, from, s.DNSName(), "A")
			block, err := netip.ParsePrefix(memberSays(t, from, "globalIPv6CIDR"))
			if err != nil {
				t.Fatal(err)
			}
			suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
				a, err := suite.Ask(ctx, from, "client-"+from+"-worker", "http://"+s.DNSName())
				if err != nil {
					return err
				}
				// Servers on other nodes than the gateway that has translated see that one.
				if client, err := netip.ParseAddr(a.Client); err != nil || a.Cluster != to || !block.Contains(client) {
					return fmt.Errorf("%s: answered by %q, which sees %s, expected %s and an address of %s", s.DNSName(), a.Cluster,
						a.Client, to, block)
				}
				return nil
			})
		})
	}
}
