// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// accepted is a member with networks.
func accepted(name, pods, services, node string) fleetMember {
	m := fleetMember{Member: v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	at := metav1.NewMicroTime(time.Unix(1, 0))
	m.Spec.ClusterSet, m.Status.AcceptedAt = "default", &at
	m.Status.Networks = v1alpha1.Networks{PodCIDRs: []string{pods}, ServiceCIDRs: []string{services}}
	m.Status.NodeCIDRs = []string{node}
	return m
}

func TestOverlapsOfACandidate(t *testing.T) {
	for name, c := range map[string]struct {
		with   []string
		mode   v1alpha1.GlobalnetMode
		change func(*fleet)
		want   string
	}{
		"free":             {with: []string{"10.50.0.0/16", "fd12::/64"}, want: ": overlaps nothing|: overlaps nothing"},
		"pods":             {with: []string{"10.8.4.0/24"}, want: "10.8.0.0/16 c1 pods: spec.globalnet.mode: Auto"},
		"contains it":      {with: []string{"10.96.0.0/12"}, want: "10.99.0.0/16 c2 services: spec.globalnet.mode: Auto"},
		"the same in IPv6": {with: []string{"fd00:8::/48"}, want: "fd00:8::/56 c3 pods: spec.globalnet.mode: Auto"},
		"a node":           {with: []string{"172.30.1.0/24"}, want: "172.30.1.11/32 c1 nodes: refused"},
		"pods, with global addresses": {with: []string{"10.8.0.0/16"}, mode: v1alpha1.GlobalnetAuto,
			want: "10.8.0.0/16 c1 pods: both get blocks"},
		"one that was never accepted": {with: []string{"10.8.0.0/16"},
			change: func(f *fleet) { f.members[0].Status.AcceptedAt = nil }, want: ": overlaps nothing"},
		"IPv6 of a block": {with: []string{"fd99:1::/64"}, mode: v1alpha1.GlobalnetAuto,
			change: func(f *fleet) { f.members[0].Status.GlobalIPv6CIDR = "fd99:1::/64" },
			want:   "fd99:1::/64 c1 block of global addresses: others know c1 by this"},
		"the pool": {with: []string{"100.64.0.0/16"}, mode: v1alpha1.GlobalnetAuto,
			change: func(f *fleet) { f.clusterSets[0].Spec.Globalnet.CIDRs = []string{"100.64.0.0/10"} },
			want:   "100.64.0.0/10 pool of global addresses: blocks are taken"},
		"a pool of which no block is taken": {with: []string{"100.64.0.0/16"},
			change: func(f *fleet) { f.clusterSets[0].Spec.Globalnet.CIDRs = []string{"100.64.0.0/10"} },
			want:   ": overlaps nothing"},
		"each other": {with: []string{"10.50.0.0/16", "10.50.1.0/24"},
			want: "10.50.1.0/24 another candidate: no cluster|10.50.0.0/16 another candidate: no cluster"},
		"not private": {with: []string{"11.0.0.0/16"}, want: "not allowed: refused"},
		"what a member reports that is no CIDR": {with: []string{"10.50.0.0/16"},
			change: func(f *fleet) { f.members[0].Status.Networks.PodCIDRs = []string{"10.50"} }, want: ": overlaps nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fleet{clusterSets: []v1alpha1.ClusterSet{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}},
				members: []fleetMember{accepted("c1", "10.8.0.0/16", "10.88.0.0/16", "172.30.1.11/32"),
					accepted("c2", "10.9.0.0/16", "10.99.0.0/16", "172.30.2.11/32"),
					accepted("c3", "fd00:8::/56", "fd00:88::/112", "fd00:30::1/128")}}
			f.clusterSets[0].Spec.Globalnet.Mode = c.mode
			if c.change != nil {
				c.change(f)
			}
			candidates, err := parseCandidates(c.with)
			if err != nil {
				t.Fatal(err)
			}
			rows := overlapRows(f, candidates)
			want := strings.Split(c.want, "|")
			if len(rows) != len(want) {
				t.Fatalf("%d rows: %+v, want %q", len(rows), rows, want)
			}
			for i, r := range rows {
				where, says, _ := strings.Cut(want[i], ": ")
				got := strings.Join(strings.Fields(r.Overlaps+" "+r.Cluster+" "+r.What), " ")
				if got != where || !strings.Contains(r.Message, says) {
					t.Errorf("%q: %q, want %q", got, r.Message, want[i])
				}
			}
		})
	}
}

// TestOverlapOfTenThousand: each candidate is compared with all, and one row is one overlap.
func TestOverlapOfTenThousand(t *testing.T) {
	f := &fleet{clusterSets: []v1alpha1.ClusterSet{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}}
	for i := range 10_000 {
		f.members = append(f.members, accepted(fmt.Sprintf("c%d", i), fmt.Sprintf("10.%d.%d.0/24", i/256, i%256),
			fmt.Sprintf("172.16.%d.%d/32", i/256, i%256), fmt.Sprintf("192.168.%d.%d/32", i/256, i%256)))
	}
	candidates, err := parseCandidates([]string{"10.3.0.0/16"})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(overlapRows(f, candidates)); n != 256 {
		t.Errorf("%d rows, want 256", n)
	}
}
