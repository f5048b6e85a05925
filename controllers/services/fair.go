// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// part is what one export adds to a Bundle, at most.
type part struct {
	service *service
	export  *accepted
	bytes   int
}

// placeFairly adds to the Bundle of member i as much of every exporter as its max-min fair share of the room
// allows, the oldest exports first. What one exporter asks for costs no other its share, whether it pads its own
// services or adds to theirs; an import is made of those exports that have room.
// ordered are the services in the order of a Bundle.
func (m *member) placeFairly(services, ordered []*service, i int, byName map[string]*member, follow *rules) {
	parts, demand := map[string][]part{}, map[string]int{}
	for _, s := range services {
		if s.views[i] == nil {
			continue
		}
		exports := s.views[i].exports
		for j := range exports {
			a := &exports[j]
			p := part{s, a, s.views[i].costOf(a, m)}
			parts[a.cluster] = append(parts[a.cluster], p)
			demand[a.cluster] += p.bytes
		}
	}
	shares := fairShares(demand, maxBundle-m.size)
	admitted := map[place]bool{}
	for _, cluster := range slices.Sorted(maps.Keys(parts)) {
		if demand[cluster] > shares[cluster] {
			byName[cluster].overdrawn.add(m.Cluster, demand[cluster], shares[cluster])
		}
		mine := parts[cluster]
		slices.SortStableFunc(mine, func(a, b part) int { return a.export.age.Compare(b.export.age) })
		left := shares[cluster]
		for _, p := range mine {
			if p.bytes > left {
				p.service.leaveOut(cluster, m.Cluster)
				continue
			}
			left -= p.bytes
			admitted[place{cluster, p.service.key}] = true
		}
	}
	for _, s := range ordered {
		if s.views[i] == nil {
			continue
		}
		seen := s.views[i].exports
		v := s.view(follow, func(a *accepted) visibility {
			at := slices.IndexFunc(seen, func(b accepted) bool { return b.cluster == a.cluster })
			switch {
			case at < 0 || !admitted[place{a.cluster, s.key}]:
				return invisible
			case seen[at].byBlock:
				return visibleByBlock
			}
			return visible
		})
		if v == nil {
			continue
		}
		s := v.forMember(m.Cluster)
		m.size += s.size
		m.imports = append(m.imports, s)
	}
}

// leaveOut notes that an exporter's part of the service has no room in a cluster's Bundle.
func (s *service) leaveOut(exporter, importer string) {
	if s.full == nil {
		s.full = map[string][]string{}
	}
	s.full[exporter] = append(s.full[exporter], importer)
}

// costOf bounds what an export adds to a member's Bundle: its cluster's entry, and the settings and ports that an
// import may take from it.
func (v *view) costOf(a *accepted, m *member) int {
	const around = 256 // the import's other fields, and names generated for ports
	cost := around + len(a.export.Namespace) + len(a.export.Name) + sizeOf(a.export.Settings) + 16*len(
		a.export.Settings.Ports)
	if v.imported.Choice != nil {
		cost += sizeOf(v.imported.Choice)
	}
	at := slices.IndexFunc(v.imported.Clusters, func(c v1alpha1.ImportCluster) bool { return c.Cluster == a.cluster })
	if at < 0 {
		return cost
	}
	entry := v.imported.Clusters[at]
	if a.cluster == m.Cluster {
		entry.Backends, entry.ReadyBackends = []v1alpha1.Backends{}, nil
	}
	return cost + sizeOf(entry)
}

// fairShares divides room max-min fairly: who asks for less than an equal part gets all of it, and what it leaves
// is divided among the others.
func fairShares(demand map[string]int, room int) map[string]int {
	names := slices.SortedFunc(maps.Keys(demand), func(a, b string) int {
		return cmp.Or(cmp.Compare(demand[a], demand[b]), cmp.Compare(a, b))
	})
	out := make(map[string]int, len(names))
	room = max(room, 0)
	for i, name := range names {
		out[name] = min(demand[name], room/(len(names)-i))
		room -= out[name]
	}
	return out
}

// overdraft says in which Bundles a member's exports exceed its fair share.
type overdraft struct {
	// bundles is their number, and first the cluster of the first.
	bundles int
	first   string
	// asked and share are the bytes in that one.
	asked, share int
}

func (o *overdraft) add(cluster string, asked, share int) {
	if o.bundles == 0 || cluster < o.first {
		o.first, o.asked, o.share = cluster, asked, share
	}
	o.bundles++
}

// tell makes a Problem of it that names the exporter.
func (o *overdraft) tell(m *member) {
	if o.bundles == 0 {
		return
	}
	m.problem(v1alpha1.ReasonBundleFull, "the exports of cluster %s exceed its fair share of %d Bundles; in that of %s "+
		"they take %d KiB of the %d that are its share: "+
		"some are not imported, and no other cluster's are left out for them. Let it export fewer, or with fewer ports and "+
		"annotations; "+
		"spec.services.exporters of the ClusterSet says who may export", m.Cluster, o.bundles, o.first,
		o.asked>>10, o.share>>10)
}
