// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// changes are the writes of the records and Bundles that differ.
func (r *Reconciler) changes(targets []target, d Decision) []func(context.Context) error {
	var writes []func(context.Context) error
	compared, encoded := comparison{}, newEncoder()
	for _, t := range targets {
		if record, ok := d.Records[t.cluster]; ok &&
			(t.record == nil || !sameRecord(&t.record.Spec, &record)) {
			writes = append(writes, func(ctx context.Context) error { return r.applyRecord(ctx, t, record) })
		}
		if spec, ok := d.Bundles[t.cluster]; ok && t.writable {
			for _, l := range t.letters(spec, d.Sizes[t.cluster], compared) {
				writes = append(writes, r.post(t, l, targets, compared, encoded)...)
			}
		}
	}
	decided(targets)
	return writes
}

// post returns what is to be written of one Bundle, if anything is.
func (r *Reconciler) post(t target, l letter, targets []target, compared comparison,
	encoded *encoder) []func(context.Context) error {
	b := l.bundle
	if b.terminating {
		return nil // the event that it is gone brings the next decision
	}
	if l.spec == nil {
		return []func(context.Context) error{func(ctx context.Context) error {
			if err := r.Works.DeleteHalf(ctx, t.cluster, l.shard, b.half); err != nil {
				return err
			}
			*b.box = mailbox{work: b.box.work, held: held{half: true}}
			return nil
		}}
	}
	spec := *l.spec
	if b.sent != nil && !b.missing && !b.refresh {
		spec.Revision = b.sent.Revision
		if compared.bundles(b.sent, &spec) {
			b.box.held.matches(b.sent, &spec)
			b.box.unsent = time.Time{}
			return nil
		}
	}
	spec.Revision = b.next(r.Now())
	b.box.unsent = t.carries(b, &spec, targets, compared)
	return []func(context.Context) error{func(ctx context.Context) error {
		return r.applyBundle(ctx, t, b, spec, encoded)
	}}
}

// write carries out writes. One that fails is no reason to leave the others out.
func (r *Reconciler) write(ctx context.Context, writes []func(context.Context) error) error {
	var g errgroup.Group
	g.SetLimit(parallelWrites)
	for _, write := range writes {
		g.Go(func() error { return write(ctx) })
	}
	return g.Wait()
}

// next is the revision to write: the answer to it tells that it has arrived. A half begins with one that no half of
// that name has had: what is left of one in the member, as after a restore of Karmada from a backup, is no answer.
func (b *sentBundle) next(now time.Time) int64 {
	switch {
	case b.sent != nil:
		return b.sent.Revision + 1
	case b.half != "":
		return now.UnixMilli()
	}
	return 1
}

func (r *Reconciler) applyBundle(ctx context.Context, t target, b *sentBundle, spec v1alpha1.BundleSpec,
	encoded *encoder) error {
	raw, err := encoded.bundle(&spec)
	if err != nil {
		return fmt.Errorf("encode Bundle %d for %s: %w", spec.Shard, t.cluster, err)
	}
	written, err := r.Works.ApplyBundle(ctx, t.cluster, spec.Shard, b.half, raw)
	if err != nil {
		return err
	}
	b.box.held.wrote(&spec, written)
	if b.half == "" && b.sent == nil {
		t.mem.answered = 0
	}
	b.box.wrote(spec.Revision)
	b.box.bundle.Wrote(&spec, r.Now())
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
	if err := write(ctx, record); err != nil {
		return fmt.Errorf("write the ExportRecord of %s, shard %d: %w", t.cluster, spec.Shard, err)
	}
	t.mem.record.Wrote(record, r.Now())
	return nil
}
