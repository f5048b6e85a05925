// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"slices"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// crowd is how many clusters come at once that are waited for: of a fleet that is installed, not of one that grows.
	crowd = 5
	// justCame is how long one is one that comes, and firstReport how long it is where it has not said what it exports.
	justCame, firstReport = 5 * time.Second, time.Minute
	// comesWithin is how long ago it was accepted at most: a controller that starts finds others for the first time, too.
	comesWithin = time.Minute
	// holdMost is how long they are waited for. For as long, at least, nobody is after that.
	holdMost = 2 * time.Minute
	// answersWithin is how long the halves that are to have what they export may be unanswered.
	answersWithin = 30 * time.Second
)

// hold is how long to wait with what only adds to the imports of a shard what newcomers export, as many of these are
// coming. The zero value is not at all. Each that says what it exports would have all others written, and their imports
// divided into halves that become too large with the next one that comes: a fleet of 30 was written three times over
// until it was at rest. Newcomers are known for a while longer.
type hold struct {
	wait      time.Duration
	newcomers map[string]bool
	// untold are newcomers to whom nobody can have written anything but this controller.
	untold map[string]bool
}

// holding is since when clusters that come were last waited for, and whether they still are.
type holding struct {
	since time.Time
	on    bool
}

func (r *Reconciler) holds(shard Shard, members []Member, targets []target) hold {
	now := r.Now()
	r.begin(now)
	came := func(i int) bool { return targets[i].mem.found.Sub(members[i].Accepted) <= comesWithin }
	coming, wait := 0, time.Duration(0)
	for i := range members {
		t := &targets[i]
		patience := justCame
		if !members[i].Known && t.writable && !t.lost {
			patience = firstReport
		}
		if left := patience - now.Sub(t.mem.found); left > 0 && came(i) {
			coming, wait = coming+1, max(wait, left)
		}
	}
	since, on := r.holdsSince(shard, coming, now)
	h := hold{newcomers: map[string]bool{}, untold: map[string]bool{}}
	if on {
		h.wait = max(min(wait, since.Add(holdMost).Sub(now)), 0)
	}
	if now.Sub(since) >= 2*holdMost {
		return hold{}
	}
	for i := range members {
		if came(i) && !targets[i].mem.found.Before(since.Add(-justCame)) {
			h.newcomers[members[i].Cluster] = true
			h.untold[members[i].Cluster] = members[i].Accepted.After(r.started)
		}
	}
	return h
}

// begin notes when this controller first decided anything. What another one has written before may not show yet.
func (r *Reconciler) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started.IsZero() {
		r.started = now
	}
}

// holdsSince returns when the clusters that are coming to a shard were first waited for, and whether they are to be:
// from when there is a crowd of them until nobody is coming any more. The last few of a crowd would have all that was
// told of the others written once more.
func (r *Reconciler) holdsSince(shard Shard, coming int, now time.Time) (since time.Time, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holding == nil {
		r.holding = map[Shard]holding{}
	}
	h := r.holding[shard]
	h.on = coming >= crowd || h.on && coming > 0
	if h.on && now.Sub(h.since) >= 2*holdMost {
		h.since = now
	}
	r.holding[shard] = h
	return h.since, h.on
}

// first returns what a cluster is told first: if it is a newcomer itself, and others are waited for, that without what
// these export. A hundred clusters that come were told of each other in Bundles of up to 190 KiB one after the other,
// and it took half a minute until the last could say what it exports. Who was accepted before this controller began may
// have been told more by the one before it, which the cache does not show yet.
func (h hold) first(cluster string, spec *Bundle) *Bundle {
	if h.wait == 0 || !h.untold[cluster] {
		return spec
	}
	out := *spec
	out.Imports = []*v1alpha1.Import{}
	newcomer := func(c v1alpha1.ImportCluster) bool { return h.newcomers[c.Cluster] }
	for _, i := range spec.Imports {
		if slices.ContainsFunc(i.Clusters, newcomer) {
			less := *i
			less.Clusters = slices.DeleteFunc(slices.Clone(i.Clusters), newcomer)
			i = &less
		}
		if len(i.Clusters) > 0 {
			out.Imports = append(out.Imports, i)
		}
	}
	return &out
}

// lasts returns how long a letter that only adds what newcomers export is to wait: also, for a while, where what it
// adds is on its way in halves, which will be in force instead of it.
func (h hold) lasts(l letter, now time.Time) time.Duration {
	if h.wait == 0 && !l.halved.IsZero() {
		return l.halved.Add(answersWithin).Sub(now)
	}
	return h.wait
}

// onlyAdds says that a Bundle for a cluster is to say all that it says, and more of what newcomers export. Without any
// that was sent it is a half that is to be made.
func (h hold) onlyAdds(cluster string, sent, spec *Bundle, compared comparison) bool {
	if sent == nil {
		return true
	}
	return slices.Equal(sent.Halves, spec.Halves) && sent.Deltas == spec.Deltas &&
		contained(sent.ExportConditions, spec.ExportConditions, compareConditions,
			func(a, b v1alpha1.ExportCondition) bool { return a == b },
			func(v1alpha1.ExportCondition) bool { return h.newcomers[cluster] }) &&
		contained(sent.Imports, spec.Imports,
			func(a, b *v1alpha1.Import) int { return compareKeys(keyOf(a), keyOf(b)) },
			func(a, b *v1alpha1.Import) bool { return compared.imports(a, b) || h.grows(a, b) },
			func(i *v1alpha1.Import) bool {
				return !slices.ContainsFunc(i.Clusters, func(c v1alpha1.ImportCluster) bool { return !h.newcomers[c.Cluster] })
			})
}

// grows says that an import is to say what it says, and of newcomers.
func (h hold) grows(a, b *v1alpha1.Import) bool {
	return a.Withheld == b.Withheld && a.Mode == b.Mode && samePointed(a.Choice, b.Choice) &&
		sameSettings(&a.Settings, &b.Settings) &&
		contained(a.Clusters, b.Clusters,
			func(a, b v1alpha1.ImportCluster) int { return cmp.Compare(a.Cluster, b.Cluster) }, sameCluster,
			func(c v1alpha1.ImportCluster) bool { return h.newcomers[c.Cluster] })
}

// contained says that all of one list is in another, the same, and that what else is there may be. Both are in the same
// order.
func contained[T any](list, other []T, order func(a, b T) int, same func(a, b T) bool, more func(T) bool) bool {
	for i := range other {
		o := 1
		if len(list) > 0 {
			o = order(list[0], other[i])
		}
		switch {
		case o < 0, o == 0 && !same(list[0], other[i]), o > 0 && !more(other[i]):
			return false
		case o == 0:
			list = list[1:]
		}
	}
	return len(list) == 0
}
