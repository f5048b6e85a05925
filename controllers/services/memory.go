// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"maps"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/propagation"
)

type seenKey struct {
	uid   string // of the Member
	shard int32
}

// memory is what was written for a member in one shard and may not be in the cache, or not in the API any more.
type memory struct {
	mailbox // of the shard's own Bundle
	// found is when the member was first found to be accepted.
	found time.Time
	// key of the Work of the shard's own Bundle.
	key types.NamespacedName
	// halves that were written or found, since when there are to be some that are not listed, and what was made of the
	// imports.
	halves  map[string]*mailbox
	halving time.Time
	parted  parted
	// record in force, and when it was last written by this controller.
	record   propagation.WriteBehind[v1alpha1.ExportRecord]
	recorded time.Time
	// outdated is since when the record is to be another one, in backends alone or more; zero while it is not.
	outdated time.Time
	// pending is what the record is to say, while the write of it waits, has not had its turn or has failed: it counts as
	// if it were written. Otherwise exports would be seen for the first time once more with each decision, and all Bundles
	// that have them say so.
	pending *v1alpha1.ExportRecordSpec
	// answered is the newest revision that the member has answered. What answers an older one comes
	// from the past, say from a restored backup.
	answered int64
	// kept is the record as it was last read, and shown the UID of the last one that the cache had.
	kept  *v1alpha1.ExportRecord
	shown types.UID
	// refused says why the last report was not used.
	refused string
	// exported is what the member was last found to export.
	exported exported
	// unusable are the imports in all halves that the member says are not, and of what lists they are made.
	unusable   []v1alpha1.ImportProblem
	unusableIn [][]v1alpha1.ImportProblem
}

// mailbox is one Bundle of a member.
type mailbox struct {
	// work is the name of a half's Work, which takes longer to make than to keep.
	work   string
	bundle propagation.WriteBehind[Bundle]
	echo   fleet.Echo
	// held is what was read of the Work.
	held held
	// written is when it was last written by this controller, and deleted the Work that this has deleted.
	written time.Time
	deleted types.UID
	// Of changes of others' exports, unsent is when the first was seen that is to be written for the member, and underWay
	// are those that were and are not answered.
	unsent   time.Time
	underWay underWay
}

// of returns the mailbox of a half.
func (m *memory) of(cluster string, shard int32, half string) *mailbox {
	if m.halves[half] == nil {
		m.halves[half] = newMailbox()
		m.halves[half].work = propagation.HalfKey(cluster, shard, half).Name
	}
	return m.halves[half]
}

// newMailbox is of a half: nobody calls for an answer, as the member reports nothing there that others need.
func newMailbox() *mailbox { return &mailbox{held: held{half: true}} }

// latest returns the spec in force, given the Work that the cache has and what that carries (nil: none), and after how
// long to look again where that is a write that the cache does not show yet.
func (m *mailbox) latest(work *workv1alpha1.Work, cached *Bundle,
	now time.Time) (*Bundle, time.Duration) {
	lag := propagation.MaxCacheLag
	if work != nil {
		lag = propagation.Lag(m.held.sentUID, m.held.sentGeneration, work)
	}
	return m.bundle.Latest(lag, cached, func(written, cached *Bundle) bool {
		return written.Revision > cached.Revision
	}, now)
}

// latestRecord returns the record in force, given the one that the cache has (nil: none), and after how long to look
// again where that is a write that the cache does not show yet.
func (m *memory) latestRecord(cached *v1alpha1.ExportRecord, now time.Time) (*v1alpha1.ExportRecord, time.Duration) {
	lag, last := propagation.MaxCacheLag, m.record.Remembered()
	switch {
	case cached != nil:
		if m.shown = cached.UID; last != nil {
			lag = propagation.Lag(last.UID, last.Generation, cached)
		}
	case last != nil && last.UID == m.shown:
		lag = 0 // the cache has had it: somebody has deleted it
	}
	return m.record.Latest(lag, cached, newerRecord, now)
}

// newerRecord says so of records. Of another UID is what was created after the cached one was deleted.
func newerRecord(written, cached *v1alpha1.ExportRecord) bool {
	return written.UID != cached.UID || written.Generation > cached.Generation
}

// memory of a Member's shard; a new Member under the same name has none.
func (r *Reconciler) memory(record *v1alpha1.Member, shard int32) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[seenKey]*memory{}
	}
	k := seenKey{string(record.UID), shard}
	if r.seen[k] == nil {
		r.seen[k] = &memory{found: r.Now(), mailbox: mailbox{echo: fleet.NewEcho(fmt.Sprintf("%s/%d", k.uid, shard), 0)},
			key: propagation.BundleKey(record.Name, shard)}
	}
	return r.seen[k]
}

// forgetDecision drops what is kept of a shard that is no more.
func (r *Reconciler) forgetDecision(shard Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.decided, shard)
	delete(r.unlabelled, shard)
	delete(r.holding, shard)
	delete(r.rested, shard)
}

// forgetGone drops what is remembered of a shard's Work of members that are gone, of any ClusterSet.
func (r *Reconciler) forgetGone(members []v1alpha1.Member, shard int32) {
	there := make(map[string]bool, len(members))
	for i := range members {
		there[string(members[i].UID)] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.seen, func(k seenKey, _ *memory) bool { return k.shard == shard && !there[k.uid] })
	maps.DeleteFunc(r.deltas, func(uid string, _ *deltas) bool { return !there[uid] })
}

// last is the last decision on a shard.
func (r *Reconciler) last(shard Shard) *latest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decided == nil {
		r.decided = map[Shard]*latest{}
	}
	if r.decided[shard] == nil {
		r.decided[shard] = new(latest)
	}
	return r.decided[shard]
}

// writing notes what an ExportRecord is about to say: its event may come before the write returns.
func (r *Reconciler) writing(name string, spec v1alpha1.ExportRecordSpec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records == nil {
		r.records = map[string]v1alpha1.ExportRecordSpec{}
	}
	r.records[name] = spec
}

func (r *Reconciler) noteUnlabelled(shard Shard, unlabelled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unlabelled == nil {
		r.unlabelled = map[Shard]bool{}
	}
	r.unlabelled[shard] = unlabelled
}
