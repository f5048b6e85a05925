// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestPodsOfTwinsHaveNames is scenario 6 of the walkthrough: each pod of a StatefulSet has a global address, by which
// the other of two clusters with the same networks reaches it by its name; both ways. The own cluster answers with the
// pod's own address, and so does the twin that was there first to a cluster that it does not overlap.
func TestPodsOfTwinsHaveNames(t *testing.T) {
	const replicas = 2
	for from, to := range map[string]string{"g1": "g2", "g2": "g1"} {
		t.Run(from+" to "+to, func(t *testing.T) {
			s := namespace{suite.NewNamespace(t)}
			s.Create(to, suite.Service(suite.Headless, func(web *corev1.Service) {
				web.Spec.Selector = map[string]string{"app": "web"}
			}), suite.StatefulSet("web", replicas))
			s.Export(to)
			s.WaitEndpoints(from, map[string]int{to: replicas})
			block := netip.MustParsePrefix(memberSays(t, to, "globalCIDR"))
			global := s.globalAddresses(to, replicas)
			var all []string
			shown := suite.Plugin(t, "show", "globalips", "-C", to, "-n", s.Name)
			for n := range replicas {
				pod := &corev1.Pod{ObjectMeta: suite.Named(fmt.Sprintf("web-%d", n))}
				suite.WaitFor(s.Namespace, to, pod, func(*corev1.Pod) error { return nil })
				ip := global[pod.Name]
				if a, err := netip.ParseAddr(ip); err != nil || !block.Contains(a) {
					t.Errorf("%s has the global address %q, expected one of %s", pod.Name, ip, block)
				}
				if row := regexp.MustCompile(to + ` +` + regexp.QuoteMeta(ip) + ` +\S+ +Pod +` + s.Name + ` +web/` + pod.Name +
					` +InUse`); !row.MatchString(shown) {
					t.Errorf("%s with %s is not among the global addresses that are shown:\n%s", pod.Name, ip, shown)
				}
				all = append(all, ip)
				name := s.DNSName(pod.Name, to)
				suite.Resolves(t, from, name, "A", ip)
				suite.Resolves(t, to, name, "A", pod.Status.PodIP)
				seenByC1 := pod.Status.PodIP
				if memberSays(t, to, "globalScope") == string(v1alpha1.GlobalToAll) {
					seenByC1 = ip
				}
				suite.Resolves(t, "c1", name, "A", seenByC1)
				for _, client := range []string{from, "c1"} {
					answeredByPod(t, client, name, pod.Name)
				}
			}
			suite.Resolves(t, from, s.DNSName(), "A", all...)
			suite.Resolves(t, from, s.DNSName(to), "A", all...)
		})
	}
}

// namespace adds global addresses to a namespace of the suite.
type namespace struct{ suite.Namespace }

// globalAddresses returns the global addresses of a service's pods by their names, when so many have one.
func (s namespace) globalAddresses(cluster string, count int) map[string]string {
	s.Helper()
	var out map[string]string
	suite.WaitFor(s.Namespace, cluster, &v1alpha1.GlobalIngressIP{ObjectMeta: suite.Named("web")},
		func(g *v1alpha1.GlobalIngressIP) error {
			out = map[string]string{}
			for _, p := range g.Status.Pods {
				if p.GlobalIP != "" && p.ReleasedAt == nil {
					out[p.Name] = p.GlobalIP
				}
			}
			if len(out) != count {
				return fmt.Errorf("expected global addresses of %d pods, found %+v", count, g.Status)
			}
			return nil
		})
	return out
}

// answeredByPod asks a pod by name until it answers.
func answeredByPod(t *testing.T, from, name, pod string) {
	t.Helper()
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		a, err := suite.Ask(ctx, from, suite.ClientOf(from), "http://"+name+":8080")
		if err == nil && a.Pod != pod {
			err = fmt.Errorf("%s of %s is answered by %q", pod, name, a.Pod)
		}
		return err
	})
}
