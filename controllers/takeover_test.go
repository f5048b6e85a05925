// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// reconciled is how often the controllers of this process were called that have been at all, by their names.
func (f *fleet) reconciled() map[string]float64 {
	f.t.Helper()
	families, err := metrics.Registry.Gather()
	f.must(err)
	out := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if n := m.GetCounter().GetValue(); label.GetName() == "controller" && n > 0 {
					out[label.GetValue()] += n
				}
			}
		}
	}
	return out
}

// TestNoControllerBeginsBeforeItKnows what was written before: what a broker that takes over has in its caches may be
// the past, by which none of its controllers decides anything.
func TestNoControllerBeginsBeforeItKnows(t *testing.T) {
	f := newFleetAlone(t)
	f.connect(2)
	f.ready("c1")
	f.template().place("ServiceExport", "c1")
	f.policies("sample", 1, 1)
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	f.eventually("c2 imports a service", func() bool {
		b := f.bundle("c2", "sample", "web")
		return b != nil && len(b.Imports) > 0
	})
	names := []string{"deltas", "exports", "fabric", "membership", "policies", "services"}
	f.eventually("all controllers have been called", func() bool {
		called := f.reconciled()
		return !slices.ContainsFunc(names, func(name string) bool { return called[name] == 0 })
	})
	f.stop()

	before := f.reconciled()
	f.mu.Lock()
	f.silent, f.asked = true, 0
	f.mu.Unlock()
	f.start()
	defer f.stop()
	asked := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.asked
	}
	// The second time is a second later: events of all that is in the caches are in the controllers' queues then.
	f.eventually("the broker asks again what there is", func() bool { return asked() > 1 })
	for name, times := range f.reconciled() {
		if times != before[name] {
			t.Errorf("%s was called before it is known what there is", name)
		}
	}
	f.mu.Lock()
	f.silent = false
	f.mu.Unlock()
	f.eventually("all controllers go on", func() bool {
		now := f.reconciled()
		return !slices.ContainsFunc(names, func(name string) bool { return now[name] == before[name] })
	})
}
