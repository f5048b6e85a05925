// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// old is a client whose cache shows one Work as it was at a time, and that counts requests to the API server.
type old struct {
	client.Client
	work                     *workv1alpha1.Work
	updates, patches, others int
}

func (o *old) Get(ctx context.Context, key client.ObjectKey, out client.Object, opts ...client.GetOption) error {
	if work, ok := out.(*workv1alpha1.Work); ok && o.work != nil {
		o.work.DeepCopyInto(work)
		return nil
	}
	return o.Client.Get(ctx, key, out, opts...)
}

func (o *old) Update(ctx context.Context, work client.Object, opts ...client.UpdateOption) error {
	o.updates++
	return o.Client.Update(ctx, work, opts...)
}

func (o *old) Patch(ctx context.Context, work client.Object, patch client.Patch, opts ...client.PatchOption) error {
	o.patches++
	return o.Client.Patch(ctx, work, patch, opts...)
}

func (o *old) Create(ctx context.Context, work client.Object, opts ...client.CreateOption) error {
	o.others++
	return o.Client.Create(ctx, work, opts...)
}

// TestWritesOfAWorkMeetReports: what a member has reported since is no reason to write a Work twice, and what somebody
// else has written is written over.
func TestWritesOfAWorkMeetReports(t *testing.T) {
	f := newFleet(t)
	f.karmadaJoin("c1")
	f.stop()
	key := propagation.BundleKey("c1", 0)
	o := &old{Client: f.client}
	w := propagation.Writer{Client: o, Live: f.client}
	last := propagation.Written{}
	apply := func(revision int64, known propagation.Written) propagation.Written {
		t.Helper()
		spec := v1alpha1.BundleSpec{Revision: revision, Imports: []v1alpha1.Import{}}
		spec.ExportConditions = []v1alpha1.ExportCondition{}
		raw, err := propagation.Encode(spec)
		f.must(err)
		written, err := w.ApplyBundle(t.Context(), "c1", 0, "", known, raw)
		f.must(err)
		var work workv1alpha1.Work
		f.must(f.client.Get(t.Context(), key, &work))
		var got v1alpha1.BundleSpec
		if f.must(propagation.Spec(&work, &got)); got.Revision != revision || written.Changed ||
			written.Generation != work.Generation || written.UID != work.UID {
			t.Fatalf("revision %d is written, want %d: %+v", got.Revision, revision, written)
		}
		return written
	}
	now := func() *workv1alpha1.Work {
		t.Helper()
		work := new(workv1alpha1.Work)
		f.must(f.client.Get(t.Context(), key, work))
		return work
	}
	edit := func(text string) {
		t.Helper()
		work := &workv1alpha1.Work{}
		work.Namespace, work.Name = key.Namespace, key.Name
		f.must(f.client.Patch(t.Context(), work, client.RawPatch(types.MergePatchType, []byte(text))))
	}
	check := func(what string, updates, patches, others int) {
		t.Helper()
		if o.updates != updates || o.patches != patches || o.others != others {
			t.Errorf("%s: %d updates, %d patches, %d others, want %d, %d, %d", what, o.updates, o.patches, o.others,
				updates, patches, others)
		}
		o.updates, o.patches, o.others = 0, 0, 0
	}
	last = apply(1, last)
	check("there is none", 0, 0, 1)
	o.work = now()
	last = apply(2, last)
	check("nothing has changed since", 1, 0, 0)
	last = apply(3, last)
	check("the cache does not show the last write", 0, 1, 0)
	o.work = now()
	edit(`{"metadata":{"annotations":{"sample":"of another"}}}`)
	last = apply(4, last)
	check("what does not concern the spec was written since", 1, 1, 0)
	if now().Annotations["sample"] == "" {
		t.Error("what somebody else has written beside the spec is lost")
	}
	o.work = now()
	edit(`{"spec":{"suspendDispatching":true}}`)
	last = apply(5, last)
	if check("the spec was written since", 2, 1, 0); now().Spec.SuspendDispatching != nil {
		t.Error("what somebody else has written into the spec is left there")
	}
	o.work = now()
	edit(`{"metadata":{"labels":{"` + propagation.LabelKind + `":"Nothing"}}}`)
	o.work = now()
	last = apply(6, last)
	if check("its label was changed", 1, 0, 0); now().Labels[propagation.LabelKind] != propagation.KindBundle {
		t.Error("the label is not put back")
	}
	o.work = now()
	ahead := last
	ahead.Generation += 20
	last = apply(7, ahead)
	check("Karmada was restored from a backup of before the last writes", 1, 1, 0)
	// Another in its place: what is known of the one before says nothing.
	before := o.work.UID
	gone := now()
	gone.Finalizers = nil
	f.must(f.client.Update(t.Context(), gone))
	f.must(f.client.Delete(t.Context(), gone))
	if last = apply(8, last); last.UID == before {
		t.Errorf("the Work that was deleted is written: %+v", last)
	}
}
