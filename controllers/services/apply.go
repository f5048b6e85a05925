// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// changes are the writes of the records and Bundles that differ, and when to look again for those that wait (0: never).
// What only adds to imports what newcomers export is held for a while.
func (r *Reconciler) changes(ctx context.Context, targets []target, d Decision, shards int32,
	h hold) (writes []write, again time.Duration, _ error) {
	news := news{targets, rates(targets, r.Now()), comparison{}, newEncoder(), h}
	for _, t := range targets {
		t.mem.pending = nil
		if record, ok := d.Records[t.cluster]; ok &&
			(t.record == nil || !sameRecord(&t.record.Spec, &record)) {
			t.mem.pending = &record
			if t.mem.outdated.IsZero() {
				t.mem.outdated = r.Now()
			}
			if wait := t.recordWaits(&record, r.Now()); wait > 0 {
				again = sooner(again, wait)
			} else {
				writes = append(writes, write{due: t.recordDue(&record), do: func(ctx context.Context) error {
					return r.applyRecord(ctx, t, record)
				}})
			}
		} else {
			t.mem.outdated = time.Time{}
		}
		if spec, ok := d.Bundles[t.cluster]; ok && t.writable {
			posted, after, err := r.postAll(ctx, t, spec, d.Sizes[t.cluster], shards, news)
			if err != nil {
				return nil, 0, err
			}
			writes, again = append(writes, posted...), sooner(again, after)
		}
	}
	decided(targets)
	return writes, again, nil
}

// postAll returns what is to be written of a member's Bundles of a shard, given all that it should have of that.
func (r *Reconciler) postAll(ctx context.Context, t target, all Bundle, sizes []int, shards int32,
	news news) (writes []write, again time.Duration, _ error) {
	sheet, err := r.open(ctx, &t, &all, sizes, shards, news.compared)
	if err != nil {
		return nil, 0, err
	}
	if sheet != nil {
		defer sheet.mu.Unlock() // be it that something panics: all other shards would wait
	}
	letters := t.letters(all, sizes, news.compared)
	for _, l := range letters {
		if l.spec != nil && l.bundle.half == "" {
			l.spec = sheet.listing(l.spec)
			if t.sent == nil {
				l.spec = news.hold.first(t.cluster, l.spec)
			}
			l.halved = t.mem.halved(l.spec, letters, r.Now())
		}
		posted, after := r.post(t, l, news, sheet)
		writes, again = append(writes, posted...), sooner(again, after)
	}
	if sheet != nil && sheet.close() {
		r.wakeDeltas(t.cluster)
	}
	return writes, again, nil
}

// halved returns when the last one of the halves was written that are to have what a shard's own Bundle has, or, if
// this controller has not written it, since when there are to be any; zero where that lists some, or there are none.
// One that is being deleted can say nothing for as long as Karmada does not reach the member.
func (m *memory) halved(own *Bundle, letters []letter, now time.Time) (last time.Time) {
	for _, l := range letters {
		if len(own.Halves) > 0 || l.bundle.half == "" || l.spec == nil || l.bundle.terminating {
			continue
		}
		if m.halving.IsZero() {
			m.halving = now
		}
		last = later(last, cmp.Or(l.bundle.box.written, m.halving))
	}
	if last.IsZero() {
		m.halving = last
	}
	return last
}

// news is what the writes of one decision have in common.
type news struct {
	targets []target
	// rates of the exporters' changes.
	rates    map[string]float64
	compared comparison
	encoded  *encoder
	hold     hold
}

// post returns what is to be written of one Bundle, if anything is, and when to look again if that is to wait.
func (r *Reconciler) post(t target, l letter, news news, sheet *sheet) ([]write, time.Duration) {
	b := l.bundle
	if b.terminating {
		if l.spec != nil {
			sheet.note(l) // the member still goes by it
		}
		return nil, 0 // the event that it is gone brings the next decision
	}
	if l.spec == nil {
		return []write{{do: func(ctx context.Context) error {
			uid := cmp.Or(b.box.held.sentUID, b.box.held.uid)
			if err := r.Works.DeleteHalf(ctx, t.cluster, l.shard, b.half); err != nil {
				return err
			}
			*b.box = mailbox{work: b.box.work, held: held{half: true}, deleted: uid}
			return nil
		}}}, 0
	}
	spec, noted := *l.spec, sheet.note(l)
	var changed []*v1alpha1.Import
	deferrable := false
	if b.sent != nil && !b.missing && !b.refresh {
		spec.Revision, spec.Sequence = b.sent.Revision, b.sent.Sequence
		if news.compared.bundles(b.sent, &spec) {
			b.box.held.matches(b.sent, &spec)
			b.box.unsent = time.Time{}
			return nil, 0
		}
		inForce := b.half == "" || t.lists(b.half)
		if sheet != nil && inForce && sameButImports(b.sent, &spec) && sheet.unmoved(noted) {
			b.box.unsent = time.Time{}
			return nil, 0
		}
		if sheet.counts(b.sent) && inForce {
			changed, deferrable = onlyEndpoints(b.sent, &spec, news.compared)
		}
		if deferrable && sheet.covers(noted, changed) {
			b.box.unsent = time.Time{}
			return nil, 0
		}
	}
	b.box.unsent = t.carries(b, &spec, news.targets, news.compared)
	known := b.sent != nil || b.half != ""
	if wait := news.hold.lasts(l, r.Now()); wait > 0 && known && !b.missing && !b.refresh &&
		news.hold.onlyAdds(t.cluster, b.sent, &spec, news.compared) {
		return nil, wait
	}
	wait := b.waits(r.Now())
	if deferrable && sheet.defers(changed, wait) {
		sheet.take(changed, b.box.unsent)
		b.box.unsent = time.Time{}
		return nil, 0
	}
	if wait > 0 {
		return nil, wait
	}
	w := write{due: cmp.Or(b.box.unsent, b.box.written)}
	if b.sent != nil {
		w.due = dueAfter(w.due, calmest(b.sent, &spec, news.rates, news.compared))
	}
	spec.Revision, spec.Sequence = t.next(b, r.Now()), 0
	if sheet != nil {
		spec.Sequence = sheet.next(r.Now())
		noted.pending = spec.Sequence
	}
	w.do = func(ctx context.Context) error { return r.applyBundle(ctx, t, b, spec, news.encoded) }
	return []write{w}, 0
}

const (
	// maxUnanswered is how many writes of one Bundle are under way at once: what a rolling update changes, that one pod
	// goes and the next one comes, is two.
	maxUnanswered = 2
	// unansweredPace is how long further ones wait for an answer, and unseenPace for the cache to show those before.
	unansweredPace = time.Second
	unseenPace     = 10 * time.Second
)

// waits is how long another write of a Bundle waits for the member to answer those before. What changes meanwhile is
// one write then. A member answers as fast as the API server and Karmada carry it there and back, so that these set the
// pace where many Bundles change, and none is written that would wait in their queues.
func (b *sentBundle) waits(now time.Time) time.Duration {
	pace := unansweredPace
	switch {
	case b.sent == nil || b.missing || b.refresh:
		return 0
	case b.unseen:
		pace = unseenPace
	case b.observed >= b.sent.Revision-maxUnanswered+1 && b.observed <= b.sent.Revision:
		return 0 // an answer from the future is none
	}
	return max(b.box.written.Add(pace).Sub(now), 0)
}

// next is the revision to write: the answer to it tells that it has arrived. A half begins with one that no half of
// that name has had: what is left of one in the member, as after a restore of Karmada from a backup, is no answer. One
// of the shard's own Bundle is beyond the last that the member has answered, which what is restored may be far behind.
func (t *target) next(b *sentBundle, now time.Time) int64 {
	switch {
	case b.sent != nil && b.half == "":
		return max(b.sent.Revision, t.mem.answered) + 1
	case b.sent != nil:
		return b.sent.Revision + 1
	case b.half != "":
		return now.UnixMilli()
	}
	return 1
}

func (r *Reconciler) applyBundle(ctx context.Context, t target, b *sentBundle, spec Bundle,
	encoded *encoder) error {
	raw, err := encoded.bundle(&spec, t.readsText)
	if err != nil {
		return fmt.Errorf("encode Bundle %d for %s: %w", spec.Shard, t.cluster, err)
	}
	written, err := r.Works.ApplyBundle(ctx, t.cluster, spec.Shard, b.half, b.box.held.last(), raw)
	if err != nil {
		return err
	}
	b.box.held.wrote(&spec, written)
	if b.half == "" && b.sent == nil {
		t.mem.answered = 0
	}
	b.box.wrote(spec.Revision)
	b.box.bundle.Wrote(&spec, r.Now())
	b.box.written = r.Now()
	r.Metrics.Wrote(propagation.KindBundle)
	log.FromContext(ctx).V(1).Info("bundle written", "cluster", t.cluster, "shard", spec.Shard, "half", b.half,
		"revision", spec.Revision)
	if written.Changed {
		// It is said once for each write, and not written again: what has changed it would do so again.
		return fmt.Errorf("the Work of Bundle %d for %s has another spec than was sent, and its imports may be wrong: a "+
			"webhook or policy of Karmada's API changes Works; exempt those labelled %s=%s", spec.Shard, t.cluster,
			propagation.LabelManagedBy, v1alpha1.ManagedBy)
	}
	return nil
}

// recordPace is how often a record is written that differs in backends alone, and recordPatience how long other writes
// come before it.
const (
	recordPace     = 10 * time.Second
	recordPatience = time.Minute
)

// recordWaits is how long the write of a member's record waits. Nothing goes by it while the member reports, and each
// pod that is replaced would be one more write.
func (t *target) recordWaits(record *v1alpha1.ExportRecordSpec, now time.Time) time.Duration {
	if t.isGoneBy(record) {
		return 0
	}
	return max(t.mem.recorded.Add(recordPace).Sub(now), 0)
}

// recordDue is when the write of a member's record is due: at once where anybody goes by it, else behind what members
// are to be told. Where pods are replaced all the time nearly each is one more record to be written, and an API server
// that can do no more than these would never come to anything else.
func (t *target) recordDue(record *v1alpha1.ExportRecordSpec) time.Time {
	if t.isGoneBy(record) {
		return time.Time{}
	}
	return t.mem.outdated.Add(recordPatience)
}

// isGoneBy says that anybody goes by a member's record before the next one: it differs in more than backends from the
// one that is there, or the member does not report.
func (t *target) isGoneBy(record *v1alpha1.ExportRecordSpec) bool {
	return t.record == nil || t.said == nil || t.lost || !sameRecordBy(sameButBackends, &t.record.Spec, record)
}

func (r *Reconciler) applyRecord(ctx context.Context, t target, spec v1alpha1.ExportRecordSpec) error {
	record := &v1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ExportRecordName(t.cluster, spec.Shard)}}
	write := func(ctx context.Context, o client.Object) error { return r.Client.Create(ctx, o) }
	if t.record != nil {
		record = t.record.DeepCopy()
		write = func(ctx context.Context, o client.Object) error { return r.Client.Update(ctx, o) }
	}
	record.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Member", Name: t.owner.Name, UID: t.owner.UID,
	}}
	// The client decodes the answer of the API server into what it sends, and spec is shared with others that read it.
	record.Spec = *spec.DeepCopy()
	r.writing(record.Name, spec)
	err := write(ctx, record)
	if t.record != nil && apierrors.IsNotFound(err) {
		// Somebody has just deleted it, which is one more race that is lost.
		err = apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "exportrecords"},
			record.Name, err)
	}
	if err != nil {
		return fmt.Errorf("write the ExportRecord of %s, shard %d: %w", t.cluster, spec.Shard, err)
	}
	t.mem.record.Wrote(record, r.Now())
	t.mem.recorded, t.mem.pending, t.mem.outdated = r.Now(), nil, time.Time{}
	return nil
}
