// SPDX-License-Identifier: Apache-2.0

package ui_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui/uitest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with testdata/<name>, or rewrites it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%.5000s", file, diff)
	}
}

// wellFormed parses a picture, and fails where it holds what runs or loads something.
func wellFormed(t *testing.T, picture []byte) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(picture)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		start, is := token.(xml.StartElement)
		if !is {
			continue
		}
		switch start.Name.Local {
		case "svg", "g", "title", "desc", "style", "text", "rect", "line", "path":
		default:
			t.Errorf("an element %s", start.Name.Local)
		}
		for _, a := range start.Attr {
			if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
				t.Errorf("an attribute %s", a.Name.Local)
			}
		}
	}
}

// TestPictures of few clusters, of some without labels, of many as a matrix, and of what is not as it should be.
func TestPictures(t *testing.T) {
	three := uitest.Cut(uitest.Fleet(3), "c1", "c2")
	loss, rtt := int32(9), int64(123456)
	three.Edges[1].State, three.Edges[1].Loss, three.Edges[1].RTT = ui.Impaired, &loss, &rtt
	three.Clusters[2].Unasked = "Unreachable: timeout"
	for name, m := range map[string]ui.Map{
		"none.svg": {Taken: "2026-01-02T03:04:05Z"}, "one.svg": uitest.Fleet(1), "two.svg": uitest.Fleet(2),
		"three.svg": three, "eight.svg": uitest.Cut(uitest.Fleet(8), "c2", "c6"),
		"hundred.svg": uitest.Cut(uitest.Fleet(100), "c3", "c77"), "hostile.svg": uitest.Hostile(),
	} {
		t.Run(name, func(t *testing.T) {
			picture := m.SVG()
			wellFormed(t, picture)
			golden(t, name, picture)
		})
	}
}

// TestTheOrderIsThatOfNames, whatever the order in which a map is put together.
func TestTheOrderIsThatOfNames(t *testing.T) {
	want, err := json.Marshal(uitest.Fleet(30).Bounded())
	if err != nil {
		t.Fatal(err)
	}
	m := uitest.Fleet(30)
	rand.Shuffle(len(m.Clusters), func(i, j int) { m.Clusters[i], m.Clusters[j] = m.Clusters[j], m.Clusters[i] })
	rand.Shuffle(len(m.Edges), func(i, j int) { m.Edges[i], m.Edges[j] = m.Edges[j], m.Edges[i] })
	got, err := json.Marshal(m.Bounded())
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("the map depends on the order of what it is made of")
	}
}

// TestAMapIsBounded: what is left out is counted, long texts are cut, and characters that are not printable are gone.
func TestAMapIsBounded(t *testing.T) {
	m := uitest.Fleet(ui.MaxClusters + 20)
	for range ui.MaxProblems + 7 {
		m.Problems = append(m.Problems, ui.Problem{Verdict: ui.Warn, Check: "x",
			Found: strings.Repeat("é\u202e\x1b\n", 3000)})
	}
	m.Problems[len(m.Problems)-1].Verdict = ui.Fail
	for range 600 {
		m.Edges[0].Tunnels = append(m.Edges[0].Tunnels, ui.Tunnel{})
	}
	got := m.Bounded()
	if got.Left != (ui.Left{Clusters: 20, Problems: 7}) || len(got.Clusters) != ui.MaxClusters ||
		len(got.Problems) != ui.MaxProblems {
		t.Errorf("left out %+v of %d clusters and %d problems", got.Left, len(got.Clusters), len(got.Problems))
	}
	if got.Problems[0].Verdict != ui.Fail {
		t.Error("the worst problem is not the first")
	}
	if text := got.Problems[1].Found; len(text) > 1024 || strings.ContainsAny(text, "\u202e\x1b\n") {
		t.Errorf("a text of %d bytes, with what is not printable", len(text))
	}
	most := slices.MaxFunc(got.Edges, func(a, b ui.Edge) int { return len(a.Tunnels) - len(b.Tunnels) })
	if n := len(most.Tunnels); n != 64 {
		t.Errorf("an edge of %d tunnels", n)
	}
	if n := ui.MaxClusters * (ui.MaxClusters - 1) / 2; len(got.Edges) != n {
		t.Errorf("%d edges, want the %d of the clusters that are there", len(got.Edges), n)
	}
	for _, c := range got.Clusters {
		if c.X < 0 || c.X > ui.Width || c.Y < 0 || c.Y > ui.Height {
			t.Errorf("%s is off the sheet: %d, %d", c.Name, c.X, c.Y)
		}
	}
}
