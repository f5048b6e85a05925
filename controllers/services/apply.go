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
		spec, ok := d.Bundles[t.cluster]
		if !ok || !t.writable {
			continue
		}
		if t.sent != nil && !t.missing && !t.refresh {
			spec.Revision = t.sent.Revision
			if compared.bundles(t.sent, &spec) {
				t.mem.held.matches(t.sent, &spec)
				t.mem.unsent = time.Time{}
				continue
			}
		}
		spec.Revision = t.next()
		t.mem.unsent = t.carries(spec, targets, compared)
		writes = append(writes, func(ctx context.Context) error { return r.applyBundle(ctx, t, spec, encoded) })
	}
	decided(targets)
	return writes
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

// next is the revision to write: the answer to it tells that it has arrived.
func (t *target) next() int64 {
	if t.sent == nil {
		return 1
	}
	return t.sent.Revision + 1
}

func (r *Reconciler) applyBundle(ctx context.Context, t target, spec v1alpha1.BundleSpec, encoded *encoder) error {
	raw, err := encoded.bundle(&spec)
	if err != nil {
		return fmt.Errorf("encode Bundle %d for %s: %w", spec.Shard, t.cluster, err)
	}
	written, err := r.Works.ApplyBundle(ctx, t.cluster, spec.Shard, raw)
	if err != nil {
		return err
	}
	t.mem.held.wrote(&spec, written)
	if t.sent == nil {
		t.mem.answered = 0
	}
	t.mem.wrote(spec.Revision)
	t.mem.bundle.Wrote(&spec, r.Now())
	r.Metrics.Wrote(propagation.KindBundle)
	log.FromContext(ctx).V(1).Info("bundle written", "cluster", t.cluster, "shard", spec.Shard, "revision", spec.Revision)
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
