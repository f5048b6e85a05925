// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// retention is how long a name outlives its last export, and how long the backends of an export that moves
// stay while those of its successor are not ready.
const retention = 10 * time.Second

// maxSeen is how many names a record has room for.
const maxSeen = 2 * maxExports

// index reads the member's record.
func (m *member) index() {
	if m.Record == nil {
		return
	}
	for i := range m.Record.Seen {
		s := &m.Record.Seen[i]
		m.before[key{s.Namespace, s.Name}] = *s
	}
}

// firstSeen returns since when the broker knows an export. Where it has no record of the member, as after an
// upgrade, it cannot have seen the export before the member was accepted.
func (m *member) firstSeen(k key, createdAt metav1.Time, now time.Time) metav1.MicroTime {
	if s, ok := m.before[k]; ok && s.CreatedAt.Equal(&createdAt) {
		return s.FirstSeen
	}
	at := now
	if m.Record == nil {
		at = later(createdAt.Time, m.Accepted)
		if at.After(now) {
			at = now
		}
	}
	return metav1.NewMicroTime(at.Truncate(time.Microsecond))
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// recorded returns the exports of the record that are in force.
func (m *member) recorded() []v1alpha1.Export {
	if m.Record == nil {
		return nil
	}
	var out []v1alpha1.Export
	for _, e := range m.Record.Exports {
		if m.before[key{e.Namespace, e.Name}].WithdrawnAt == nil {
			out = append(out, e)
		}
	}
	return out
}

// noteWithdrawn collects the exports that the member does not report any more.
func (m *member) noteWithdrawn(now time.Time) {
	if m.Record == nil {
		return
	}
	for i := range m.Record.Exports {
		e := &m.Record.Exports[i]
		k := key{e.Namespace, e.Name}
		if _, reported := m.seen[k]; m.Known && reported || !m.Known && m.before[k].WithdrawnAt == nil {
			continue
		}
		a, err := accept(m.Cluster, *e, &m.networks)
		if err != nil {
			continue
		}
		s := m.before[k]
		if s.WithdrawnAt == nil {
			at := metav1.NewTime(now.Truncate(time.Second))
			s.WithdrawnAt = &at
		}
		a.age, a.withdrawnAt = later(e.CreatedAt.Time, s.FirstSeen.Time), s.WithdrawnAt.Time
		m.seen[k] = s
		m.withdrawn = append(m.withdrawn, a)
	}
}

// retain decides which withdrawn exports are kept, and returns after how long that may change; 0 is never. A
// name stays while Karmada schedules its export to a member, and for retention after the last export went.
// An export that moves without its Service serves on until its successor has a ready backend; where Karmada takes
// the Service away, too, the servers go with it.
func retain(members []*member, in Input) time.Duration {
	exported, served := map[key]bool{}, map[key]bool{}
	clusters := make(map[string]bool, len(members))
	for _, m := range members {
		clusters[m.Cluster] = true
		for i := range m.exports {
			k := m.exports[i].key()
			exported[k] = true
			served[k] = served[k] || m.exports[i].hasReady()
		}
	}
	var again time.Duration
	for _, m := range members {
		kept := m.withdrawn[:0]
		for _, a := range m.withdrawn {
			k := a.key()
			left := a.withdrawnAt.Add(retention).Sub(in.Now)
			scheduled, moves := false, false
			for _, c := range in.Scheduled[k.String()] {
				scheduled = scheduled || clusters[c]
				moves = moves || clusters[c] && c != m.Cluster
			}
			servers, placed := in.Placed[k.String()]
			a.serves = moves && left > 0 && !served[k] && (!placed || slices.Contains(servers, m.Cluster))
			if !a.serves && (exported[k] || !scheduled && left <= 0) {
				delete(m.seen, k)
				continue
			}
			if left > 0 && (again == 0 || left < again) {
				again = left
			}
			kept = append(kept, a)
		}
		m.withdrawn = kept
	}
	return again
}

func (a *accepted) hasReady() bool {
	return slices.ContainsFunc(a.export.Backends, func(g v1alpha1.Backends) bool {
		return slices.ContainsFunc(g.Addresses, func(b v1alpha1.Backend) bool { return b.Ready })
	})
}

// record returns what is to be known of the member after a restart. Of very many names the oldest are kept.
func (m *member) record(shard int32, follow *rules) v1alpha1.ExportRecordSpec {
	out := v1alpha1.ExportRecordSpec{Cluster: m.Cluster, MemberUID: m.UID, Shard: shard}
	for k, s := range m.seen {
		s.ClusterIPFamilies = nil
		for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
			if follow.large[share{place{m.Cluster, k}, f == corev1.IPv4Protocol}] {
				s.ClusterIPFamilies = append(s.ClusterIPFamilies, f)
			}
		}
		out.Seen = append(out.Seen, s)
	}
	slices.SortFunc(out.Seen, func(a, b v1alpha1.SeenExport) int {
		if c := a.FirstSeen.Compare(b.FirstSeen.Time); c != 0 {
			return c
		}
		return compareKeys(key{a.Namespace, a.Name}, key{b.Namespace, b.Name})
	})
	out.Seen = out.Seen[:min(len(out.Seen), maxSeen)]
	slices.SortFunc(out.Seen, func(a, b v1alpha1.SeenExport) int {
		return compareKeys(key{a.Namespace, a.Name}, key{b.Namespace, b.Name})
	})
	for _, all := range [][]accepted{m.exports, m.withdrawn} {
		for i := range all {
			out.Exports = append(out.Exports, all[i].export)
		}
	}
	slices.SortFunc(out.Exports, func(a, b v1alpha1.Export) int {
		return compareKeys(key{a.Namespace, a.Name}, key{b.Namespace, b.Name})
	})
	return out
}

// Withdrawn returns the services, as "<namespace>/<name>", that the record has and the member does not report.
func (m *Member) Withdrawn() []string {
	if m.Record == nil {
		return nil
	}
	reported := make(map[key]bool, len(m.Exports))
	for i := range m.Exports {
		reported[key{m.Exports[i].Namespace, m.Exports[i].Name}] = true
	}
	var out []string
	for i := range m.Record.Exports {
		if k := (key{m.Record.Exports[i].Namespace, m.Record.Exports[i].Name}); !reported[k] {
			out = append(out, k.String())
		}
	}
	return out
}
