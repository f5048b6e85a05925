// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// BenchmarkOneEndpointBesideDeltas takes what one changed endpoint costs the controller where the members have deltas
// of all that they import: the decision, and the look at the deltas of all members.
func BenchmarkOneEndpointBesideDeltas(b *testing.B) {
	p := playWith(b, manyServices(100, 250, 1), true)
	for i := range p.members {
		var record v1alpha1.Member
		if err := p.shelf.Get(b.Context(), client.ObjectKey{Name: p.members[i].Cluster}, &record); err != nil {
			b.Fatal(err)
		}
		record.Status.ReadsDeltas = true
		p.shelf.put(&record)
	}
	settle := func(deltas bool) {
		for round := 0; ; round++ {
			if round > 20 {
				b.Fatal("the controller does not come to rest")
			}
			before := p.shelf.version
			p.decide(0)
			for i := range p.members {
				cluster := p.members[i].Cluster
				if deltas {
					if _, err := p.Deliver(b.Context(), cluster); err != nil {
						b.Fatal(err)
					}
				}
				p.answerHalves(i, 0)
				p.answerDeltas(i)
			}
			if p.shelf.version == before {
				return
			}
			p.now = p.now.Add(time.Second)
		}
	}
	settle(false)
	for i := range p.members { // with a sequence
		p.replacePod(i, 1)
	}
	settle(true)
	for i := range p.members {
		for k := range p.members[i].Exports {
			e := &p.members[i].Exports[k]
			e.Backends = []v1alpha1.Backends{pods(1+(i+1)%100, 4, e.Backends[0].Ports...)}
		}
		p.answer(i, 0)
	}
	settle(true)
	copies := 0
	for _, d := range p.deltas {
		copies += len(d.found.copies)
	}
	round := 1
	b.ReportMetric(0, "ns/op")
	var decision, delivery time.Duration
	for b.Loop() {
		round++
		p.now = p.now.Add(time.Minute)
		p.replacePod(0, round)
		p.answer(0, 0)
		before := processor(b)
		got, err := p.plan(b.Context(), Shard{"blue", 0})
		if err != nil {
			b.Fatal(err)
		}
		decision += processor(b) - before
		before = processor(b)
		for i := range p.members {
			if _, _, err := p.delivery(b.Context(), p.members[i].Cluster, parallelWrites); err != nil {
				b.Fatal(err)
			}
		}
		delivery += processor(b) - before
		if _, err := p.carryOut(b.Context(), got.writes); err != nil {
			b.Fatal(err)
		}
		for i := range p.members {
			p.answerHalves(i, 0)
		}
		p.decide(0)
	}
	for what, took := range map[string]time.Duration{"decision": decision, "delivery": delivery} {
		b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "cpu-ms/"+what)
	}
	b.ReportMetric(float64(copies)/float64(len(p.members)), "imports-in-deltas")
}

// answerDeltas has member i answer all Bundles of deltas.
func (p *played) answerDeltas(i int) {
	p.t.Helper()
	works, err := p.Works.DeltasOf(p.t.Context(), p.members[i].Cluster)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, found := range works {
		work := found.DeepCopy()
		var spec v1alpha1.BundleSpec
		if err := propagation.Spec(work, &spec); err != nil {
			p.t.Fatal(err)
		}
		said := fmt.Appendf(nil, `{"observedRevision":%d}`, spec.Revision)
		if string(said) == string(propagation.Status(work)) {
			continue
		}
		work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{Status: &runtime.RawExtension{Raw: said}}}
		p.shelf.put(work)
	}
}
