// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/propagation"
)

// deltasOf returns the deltas of a member, nil if its agent reads none.
func (r *Reconciler) deltasOf(record *v1alpha1.Member) *deltas {
	if !record.Status.ReadsDeltas {
		r.dropDeltas(record)
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deltas == nil {
		r.deltas = map[string]*deltas{}
	}
	if r.deltas[string(record.UID)] == nil {
		r.deltas[string(record.UID)] = newDeltas(record.Name)
	}
	return r.deltas[string(record.UID)]
}

// dropDeltas forgets the deltas of a member that reads none, or takes no part. What has found that may be a look at a
// shard that began long ago: others may have gone by these deltas since, so that all shards are looked at again.
func (r *Reconciler) dropDeltas(record *v1alpha1.Member) {
	r.mu.Lock()
	d := r.deltas[string(record.UID)]
	delete(r.deltas, string(record.UID))
	r.mu.Unlock()
	if d == nil {
		return
	}
	d.mu.Lock()
	number := d.number
	d.mu.Unlock()
	r.wakeShards(record.Spec.ClusterSet, number)
}

// Deliver brings the Bundles of deltas of one member up to date. What is written of them is found out when it has a
// place at the gate, and no more than there are places then: what changes while others have these is in the next write.
func (r *Reconciler) Deliver(ctx context.Context, cluster string) (ctrl.Result, error) {
	l, again, err := r.look(ctx, cluster)
	if l == nil {
		return ctrl.Result{RequeueAfter: again}, err
	}
	if !l.due() {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	var others errgroup.Group
	again, err = r.deliver(ctx, cluster, &others)
	return ctrl.Result{RequeueAfter: again}, errors.Join(err, others.Wait())
}

// deliver waits for a place at the gate, finds out what is to be written of a member's deltas, and writes the first of
// that. The others have places of their own, as soon as there are.
func (r *Reconciler) deliver(ctx context.Context, cluster string, others *errgroup.Group) (time.Duration, error) {
	r.gate.enter(ofDeltas)
	defer r.gate.leave(ofDeltas)
	writes, again, err := r.delivery(ctx, cluster, 1+r.gate.free())
	if len(writes) == 0 {
		return again, err
	}
	for _, w := range writes[1:] {
		others.Go(func() error {
			r.gate.enter(ofDeltas)
			defer r.gate.leave(ofDeltas)
			return w.do(ctx)
		})
	}
	return again, writes[0].do(ctx)
}

// looked is how a member's deltas were found to be, where something may be written of them. They are locked.
type looked struct {
	carried
	d      *deltas
	record *v1alpha1.Member
	now    time.Time
}

// due says that something is to be written, and unlocks the deltas.
func (l *looked) due() bool {
	defer l.d.mu.Unlock()
	if l.d.answers.wanted(l.d, l.now) || slices.ContainsFunc(l.sent, func(s sentDelta) bool {
		return s.again && !s.closed
	}) {
		return true
	}
	compared := comparison{}
	for k, s := range l.drifts {
		if s.late(l.copies[k], compared) {
			return true
		}
	}
	return false
}

// look brings a member's deltas up to date with what there is, and says when to look again. What it returns is locked
// until who has asked unlocks it; it is nil where nothing is to be written now.
func (r *Reconciler) look(ctx context.Context, cluster string) (l *looked, again time.Duration, _ error) {
	record := new(v1alpha1.Member)
	if err := r.Client.Get(ctx, client.ObjectKey{Name: cluster}, record, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, client.IgnoreNotFound(err)
	}
	r.mu.Lock()
	d := r.deltas[string(record.UID)]
	r.mu.Unlock()
	if d == nil || !takesPart(record) {
		return nil, 0, nil
	}
	works, err := r.Works.DeltasOf(ctx, cluster)
	if err != nil {
		return nil, 0, err
	}
	apart, err := r.bundle(ctx, propagation.AnswersKey(cluster))
	if err != nil {
		return nil, 0, err
	}
	c, err := r.cluster(ctx, cluster)
	if err != nil {
		return nil, 0, err
	}
	d.mu.Lock()
	defer func() {
		if l == nil {
			d.mu.Unlock()
		}
	}()
	d.answers.read(apart)
	again, foreign := d.load(r, works, c)
	again = sooner(again, r.followDeltas(record.Spec.ClusterSet, d, fleet.Lost(c)))
	switch {
	case foreign:
		// What the shards stand to is another matter.
		d.forget()
		r.wakeShards(record.Spec.ClusterSet, d.number)
	case d.there() > d.listed:
		r.wakeShards(record.Spec.ClusterSet, 1)
	}
	if fleet.Lost(c) {
		// Each change would be one more Bundle that a member keeps which cannot answer. What it has missed is written
		// when Karmada reaches it again.
		return nil, again, nil
	}
	drifts, now := d.all(), r.Now()
	sent, busy := d.sent(now)
	if drifts == nil || busy > 0 {
		return nil, sooner(again, max(busy, 0)), nil
	}
	if shards := d.undecided(drifts); len(shards) > 0 {
		r.wake(record.Spec.ClusterSet, shards...)
		return nil, again, nil
	}
	return &looked{carried{drifts, sent, d.look().copies}, d, record, now}, sooner(again, d.answers.later(d, now)), nil
}

// delivery is what to write of a member's deltas, at most so many of these Bundles, and when to look again.
func (r *Reconciler) delivery(ctx context.Context, cluster string, most int) ([]write, time.Duration, error) {
	l, again, err := r.look(ctx, cluster)
	if l == nil {
		return nil, again, err
	}
	d := l.d
	defer d.mu.Unlock()
	arranged, left := l.arrange(comparison{})
	if left {
		log.FromContext(ctx).V(1).Info("no room in deltas", "cluster", cluster)
	}
	numbers := slices.Sorted(maps.Keys(arranged))
	all := len(numbers) <= most
	if !all {
		numbers = numbers[:most] // the rest when these are answered
	} else {
		numbers = append(numbers, l.reserve(arranged)...)
	}
	var writes []write
	encoded := newEncoder()
	if (len(d.boxes) > 0 || len(numbers) > 0) && d.answers.missing(l.now) {
		writes = append(writes, write{do: func(ctx context.Context) error { return r.applyAnswers(ctx, d, encoded) }})
	}
	for _, n := range numbers {
		imports := arranged[n]
		if imports == nil {
			imports = []*v1alpha1.Import{} // one in reserve
		}
		for n >= len(d.boxes) {
			d.boxes = append(d.boxes, &sentBundle{box: newMailbox()})
		}
		b := d.boxes[n]
		spec := Bundle{Revision: b.nextDelta(l.now), Sequence: d.next(l.now), AnswerApart: true,
			Imports: imports, ExportConditions: []v1alpha1.ExportCondition{}}
		if b.box.unsent.IsZero() && len(imports) > 0 { // else the write before has failed
			b.box.unsent = d.since
		}
		writes = append(writes, write{do: func(ctx context.Context) error {
			return r.applyDelta(ctx, d, l.record.Status.ReadsText, int32(n), b, spec, encoded)
		}})
	}
	switch {
	case all:
		d.since = time.Time{} // what is not late any more is no change that the member waits for
	case !d.since.IsZero():
		d.since = l.now // of what is left nobody knows since when it waits; it has from now on
	}
	return writes, again, nil
}

// cluster is what Karmada says of one, to be read only; nil if it has none of that name.
func (r *Reconciler) cluster(ctx context.Context, name string) (*clusterv1alpha1.Cluster, error) {
	c := new(clusterv1alpha1.Cluster)
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, c, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the Cluster %s: %w", name, err)
	}
	return c, nil
}

// nextDelta is the revision to write: one that nothing left in the member has, as that of a half.
func (b *sentBundle) nextDelta(now time.Time) int64 {
	if b.sent == nil {
		return now.UnixMilli()
	}
	return b.sent.Revision + 1
}

func (r *Reconciler) applyDelta(ctx context.Context, d *deltas, text bool, n int32, b *sentBundle,
	spec Bundle, encoded *encoder) error {
	raw, err := encoded.bundle(&spec, text)
	if err != nil {
		return fmt.Errorf("encode deltas %d for %s: %w", n, d.cluster, err)
	}
	written, err := r.Works.ApplyDelta(ctx, d.cluster, n, b.box.held.last(), raw)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b.box.held.wrote(&spec, written)
	b.box.wrote(spec.Revision)
	b.box.bundle.Wrote(&spec, r.Now())
	b.box.written = r.Now()
	b.sent, b.missing, b.refresh, b.unseen = &spec, false, false, true
	r.Metrics.Wrote(propagation.KindBundle)
	log.FromContext(ctx).V(1).Info("deltas written", "cluster", d.cluster, "number", n, "revision", spec.Revision,
		"imports", len(spec.Imports))
	return nil
}

// followDeltas counts the changes that have come to a member in deltas, and says when to look again.
func (r *Reconciler) followDeltas(set string, d *deltas, lost bool) (again time.Duration) {
	if lost {
		d.since = time.Time{}
	}
	for _, b := range d.boxes {
		again = sooner(again, r.followed(set, d.cluster, b, lost))
	}
	return again
}

// clusterOfDeltas is the cluster whose deltas a Work carries, or the answers to them.
func clusterOfDeltas(_ context.Context, o client.Object) []string {
	if _, ok := o.(*workv1alpha1.Work); !ok || o.GetLabels()[propagation.LabelDelta] == "" {
		return nil
	}
	return []string{propagation.ClusterOf(o)}
}
