// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sealane-io/sealane/internal/probe"
)

// benchmark runs a bench of c1 and c2.
func (v *verified) benchmark(t *testing.T, b bench) (string, error) {
	t.Helper()
	var out bytes.Buffer
	b.options = &options{kubeconfig: v.kubeconfig, karmadaContext: "karmada", timeout: time.Minute,
		IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &bytes.Buffer{}}}
	b.from, b.to, b.logs, b.duration, b.flows = "c2", "c1", v.logs, time.Second, 1
	err := b.run(t.Context())
	t.Logf("bench %s → %v\n%s", b.kind, err, out.String())
	return out.String(), err
}

func (v *verified) bench(t *testing.T) {
	v.measured = func(p probe.Path) probe.Summary {
		s := probe.Summary{Path: p.Name, Samples: 10, Mean: 3e-4, Min: 1e-4, P10: 2e-4, P50: 3e-4, P90: 4e-4, P99: 5e-4,
			Max: 6e-4}
		if strings.HasPrefix(p.Name, "within") {
			s.P50 = 1.5e-4
		}
		return s
	}
	out, err := v.benchmark(t, bench{kind: probe.Latency, output: outputTable})
	for _, want := range []string{"PATH", "within c2   300    200   150", "c2 to c1    300    200   300   400   500   µs",
		"c2 to c1: the median is 2.00 of that within c2", "wired by hand"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("no %q: %v", want, err)
		}
	}
	out, err = v.benchmark(t, bench{kind: probe.DNS, output: outputJSON})
	var document struct{ Bench measured }
	if broken := json.Unmarshal([]byte(out), &document); err != nil || broken != nil {
		t.Fatal(err, broken)
	}
	if m := document.Bench; len(m.Paths) != 4 || m.Paths[3].Path != "by-cluster" || m.Paths[3].P99 != 5e-4 ||
		m.From != "c2" || m.On != "worker" || m.Unit != "seconds" || m.Note == "" {
		t.Errorf("got %+v", m)
	}
	works := v.measured
	v.measured = func(p probe.Path) probe.Summary {
		if p.Name == "c2 to c1" {
			return probe.Summary{Path: p.Name, Failed: 1, Error: "timeout\x1b[31m"}
		}
		return works(p)
	}
	out, err = v.benchmark(t, bench{kind: probe.Throughput, output: outputTable, on: "gateway"})
	if err == nil || !strings.Contains(err.Error(), "nothing could be measured: c2 to c1") ||
		!strings.Contains(out, "1 failed, the last: timeout [31m") {
		t.Errorf("got %v", err)
	}
	if left := v.left(t); len(left) > 1 {
		t.Errorf("left over: %v", left)
	}
}

func TestBenchRefusesWhatItCannotDo(t *testing.T) {
	for line, want := range map[string]string{
		"bench latency c1 c2 --duration=1h":    "--duration between",
		"bench throughput c1 c2 --flows=0":     "--flows between",
		"bench dns c1 c2 --on=moon":            "--on to be gateway or worker",
		"bench dns c1 c2 -o xml":               "-o to be table",
		"bench latency c1 c2 --flows=2":        "unknown flag",
		"bench smell c1 c2":                    `"smell"`,
		"verify -C c1,c2 --duration=5s":        "unknown flag",
		"verify somewhere --junit report.html": "somewhere",
	} {
		if out, code := commandLine(strings.Fields(line)...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, %s", line, code, out)
		}
	}
}
