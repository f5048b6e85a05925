// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// TestAnswersToDeltas: a member says which revision it has and no more, which it would say of no export that changes.
func TestAnswersToDeltas(t *testing.T) {
	g := newGuarded(t)
	cluster := g.Size.cluster(0)
	m := g.members[cluster]
	raw, err := m.report(carried{kind: propagation.KindPeering, revision: 3})
	if err != nil {
		t.Fatal(err)
	}
	var peering v1alpha1.PeeringStatus
	if err := json.Unmarshal(raw, &peering); err != nil || !peering.ReadsDeltas {
		t.Errorf("the member does not say that it reads deltas: %s, %v", raw, err)
	}
	g.answers = answerings{}
	answer := func(at place) *answering {
		work := g.workOf(at, v1alpha1.BundleSpec{Revision: 7})
		work.Namespace = propagation.PeeringKey(cluster).Namespace
		a := newAnswering(m, work)
		g.answers.add(client.ObjectKeyFromObject(work), a)
		a.arrived(work)
		return a
	}
	own, delta := answer(place{number: g.shard}), answer(place{number: g.shard, delta: true})
	if raw, err = m.report(delta.carried); err != nil || string(raw) != `{"observedRevision":7}` {
		t.Errorf("the answer to deltas is %s, %v", raw, err)
	}
	var bundle v1alpha1.BundleStatus
	if raw, err = m.report(own.carried); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &bundle); err != nil || len(bundle.Exports) != 1 || bundle.ObservedRevision != 7 {
		t.Errorf("the answer to the shard's own Bundle is %s, %v", raw, err)
	}
	g.changed(cluster, g.service)
	if len(own.up) != 1 || len(delta.up) != 0 {
		t.Errorf("a pod has changed: %d reports of the shard and %d of the deltas, want one of the shard", len(own.up),
			len(delta.up))
	}
}

// TestAnswersApart: once there is a Bundle for answers, a member says there which deltas it has, and answers those
// themselves no more.
func TestAnswersApart(t *testing.T) {
	g := newGuarded(t)
	cluster := g.Size.cluster(0)
	m := g.members[cluster]
	g.answers = answerings{}
	work := g.workOf(place{number: 2, delta: true}, v1alpha1.BundleSpec{Revision: 7, AnswerApart: true})
	delta := newAnswering(m, work)
	delta.arrived(work)
	if delta.isApart(g.Fleet) {
		t.Error("deltas are answered apart where there is no Bundle for that")
	}
	key := propagation.AnswersKey(cluster)
	work = g.workOf(place{}, v1alpha1.BundleSpec{Revision: 1})
	work.Namespace, work.Name = key.Namespace, key.Name
	work.Labels[propagation.LabelDelta] = propagation.Answers
	delete(work.Labels, propagation.LabelShard)
	in := newAnswering(m, work)
	in.arrived(work)
	g.answers.add(key, in)
	if !delta.isApart(g.Fleet) || in.isApart(g.Fleet) {
		t.Errorf("answered apart: the deltas %t, and the Bundle for the answers %t", delta.isApart(g.Fleet),
			in.isApart(g.Fleet))
	}
	delta.answerApart(g.Fleet)
	if len(in.aside) != 1 {
		t.Error("the Bundle for the answers is not told of one")
	}
	if raw, err := m.report(in.carried); err != nil || string(raw) != `{"observedRevision":1,"deltas":[0,0,7]}` {
		t.Errorf("the answers are %s, %v", raw, err)
	}
}
