// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Broker is a running sealane-controller that may use one processor.
type Broker struct {
	*process
	// URLs.
	metrics, ready, profiles string
}

// Start starts a controller with the rights that it is installed with; its files go to a directory of its own in dir.
func (f *Fleet) Start(ctx context.Context, program, dir string) (*Broker, error) {
	return f.StartBy(ctx, program, dir, f.api.Config.Host)
}

// StartBy does so with another address of the API.
func (f *Fleet) StartBy(ctx context.Context, program, dir, api string) (*Broker, error) {
	dir, err := os.MkdirTemp(dir, "controller-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := writeKubeconfig(kubeconfig, api, f.api.Config.BearerToken, "sealane-controller"); err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	p, err := startProcess(ctx, dir, program, "--kubeconfig="+kubeconfig, "--metrics-bind-address="+ports[0],
		"--health-probe-bind-address="+ports[1], "--pprof-bind-address="+ports[2])
	if err != nil {
		return nil, err
	}
	return &Broker{process: p, metrics: "https://" + ports[0] + "/metrics", ready: "http://" + ports[1] + "/readyz",
		profiles: "http://" + ports[2] + "/debug/pprof/"}, nil
}

// Profile takes a profile of the controller's memory as it is, for `go tool pprof`.
func (b *Broker) Profile(ctx context.Context, path string) error {
	body, err := get(ctx, loopback(), b.profiles+"heap")
	if err != nil {
		return err
	}
	return writeProfile(path, body)
}

func writeProfile(path string, profile []byte) error {
	if err := os.WriteFile(path, profile, 0o644); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}

// Ready waits until the controller's caches are full and its metrics are served.
func (b *Broker) Ready(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if body, err := get(ctx, loopback(), b.ready); err == nil && string(body) == "ok" {
			if _, err := b.sums(ctx); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the controller: %w", ctx.Err())
		case <-b.done:
			return b.ended()
		case <-tick.C:
		}
	}
}

// Usage is what the controller has used since it started.
type Usage struct {
	Used
	// Requests to the Karmada API.
	Requests int64
}

// Usage reads what the controller has used.
func (b *Broker) Usage(ctx context.Context) (u Usage, err error) {
	if u.Used, err = b.used(); err != nil {
		return u, err
	}
	u.Requests, err = b.requests(ctx)
	return u, err
}

func (b *Broker) requests(ctx context.Context) (int64, error) {
	sum, err := b.sums(ctx)
	return int64(sum["rest_client_requests_total"]), err
}

// Settled waits until the controller leads, has looked at something, and has nothing left to look at.
func (b *Broker) Settled(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		sum, err := b.sums(ctx)
		if err == nil && sum["leader_election_master_status"] > 0 && sum["controller_runtime_reconcile_total"] > 0 &&
			sum["workqueue_depth"] == 0 && sum["controller_runtime_active_workers"] == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the controller to have looked at everything: %w", ctx.Err())
		case <-b.done:
			return b.ended()
		case <-tick.C:
		}
	}
}

// sums reads the controller's metrics, each over all its labels.
func (b *Broker) sums(ctx context.Context) (map[string]float64, error) {
	body, err := get(ctx, loopback(), b.metrics)
	if err != nil {
		return nil, err
	}
	families, err := parseMetrics(body)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			out[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out, nil
}

func parseMetrics(text []byte) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return families, nil
}

// loopback returns a client of what this machine serves with a certificate that it made at its start.
func loopback() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: %s", url, resp.Status)
	}
	return body, nil
}
