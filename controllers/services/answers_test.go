// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// TestAnswersThatAreNone: a member writes what it likes.
func TestAnswersThatAreNone(t *testing.T) {
	zeros := strings.TrimSuffix(strings.Repeat("0,", 2*v1alpha1.MaxDeltas), ",")
	for _, c := range []struct {
		name, status string
		want         []int64
	}{
		{"none", ``, nil},
		{"no list", `{"observedRevision":1,"exports":[]}`, nil},
		{"some", `{"observedRevision":1,"deltas":[3,0,5]}`, []int64{3, 0, 5}},
		{"beside exports that cannot be read", `{"exports":17,"deltas":[3]}`, []int64{3}},
		{"text", `{"deltas":["3"]}`, nil},
		{"no object", `[3]`, nil},
		{"a fraction", `{"deltas":[3.5]}`, nil},
		{"one that is too large", `{"deltas":[99999999999999999999]}`, nil},
		{"more than there can be", `{"deltas":[` + zeros + `]}`, make([]int64, v1alpha1.MaxDeltas)},
		{"a report that is too large", `{"deltas":[3],"x":"` + strings.Repeat("x", maxAnswers) + `"}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1"}}
			if c.status != "" {
				work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{Status: &runtime.RawExtension{
					Raw: []byte(c.status)}}}
			}
			a := answers{revisions: []int64{7, 7, 7}}
			a.read(work)
			if !slices.Equal(a.revisions, c.want) {
				t.Errorf("expected %v, found %v", c.want, a.revisions)
			}
			if got := a.to(v1alpha1.MaxDeltas); got != 0 {
				t.Errorf("one that there cannot be is answered by %d", got)
			}
			work = work.DeepCopy()
			work.ResourceVersion, work.Status.ManifestStatuses = "2", nil
			if a.read(work); len(a.revisions) != 0 {
				t.Errorf("found %v of a Work that says nothing any more", a.revisions)
			}
		})
	}
	a := answers{uid: "u", version: "1", revisions: []int64{7}}
	deleted := metav1.NewTime(now)
	for _, work := range []*workv1alpha1.Work{nil, {ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1",
		DeletionTimestamp: &deleted}}} {
		a := a
		if a.read(work); a.to(0) != 0 {
			t.Errorf("found %v of a Work that is not there, or goes", a.revisions)
		}
	}
	a.read(&workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{UID: types.UID("other"), ResourceVersion: "1"}})
	if a.to(0) != 0 {
		t.Errorf("found %v of another Work of that name", a.revisions)
	}
}

// newAnswering is an importer that has answered deltas, apart or in themselves.
func newAnswering(t *testing.T, services int, apart bool) *churning {
	t.Helper()
	i := newChurning(t, 1, services)
	i.apart = apart
	i.rest(0)
	for s := range 12 {
		i.tire()
		i.replace(0, s)
		i.answerAllOf(0)
		i.rest(0)
	}
	return i
}

// TestWhereDeltasAreAnswered: apart, or in themselves by an agent of before, and it is the same.
func TestWhereDeltasAreAnswered(t *testing.T) {
	for _, apart := range []bool{true, false} {
		t.Run(fmt.Sprintf("apart %t", apart), func(t *testing.T) {
			const services = 40
			i := newAnswering(t, services, apart)
			i.check("at rest", services)
			d := i.ofImporter()
			if len(d.boxes) == 0 {
				t.Fatal("expected deltas, found none")
			}
			work, err := i.bundle(t.Context(), propagation.AnswersKey(importing))
			if err != nil || work == nil {
				t.Fatalf("expected a Bundle for the answers, found %v, %v", work, err)
			}
			if status := string(propagation.Status(work)); strings.Contains(status, `"deltas":[`) != apart {
				t.Errorf("the Bundle for the answers says %q", status)
			}
			for n, b := range d.boxes {
				if len(b.box.underWay) > 0 {
					t.Errorf("deltas %d: %d changes are under way still, though all is answered", n, len(b.box.underWay))
				}
				if !b.answered() || !b.sent.AnswerApart || (b.observed == 0) != apart {
					t.Errorf("deltas %d: answered %t, asked for it apart %t, observed %d", n, b.answered(), b.sent.AnswerApart,
						b.observed)
				}
			}
		})
	}
}

// forbidding is a client that may not create the Work of the Bundle for answers, and counts how often it was to.
type forbidding struct {
	client.Client
	tried int
}

func (f *forbidding) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if o.GetName() == propagation.AnswersKey(importing).Name {
		f.tried++
		return apierrors.NewForbidden(schema.GroupResource{Resource: "works"}, o.GetName(), nil)
	}
	return f.Client.Create(ctx, o, opts...)
}

// TestDeltasWithoutABundleForAnswers: where that may not be written, by a policy of Karmada's API, changes come in
// deltas all the same, which are answered in themselves. It is tried once a minute.
func TestDeltasWithoutABundleForAnswers(t *testing.T) {
	const services = 40
	i := newChurning(t, 1, services)
	i.apart = true
	f := &forbidding{Client: i.shelf}
	i.Works = propagation.Writer{Client: f, Live: i.shelf}
	churn := func() {
		t.Helper()
		for s := range 12 {
			i.tire()
			i.replace(0, s)
			i.answerAllOf(0)
			i.rest(0)
		}
		i.check("at rest", services)
	}
	churn()
	boxes := i.ofImporter().boxes
	if len(boxes) == 0 {
		t.Fatal("expected deltas, found none")
	}
	for n, b := range boxes {
		if !b.answered() || b.observed != b.sent.Revision {
			t.Errorf("deltas %d: expected revision %d to be answered there, found %d", n, b.sent.Revision, b.observed)
		}
	}
	if f.tried != 1 {
		t.Errorf("expected one try within a minute, found %d", f.tried)
	}
	i.now = i.now.Add(propagation.MaxCacheLag + time.Second)
	churn()
	if f.tried != 2 {
		t.Errorf("expected one more a minute later, found %d", f.tried)
	}
}

// TestTheBundleForAnswersIsWritten once there are deltas, and not while its Work goes or the cache may not show it yet.
func TestTheBundleForAnswersIsWritten(t *testing.T) {
	some := &deltas{boxes: []*sentBundle{{}}}
	for name, c := range map[string]struct {
		a      answers
		d      *deltas
		wanted bool
		later  bool
	}{
		"no deltas":              {answers{}, &deltas{}, false, false},
		"none was written":       {answers{}, some, true, false},
		"it is there":            {answers{version: "1"}, some, false, false},
		"it says something else": {answers{version: "1", uid: "u", other: true}, some, true, false},
		"a webhook has it say so": {answers{version: "1", uid: "u", generation: 2, other: true,
			sent: propagation.Written{UID: "u", Generation: 2}}, some, false, false},
		"it goes":                    {answers{terminating: true}, some, false, false},
		"it goes, and is wrong":      {answers{version: "1", uid: "u", other: true, terminating: true}, some, false, false},
		"the cache shows it not yet": {answers{written: now.Add(-time.Second)}, some, false, true},
		"it has been deleted since":  {answers{written: now.Add(-propagation.MaxCacheLag - time.Second)}, some, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.a.wanted(c.d, now); got != c.wanted {
				t.Errorf("it is to be written: %t", got)
			}
			after := c.a.later(c.d, now)
			if got := after > 0; got != c.later {
				t.Errorf("it is looked at again in %s", after)
			}
			if c.later && !c.a.wanted(c.d, now.Add(after)) {
				t.Errorf("looked at again in %s it is not to be written", after)
			}
		})
	}
}

// TestTheBundleForAnswersIsPutRight where somebody has changed what its Work carries, once a minute at most.
func TestTheBundleForAnswersIsPutRight(t *testing.T) {
	const services = 40
	i := newAnswering(t, services, true)
	work := func() *workv1alpha1.Work {
		t.Helper()
		work, err := i.bundle(t.Context(), propagation.AnswersKey(importing))
		if err != nil || work == nil {
			t.Fatalf("expected a Bundle for the answers, found %v, %v", work, err)
		}
		return work
	}
	right := string(work().Spec.Workload.Manifests[0].Raw)
	for round := range 3 {
		changed := work().DeepCopy()
		changed.Spec.Workload.Manifests[0].Raw = []byte(strings.Replace(right, `"revision":1`, `"revision":7`, 1))
		i.shelf.put(changed)
		i.rest(0)
		if round > 0 && string(work().Spec.Workload.Manifests[0].Raw) == right {
			t.Error("it was written within a minute of the write before")
		}
		i.now = i.now.Add(propagation.MaxCacheLag + time.Second)
		i.rest(0)
		if found := string(work().Spec.Workload.Manifests[0].Raw); found != right {
			t.Errorf("expected %s, found %s", right, found)
		}
	}
	i.check("after that", services)
}

// failing panics at what is read after the first Member.
type failing struct {
	client.Client
	members int
}

func (f *failing) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, is := o.(*v1alpha1.Member); is {
		if f.members++; f.members > 1 {
			panic("the second look")
		}
	}
	return f.Client.Get(ctx, key, o, opts...)
}

// TestAPanicKeepsNoPlace at the gate: the framework recovers from it, and there are sixteen.
func TestAPanicKeepsNoPlace(t *testing.T) {
	i := newAnswering(t, 40, true)
	i.tire()
	i.replace(0, 20)
	i.answerAllOf(0)
	i.planned()
	all, f := i.Client, &failing{Client: i.Client}
	i.Client = f
	func() {
		defer func() {
			if recover() == nil {
				t.Errorf("expected a panic at the second look, found none in %d", f.members)
			}
		}()
		_, _ = i.Deliver(t.Context(), importing)
	}()
	if free := i.gate.free(); free != parallelWrites {
		t.Errorf("%d of %d places are free", free, parallelWrites)
	}
	i.Client = all
	i.rest(0)
	i.check("after that", 40)
}
