// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestBenchMeasuresBetweenTwoMembers: each kind gives figures of every path, also while others measure, and nothing is
// left.
func TestBenchMeasuresBetweenTwoMembers(t *testing.T) {
	suite.Long(t)
	t.Run("kinds", func(t *testing.T) {
		for kind, want := range map[string]figures{
			"throughput": {2, 1e6, 1e12},
			"latency":    {2, 1e-6, 1},
			"dns":        {4, 1e-6, 3},
		} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				measured(t, kind, want)
			})
		}
	})
	nothingLeft(t)
}

// figures of a kind: how many paths there are, and the bounds of their medians.
type figures struct {
	paths    int
	min, max float64
}

func measured(t *testing.T, kind string, want figures) {
	t.Helper()
	command := exec.CommandContext(t.Context(), suite.PluginPath(), "bench", kind, "c1", "c2", "--duration=3s",
		"-o", "json", "--kubeconfig="+suite.Lab().Kubeconfig(), "--karmada-context="+lab.ContextKarmada)
	command.Stderr = os.Stderr
	out, err := command.Output()
	var document struct {
		Bench struct {
			Paths []struct {
				Path          string
				Samples       int
				P50, P99, Max float64
			}
		}
	}
	if broken := json.Unmarshal(out, &document); err != nil || broken != nil {
		t.Fatalf("%v, %v: %s", err, broken, out)
	}
	t.Logf("%+v", document.Bench.Paths)
	if len(document.Bench.Paths) != want.paths {
		t.Errorf("%d paths, expected %d", len(document.Bench.Paths), want.paths)
	}
	for _, p := range document.Bench.Paths {
		if p.Samples < 10 || p.P50 < want.min || p.P50 > want.max || p.P99 < p.P50 || p.Max < p.P99 {
			t.Errorf("%+v", p)
		}
	}
}
