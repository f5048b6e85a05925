// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
	netdiscovery "github.com/sealane-io/sealane/memberagent/cluster/discovery"
)

// overlap is a command line of show overlap.
type overlap struct {
	*show
	with []string
}

func newOverlap(s *show) *cobra.Command {
	o := &overlap{show: s}
	cmd := &cobra.Command{
		Use:   "overlap --with CIDR,...",
		Short: "Show what networks of a cluster to come would overlap",
		Long: `Show what networks of a cluster to come would overlap: networks of pods, services and nodes of the clusters
that are accepted, their blocks of global addresses, and the pools that blocks are taken from. For each it says what
follows, and what to do. Nothing is changed, and no member is asked.`,
		Example: `  ` + s.invocation + ` show overlap --with 10.8.0.0/16,10.96.0.0/12`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			candidates, err := parseCandidates(o.with)
			if err != nil {
				return err
			}
			return o.present(cmd, func(ctx context.Context) ([]table, error) {
				_, f, err := o.read(ctx, false)
				if err != nil {
					return nil, err
				}
				return []table{newTable("overlaps", overlapRows(f, candidates), 5, "CANDIDATE", "OVERLAPS", "OF", "WHAT",
					"MESSAGE", "CLUSTERSET")}, nil
			})
		},
	}
	cmd.Flags().StringSliceVar(&o.with, "with", nil, "networks of pods and services of the cluster to come, as CIDRs")
	return cmd
}

// parseCandidates parses what no cluster could have as errors.
func parseCandidates(texts []string) ([]netip.Prefix, error) {
	bad := func(found string) error {
		return &finding{expected: "--with to list networks that a cluster can have, such as 10.8.0.0/16, separated by commas",
			found: found, remedy: "give the networks of pods and services of the cluster to come"}
	}
	if len(texts) == 0 {
		return nil, bad("none")
	}
	var out []netip.Prefix
	for _, text := range texts {
		p, err := netfacts.ParsePrefix(text)
		if err != nil {
			return nil, bad(err.Error())
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// overlapRow is a candidate and something that it overlaps; one of a candidate that overlaps nothing has neither.
type overlapRow struct {
	Candidate  string `json:"candidate"`
	Overlaps   string `json:"overlaps,omitempty"`
	Cluster    string `json:"cluster,omitempty"`
	What       string `json:"what,omitempty"`
	Message    string `json:"message"`
	ClusterSet string `json:"clusterSet,omitempty"`
}

func (r overlapRow) cells() []string {
	return []string{r.Candidate, r.Overlaps, r.Cluster, r.What, r.Message, r.ClusterSet}
}

// What a candidate may overlap.
const (
	heldPods      = "pods"
	heldServices  = "services"
	heldNodes     = "nodes"
	heldBlock     = "block of global addresses"
	heldPool      = "pool of global addresses"
	heldCandidate = "another candidate"
	// heldOutside is a candidate that overlaps nothing, and that the ClusterSet does not allow.
	heldOutside = "not allowed"
)

// holding is a network in use.
type holding struct {
	prefix        netip.Prefix
	cluster, what string
	set           string
}

// holdings are the networks of the clusters that are accepted, and of ClusterSets their pools.
func holdings(f *fleet) []holding {
	var out []holding
	for i := range f.members {
		m := &f.members[i]
		if m.Status.AcceptedAt == nil {
			continue
		}
		for what, texts := range map[string][]string{
			heldPods: m.Status.Networks.PodCIDRs, heldServices: m.Status.Networks.ServiceCIDRs, heldNodes: m.Status.NodeCIDRs,
			heldBlock: {m.Status.GlobalCIDR, m.Status.GlobalIPv6CIDR},
		} {
			for _, p := range netdiscovery.Prefixes(texts) {
				out = append(out, holding{p, m.Name, what, m.Spec.ClusterSet})
			}
		}
	}
	for i := range f.clusterSets {
		set := &f.clusterSets[i]
		if !globalnetUsed(set) {
			continue
		}
		pool := append(slices.Clone(set.Spec.Globalnet.CIDRs), set.Spec.Globalnet.IPv6CIDR)
		for _, p := range netdiscovery.Prefixes(pool) {
			out = append(out, holding{p, "", heldPool, set.Name})
		}
	}
	return out
}

// globalnetUsed says whether a cluster of a ClusterSet may have a block.
func globalnetUsed(set *v1alpha1.ClusterSet) bool {
	on := func(m v1alpha1.GlobalnetMode) bool { return m != "" && m != v1alpha1.GlobalnetOff }
	return on(set.Spec.Globalnet.Mode) || slices.ContainsFunc(set.Spec.Clusters, func(c v1alpha1.ClusterOverride) bool {
		return on(c.Globalnet.Mode)
	})
}

// overlapRows are what candidates overlap, in their order.
func overlapRows(f *fleet, candidates []netip.Prefix) []overlapRow {
	held := holdings(f)
	slices.SortFunc(held, func(a, b holding) int {
		return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.what, b.what),
			netfacts.Compare(a.prefix, b.prefix))
	})
	var rows []overlapRow
	for _, c := range candidates {
		before := len(rows)
		for _, other := range candidates {
			if other != c && other.Overlaps(c) {
				rows = append(rows, overlapRow{Candidate: c.String(), Overlaps: other.String(), What: heldCandidate,
					Message: "no cluster can have both: give it networks that differ"})
			}
		}
		for _, h := range held {
			if h.prefix.Overlaps(c) {
				rows = append(rows, overlapRow{c.String(), h.prefix.String(), h.cluster, h.what, f.follows(h), h.set})
			}
		}
		rows = append(rows, f.outside(c)...)
		if len(rows) == before {
			rows = append(rows, overlapRow{Candidate: c.String(), Message: "overlaps nothing"})
		}
	}
	return rows
}

// follows says what follows for a cluster of the same ClusterSet that overlaps a holding, and what to do.
func (f *fleet) follows(h holding) string {
	const others = "give the cluster to come another network"
	mode := v1alpha1.GlobalnetOff
	for i := range f.clusterSets {
		if set := &f.clusterSets[i]; set.Name == h.set {
			mode = cmp.Or(set.Spec.Globalnet.Mode, mode)
		}
	}
	switch {
	case h.what == heldBlock:
		return "it would be refused, as others know " + h.cluster + " by this: " + others
	case h.what == heldPool:
		return "blocks are taken from this: " + others + ", or state another spec.globalnet.cidrs"
	case mode == v1alpha1.GlobalnetOff:
		return "it would be refused: " + others + ", or set spec.globalnet.mode: Auto, see docs/globalnet.md"
	}
	return "both get blocks of global addresses, by which they know each other: exported services are reached, pods by " +
		"their own addresses are not"
}

// outside are rows of the ClusterSets that do not allow a candidate.
func (f *fleet) outside(candidate netip.Prefix) []overlapRow {
	var rows []overlapRow
	for i := range f.clusterSets {
		set := &f.clusterSets[i]
		allowed, err := netfacts.ParseAllowed(set.Spec.Allowed())
		if err == nil && !allowed.ContainsPrefix(candidate) {
			rows = append(rows, overlapRow{Candidate: candidate.String(), What: heldOutside, ClusterSet: set.Name,
				Message: "it would be refused: allow it under spec.clusters[].networks or spec.allowedCIDRs of the ClusterSet, " +
					"if it is the cluster's own"})
		}
	}
	return rows
}
