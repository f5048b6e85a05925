// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// memberSays reads a field of a member's record.
func memberSays(t *testing.T, cluster, field string) string {
	t.Helper()
	text, err := suite.JSONPath(t.Context(), "karmada", "{.status."+field+"}", "member", cluster)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// seenFrom returns the network of which a server sees addresses where a member is known by its block, or the one
// address of a pod where it is known by its own networks.
func seenFrom(t *testing.T, cluster, pod string, byBlock bool) []netip.Prefix {
	t.Helper()
	var text string
	if byBlock {
		text = memberSays(t, cluster, "globalCIDR")
	} else {
		text = suite.PodIP(t, cluster, pod) + "/32"
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		t.Fatalf("%s of %s: %v", pod, cluster, err)
	}
	return []netip.Prefix{p}
}

// ofGateways are the addresses that pods see where one of several gateways of their cluster, on another node, has
// translated a flow to its service: the answers go back to that gateway.
var ofGateways = netip.MustParsePrefix("169.254.51.64/26")

// answered asks by name until a cluster answers that has seen a client of the networks.
func answered(t *testing.T, from, pod, name, by string, client []netip.Prefix) {
	t.Helper()
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		a, err := suite.Ask(ctx, from, pod, "http://"+name)
		if err != nil {
			return err
		}
		if a.Cluster != by {
			return fmt.Errorf("%s answered by %q, expected %q", name, a.Cluster, by)
		}
		if seen, err := netip.ParseAddr(a.Client); err != nil ||
			!slices.ContainsFunc(client, func(p netip.Prefix) bool { return p.Contains(seen) }) {
			return fmt.Errorf("%s: the server saw client %s of %s, expected one of %s", name, a.Client, pod, client)
		}
		return nil
	})
}

// TestTwinsReachEachOther is scenario 5 of the walkthrough: a service of one of two clusters with the same networks is
// answered in the other, and the server sees one of the client's cluster's global addresses; both ways, from pods of
// workers and of gateways, by the service's name and by its cluster's.
func TestTwinsReachEachOther(t *testing.T) {
	for from, to := range map[string]string{"g1": "g2", "g2": "g1"} {
		t.Run(from+" to "+to, func(t *testing.T) {
			suite.Exported(t, to, "whereami-cs")
			for _, pod := range []string{"client-" + from + "-worker", "client-" + from + "-gw1"} {
				for _, name := range []string{suite.Whereami, to + "." + suite.Whereami} {
					answered(t, from, pod, name, to, append(seenFrom(t, from, pod, true), ofGateways))
				}
			}
		})
	}
}

// TestPlainClusterAndTwins: a cluster that overlaps nobody has no block, reaches both of the twins and is reached by
// both. The twin that was there first knows it, and is known by it, by their own networks.
func TestPlainClusterAndTwins(t *testing.T) {
	if block := memberSays(t, "c1", "globalCIDR"); block != "" {
		t.Errorf("c1 has the block %s", block)
	}
	for _, twin := range []string{"g1", "g2"} {
		t.Run("c1 to "+twin, func(t *testing.T) {
			suite.Exported(t, twin, "whereami-cs")
			const pod = "client-c1-gw"
			clients := seenFrom(t, "c1", pod, false)
			if memberSays(t, twin, "globalScope") == string(v1alpha1.GlobalToAll) {
				clients = append(clients, ofGateways)
			}
			answered(t, "c1", pod, suite.Whereami, twin, clients)
		})
		t.Run(twin+" to c1", func(t *testing.T) {
			suite.Exported(t, "c1", "whereami-cs")
			pod := "client-" + twin + "-worker"
			byBlock := memberSays(t, twin, "globalScope") == string(v1alpha1.GlobalToAll)
			answered(t, twin, pod, suite.Whereami, "c1", seenFrom(t, twin, pod, byBlock))
		})
	}
}

// TestAFleetOfK3s: clusters as k3s makes them by default, all with the same networks and with nothing that states them,
// are told of beforehand, and are wired without a change to what k3s writes anew at each start.
func TestAFleetOfK3s(t *testing.T) {
	const pods, services = "10.42.0.0/16", "10.43.0.0/16"
	shown := suite.Plugin(t, "show", "overlap", "--with", pods+","+services)
	for _, twin := range []string{"g1", "g2"} {
		t.Run(twin, func(t *testing.T) {
			if own := memberSays(t, twin, "networks.podCIDRs"); !strings.Contains(own, `"10.42.0.0/23","10.42.2.0/24"`) {
				t.Errorf("expected the ranges of its three nodes, found %s", own)
			}
			if own := memberSays(t, twin, "networks.serviceCIDRs"); !strings.Contains(own, services) {
				t.Errorf("expected %s, found %s", services, own)
			}
			row := regexp.MustCompile(regexp.QuoteMeta(pods) + ` +10\.42\.0\.0/23 +` + twin + ` +pods +both get blocks`)
			if !row.MatchString(shown) {
				t.Errorf("expected a row that matches %s, found:\n%s", row, shown)
			}
			corefile, err := suite.JSONPath(t.Context(), twin, "{.data.Corefile}", "configmap", "coredns", "-n", "kube-system")
			if err != nil || strings.Contains(corefile, "clusterset.local") {
				t.Errorf("expected the Corefile without our domain, found %q, %v", corefile, err)
			}
			custom, err := suite.JSONPath(t.Context(), twin, "{.data}", "configmap", "coredns-custom", "-n", "kube-system")
			if err != nil || !strings.Contains(custom, "sealane.server") || !strings.Contains(custom, "clusterset.local") {
				t.Errorf("expected sealane.server with our domain, found %q, %v", custom, err)
			}
		})
	}
}
