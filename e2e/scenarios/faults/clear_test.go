// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/suite"
)

// foreign belongs to none of the clusters (RFC 5737).
var foreign = netip.MustParsePrefix("203.0.113.7/32")

// TestNothingLeavesInClear: both nodes of c1 send to a pod of c2 all the time, while the gateway's agent is
// killed and links are deleted.
func TestNothingLeavesInClear(t *testing.T) {
	const every = 10 * time.Millisecond
	server := netip.MustParseAddr(suite.PodIP(t, "c2", "server-c2-worker"))
	var pods netip.Prefix
	for _, cidr := range suite.Lab().Topology.Clusters[1].PodCIDRs {
		if p := netip.MustParsePrefix(cidr); p.Contains(server) {
			pods = p
		}
	}
	nodes := []string{"c1-gw", "c1-worker"}
	captures := map[string]*suite.Capture{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{}, len(nodes))
	for _, node := range nodes {
		captures[node] = suite.NewCapture(t, node)
		send := suite.Sender(t, node)
		go func() {
			defer func() { ended <- struct{}{} }()
			for tick := time.NewTicker(every); ctx.Err() == nil; <-tick.C {
				for _, to := range []netip.Addr{server, foreign.Addr()} {
					send(netip.AddrPortFrom(to, 9), []byte(suite.Marked+"clear"))
				}
			}
		}()
	}
	t.Cleanup(func() {
		stop()
		for range nodes {
			<-ended
		}
	})
	for _, step := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"the gateway's agent is killed", func(t *testing.T) { suite.RestartNodeAgent(t, "c1", "c1-gw") }},
		{"the cable is deleted", func(t *testing.T) { deleteLink(t, "c1-gw", suite.CableLink) }},
		{"the gateway's overlay is deleted", func(t *testing.T) { deleteLink(t, "c1-gw", "sl-vx") }},
		{"the worker's overlay is deleted", func(t *testing.T) { deleteLink(t, "c1-worker", "sl-vx") }},
	} {
		t.Run(step.name, func(t *testing.T) {
			before := map[string]int{}
			for node, c := range captures {
				before[node] = len(c.Sent(foreign))
			}
			step.do(t)
			suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
				_, err := suite.Ask(ctx, "c1", "client-c1-worker", "http://"+netip.AddrPortFrom(server, 8080).String())
				return err
			})
			for node, c := range captures {
				if len(c.Sent(foreign)) == before[node] {
					t.Errorf("%s: the capture has not seen what may leave", node)
				}
				if links := slices.Compact(slices.Sorted(slices.Values(c.Sent(pods)))); len(links) > 0 {
					t.Errorf("%s: packets to %s left in clear by %v", node, pods, links)
				}
			}
		})
	}
}

func deleteLink(t *testing.T, node, link string) {
	t.Helper()
	if out, err := suite.Lab().InNode(t.Context(), node, "ip", "link", "del", link); err != nil {
		t.Fatalf("delete %s of %s: %v: %s", link, node, err, out)
	}
}
