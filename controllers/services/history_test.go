// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/metrics"
	"github.com/sealane-io/sealane/propagation"
)

// TestWhatIsRememberedDecidesNothing: whatever has happened, a controller that remembers what it read, wrote and
// decided decides as one that has just started.
func TestWhatIsRememberedDecidesNothing(t *testing.T) {
	const steps = 120
	shard := Shard{"blue", 0}
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 0))
		p := play(t, manyServices(4, 40, 4))
		change := func(cluster string, do func(*workv1alpha1.Work)) {
			var work workv1alpha1.Work
			if err := p.shelf.Get(t.Context(), propagation.BundleKey(cluster, 0), &work); err != nil {
				t.Fatal(err)
			}
			do(&work)
			p.shelf.put(&work)
		}
		decisions, withdrawn := 0, make([][]v1alpha1.Export, len(p.members))
		for step := range steps {
			p.now = p.now.Add(3 * time.Second)
			i := random.IntN(len(p.members))
			m := &p.members[i]
			switch random.IntN(7) {
			case 0, 1:
				p.replacePod(i, 1+step)
			case 2: // it exports a service less, or one more
				if n := len(withdrawn[i]); n > 0 {
					m.Exports, withdrawn[i] = append(m.Exports, withdrawn[i][n-1]), withdrawn[i][:n-1]
				} else if len(m.Exports) > 1 {
					m.Exports, withdrawn[i] = m.Exports[1:], append(withdrawn[i], m.Exports[0])
				}
			case 3: // it is heard of no more, until it answers
				change(m.Cluster, func(w *workv1alpha1.Work) { w.Status = workv1alpha1.WorkStatus{} })
			case 4: // somebody writes what it is told
				change(m.Cluster, func(w *workv1alpha1.Work) { alterSpec(t, w, random) })
			case 5: // an import is not usable
				m.Unusable = []v1alpha1.ImportProblem{{Namespace: "shop", Names: []string{"web-1"}, Reason: "NamespaceMissing"}}
			case 6:
				m.Unusable = nil
			}
			for i := range p.members {
				if random.IntN(2) == 0 {
					p.answer(i, 0)
				}
			}
			before := p.shelf.version
			p.decide(0)
			if p.shelf.version != before {
				decisions++
			}
			p.now = p.now.Add(recordPace)
			p.decide(0)
			// Of a second look nothing is to be written that the first has left.
			got, err := p.plan(t.Context(), shard)
			if err != nil {
				t.Fatal(err)
			}
			fresh := &Reconciler{Client: p.shelf, Works: p.Works, Metrics: metrics.New(prometheus.NewRegistry()),
				Problems: NewProblemIndex(), Now: p.Now}
			want, err := fresh.plan(t.Context(), shard)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.writes) != 0 || len(want.writes) != 0 {
				t.Fatalf("seed %d, step %d: %d writes are left, %d for one that has just started", seed, step,
					len(got.writes), len(want.writes))
			}
			mine, theirs := p.last(shard).d, fresh.last(shard).d
			if !equality.Semantic.DeepEqual(mine.Bundles, theirs.Bundles) ||
				!equality.Semantic.DeepEqual(mine.Records, theirs.Records) {
				t.Fatalf("seed %d, step %d: it decides other than one that has just started", seed, step)
			}
		}
		if decisions < steps/4 {
			t.Errorf("seed %d: only %d of %d steps have changed anything", seed, decisions, steps)
		}
	}
}

// alterSpec changes what a Work carries as a member that may write its own can: it takes an import out, or a condition.
func alterSpec(t *testing.T, work *workv1alpha1.Work, random *rand.Rand) {
	t.Helper()
	var spec v1alpha1.BundleSpec
	if err := propagation.Spec(work, &spec); err != nil {
		t.Fatal(err)
	}
	if random.IntN(2) == 0 {
		spec.Imports = spec.Imports[:len(spec.Imports)/2]
	} else {
		spec.ExportConditions = nil
	}
	raw, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	work.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
}
