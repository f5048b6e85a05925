// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// TestBehindARelay: a cluster behind another has its networks and nothing else of its own, whatever comes with it.
func TestBehindARelay(t *testing.T) {
	in := input()
	c3 := &in.Peering.Spec.RemoteClusters[1]
	c3.Relay, c3.RelayStatus, c3.RelayMTU = "c2", v1alpha1.ConnectionError, 1380
	c3.Nodes = []v1alpha1.MeshNode{meshNode("w1", key(7), "172.31.2.1", "10.10.1.0/24")}
	got := topology.Build(in)
	r := got.Remotes[1]
	if r.Behind != "c2" || r.BehindStatus != v1alpha1.ConnectionError || r.BehindMTU != 1380 ||
		len(r.Gateways)+len(r.Nodes) > 0 {
		t.Errorf("%+v", r)
	}
	if diff := cmp.Diff(prefixes("10.10.0.0/16", "10.110.0.0/16"), r.Routed, exact); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(got.Problems) > 0 || len(got.Remotes[0].Gateways) != 2 {
		t.Errorf("%v, and of the relay %+v", got.Problems, got.Remotes[0])
	}
	c3.RelayStatus = "Nonsense"
	if r := topology.Build(in).Remotes[1]; r.BehindStatus != "" {
		t.Errorf("what is no bad status counts: %q", r.BehindStatus)
	}
}

// TestBadRelays: who is behind what is none is not reached, and says so; the others are.
func TestBadRelays(t *testing.T) {
	for name, relay := range map[string]string{"itself": "c3", "this cluster": "c1", "nobody": "c9",
		"no name": "x\x1b[31m", "one that is behind another": "c2"} {
		in := input()
		remotes := in.Peering.Spec.RemoteClusters
		remotes[1].Relay = relay
		if relay == "c2" {
			remotes[0].Relay = "c3" // each behind the other
		}
		got := topology.Build(in)
		r := got.Remotes[1]
		if r.Behind != relay || len(r.Gateways) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if len(got.Problems) == 0 || got.Problems[len(got.Problems)-1].Reason != topology.ReasonUnknownRelay ||
			strings.Contains(got.Problems[0].Message, "\x1b") {
			t.Errorf("%s: %v", name, got.Problems)
		}
	}
}

// TestRelayed: packets are passed on between remote clusters that are reached themselves.
func TestRelayed(t *testing.T) {
	type list = []v1alpha1.RelayedClusters
	of := func(clusters, with string) v1alpha1.RelayedClusters {
		return v1alpha1.RelayedClusters{Clusters: strings.Fields(clusters), With: strings.Fields(with)}
	}
	for name, c := range map[string]struct {
		relays   list
		behind   string // c3 is behind this
		want     string
		problems int
	}{
		"none":                  {nil, "", "[]", 0},
		"a pair":                {list{of("c2", "c3"), of("c3", "c2")}, "", "[{[c2] [c3]} {[c3] [c2]}]", 0},
		"in another order":      {list{of("c3", "c2 c2"), of("c2", "c3")}, "", "[{[c2] [c3]} {[c3] [c2]}]", 0},
		"with others each":      {list{of("c2", "c3"), of("c2", "c2")}, "", "[{[c2] [c2]} {[c2] [c3]}]", 0},
		"among each other":      {list{of("c3 c2", "c2 c3")}, "", "[{[c2 c3] [c2 c3]}]", 0},
		"with the local one":    {list{of("c2", "c1"), of("c1", "c2 c3")}, "", "[]", 2},
		"with nobody":           {list{of("c2", "c9 c3")}, "", "[{[c2] [c3]}]", 1},
		"with one behind other": {list{of("c2", "c3"), of("c3", "c2")}, "c2", "[]", 2},
		"of nobody":             {list{{}}, "", "[]", 0},
	} {
		in := input()
		in.Peering.Spec.Relays = c.relays
		in.Peering.Spec.RemoteClusters[1].Relay = c.behind
		got := topology.Build(in)
		if found := fmt.Sprint(got.Relayed); found != c.want || len(got.Problems) != c.problems {
			t.Errorf("%s: %s, want %s; %v", name, found, c.want, got.Problems)
		}
	}
}

// TestASizeThroughARelay is none of a path of the gateway's own.
func TestASizeThroughARelay(t *testing.T) {
	in := input()
	in.Gateways[0].Status.Connections = []v1alpha1.Connection{{Cluster: "c2", MTU: 1300},
		{Cluster: "c3", Through: "c2", MTU: 1290}}
	got := topology.Build(in).Remotes
	if got[0].PathMTU["gw"] != 1300 || got[1].PathMTU != nil {
		t.Errorf("sizes %v and %v, want those of the tunnel alone", got[0].PathMTU, got[1].PathMTU)
	}
}
