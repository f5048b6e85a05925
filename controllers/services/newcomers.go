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
	justCame, firstReport = 5 * time.Second, 10 * time.Second
	// comesWithin is how long ago it was accepted at most: a controller that starts finds others for the first time, too.
	comesWithin = time.Minute
	// holdMost is how long they are waited for. For as long, at least, nobody is after that.
	holdMost = 45 * time.Second
)

// holds returns how long to wait with what only adds to the imports of a shard, as many clusters are coming; 0 is not
// at all. Each that says what it exports would have all others written, and their imports divided into halves that
// become too large with the next one that comes: a fleet of 30 was written three times over until it was at rest.
func (r *Reconciler) holds(shard Shard, members []Member, targets []target) time.Duration {
	now := r.Now()
	coming, until := 0, time.Duration(0)
	for i := range members {
		t := &targets[i]
		since := now.Sub(t.mem.found)
		switch {
		case now.Sub(members[i].Accepted) > comesWithin:
		case since < justCame:
			coming, until = coming+1, max(until, justCame-since)
		case since < firstReport && !members[i].Known && t.writable && !t.lost:
			coming, until = coming+1, max(until, firstReport-since)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if coming < crowd {
		return 0
	}
	if r.holding == nil {
		r.holding = map[Shard]time.Time{}
	}
	if now.Sub(r.holding[shard]) >= 2*holdMost {
		r.holding[shard] = now
	}
	return max(min(until, r.holding[shard].Add(holdMost).Sub(now)), 0)
}

// onlyAdds says that a Bundle is to say all that it says, and more. Without any that was sent it is a half that is to
// be made.
func onlyAdds(sent, spec *v1alpha1.BundleSpec, compared comparison) bool {
	if sent == nil {
		return true
	}
	return slices.Equal(sent.Halves, spec.Halves) &&
		contained(sent.ExportConditions, spec.ExportConditions,
			func(a, b *v1alpha1.ExportCondition) int { return compareConditions(*a, *b) },
			func(a, b *v1alpha1.ExportCondition) bool { return *a == *b }) &&
		contained(sent.Imports, spec.Imports,
			func(a, b *v1alpha1.Import) int { return compareKeys(keyOf(a), keyOf(b)) },
			func(a, b *v1alpha1.Import) bool { return compared.imports(*a, *b) || grows(a, b) })
}

// grows says that an import is to say what it says, and of more clusters.
func grows(a, b *v1alpha1.Import) bool {
	return a.Withheld == b.Withheld && a.Mode == b.Mode && samePointed(a.Choice, b.Choice) &&
		sameSettings(&a.Settings, &b.Settings) &&
		contained(a.Clusters, b.Clusters,
			func(a, b *v1alpha1.ImportCluster) int { return cmp.Compare(a.Cluster, b.Cluster) },
			func(a, b *v1alpha1.ImportCluster) bool { return sameCluster(*a, *b) })
}

// contained says that all of one list is in another, the same. Both are in the same order.
func contained[T any](list, other []T, order func(a, b *T) int, same func(a, b *T) bool) bool {
	for ; len(list) > 0; other = other[1:] {
		if len(list) > len(other) {
			return false
		}
		switch o := order(&list[0], &other[0]); {
		case o < 0, o == 0 && !same(&list[0], &other[0]):
			return false
		case o == 0:
			list = list[1:]
		}
	}
	return true
}
