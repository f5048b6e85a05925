// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/pairs"
	"github.com/sealane-io/sealane/internal/settings"
)

// Owners returns the ClusterSet that each selected cluster belongs to.
func Owners(s State) map[string]string { return pairs.Owners(s.Sets, s.Clusters, s.Members) }

// Joining names the clusters that belong to a ClusterSet and have no Member yet, sorted.
func Joining(s State, name string) []string {
	var joining []string
	for cluster, owner := range Owners(s) {
		recorded := slices.ContainsFunc(s.Members, func(m v1alpha1.Member) bool { return m.Name == cluster })
		if owner == name && !recorded && s.Cluster(cluster).Spec.ID != "" {
			joining = append(joining, cluster)
		}
	}
	slices.Sort(joining)
	return joining
}

// Problems of one ClusterSet's membership.
func Problems(s State, name string) []v1alpha1.Problem {
	set := s.Set(name)
	if set == nil {
		return nil
	}
	var problems []v1alpha1.Problem
	add := func(cluster, reason, format string, args ...any) {
		problems = append(problems, v1alpha1.Problem{Cluster: cluster, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if err := settings.Validate(set); err != nil {
		add("", v1alpha1.ReasonInvalidSettings, "the settings are not put into force, what was before stays: %v", err)
	}
	owners := Owners(s)
	for i := range s.Clusters {
		c := &s.Clusters[i]
		if !pairs.Matches(c, set.Spec.ClusterAffinity) || !set.DeletionTimestamp.IsZero() {
			continue
		}
		if owner, ok := owners[c.Name]; ok && owner != name {
			add(c.Name, v1alpha1.ReasonSelectedElsewhere,
				"cluster %s belongs to the older ClusterSet %s; take it out of one of them", c.Name, owner)
		} else if ok && c.Spec.ID == "" {
			add(c.Name, v1alpha1.ReasonNoClusterID, "Karmada does not know the ID of cluster %s yet (Cluster.spec.id); is the "+
				"cluster reachable?", c.Name)
		}
	}
	for _, cluster := range set.Spec.ClusterAffinity.ClusterNames {
		if s.Cluster(cluster) == nil {
			add(cluster, v1alpha1.ReasonClusterNotFound, "cluster %s is named and Karmada has no such cluster; join it to "+
				"Karmada first", cluster)
		}
	}
	known := make(map[string]bool, len(s.Clusters))
	for i := range s.Clusters {
		known[s.Clusters[i].Name] = true
	}
	for _, f := range naming(set) {
		var unknown []string
		for _, n := range f.names {
			if !known[n.cluster] {
				unknown = append(unknown, n.String())
			}
		}
		if len(unknown) > 0 {
			add("", v1alpha1.ReasonClusterNotFound, "%s of ClusterSet %s names clusters that Karmada does not have: %s; "+
				"correct the names, or join these clusters to Karmada: %s", f.path, name, clip.List(unknown, maxNamed), f.meanwhile)
		}
	}
	if idle := idleCables(s, set); len(idle) > 0 && settings.Validate(set) == nil {
		add("", v1alpha1.ReasonNoPairMatches, "spec.cables of ClusterSet %s has entries that decide for no pair of members: "+
			"%s; correct their selectors, move them before those that match the same pairs, or take them out: the pairs that "+
			"they are for have the cables that the others say", name, clip.List(idle, maxNamed))
	}
	if idle := idleRelays(s, set); len(idle) > 0 && settings.Validate(set) == nil {
		add("", v1alpha1.ReasonNoPairMatches, "spec.relays of ClusterSet %s has entries that decide for no pair of members: "+
			"%s; correct their selectors, move them before those that match the same pairs, or take them out; a relay is in no "+
			"pair of its own", name, clip.List(idle, maxNamed))
	}
	if reason, why := unfitCanary(s, set, owners); reason != "" {
		canary := set.Spec.RollOut.Canary
		add(canary, reason, "spec.rollOut.canary of ClusterSet %s names %s, %s: until then the first member by name is the "+
			"first to get new node agents", name, clip.Line(canary), why)
	}
	for _, m := range s.Members {
		if m.Spec.ClusterSet == name && m.Spec.Phase == v1alpha1.MemberLeaving {
			add(m.Name, v1alpha1.ReasonLeaving, "cluster %s is leaving and has not yet said that its nodes are clean; if it "+
				"never will, use leave --force", m.Name)
		}
	}
	return problems
}

// unfitCanary says why the canary of a ClusterSet's roll-outs is none, and what to do, after its name; "" if it is one,
// or there is none.
func unfitCanary(s State, set *v1alpha1.ClusterSet, owners map[string]string) (reason, why string) {
	canary := set.Spec.RollOut.Canary
	switch {
	case canary == "" || !set.DeletionTimestamp.IsZero() || owners[canary] == set.Name:
		return "", ""
	case s.Cluster(canary) == nil:
		return v1alpha1.ReasonClusterNotFound, "and Karmada has no such cluster; correct the name"
	case owners[canary] != "":
		return v1alpha1.ReasonCanaryNotMember, "which is a member of ClusterSet " + owners[canary] + "; name another"
	}
	return v1alpha1.ReasonCanaryNotMember, "which is no member; name another, or make it one"
}

// maxNamed is how many clusters a message names.
const maxNamed = 10

// field of a ClusterSet that names clusters.
type field struct {
	path  string
	names []place
	// meanwhile is what holds while one of them does not exist.
	meanwhile string
}

// place is where a cluster is named: in which entry of a list, if that has a name.
type place struct{ cluster, entry string }

func (p place) String() string {
	if p.entry == "" {
		return clip.Line(p.cluster)
	}
	return fmt.Sprintf("%s (%s)", clip.Line(p.cluster), p.entry)
}

// naming returns the fields of a ClusterSet that name clusters, but for the selection and the canary: each name of
// these is a problem of its own.
func naming(set *v1alpha1.ClusterSet) []field {
	exclude := field{path: "spec.clusterAffinity.exclude", meanwhile: "each other cluster that is selected belongs"}
	for _, cluster := range set.Spec.ClusterAffinity.ExcludeClusters {
		exclude.names = append(exclude.names, place{cluster: cluster})
	}
	stated := field{path: "spec.clusters", meanwhile: "what it states of them has no effect"}
	for i := range set.Spec.Clusters {
		stated.names = append(stated.names, place{cluster: set.Spec.Clusters[i].Name})
	}
	cables := field{path: "spec.cables", meanwhile: "the rules are in force without them"}
	for i, rule := range set.Spec.Cables {
		for _, selector := range rule.Clusters {
			for _, cluster := range slices.Concat(selector.ClusterNames, selector.ExcludeClusters) {
				cables.names = append(cables.names, place{cluster, fmt.Sprintf("cables[%d]", i)})
			}
		}
	}
	relays := field{path: "spec.relays", meanwhile: "pairs with such a relay dial each other"}
	for i, rule := range set.Spec.Relays {
		entry := fmt.Sprintf("relays[%d]", i)
		relays.names = append(relays.names, place{rule.Through, entry})
		for _, selector := range rule.Clusters {
			for _, cluster := range slices.Concat(selector.ClusterNames, selector.ExcludeClusters) {
				relays.names = append(relays.names, place{cluster, entry})
			}
		}
	}
	exporters := field{path: "spec.services.exporters", meanwhile: "the rules are in force without them"}
	for i, rule := range set.Spec.Services.Exporters {
		for _, cluster := range rule.ClusterNames {
			exporters.names = append(exporters.names, place{cluster, fmt.Sprintf("exporters[%d]", i)})
		}
	}
	pairs := field{path: "spec.topology", meanwhile: "the other pairs are in force"}
	for i, pair := range set.Spec.Topology.Pairs {
		for _, cluster := range pair.Clusters {
			pairs.names = append(pairs.names, place{cluster, fmt.Sprintf("pairs[%d]", i)})
		}
	}
	return []field{exclude, stated, cables, relays, exporters, pairs}
}
