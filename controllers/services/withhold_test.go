// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// raw is what the Works of the importer carry, by name.
func (i *importer) raw() map[string]string {
	i.t.Helper()
	out := map[string]string{}
	for _, work := range i.works() {
		out[work.Name] = string(work.Spec.Workload.Manifests[0].Raw)
	}
	return out
}

// replace gives the first export of c1 another pod, whose address it returns.
func (i *importer) replace(round int) string {
	i.t.Helper()
	e, pod := &i.members[0].Exports[0], fmt.Sprintf("10.1.9.%d", 1+round)
	e.Backends = []v1alpha1.Backends{pods(1, 3, e.Backends[0].Ports...)}
	e.Backends[0].Addresses[0].IP = pod
	i.answer(0, 0)
	return pod
}

// TestImportsWithoutANamespaceAreWithheld: where an importer has not the namespace, endpoints cost it one write and
// then none; and when it has, it imports what is then, and nothing that was.
func TestImportsWithoutANamespaceAreWithheld(t *testing.T) {
	for seed, crash := range []float64{0, 0.2, 1} {
		t.Run(fmt.Sprintf("seed=%d,crash=%.1f", seed, crash), func(t *testing.T) {
			t.Parallel()
			const services = 40
			i := newImporter(t, uint64(20+seed), services)
			i.rest(crash)
			i.halves("before", services)
			for round := range 3 {
				before := i.raw()
				i.absent = true
				i.look()
				i.rest(crash)
				if !maps.Equal(i.raw(), before) {
					t.Fatal("that the namespace is gone costs a write")
				}
				old := i.replace(10 * round)
				i.rest(crash)
				withheld := 0
				before = i.raw()
				for _, raw := range before {
					withheld += strings.Count(raw, `"withheld":true`)
					if strings.Contains(raw, `"`+old+`"`) {
						t.Fatalf("the importer is told of a pod: %s", raw)
					}
				}
				if withheld != 1 {
					t.Fatalf("%d imports are withheld, want one", withheld)
				}
				for more := range 3 {
					i.replace(10*round + 1 + more)
					i.rest(crash)
				}
				if !maps.Equal(i.raw(), before) {
					t.Fatal("endpoints cost writes")
				}
				i.absent = false
				i.look()
				got, stale := i.imported[types.NamespacedName{Namespace: "sample", Name: "web-0"}]
				if stale || len(i.imported) != services-1 {
					t.Fatalf("%d services are imported at once, and with what it was: %v", len(i.imported), got)
				}
				i.rest(crash)
				i.halves("again", services)
			}
		})
	}
}

// TestNothingIsWithheldFromAnOlderAgent, which would import a service without endpoints.
func TestNothingIsWithheldFromAnOlderAgent(t *testing.T) {
	i := newImporter(t, 30, 5)
	i.tells, i.absent = false, true
	i.tell()
	i.rest(0)
	pod := i.replace(1)
	i.rest(0)
	for _, raw := range i.raw() {
		if !strings.Contains(raw, `"`+pod+`"`) || strings.Contains(raw, "withheld") {
			t.Errorf("the importer is told %s", raw)
		}
	}
}

// TestWhatIsWithheldIsNotDecided: whoever lies about its namespaces takes nothing from anybody else.
func TestWhatIsWithheldIsNotDecided(t *testing.T) {
	in := Input{Shards: 1, Now: now, Members: []Member{cluster(1, web(1)), cluster(2, web(2)), cluster(3)}}
	want := Decide(in)
	for n := range in.Members {
		in.Members[n].ReadsParts = true
	}
	in.Members[1].Unusable = []v1alpha1.ImportProblem{{Namespace: "sample", Names: []string{"web"},
		Reason: v1alpha1.ReasonNamespaceMissing}}
	got := Decide(in)
	for _, c := range []string{"c1", "c3"} {
		if fmt.Sprint(specOf(got.Bundles[c]).Imports) != fmt.Sprint(specOf(want.Bundles[c]).Imports) {
			t.Errorf("%s imports %v, want %v", c, specOf(got.Bundles[c]).Imports, specOf(want.Bundles[c]).Imports)
		}
	}
	if !got.Bundles["c2"].Imports[0].Withheld || fmt.Sprint(got.Sizes) != fmt.Sprint(want.Sizes) {
		t.Errorf("c2 imports %v of sizes %v, want %v", specOf(got.Bundles["c2"]).Imports, got.Sizes, want.Sizes)
	}
}
