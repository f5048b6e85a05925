// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// importers lists the series of the propagation with their counts, as "set/importer=1".
func importers(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, family := range families {
		if family.GetName() != "sealane_propagation_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			out = append(out, fmt.Sprintf("%s/%s=%d", m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(),
				m.GetHistogram().GetSampleCount()))
		}
	}
	return strings.Join(out, " ")
}

// TestPropagationIsOfMembersAlone: its series are bounded by the members that there are.
func TestPropagationIsOfMembersAlone(t *testing.T) {
	r := prometheus.NewRegistry()
	m := New(r)
	expect := func(want string) {
		t.Helper()
		if got := importers(t, r); got != want {
			t.Errorf("series %q, want %q", got, want)
		}
	}
	m.Importers("blue", []string{"c2", "c1"})
	m.Importers("red", []string{"c3"})
	for _, of := range []struct{ set, importer string }{{"blue", "c1"}, {"blue", "c2"}, {"blue", "c2"}, {"red", "c3"}} {
		m.Propagated(of.set, of.importer, time.Second)
	}
	expect("blue/c1=1 blue/c2=2 red/c3=1")
	m.Importers("blue", []string{"c2"})
	expect("blue/c2=2 red/c3=1")
	m.Forget("blue")
	expect("red/c3=1")
	m.Importers("red", nil)
	expect("")
}
