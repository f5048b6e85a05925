// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// apart asks for an answer to a Bundle of deltas apart, or not any more, with another revision.
func (m *member) apart(n int32, apart bool) (revision int64) {
	m.t.Helper()
	b := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DeltaName(n)}}
	change(m, b, func(b *v1alpha1.Bundle) {
		b.Spec.Revision++
		b.Spec.AnswerApart = apart
	})
	return b.Spec.Revision
}

// answered waits until the Bundle for answers says that the member has these deltas.
func (m *member) answered(deltas ...int64) *v1alpha1.Bundle {
	m.t.Helper()
	b := &v1alpha1.Bundle{}
	m.eventually("answers to deltas", func(ctx context.Context) error {
		if err := m.Get(ctx, client.ObjectKey{Name: v1alpha1.AnswersName}, b); err != nil {
			return err
		}
		return errors.Join(expect("answers", b.Status.Deltas, deltas), expect("revision", b.Status.ObservedRevision,
			b.Spec.Revision), expect("exports", len(b.Status.Exports), 0))
	})
	return b
}

// forAnswers makes the Bundle for answers.
func (m *member) forAnswers() *v1alpha1.Bundle {
	m.t.Helper()
	b := bundle(0)
	b.Name = v1alpha1.AnswersName
	m.create(b)
	return b
}

// TestDeltasAreAnsweredApart where the broker asks for it and there is a Bundle for that: then nothing is written into
// what is answered.
func TestDeltasAreAnsweredApart(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	peering := m.peering(1)
	web := imported("sample", "web", map[string][]string{"c2": {"10.9.0.1"}})
	for n := range int32(3) {
		m.delta(n, 6+int64(n), web)
		m.answers(v1alpha1.DeltaName(n), 0)
	}
	m.base(3, 5, web)
	// Where there is no such Bundle yet, they answer for themselves.
	zero, two := m.apart(0, true), m.apart(2, true)
	m.answers(v1alpha1.DeltaName(0), 0)
	m.answers(v1alpha1.DeltaName(2), 0)
	in := m.forAnswers()
	m.answered(zero, 0, two)
	delta := &v1alpha1.Bundle{}
	version := func() string {
		t.Helper()
		if err := m.Get(t.Context(), client.ObjectKey{Name: v1alpha1.DeltaName(2)}, delta); err != nil {
			t.Fatal(err)
		}
		return delta.ResourceVersion
	}
	m.eventually("what was answered there before is no answer any more", func(context.Context) error {
		version()
		return expect("observed", delta.Status.ObservedRevision, 0)
	})
	two = m.apart(2, true)
	before := version()
	m.answered(zero, 0, two)
	if version() != before {
		t.Error("what is answered apart is written, too")
	}
	m.answers(v1alpha1.DeltaName(1), 0)

	// A broker of before.
	m.apart(0, false)
	m.answers(v1alpha1.DeltaName(0), 0)
	m.answered(0, 0, two)
	m.delete(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DeltaName(2)}})
	m.answered()

	one := m.apart(1, true)
	m.answered(0, one)
	m.stop()
	one = m.apart(1, true)
	m.start(m.config)
	m.answered(0, one)
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.Revision++; p.Spec.Phase = v1alpha1.MemberLeaving })
	one = m.apart(1, true)
	m.answered(0, one)

	// It goes: they answer for themselves again. It comes back, and has the answers.
	m.delete(in)
	m.answers(v1alpha1.DeltaName(1), 0)
	m.forAnswers()
	m.answered(0, one)
}
