// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"net/netip"
	"testing"

	"github.com/sealane-io/sealane/e2e/suite"
)

// blockOf returns a member's block of global addresses.
func blockOf(t *testing.T, cluster string) netip.Prefix {
	t.Helper()
	text, err := suite.JSONPath(t.Context(), "karmada", "{.status.globalCIDR}", "member", cluster)
	if err != nil {
		t.Fatal(err)
	}
	block, err := netip.ParsePrefix(text)
	if err != nil {
		t.Fatalf("the block of %s: %v", cluster, err)
	}
	return block
}

// TestTwinsReachEachOther is scenario 5 of the walkthrough: a service of one of two clusters with the same networks is
// answered in the other, and the server sees one of the client's cluster's global addresses; both ways, from pods of
// workers and of gateways and from a host, by the service's name and by its cluster's.
func TestTwinsReachEachOther(t *testing.T) {
	for from, to := range map[string]string{"g1": "g2", "g2": "g1"} {
		t.Run(from+" to "+to, func(t *testing.T) {
			suite.Exported(t, to, "whereami-cs")
			for _, pod := range []string{"client-" + from + "-worker", "client-" + from + "-gw"} {
				for _, name := range []string{suite.Whereami, to + "." + suite.Whereami} {
					suite.AnsweredBy(t, from, pod, name, to)
					a, err := suite.Ask(t.Context(), from, pod, "http://"+name)
					if err != nil {
						t.Fatal(err)
					}
					if client, err := netip.ParseAddr(a.Client); err != nil || !blockOf(t, from).Contains(client) {
						t.Errorf("%s as %s: the server saw %s, want an address of %s", pod, name, a.Client, blockOf(t, from))
					}
				}
			}
		})
	}
}

// TestPlainClusterAndTwins: a cluster that overlaps nobody has no block, reaches both of the twins and is reached by
// both. The twin that was there first knows it, and is known by it, by their own networks.
func TestPlainClusterAndTwins(t *testing.T) {
	if text, err := suite.JSONPath(t.Context(), "karmada", "{.status.globalCIDR}", "member", "c1"); err != nil || text != "" {
		t.Errorf("c1 has the block %q, %v", text, err)
	}
	for _, twin := range []string{"g1", "g2"} {
		t.Run("c1 to "+twin, func(t *testing.T) {
			suite.Exported(t, twin, "whereami-cs")
			suite.AnsweredBy(t, "c1", "client-c1-gw", suite.Whereami, twin)
			a, err := suite.Ask(t.Context(), "c1", "client-c1-gw", "http://"+suite.Whereami)
			if err != nil {
				t.Fatal(err)
			}
			if want := suite.PodIP(t, "c1", "client-c1-gw"); a.Client != want {
				t.Errorf("the server saw %s, expected the client pod's own %s", a.Client, want)
			}
		})
		t.Run(twin+" to c1", func(t *testing.T) {
			suite.Exported(t, "c1", "whereami-cs")
			suite.AnsweredBy(t, twin, "client-"+twin+"-worker", suite.Whereami, "c1")
			a, err := suite.Ask(t.Context(), twin, "client-"+twin+"-worker", "http://"+suite.Whereami)
			if err != nil {
				t.Fatal(err)
			}
			scope, err := suite.JSONPath(t.Context(), "karmada", "{.status.globalScope}", "member", twin)
			if err != nil {
				t.Fatal(err)
			}
			own := suite.PodIP(t, twin, "client-"+twin+"-worker")
			client, err := netip.ParseAddr(a.Client)
			if err != nil || scope == "All" && !blockOf(t, twin).Contains(client) || scope == "Overlapping" && a.Client != own {
				t.Errorf("%s is known to %s: the server saw %s", twin, scope, a.Client)
			}
		})
	}
}
