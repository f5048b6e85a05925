// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Broker is a running sealane-controller that may use one processor.
type Broker struct {
	cmd     *exec.Cmd
	done    chan struct{}
	err     error
	metrics string
	ready   string
	log     string
}

// Build builds the controller of a source tree into a directory, and returns its path.
func Build(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "sealane-controller")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/sealane-controller")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the controller: %w\n%s", err, out)
	}
	return path, nil
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
	if err := f.writeKubeconfig(kubeconfig, api); err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "sealane-controller.log"))
	if err != nil {
		return nil, fmt.Errorf("create the controller's log: %w", err)
	}
	b := &Broker{done: make(chan struct{}), log: log.Name(),
		metrics: "https://" + ports[0] + "/metrics", ready: "http://" + ports[1] + "/readyz"}
	b.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, "--kubeconfig="+kubeconfig,
		"--metrics-bind-address="+ports[0], "--health-probe-bind-address="+ports[1])
	b.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	b.cmd.Stderr = log
	// The kernel kills it should this process die. That is bound to the thread that forked, which is kept.
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		err := b.cmd.Start()
		started <- err
		if err == nil {
			b.err = b.cmd.Wait()
			close(b.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the controller: %w", err)
	}
	return b, nil
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

func (b *Broker) ended() error {
	data, _ := os.ReadFile(b.log)
	if lines := bytes.Split(bytes.TrimSpace(data), []byte("\n")); len(lines) > 20 {
		data = bytes.Join(lines[len(lines)-20:], []byte("\n"))
	}
	return fmt.Errorf("the controller has ended: %w\n%s", b.err, data)
}

// Stop ends the controller as a kubelet does. Kill does so without a word.
func (b *Broker) Stop() {
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.done:
	case <-time.After(20 * time.Second):
		_ = b.cmd.Process.Kill()
		<-b.done
	}
}

// Kill ends the controller at once.
func (b *Broker) Kill() {
	_ = b.cmd.Process.Kill()
	<-b.done
}

// Errors are the lines of the controller's log that tell of one.
func (b *Broker) Errors() ([]string, error) {
	data, err := os.ReadFile(b.log)
	if err != nil {
		return nil, fmt.Errorf("read the controller's log: %w", err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		// Karmada's library says so of a Work that the cache does not show yet. It is written all the same.
		behind := strings.Contains(line, "Failed to create/update work") && strings.Contains(line, "already exists")
		if strings.Contains(line, `"level":"ERROR"`) && !behind {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out, nil
}

// Usage is what the controller has used since it started.
type Usage struct {
	CPU time.Duration
	// RSS is resident now and Peak was at most, in KiB.
	RSS, Peak int64
	// Requests to the Karmada API.
	Requests int64
}

// Usage reads what the controller has used.
func (b *Broker) Usage(ctx context.Context) (Usage, error) {
	var u Usage
	dir := filepath.Join("/proc", strconv.Itoa(b.cmd.Process.Pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, fmt.Errorf("read what the controller uses: %w", err)
	}
	// proc_pid_stat(5): utime and stime are the fields 14 and 15, in ticks of 10 ms; the second may contain blanks.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("read what the controller uses: %w", err)
		}
		u.CPU += time.Duration(ticks) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, fmt.Errorf("read what the controller uses: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		for label, to := range map[string]*int64{"VmRSS:": &u.RSS, "VmHWM:": &u.Peak} {
			if text, ok := strings.CutPrefix(line, label); ok {
				if _, err := fmt.Sscan(text, to); err != nil {
					return u, fmt.Errorf("read what the controller uses: %w", err)
				}
			}
		}
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

func (f *Fleet) writeKubeconfig(path, api string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["karmada"] = &clientcmdapi.Cluster{Server: api, InsecureSkipTLSVerify: true}
	config.AuthInfos["broker"] = &clientcmdapi.AuthInfo{Token: f.api.Config.BearerToken,
		Impersonate: "system:serviceaccount:" + v1alpha1.Namespace + ":sealane-controller"}
	config.Contexts["karmada"] = &clientcmdapi.Context{Cluster: "karmada", AuthInfo: "broker"}
	config.CurrentContext = "karmada"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write the controller's kubeconfig: %w", err)
	}
	return nil
}

// freePorts returns two addresses of loopback on which nobody listened just now.
func freePorts(ctx context.Context) ([2]string, error) {
	var out [2]string
	var config net.ListenConfig
	for i := range out {
		l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return out, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		out[i] = l.Addr().String()
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
