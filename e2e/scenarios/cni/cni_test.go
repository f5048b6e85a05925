// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/e2e/suite"
)

// others maps each cluster to the one it talks to: u1's pods share a link with its nodes, f1's have flannel's overlay.
func others() map[string]string { return map[string]string{"u1": "f1", "f1": "u1"} }

// nodes are the names of a cluster's nodes.
func nodes(cluster string) []string { return []string{cluster + "-gw", cluster + "-worker"} }

// TestPodsReachPodsAndServices: pods of an underlay reach the pods and services of an overlay and the other way round,
// from gateways and workers to both. Servers see the pods' own addresses.
func TestPodsReachPodsAndServices(t *testing.T) {
	for from, to := range others() {
		suite.Ways(t, from, to, func(t *testing.T, client, server string) {
			t.Parallel()
			suite.CheckFromPod(t, from, client, to, server)
		})
	}
}

// TestHostsOfAnOverlayReachAnUnderlay: nodes, and pods on the host network, reach pods and services of an underlay.
// Nodes of an underlay have no address of a pod network for the way back.
func TestHostsOfAnOverlayReachAnUnderlay(t *testing.T) {
	suite.Ways(t, "f1", "u1", func(t *testing.T, client, server string) {
		t.Parallel()
		suite.CheckFromHost(t, "f1", client, "u1", server)
	})
}

// TestLargePackets: what does not fit one packet arrives, with flannel's MTU at one end and the link's at the other.
func TestLargePackets(t *testing.T) {
	for from, to := range others() {
		suite.Ways(t, from, to, func(t *testing.T, client, server string) {
			suite.CheckSizes(t, from, "client-"+client, to, server)
		})
	}
	suite.Ways(t, "f1", "u1", func(t *testing.T, client, server string) {
		suite.CheckSizes(t, "f1", "host-"+client, "u1", server)
	})
}

// TestStatefulSetNames: each pod of a StatefulSet is reached from the other cluster by its name, both ways.
func TestStatefulSetNames(t *testing.T) {
	const replicas = 2
	for from, to := range others() {
		t.Run(from+" to "+to, func(t *testing.T) {
			t.Parallel()
			s := suite.NewNamespace(t)
			s.Create(to, suite.Service(suite.Headless, func(web *corev1.Service) {
				web.Spec.Selector = map[string]string{"app": "web"}
			}), suite.StatefulSet("web", replicas))
			s.Export(to)
			s.WaitEndpoints(from, map[string]int{to: replicas})
			for n := range replicas {
				pod := &corev1.Pod{ObjectMeta: suite.Named(fmt.Sprintf("web-%d", n))}
				suite.WaitFor(s, to, pod, func(*corev1.Pod) error { return nil })
				name := s.DNSName(pod.Name, to)
				suite.Resolves(t, from, name, "A", pod.Status.PodIP)
				for _, node := range nodes(from) {
					answeredByPod(t, from, "client-"+node, name, pod.Name)
				}
			}
		})
	}
}

// answeredByPod asks a pod by name until it answers.
func answeredByPod(t *testing.T, from, client, name, pod string) {
	t.Helper()
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		a, err := suite.Ask(ctx, from, client, "http://"+name+":8080")
		if err == nil && a.Pod != pod {
			err = fmt.Errorf("%s of %s is answered by %q", pod, name, a.Pod)
		}
		return err
	})
}

// TestExportedServices: a service is found by its name in the clusterset, from gateways and workers, both ways.
func TestExportedServices(t *testing.T) {
	for from, to := range others() {
		t.Run(from+" to "+to, func(t *testing.T) {
			suite.Exported(t, to, "whereami-cs")
			for _, node := range nodes(from) {
				suite.AnsweredBy(t, from, "client-"+node, suite.Whereami, to)
			}
		})
	}
}

// TestAnUnderlayWithinItself: what the other tests found to work, works with pods in two subnets of the nodes' link,
// whose own cluster reaches them as Kubernetes asks: nodes their pods, pods the others' and services.
func TestAnUnderlayWithinItself(t *testing.T) {
	subnets := suite.Lab().Topology.Clusters[0].PodCIDRs
	var seen []string
	for _, node := range nodes("u1") {
		pod := suite.PodIP(t, "u1", "server-"+node)
		i := slices.IndexFunc(subnets, func(p string) bool {
			return netip.MustParsePrefix(p).Contains(netip.MustParseAddr(pod))
		})
		if i < 0 {
			t.Fatalf("server-%s has %s, expected one of %s", node, pod, subnets)
		}
		seen = append(seen, subnets[i])
		for _, from := range nodes("u1") {
			for _, address := range []string{pod + ":8080", suite.ClusterIP(t, "u1", "server-"+node)} {
				for _, client := range []string{"client-" + from, "host-" + from} {
					if a, err := suite.Ask(t.Context(), "u1", client, "http://"+address); err != nil || a.Pod != "server-"+node {
						t.Errorf("%s to %s: answered by %q: %v", client, address, a.Pod, err)
					}
				}
			}
		}
	}
	if slices.Sort(seen); !slices.Equal(seen, subnets) {
		t.Errorf("servers have addresses of %s, expected of both %s", seen, subnets)
	}
}
