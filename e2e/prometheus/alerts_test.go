// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// root of the source tree.
const root = "../.."

// alert is one of artifacts/monitoring/alerts.yaml.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string  `json:"name"`
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(read(t, "artifacts/monitoring/alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	var out []alert
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) < 15 {
		t.Fatalf("found %d alerts", len(out))
	}
	return out
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestAlerts: Debian's promtool evaluates each alert over series that must raise it, and over such that must not.
func TestAlerts(t *testing.T) {
	promtool, err := Program(t.Context(), "promtool")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", "testdata/alerts.yaml")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	tests := string(read(t, "e2e/prometheus/testdata/alerts.yaml"))
	for _, a := range alerts(t) {
		raised := regexp.MustCompile(`alertname: ` + a.Alert + `\n +exp_alerts:\n`).MatchString(tests)
		silent := regexp.MustCompile(`alertname: ` + a.Alert + `\n +exp_alerts: \[\]`).MatchString(tests)
		if !raised || !silent {
			t.Errorf("%s: testdata/alerts.yaml has a case where it is raised: %t; where it is not: %t", a.Alert, raised, silent)
		}
	}
}

// TestAlertsAreOfMetricsThatThereAre: each is of a metric that docs/metrics.md lists, has a severity, says what it is,
// and where docs/runbooks.md says what to do.
func TestAlertsAreOfMetricsThatThereAre(t *testing.T) {
	metrics, runbooks := string(read(t, "docs/metrics.md")), string(read(t, "docs/runbooks.md"))
	name := regexp.MustCompile(`sealane_[a-z0-9_]+`)
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	const page = "https://github.com/sealane-io/sealane/blob/main/docs/runbooks.md#"
	var names []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		for _, metric := range name.FindAllString(a.Expr, -1) {
			if !strings.Contains(metrics, "| `"+suffix.ReplaceAllString(metric, "")+"` |") {
				t.Errorf("%s: docs/metrics.md has no metric %s", a.Alert, metric)
			}
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: severity %q", a.Alert, a.Labels["severity"])
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" ||
			a.Annotations["runbook_url"] != page+strings.ToLower(a.Alert) {
			t.Errorf("%s: annotations %q", a.Alert, a.Annotations)
		}
		if !strings.Contains(runbooks, "\n## "+a.Alert+"\n") {
			t.Errorf("docs/runbooks.md lacks %s", a.Alert)
		}
	}
	for _, heading := range regexp.MustCompile(`(?m)^## (Sealane\w+)$`).FindAllStringSubmatch(runbooks, -1) {
		if !slices.Contains(names, heading[1]) {
			t.Errorf("docs/runbooks.md has %s, which is no alert", heading[1])
		}
	}
}
