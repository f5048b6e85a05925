// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/prometheus"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestATunnelThatIsDownRaisesAnAlert: a Prometheus with the jobs of docs/metrics.md and the alerts of
// artifacts/monitoring reads c1 and c2. When the cables of c1 are cut it says so for both ends, and stops when they are
// mended.
func TestATunnelThatIsDownRaisesAnAlert(t *testing.T) {
	suite.Long(t)
	p := startPrometheus(t, "c1-gw", "c1", "c2")
	for _, cluster := range []string{"c1", "c2"} {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error { return p.readsAll(ctx, t, cluster) })
	}
	down := []string{"c1 to c2", "c2 to c1"}
	expect := func(want []string) {
		t.Helper()
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			found, err := p.firing(ctx, t, "SealaneTunnelDown", down...)
			if err == nil && !slices.Equal(found, want) {
				err = fmt.Errorf("expected alerts of %q, found %q", want, found)
			}
			return err
		})
	}
	expect(nil)
	suite.Isolate(t, "c1-gw")
	expect(down)
	suite.Reconnect(t, "c1-gw")
	expect(nil)
}

// prometheusServer runs in the network of a node.
type prometheusServer struct{ node, address string }

// startPrometheus reads some clusters from the network of a node until the test ends.
func startPrometheus(t *testing.T, node string, clusters ...string) prometheusServer {
	t.Helper()
	program, err := prometheus.Program(t.Context(), "prometheus")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := prometheusServer{node: node, address: "127.0.0.1:19090"}
	var jobs []any
	for _, c := range clusters {
		jobs = append(jobs, jobsOf(t, dir, c)...)
	}
	write(t, dir, "alerts.yaml", []byte(impatient(t)))
	text, err := yaml.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{"alerts.yaml"},
		"scrape_configs": jobs,
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--config.file="+write(t, dir, "prometheus.yaml", text),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	suite.InNetns(t, node, cmd.Start)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus:\n%s", log.Bytes())
		}
	})
	return p
}

// jobsOf are the jobs of docs/metrics.md, on targets that were found as Prometheus finds the pods of its own cluster:
// Debian's has no discovery by Kubernetes.
func jobsOf(t *testing.T, dir, cluster string) []any {
	t.Helper()
	token := write(t, dir, cluster+".token", []byte(suite.Scraper(t, cluster)))
	targets, err := json.Marshal(discovered(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	found := write(t, dir, cluster+".json", targets)
	page, err := os.ReadFile(filepath.Join(sourceRoot(t), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\nscrape_configs:\n")
	block, _, _ = strings.Cut(block, "```")
	var jobs []map[string]any
	if err := yaml.Unmarshal([]byte(block), &jobs); err != nil || len(jobs) != 2 {
		t.Fatalf("expected two jobs in docs/metrics.md, found %v: %v", jobs, err)
	}
	var out []any
	for _, job := range jobs {
		if job["authorization"] != nil {
			job["authorization"] = map[string]any{"credentials_file": token}
		}
		delete(job, "kubernetes_sd_configs")
		job["file_sd_configs"] = []any{map[string]any{"files": []string{found}}}
		name, relabel := job["job_name"], job["relabel_configs"].([]any)
		job["job_name"] = fmt.Sprintf("%s/%s", cluster, name)
		job["relabel_configs"] = append(relabel,
			map[string]any{"target_label": "job", "replacement": name},
			map[string]any{"target_label": "cluster", "replacement": cluster})
		out = append(out, job)
	}
	return out
}

// target is one of a file for Prometheus's discovery by files.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// discovered are the targets of the role "pod" of Prometheus's discovery by Kubernetes: one for each port that a
// container names, and one for a container that names none.
func discovered(t *testing.T, cluster string) []target {
	t.Helper()
	a, err := suite.API(cluster)
	if err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := a.List(t.Context(), &pods, client.InNamespace(v1alpha1.Namespace)); err != nil {
		t.Fatal(err)
	}
	var out []target
	for _, p := range pods.Items {
		labels := map[string]string{
			"__meta_kubernetes_pod_host_ip":                      p.Status.HostIP,
			"__meta_kubernetes_pod_node_name":                    p.Spec.NodeName,
			"__meta_kubernetes_pod_label_app_kubernetes_io_name": p.Labels["app.kubernetes.io/name"],
		}
		for _, c := range p.Spec.Containers {
			if len(c.Ports) == 0 {
				out = append(out, target{[]string{p.Status.PodIP}, labels})
			}
			for _, port := range c.Ports {
				named := maps.Clone(labels)
				named["__meta_kubernetes_pod_container_port_name"] = port.Name
				out = append(out, target{[]string{net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(port.ContainerPort)))}, named})
			}
		}
	}
	return out
}

func sourceRoot(t *testing.T) string {
	t.Helper()
	root, err := lab.SourceRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// impatient are the alerts, raised after two seconds: how long each waits is tested where they are evaluated.
func impatient(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sourceRoot(t), "artifacts", "monitoring", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if before, _, ok := strings.Cut(line, "for: "); ok && strings.TrimSpace(before) == "" {
			lines[i] = before + "for: 2s"
		}
	}
	return strings.Join(lines, "\n")
}

func write(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ask asks the server's API for data.
func (p prometheusServer) ask(ctx context.Context, t *testing.T, path string, data any) error {
	t.Helper()
	status, body, err := suite.Get(ctx, t, p.node, "http", p.address, "/api/v1/"+path, "")
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("prometheus: %s: status %d: %w: %.500s", path, status, err, body)
	}
	answer := struct{ Data any }{data}
	return json.Unmarshal([]byte(body), &answer)
}

// readsAll says what it does not read of a cluster's node agents, its cluster agents and DNS.
func (p prometheusServer) readsAll(ctx context.Context, t *testing.T, cluster string) error {
	t.Helper()
	var data struct {
		ActiveTargets []struct {
			Labels            map[string]string
			Health, LastError string
			ScrapeURL         string
		}
	}
	if err := p.ask(ctx, t, "targets?state=active", &data); err != nil {
		return err
	}
	up := map[string]int{}
	for _, target := range data.ActiveTargets {
		if target.Labels["cluster"] != cluster {
			continue
		}
		if target.Health != "up" {
			return fmt.Errorf("%s is %s: %s", target.ScrapeURL, target.Health, target.LastError)
		}
		up[target.Labels["job"]]++
		if _, port, _ := net.SplitHostPort(target.Labels["instance"]); port == "9811" {
			up["node agents"]++
		}
	}
	for _, c := range suite.Lab().Topology.Clusters {
		if nodes := len(c.Nodes); c.Name == cluster && (up["node agents"] != nodes || up["sealane"] <= nodes ||
			up["sealane-dns"] == 0) {
			return fmt.Errorf("%s: expected %d node agents, a cluster agent and DNS, found %v", cluster, nodes, up)
		}
	}
	return nil
}

// firing returns between which of some clusters an alert is raised, sorted.
func (p prometheusServer) firing(ctx context.Context, t *testing.T, name string, some ...string) ([]string, error) {
	t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	if err := p.ask(ctx, t, "alerts", &data); err != nil {
		return nil, err
	}
	var found []string
	for _, a := range data.Alerts {
		between := a.Labels["cluster"] + " to " + a.Labels["remote_cluster"]
		if a.State == "firing" && a.Labels["alertname"] == name && slices.Contains(some, between) {
			found = append(found, between)
		}
	}
	slices.Sort(found)
	return found, nil
}
