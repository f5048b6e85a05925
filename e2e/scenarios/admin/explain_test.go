// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/e2e/suite"
)

// prober is a pod on c1's worker that probes are sent from: what they leave in it goes with it.
func prober(s suite.Namespace) (source, address string) {
	s.Helper()
	image, err := suite.JSONPath(s.Context(), "c1", "{.spec.containers[0].image}", "pod", "client-c1-worker", "-n",
		"sample")
	if err != nil {
		s.Fatal(err)
	}
	s.Create("c1", &corev1.Pod{ObjectMeta: suite.Named("prober"), Spec: corev1.PodSpec{
		NodeName: "c1-worker", TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{
			Name: "client", Image: image, ImagePullPolicy: corev1.PullNever, Args: []string{"sleep"}}}}})
	pod := &corev1.Pod{ObjectMeta: suite.Named("prober")}
	suite.WaitFor(s, "c1", pod, func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" {
			return fmt.Errorf("pod prober is %s", p.Status.Phase)
		}
		return nil
	})
	return "c1/" + s.Name + "/prober", pod.Status.PodIP
}

// onNode runs commands on a node, and others when the test ends.
func onNode(t *testing.T, node, script, undo string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if out, err := suite.Lab().InNode(ctx, node, "sh", "-ec", undo); err != nil {
			t.Errorf("%s: %v: %s", undo, err, out)
		}
	})
	if out, err := suite.Lab().InNode(t.Context(), node, "sh", "-ec", script); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// paused has a node's agent look on while somebody changes what it has programmed.
func paused(t *testing.T, node string, argv ...string) {
	t.Helper()
	suite.PauseAgent(t, node)
	if out, err := suite.Lab().InNode(t.Context(), node, argv...); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// filter drops packets on a node until the test ends.
func filter(t *testing.T, node, hook, rule string) {
	t.Helper()
	onNode(t, node, "nft 'table inet e2e_policy { chain stops { type filter hook "+hook+"; "+rule+"; }; }'",
		"nft delete table inet e2e_policy")
}

// atOnce is how many more packets are sent once a verdict is right: each has to get the same.
const atOnce = 2

// explains sends packets until the explanation fails and has all the words, for what was broken takes its time to show.
// From then on it does for all, and it says how many it took.
func explains(t *testing.T, source, to string, words ...string) {
	t.Helper()
	one := func(ctx context.Context) error {
		out, err := suite.TryPlugin(ctx, "explain", source, to, "--live")
		if err == nil {
			return fmt.Errorf("expected explain to fail, found\n%s", out)
		}
		for _, word := range words {
			if !strings.Contains(out, word) {
				return fmt.Errorf("expected %q in\n%s\n%w", word, out, err)
			}
		}
		return nil
	}
	began, tries := time.Now(), 0
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		tries++
		return one(ctx)
	})
	t.Logf("named at try %d, within %s", tries, time.Since(began).Round(100*time.Millisecond))
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			if err := one(t.Context()); err != nil {
				t.Errorf("it was named, and is not any more: %v", err)
			}
		})
	}
	all.Wait()
}

// passes sends packets until one arrives, and its answer is seen.
func passes(t *testing.T, source, to string) {
	t.Helper()
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.TryPlugin(ctx, "explain", source, to, "--live")
		if err == nil && !strings.Contains(out, "answer seen") {
			err = errors.New("the answer was not seen")
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	})
}

// TestExplainLiveNamesWhatIsBroken: a packet that is sent is followed there and back; in each of fourteen situations
// the command says at which hop it was last seen, what drops it, and what to do. No trace is left on the nodes.
func TestExplainLiveNamesWhatIsBroken(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	source, address := prober(s)
	server := suite.PodIP(t, "c2", "server-c2-worker")
	const pod = "c2/sample/server-c2-worker:8080"
	s.Serve("c2")
	s.Export("c2")
	passes(t, source, pod)
	passes(t, source, pod+"/udp")
	passes(t, source, s.DNSName()+":80")
	// A pod on its node's network has the cluster's resolver all the same.
	passes(t, "c1/sample/host-c1-worker", s.DNSName()+":80")
	const forward = "forward priority 0"
	likeOthers := []string{"no route", "a wrong port", "a policy drops datagrams at the backend",
		"the block of the cluster's DNS is gone", "a namespace is missing", "the remote gateway has no routes"}
	for _, c := range []struct {
		name, to string
		breaks   func(t *testing.T)
		words    []string
	}{
		{"a policy drops it at the backend", pod, func(t *testing.T) {
			filter(t, "c2-worker", forward, "ip daddr "+server+" tcp dport 8080 drop")
		}, []string{"c2/c2-worker", "firewall", "what drops the packet is the rule \"ip daddr " + server +
			" tcp dport 8080 drop\" of chain stops, table inet e2e_policy",
			"nft -a list chain inet e2e_policy stops on c2-worker", "last seen: c2/c2-worker, in by sl-vx"}},
		{"the guard drops it", pod, func(t *testing.T) {
			paused(t, "c2-gw", "nft", "flush", "set", "ip", "sealane", "cable0")
		}, []string{"c2/c2-gw", "of chain guard, table ip sealane", "from their own networks only", "show plan c2-gw",
			"last seen: c2/c2-gw, in by sl-c0"}},
		{"no route", pod, func(t *testing.T) {
			onNode(t, "c1-worker", "ip rule add pref 50 to "+server+" unreachable", "ip rule del pref 50")
		}, []string{"c1/c1-worker to send the packet on", "unreachable", "ip route get " + server,
			"last seen: c1/c1-worker, in by"}},
		{"an MTU black hole", pod, func(t *testing.T) {
			filter(t, "c2-worker", forward, "meta length > 1000 tcp dport 8080 drop")
		}, []string{"packets of full size are not acknowledged", "what drops packets of full size", "meta length > 1000",
			"last seen: c2/c2-worker, in by sl-vx"}},
		{"a wrong port", "c2/sample/server-c2-worker:8081", func(*testing.T) {}, []string{
			"something to listen on port 8081/tcp", "it is delivered", "and refused from there",
			"use a port that the destination listens on"}},
		{"a wrong port of UDP", "c2/sample/server-c2-worker:8081/udp", func(*testing.T) {}, []string{
			"something to listen on port 8081/udp", "it is delivered", "and refused from there: port unreachable"}},
		{"a policy drops datagrams at the backend", pod + "/udp", func(t *testing.T) {
			filter(t, "c2-worker", forward, "ip daddr "+server+" udp dport 8080 drop")
		}, []string{"what drops the packet is the rule \"ip daddr " + server + " udp dport 8080 drop\"",
			"last seen: c2/c2-worker, in by sl-vx"}},
		{"the block of the cluster's DNS is gone", s.DNSName() + ":80", withoutBlock, []string{"fail  c1 ", "corefile",
			"the source's own resolver", "what step \"corefile\" says"}},
		{"a dead backend", s.DNSName() + ":80", func(t *testing.T) {
			s := s
			s.T = t
			s.Backends("c2", discoveryv1.Endpoint{Addresses: []string{"10.9.1.250"}, NodeName: ptr.To("c2-worker")})
		}, []string{"10.9.1.250 does not answer on cni0: nobody has this address there",
			"see whether the pod with 10.9.1.250", "last seen: c2/c2-worker, in by sl-vx"}},
		{"a namespace is missing", "", func(*testing.T) {}, []string{"namespace", "the source's own resolver",
			"create namespace"}},
		{"the overlay is blocked", pod, func(t *testing.T) {
			filter(t, "c2-worker", "prerouting priority -600", "udp dport 4800 drop")
		}, []string{"c2/c2-gw", "the overlay between the nodes is blocked", "last seen: c2/c2-gw, out by sl-vx"}},
		{"the cable is down", pod, func(t *testing.T) { suite.Isolate(t, "c2-gw") }, []string{"c1/c1-gw",
			"the cable is down, or packets of it are blocked", "diagnose firewall", "last seen: c1/c1-gw, out by sl-c0"}},
		{"the remote gateway has no routes", pod, func(t *testing.T) {
			paused(t, "c2-gw", "ip", "route", "flush", "table", "5101")
		}, []string{"c2/c2-gw to send the packet on by sl-vx", "it has no such route, and sends it out by eth0",
			"show plan c2-gw --differing", "last seen: c2/c2-worker, in by eth0"}},
		{"the answer goes another way", pod, func(t *testing.T) {
			onNode(t, "c2-worker", fmt.Sprintf("ip rule add pref 50 from %s to %s lookup 5999; ip route add default via "+
				"$(ip -4 -o route show default | cut -d' ' -f3) table 5999", server, address),
				"ip rule del pref 50; ip route flush table 5999")
		}, []string{"c2/c2-worker", "the return is asymmetric", "chain egress, table ip sealane",
			"ip route get " + address + " from " + server, "last seen: c2/c2-worker, in by"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if slices.Contains(likeOthers, c.name) && !suite.Thorough() {
				t.Skip("only with -effort=thorough, as in make soak: another case is much like it")
			}
			to := c.to
			if to == "" {
				missing := suite.NewNamespace(t, "c2")
				missing.Serve("c2")
				missing.Export("c2")
				to = missing.DNSName() + ":80"
			}
			c.breaks(t)
			explains(t, source, to, c.words...)
		})
	}
	passes(t, source, pod)
	for _, cluster := range suite.Lab().Topology.Clusters {
		for _, node := range cluster.Nodes {
			suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
				out, err := suite.Lab().InNode(ctx, node.Name, "nft", "list", "tables")
				if err == nil && strings.Contains(string(out), "sealane_trace") {
					err = fmt.Errorf("%s: %s", node.Name, out)
				}
				return err
			})
		}
	}
}

// withoutBlock takes Sealane's block out of the Corefile of c1's DNS, and leaves a mark there with which the agent
// keeps its hands off.
func withoutBlock(t *testing.T) {
	t.Helper()
	s := suite.Namespace{T: t, Name: "kube-system"}
	corefile := &corev1.ConfigMap{ObjectMeta: suite.Named("coredns")}
	var original string
	suite.Update(s, "c1", corefile, func(c *corev1.ConfigMap) {
		original = c.Data["Corefile"]
		before, rest, _ := strings.Cut(original, "# BEGIN sealane")
		_, after, found := strings.Cut(rest, "# END sealane\n")
		if !found {
			t.Fatalf("no block of Sealane's in\n%s", original)
		}
		c.Data["Corefile"] = before + "# BEGIN sealane\n" + after
	})
	t.Cleanup(func() {
		api, err := suite.API("c1")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		patch := []byte(fmt.Sprintf(`{"data":{"Corefile":%q}}`, original))
		corefile.Namespace = "kube-system"
		if err := api.Patch(ctx, corefile, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			t.Error(err)
		}
	})
}
