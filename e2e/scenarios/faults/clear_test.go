// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestNothingLeavesInClear: both nodes of c1 send to a pod of c2 all the time, while the gateway's agent is
// killed, links are deleted, the gateway boots and c2 has no gateway. What a node sends between its boot and the first
// run of its agent is not counted: nothing of Sealane is there yet.
func TestNothingLeavesInClear(t *testing.T) {
	server := netip.MustParseAddr(suite.PodIP(t, "c2", "server-c2-worker"))
	pods := suite.PodNetworkOf("c2", server)
	captures := suite.SendMarked(t, []string{"c1-gw", "c1-worker"}, server, suite.Foreign.Addr())
	// uncounted is how many packets left a node while it could not know better.
	uncounted := map[string]int{}
	for _, step := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"the gateway's agent is killed", func(t *testing.T) { suite.RestartNodeAgent(t, "c1", "c1-gw") }},
		{"the cable is deleted", func(t *testing.T) { deleteLink(t, "c1-gw", suite.CableLink) }},
		{"the gateway's overlay is deleted", func(t *testing.T) { deleteLink(t, "c1-gw", "sl-vx") }},
		{"the worker's overlay is deleted", func(t *testing.T) { deleteLink(t, "c1-worker", "sl-vx") }},
		{"the gateway boots", func(t *testing.T) {
			suite.Reboot(t, "c1-gw", func() {})
			waitClosed(t, "c1-gw", pods)
			uncounted["c1-gw"] = len(captures["c1-gw"].Sent(pods))
		}},
		{"the other cluster has no gateway", func(t *testing.T) {
			withoutGateway(t, "c2", "c1-gw", func() { nodesSend(t, captures) })
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			before := map[string]int{}
			for node, c := range captures {
				before[node] = len(c.Sent(suite.Foreign))
			}
			step.do(t)
			suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
				_, err := suite.Ask(ctx, "c1", "client-c1-worker", "http://"+netip.AddrPortFrom(server, 8080).String())
				return err
			})
			for node, c := range captures {
				if len(c.Sent(suite.Foreign)) == before[node] {
					t.Errorf("%s: the capture has not seen what may leave", node)
				}
				if links := slices.Compact(slices.Sorted(slices.Values(c.Sent(pods)[uncounted[node]:]))); len(links) > 0 {
					t.Errorf("%s: packets to %s left in clear by %v", node, pods, links)
				}
			}
		})
	}
}

// waitClosed waits until a node without its links keeps packets to remote pods to itself.
func waitClosed(t *testing.T, node string, pods netip.Prefix) {
	t.Helper()
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.Lab().InNode(ctx, node, "sh", "-ec", "ip rule; ip route show table 5100; nft list table ip sealane")
		for _, want := range []string{"lookup 5100", pods.String() + " proto 81 metric 4096", "hook postrouting"} {
			if err == nil && !strings.Contains(string(out), want) {
				err = fmt.Errorf("%s: expected %q in\n%s", node, want, out)
			}
		}
		return err
	})
}

// nodesSend waits until each node could have sent packets astray: it has sent as many where they may leave.
func nodesSend(t *testing.T, captures map[string]*suite.Capture) {
	t.Helper()
	const packets = 50
	before := map[string]int{}
	for node, c := range captures {
		before[node] = len(c.Sent(suite.Foreign))
	}
	suite.Eventually(t, suite.Patience, func(context.Context) error {
		for node, c := range captures {
			if sent := len(c.Sent(suite.Foreign)) - before[node]; sent < packets {
				return fmt.Errorf("%s: expected %d packets to %s, found %d", node, packets, suite.Foreign, sent)
			}
		}
		return nil
	})
}

// withoutGateway takes the gateway of a cluster away until a gateway of another has heard of it, and for what is done
// meanwhile. As a cluster where no node is labelled picks one itself, the label goes to a node that never comes up; and
// as the gateway stays until that one is connected, its Gateway is deleted.
func withoutGateway(t *testing.T, cluster, other string, meanwhile func()) {
	t.Helper()
	const absent = "absent"
	in := func(args ...string) []string { return append([]string{"--context", cluster}, args...) }
	comeBack := [][]string{
		in("label", "node", cluster+"-gw", v1alpha1.LabelGateway+"=true", "--overwrite"),
		in("delete", "node", absent, "--ignore-not-found"),
	}
	t.Cleanup(func() {
		for _, args := range comeBack {
			if _, err := suite.TryKubectl(context.Background(), args...); err != nil {
				t.Error(err)
			}
		}
	})
	api, err := suite.API(cluster)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: suite.Named(absent)}
	node.Labels = map[string]string{v1alpha1.LabelGateway: "true"}
	if err := api.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	suite.Kubectl(t, in("label", "node", cluster+"-gw", v1alpha1.LabelGateway+"-")...)
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		_, err := suite.TryKubectl(ctx, in("delete", "gateways.sealane.io", cluster+"-gw", "--ignore-not-found")...)
		if err != nil {
			return err
		}
		got, err := suite.JSONPath(ctx, other[:2], `{.spec.remoteClusters[?(@.name=="`+cluster+`")].endpoints[*].gateway}`,
			"peering", v1alpha1.PeeringName)
		if err == nil && got != "" {
			err = fmt.Errorf("expected no gateway of %s, found %s", cluster, got)
		}
		return err
	})
	meanwhile()
	for _, args := range comeBack {
		suite.Kubectl(t, args...)
	}
}

// deleteLink deletes a node's link, as soon as there is one.
func deleteLink(t *testing.T, node, link string) {
	t.Helper()
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		if out, err := suite.Lab().InNode(ctx, node, "ip", "link", "del", link); err != nil {
			return fmt.Errorf("delete %s of %s: %w: %s", link, node, err, out)
		}
		return nil
	})
}
