// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"slices"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// maxDelta is the size of the imports in a Bundle of deltas from which on no more are added, and largestChange that of
	// an import which goes into none.
	maxDelta      = 24 << 10
	largestChange = maxDelta / 2
	// maxAhead is how far ahead of the clock a sequence may be, be it of a broker whose clock was wrong.
	maxAhead = 10 * 365 * 24 * time.Hour
)

// invented says that no broker has given a sequence: a pull member may write its own Works. A largest number would not
// do, as the broker would go on from the one before it.
func invented(sequence int64, now time.Time) bool { return sequence > now.Add(maxAhead).UnixMilli() }

// drift is how the Bundles of its shard stand to what is wanted of an import that is in deltas or should be.
type drift struct {
	// want is what the member is to have, nil where deltas do not count, and size how large that is.
	want *v1alpha1.Import
	size int
	// since is the lowest sequence of the Bundles that have it, and stale the highest of those that have something else
	// than is wanted; 0 if none has.
	since, stale int64
	// settled says that all of them have what is wanted, and that the member has answered that.
	settled bool
	// agrees is a copy that was found to say what is wanted.
	agrees *v1alpha1.Import
}

// sentDelta is a Bundle of deltas as it was last sent.
type sentDelta struct {
	sequence int64
	imports  []*v1alpha1.Import // sorted
	// answered says that the member has it, and that it counts there.
	answered bool
	// again says that it is to be written in any case, and closed that it cannot be written now.
	again, closed bool
}

// copied is where the newest copy of an import is in deltas.
type copied struct {
	in       int
	sequence int64
	what     *v1alpha1.Import
}

// newest returns where the newest copy of each import is.
func newest(sent []sentDelta) map[key]copied {
	out := map[key]copied{}
	for n := range sent {
		for i := range sent[n].imports {
			k := keyOf(sent[n].imports[i])
			if at, ok := out[k]; !ok || sent[n].sequence > at.sequence {
				out[k] = copied{n, sent[n].sequence, sent[n].imports[i]}
			}
		}
	}
	return out
}

// late says that a member which goes by what was sent would have something else than is wanted.
func (s *drift) late(at copied, compared comparison) bool {
	if s.want == nil {
		return false
	}
	if at.sequence > s.since && s.agrees != at.what {
		if !compared.imports(at.what, s.want) {
			return true
		}
		s.agrees = at.what
	}
	return s.stale > 0 && at.sequence <= s.stale
}

// arrange returns what Bundles of deltas should say, those that are to be written alone, by their numbers. All that is
// late is in them, unless there is no room, which left says.
//
// Bundles come to a member in any order. So what one has of an import stays in it, as it is now, until the member has
// answered a newer one that has it, be it the shard's own: nothing that a member was told is taken back on the way.
// The Bundle that has least to keep is written again with what has changed beside that: nothing has to be collected
// later, and while less than half of each counts, no more are made.
func arrange(drifts map[key]*drift, sent []sentDelta, compared comparison) (out map[int][]*v1alpha1.Import,
	left bool) {
	copies := newest(sent)
	var late []key
	for k, s := range drifts {
		if s.late(copies[k], compared) {
			late = append(late, k)
		}
	}
	slices.SortFunc(late, compareKeys)
	out = map[int][]*v1alpha1.Import{}
	placed := map[key]bool{}
	room := map[int]int{}
	write := func(n int) {
		used := 0
		for i := range sent[n].imports {
			k := keyOf(sent[n].imports[i])
			if s := drifts[k]; s.keeps(n, copies[k], sent) {
				out[n], used = append(out[n], s.want), used+s.size
				placed[k] = true
			}
		}
		if out[n] == nil {
			out[n] = []*v1alpha1.Import{}
		}
		room[n] = maxDelta - used
	}
	for n := range sent {
		if sent[n].again && !sent[n].closed {
			write(n)
		}
	}
	for _, k := range late {
		if placed[k] {
			continue
		}
		s := drifts[k]
		n := roomiest(room, s.size)
		if n < 0 {
			if n = leastKept(drifts, copies, sent, out); n < 0 && len(sent) < v1alpha1.MaxDeltas {
				n, sent = len(sent), append(sent[:len(sent):len(sent)], sentDelta{})
			}
			if n < 0 {
				left = true
				continue
			}
			if write(n); placed[k] {
				continue
			}
		}
		out[n], room[n] = append(out[n], s.want), room[n]-s.size
		placed[k] = true
	}
	for n := range out {
		slices.SortFunc(out[n], func(a, b *v1alpha1.Import) int { return compareKeys(keyOf(a), keyOf(b)) })
	}
	return out, left
}

// keeps says that Bundle n of deltas goes on to have an import, given where the newest copy of that is.
func (s *drift) keeps(n int, at copied, sent []sentDelta) bool {
	switch {
	case s == nil || s.want == nil:
		return false
	case at.sequence <= s.since:
		return !s.settled
	}
	return at.in == n || !sent[at.in].answered
}

// roomiest returns which of the Bundles that are written has most room, if that is enough; -1 if it is not.
func roomiest(room map[int]int, size int) int {
	best := -1
	for n, left := range room {
		if left >= size && (best < 0 || cmp.Or(cmp.Compare(left, room[best]), cmp.Compare(best, n)) > 0) {
			best = n
		}
	}
	return best
}

// leastKept returns which of the Bundles that are not written yet has least to keep, if that is no more than half; -1
// if there is none.
func leastKept(drifts map[key]*drift, copies map[key]copied, sent []sentDelta,
	written map[int][]*v1alpha1.Import) int {
	best, least := -1, maxDelta/2+1
	for n := range sent {
		if _, is := written[n]; is || sent[n].closed {
			continue
		}
		kept := 0
		for i := range sent[n].imports {
			k := keyOf(sent[n].imports[i])
			if s := drifts[k]; s.keeps(n, copies[k], sent) {
				kept += s.size
			}
		}
		if kept < least {
			best, least = n, kept
		}
	}
	return best
}

// onlyEndpoints returns which imports of a Bundle are to have other endpoints than were sent; false where there is more
// to say than that. Deltas are for what changes often; all else stays where people look for it.
func onlyEndpoints(sent, spec *Bundle, compared comparison) (changed []*v1alpha1.Import, only bool) {
	if len(sent.Imports) != len(spec.Imports) || !sameButImports(sent, spec) {
		return nil, false
	}
	for i := range spec.Imports {
		before, after := sent.Imports[i], spec.Imports[i]
		if keyOf(before) != keyOf(after) {
			return nil, false
		}
		if compared.imports(before, after) {
			continue
		}
		if !sameButEndpoints(before, after) {
			return nil, false
		}
		changed = append(changed, after)
	}
	return changed, true
}

// sameButImports says that a Bundle is to say what was sent, beside its imports.
func sameButImports(sent, spec *Bundle) bool {
	return slices.Equal(sent.Halves, spec.Halves) && sent.Deltas == spec.Deltas &&
		(identical(sent.ExportConditions, spec.ExportConditions) ||
			slices.Equal(sent.ExportConditions, spec.ExportConditions))
}

// sameButEndpoints says that two imports differ at most in what there is behind the service in each cluster, which the
// first has and the second may withhold.
func sameButEndpoints(a, b *v1alpha1.Import) bool {
	return !a.Withheld && a.Mode == b.Mode && samePointed(a.Choice, b.Choice) &&
		sameSettings(&a.Settings, &b.Settings) &&
		slices.EqualFunc(a.Clusters, b.Clusters, func(a, b v1alpha1.ImportCluster) bool {
			a.Backends, b.Backends, a.ReadyBackends, b.ReadyBackends = nil, nil, nil, nil
			return sameCluster(a, b)
		})
}
