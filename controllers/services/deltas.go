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
	// counts says that what it has counts in the member as soon as it is there.
	counts bool
	// again says that it is to be written in any case, and closed that it cannot be written now.
	again, closed bool
}

// copied is where the newest copy of an import is in deltas.
type copied struct {
	in       int
	sequence int64
	what     *v1alpha1.Import
}

// newest notes where the newest copy of each import is, in place of what out had.
func newest(out map[key]copied, sent []sentDelta) {
	clear(out)
	for n := range sent {
		for i := range sent[n].imports {
			k := keyOf(sent[n].imports[i])
			if at, ok := out[k]; !ok || sent[n].sequence > at.sequence {
				out[k] = copied{n, sent[n].sequence, sent[n].imports[i]}
			}
		}
	}
}

// carried is what the Bundles of deltas of one member carry, beside what is wanted of that.
type carried struct {
	drifts map[key]*drift
	sent   []sentDelta
	// copies are where the newest copies of imports are in what was sent.
	copies map[key]copied
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
func (c carried) arrange(compared comparison) (out map[int][]*v1alpha1.Import, left bool) {
	var late []key
	for k, s := range c.drifts {
		if s.late(c.copies[k], compared) {
			late = append(late, k)
		}
	}
	slices.SortFunc(late, compareKeys)
	out = map[int][]*v1alpha1.Import{}
	placed := map[key]bool{}
	room := map[int]int{}
	write := func(n int) {
		used := 0
		for i := range c.sent[n].imports {
			k := keyOf(c.sent[n].imports[i])
			if s := c.drifts[k]; c.keeps(n, k) {
				out[n], used = append(out[n], s.want), used+s.size
				placed[k] = true
			}
		}
		if out[n] == nil {
			out[n] = []*v1alpha1.Import{}
		}
		room[n] = maxDelta - used
	}
	for n := range c.sent {
		if c.sent[n].again && !c.sent[n].closed {
			write(n)
		}
	}
	for _, k := range late {
		if placed[k] {
			continue
		}
		s := c.drifts[k]
		n := c.where(s.size, room, out)
		if n < 0 {
			left = true
			continue
		}
		if n == len(c.sent) {
			c.sent = append(c.sent[:n:n], sentDelta{})
		}
		if _, is := room[n]; !is {
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

// keeps says that Bundle n of deltas goes on to have an import.
func (c carried) keeps(n int, k key) bool {
	s, at := c.drifts[k], c.copies[k]
	switch {
	case s == nil || s.want == nil:
		return false
	case at.sequence <= s.since:
		return !s.settled
	}
	return at.in == n || !c.sent[at.in].answered
}

// keptIn is the size of what Bundle n of deltas has to keep.
func (c carried) keptIn(n int) (kept int) {
	for i := range c.sent[n].imports {
		if k := keyOf(c.sent[n].imports[i]); c.keeps(n, k) {
			kept += c.drifts[k].size
		}
	}
	return kept
}

// where returns which Bundle a change of this size goes to, which may be one more, given what is written and how much
// room is left in that; -1 where there is none. It goes where it counts, if there is room.
func (c carried) where(size int, room map[int]int, written map[int][]*v1alpha1.Import) int {
	if n := c.roomiest(room, size, true); n >= 0 {
		return n
	}
	kept := c.leastKept(written)
	if kept >= 0 && c.sent[kept].counts {
		return kept
	}
	if n := c.roomiest(room, size, false); n >= 0 {
		return n
	}
	if kept < 0 && len(c.sent) < v1alpha1.MaxDeltas {
		return len(c.sent)
	}
	return kept
}

// roomiest returns which of the Bundles that are written, of those that count or of the others, has most room, if that
// is enough; -1 if it is not.
func (c carried) roomiest(room map[int]int, size int, counts bool) int {
	best := -1
	for n, left := range room {
		if left < size || c.sent[n].counts != counts {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(left, room[best]), cmp.Compare(best, n)) > 0 {
			best = n
		}
	}
	return best
}

// leastKept returns which of the Bundles that are not written yet has least to keep, if that is no more than half; -1
// if there is none. One that counts comes before one that does not: what is in the latter waits until it is listed.
func (c carried) leastKept(written map[int][]*v1alpha1.Import) int {
	best, least := -1, maxDelta/2+1
	for n := range c.sent {
		if _, is := written[n]; is || c.sent[n].closed {
			continue
		}
		kept := c.keptIn(n)
		if kept > maxDelta/2 || best >= 0 && c.sent[best].counts && !c.sent[n].counts {
			continue
		}
		if kept < least || c.sent[n].counts && !c.sent[best].counts {
			best, least = n, kept
		}
	}
	return best
}

// maxReserve is how many Bundles of deltas are made at once, at most, before they are needed.
const maxReserve = 4

// reserve returns the numbers of further Bundles of deltas that are to be written with nothing in them, given what is
// arranged, where few are left. What is in a new one counts when the member has answered it and its own Bundle of shard
// 0 lists it: with many members that takes seconds, so changes should find it listed. As many are made as there are,
// for all are listed by one write. Where one Bundle is enough there are none in reserve.
func (c carried) reserve(arranged map[int][]*v1alpha1.Import) (numbers []int) {
	free, all := 0, len(c.sent)
	for n, imports := range arranged {
		all = max(all, n+1)
		has := 0
		for _, i := range imports {
			has += c.drifts[keyOf(i)].size
		}
		if has <= maxDelta/2 {
			free++
		}
	}
	for n := range c.sent {
		if !c.sent[n].counts {
			return nil // it is on its way
		}
		if _, is := arranged[n]; !is && !c.sent[n].closed && c.keptIn(n) <= maxDelta/2 {
			free++
		}
	}
	if len(arranged) == 0 || free >= min(2, all/2) {
		return nil
	}
	for n := all; n < min(all+min(all, maxReserve), v1alpha1.MaxDeltas); n++ {
		numbers = append(numbers, n)
	}
	return numbers
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
