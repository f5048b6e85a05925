// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/fleet"
)

// measured is a fleet whose changes took so long.
func measured(clusters int, took time.Duration) table {
	t := table{Size: fleet.Size{Clusters: clusters, Services: 100, Exporters: 2, Backends: 3, Namespaces: 10, Agents: 2}}
	for _, name := range []string{converge, onePod, slowRate, fastRate, quiet, move, publish, restart, failOver,
		compact, silent + ": 5 clusters", heard, killed} {
		r := fleet.Row{Scenario: name, Took: took, Arrived: []time.Duration{took}, Landed: []time.Duration{2 * took},
			Changes: 1, Peak: 100 << 10}
		switch name {
		case onePod:
			r.Writes = int64(t.Size.Importers(fleet.Changed(0, t.Size)))
		case move:
			r.Writes = int64(clusters - 1)
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// TestGoalsSayWhatIsMissed and nothing else; what was not measured is missed.
func TestGoalsSayWhatIsMissed(t *testing.T) {
	missed := func(t table) (count int) {
		for _, g := range goalsOf([]table{t}) {
			if strings.Contains(g.Found[0], "missed") {
				count++
			}
		}
		return count
	}
	all := len(goalsOf(nil))
	for name, c := range map[string]struct {
		change func(t *table)
		want   int
	}{
		"none":                   {func(*table) {}, 0},
		"nothing was measured":   {func(t *table) { t.Rows = nil }, all},
		"a write too many":       {func(t *table) { t.row(onePod).Writes++ }, 1},
		"a restart writes":       {func(t *table) { t.row(restart).Writes = 1 }, 1},
		"changes that came late": {func(t *table) { t.row(fastRate).Late = 1 }, 1},
		"a queue that grows":     {func(t *table) { t.row(slowRate).Last = 9 }, 1},
		"slow changes":           {func(t *table) { t.row(onePod).Arrived = []time.Duration{time.Minute} }, 2},
		"slow agents":            {func(t *table) { t.row(onePod).Landed = []time.Duration{time.Minute} }, 1},
		"no real agent":          {func(t *table) { t.row(onePod).Landed = nil }, 1},
		"an agent behind":        {func(t *table) { t.row(onePod).Behind = 1 }, 1},
		"a lost exporter":        {func(t *table) { t.row(silent).Lost.Exporters = 1 }, 1},
		"a stale exporter":       {func(t *table) { t.row(heard).Lost.Stale = 1 }, 1},
		"much memory":            {func(t *table) { t.row(converge).Peak = 1 << 20 }, 2},
		"much memory by changes": {func(t *table) { t.row(quiet).Peak = 1 << 20 }, 1},
	} {
		m := measured(10, 100*time.Millisecond)
		c.change(&m)
		if got := missed(m); got != c.want {
			t.Errorf("%s: %d goals are missed, want %d", name, got, c.want)
		}
	}
}

// TestARunFailsOfWhatIsLost and of nothing else.
func TestARunFailsOfWhatIsLost(t *testing.T) {
	m := measured(10, time.Minute)
	if err := lost([]table{m}); err != nil {
		t.Errorf("nothing is lost: %v", err)
	}
	for _, l := range []fleet.Lost{{Exporters: 2, Imports: 1}, {Stale: 1}} {
		l.First = []string{"m001 is told of nothing"}
		m.row(killed).Lost = l
		if err := lost([]table{m}); err == nil || !strings.Contains(err.Error(), "m001 is told of nothing") {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// TestTheReportIsWritten with a picture that is XML and has all sizes.
func TestTheReportIsWritten(t *testing.T) {
	root := t.TempDir()
	tables := []table{measured(10, 100*time.Millisecond), measured(100, 3*time.Second)}
	tables[0].Machine.Load, tables[1].Machine.Load = "1.5", "0.2"
	if err := write(root, "fleet.md", tables); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "fleet.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| and p99 2 s | 0.10 s | 3.00 s **missed** |",
		"| load average when it began | 1.5 | 0.2 |", "## 100 clusters, 100 services", "](fleet.svg)",
		"| a pod is replaced | 6000 ms | 6000 ms | 0 |"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	picture, err := os.Open(filepath.Join(root, "fleet.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = picture.Close() }()
	circles := 0
	for decoder := xml.NewDecoder(picture); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "circle" {
			circles++
		}
	}
	if want := 10 * len(tables); circles != want {
		t.Errorf("%d points in the picture, want %d", circles, want)
	}
}

// TestResultsOfEarlierRunsAreKept but for those of a fleet of the same size; a file that is no such thing is an error.
func TestResultsOfEarlierRunsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	for _, c := range []struct {
		clusters int
		took     time.Duration
		want     []int
	}{{100, time.Second, []int{100}}, {10, time.Second, []int{10, 100}}, {100, time.Minute, []int{10, 100}}} {
		tables, err := former(path)
		if err != nil {
			t.Fatal(err)
		}
		tables = withTable(tables, measured(c.clusters, c.took), 1)
		if err := keep(path, tables); err != nil {
			t.Fatal(err)
		}
		var sizes []int
		for i := range tables {
			sizes = append(sizes, tables[i].Size.Clusters)
		}
		if !slices.Equal(sizes, c.want) {
			t.Errorf("after %d clusters: found %v, want %v", c.clusters, sizes, c.want)
		}
	}
	tables, err := former(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := []table{measured(10, time.Second), measured(100, time.Minute)}; !reflect.DeepEqual(tables, want) {
		t.Errorf("found %+v, want %+v", tables, want)
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := former(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file of something else: %v", err)
	}
	if tables, err := former(""); err != nil || tables != nil {
		t.Errorf("no file: %v, %v", tables, err)
	}
}

// TestQuantilesAreKept though not each latency is.
func TestQuantilesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	for _, count := range []int{0, 1, 3, 200, 201, 12_345} {
		var latencies []time.Duration
		for k := range count {
			latencies = append(latencies, time.Duration(k*k)*time.Microsecond)
		}
		row := fleet.Row{Arrived: latencies, Landed: latencies}
		if err := keep(path, []table{{Rows: []fleet.Row{row}}}); err != nil {
			t.Fatal(err)
		}
		tables, err := former(path)
		if err != nil {
			t.Fatal(err)
		}
		kept := tables[0].Rows[0]
		if len(kept.Arrived) > 200 || len(row.Arrived) != count {
			t.Errorf("of %d latencies %d are kept, and %d are left", count, len(kept.Arrived), len(row.Arrived))
		}
		for _, q := range []float64{0, 0.5, 0.9, 0.99} {
			if kept.Quantile(q) != row.Quantile(q) || kept.LandedQuantile(q) != row.LandedQuantile(q) {
				t.Errorf("%.2f of %d: %s and %s are kept of %s", q, count, kept.Quantile(q), kept.LandedQuantile(q),
					row.Quantile(q))
			}
		}
	}
}

// TestFleetsThatAreAskedFor: a size that cannot be is said before the others are measured.
func TestFleetsThatAreAskedFor(t *testing.T) {
	for text, want := range map[string][]int{"10,30": {10, 30}, "2": {2}, "": nil, "1": nil, "10,": nil, "10,x": nil,
		"10,251": nil} {
		o := options{sizes: text, services: 10}
		var found []int
		sizes, err := o.fleets()
		for _, s := range sizes {
			found = append(found, s.Clusters)
		}
		if !slices.Equal(found, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: expected %v, found %v and %v", text, want, found, err)
		}
	}
}
