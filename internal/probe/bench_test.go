// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"
)

// measured runs a benchmark of one path.
func measured(t *testing.T, b Bench, address string) Summary {
	t.Helper()
	var out bytes.Buffer
	b.Token, b.Out, b.Duration, b.Flows, b.Patience = token, &out, time.Second, 2, cmp.Or(b.Patience, time.Minute)
	if err := b.Run(t.Context(), []Path{{Name: "c1 to c2", Address: address}}); err != nil {
		t.Fatal(err)
	}
	s, err := ParseSummary(bytes.TrimSpace(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ordered says that the percentiles are, and of something.
func ordered(s Summary) bool {
	return s.Min > 0 && s.Min <= s.P10 && s.P10 <= s.P50 && s.P50 <= s.P90 && s.P90 <= s.P99 && s.P99 <= s.Max &&
		s.Min <= s.Mean && s.Mean <= s.Max
}

func TestBenchmarksMeasureTheLoopback(t *testing.T) {
	address := start(t, Server{Name: "c2/worker", Token: token})
	for kind, of := range map[string]struct {
		address  string
		samples  int
		min, max float64
	}{
		Throughput: {address, 3, 1e6, 1e13},
		Latency:    {address, 50, 1e-6, 0.1},
		DNS:        {"localhost", 10, 1e-7, 0.5},
	} {
		s := measured(t, Bench{Kind: kind}, of.address)
		if s.Path != "c1 to c2" || s.Samples < of.samples || s.P50 < of.min || s.P50 > of.max || s.Error != "" ||
			s.Failed > 0 {
			t.Errorf("%s: %+v", kind, s)
		}
		if kind == Latency && !ordered(s) {
			t.Errorf("%s: %+v", kind, s)
		}
	}
}

func TestAPathThatDoesNotWorkIsTold(t *testing.T) {
	for kind, address := range map[string]string{Throughput: "127.0.0.1:1", Latency: "127.0.0.1:1", DNS: "no.invalid."} {
		s := measured(t, Bench{Kind: kind, Patience: 100 * time.Millisecond}, address)
		if s.Samples != 0 || s.Error == "" {
			t.Errorf("%s: %+v", kind, s)
		}
	}
	err := Bench{Kind: "colour"}.Run(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), `"colour"`) {
		t.Errorf("an unknown kind: %v", err)
	}
}

func TestPercentilesAreByNearestRank(t *testing.T) {
	samples := make([]float64, 200)
	for i := range samples {
		samples[len(samples)-1-i] = float64(i + 1)
	}
	s := summarize("p", samples, 3, errors.New(strings.Repeat("x", 5000)))
	want := Summary{Path: "p", Samples: 200, Failed: 3, Mean: 100.5, Min: 1, P10: 20, P50: 100, P90: 180, P99: 198,
		Max: 200, Error: strings.Repeat("x", maxError)}
	if s != want {
		t.Errorf("got %+v", s)
	}
	if s := summarize("p", []float64{7}, 0, nil); s.P10 != 7 || s.P99 != 7 || s.Mean != 7 {
		t.Errorf("of one: %+v", s)
	}
	if s := summarize("p", nil, 0, nil); s.Error == "" {
		t.Errorf("of none: %+v", s)
	}
}

func TestPathsSurviveTheCommandLine(t *testing.T) {
	want := Path{Name: "c1 to c2", Address: "[fd00::1]:8460"}
	if got, err := ParsePath(want.String()); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "{}", `{"name":"a"}`} {
		if p, err := ParsePath(text); err == nil {
			t.Errorf("%q is taken as %+v", text, p)
		}
	}
}
