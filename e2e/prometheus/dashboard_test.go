// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// dashboard is what matters of artifacts/monitoring/dashboard.json.
type dashboard struct {
	Panels []struct {
		ID          int    `json:"id"`
		Type        string `json:"type"`
		Title       string `json:"title"`
		Description string `json:"description"`
		GridPos     struct {
			X, Y, W, H int
		} `json:"gridPos"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal(read(t, "artifacts/monitoring/dashboard.json"), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 20 {
		t.Fatalf("found %d panels", len(d.Panels))
	}
	return d
}

// listedMetrics are those of docs/metrics.md with their labels, each in backquotes.
func listedMetrics(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(sealane_[a-z0-9_]+)` \\| \\w+ \\|([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(string(read(t, "docs/metrics.md")), -1) {
		out[m[1]] = m[2]
	}
	return out
}

// TestTheDashboardIsOfMetricsThatThereAre: each panel says what it shows, of metrics that docs/metrics.md lists, by
// labels that those have or that Prometheus adds to the targets.
func TestTheDashboardIsOfMetricsThatThereAre(t *testing.T) {
	metrics := listedMetrics(t)
	selector := regexp.MustCompile(`(sealane_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	label := regexp.MustCompile(`(\w+)\s*=`)
	d := readDashboard(t)
	check := func(where, expr string) {
		found := selector.FindAllStringSubmatch(expr, -1)
		if len(found) == 0 {
			t.Errorf("%s: no metric of Sealane's in %q", where, expr)
		}
		for _, m := range found {
			labels, ok := metrics[suffix.ReplaceAllString(m[1], "")]
			if !ok {
				t.Errorf("%s: docs/metrics.md has no metric %s", where, m[1])
			}
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				if l[1] != "cluster" && !strings.Contains(labels, "`"+l[1]+"`") {
					t.Errorf("%s: %s has no label %q, it has%s", where, m[1], l[1], labels)
				}
			}
		}
	}
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d says nothing: %+v", p.ID, p)
		}
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if v.Definition != "" {
			check("variable "+v.Name, v.Definition)
		}
	}
}

// TestTheDashboardsQueriesAreValid, as Prometheus reads them, with a value for each of Grafana's variables.
func TestTheDashboardsQueriesAreValid(t *testing.T) {
	promtool, err := Program(t.Context(), "promtool")
	if err != nil {
		t.Fatal(err)
	}
	d := readDashboard(t)
	variables := []string{"$__rate_interval", "1m"}
	for _, v := range d.Templating.List {
		variables = append(variables, "$"+v.Name, ".*")
	}
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			expr := strings.NewReplacer(variables...).Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: a variable that the dashboard does not have: %s", p.Title, expr)
			}
			rules = append(rules, rule{fmt.Sprintf("panel%d:query%d", p.ID, i), expr})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestPanelsDoNotOverlap, have numbers of their own and are within Grafana's 24 columns.
func TestPanelsDoNotOverlap(t *testing.T) {
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range readDashboard(t).Panels {
		g := p.GridPos
		if ids[p.ID] || g.X+g.W > 24 || g.W < 1 || g.H < 1 {
			t.Errorf("%s: number %d, at %+v", p.Title, p.ID, g)
		}
		ids[p.ID] = true
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s is on %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
