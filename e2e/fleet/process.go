// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Programs are the paths of what is measured.
type Programs struct{ Controller, Agent, DNS string }

// Build builds the programs of a source tree into a directory.
func Build(ctx context.Context, root, dir string) (Programs, error) {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "./cmd/sealane-controller",
		"./cmd/sealane-agent", "./cmd/sealane-dns")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	return Programs{at("sealane-controller"), at("sealane-agent"), at("sealane-dns")}, nil
}

// process is one of the programs, which may use one processor. It dies with this process.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	log  string
}

// startProcess starts a program that logs to a file in dir.
func startProcess(ctx context.Context, dir, path string, args ...string) (*process, error) {
	name := filepath.Base(path)
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("create a log: %w", err)
	}
	p := &process{name: name, done: make(chan struct{}), log: log.Name()}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), path, args...)
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// The kernel kills it should this process die. That is bound to the thread that forked, which is kept.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// ended is the error of a process that has ended by itself, with the last lines of its log.
func (p *process) ended() error {
	data, _ := os.ReadFile(p.log)
	if lines := bytes.Split(bytes.TrimSpace(data), []byte("\n")); len(lines) > 20 {
		data = bytes.Join(lines[len(lines)-20:], []byte("\n"))
	}
	return fmt.Errorf("%s has ended: %w\n%s", p.name, p.err, data)
}

// Stop ends the process as a kubelet does. Kill does so without a word.
func (p *process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.Kill()
	}
}

// Kill ends the process at once.
func (p *process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Errors are the lines of the log that tell of one.
func (p *process) Errors() ([]string, error) {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return nil, fmt.Errorf("read the log of %s: %w", p.name, err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		// Karmada's library says so of a Work that the cache does not show yet. It is written all the same.
		behind := strings.Contains(line, "Failed to create/update work") && strings.Contains(line, "already exists")
		if (strings.Contains(line, `"level":"ERROR"`) || strings.HasPrefix(line, "[ERROR]")) && !behind {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out, nil
}

// Used is what a process has used since it started.
type Used struct {
	CPU time.Duration
	// RSS is resident now and Peak was at most, in KiB.
	RSS, Peak int64
}

// used reads what the process has used.
func (p *process) used() (u Used, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, fmt.Errorf("read what %s uses: %w", p.name, err)
	}
	// proc_pid_stat(5): utime and stime are the fields 14 and 15, in ticks of 10 ms; the second may contain blanks.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("read what %s uses: %w", p.name, err)
		}
		u.CPU += time.Duration(ticks) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, fmt.Errorf("read what %s uses: %w", p.name, err)
	}
	for line := range strings.Lines(string(status)) {
		for label, to := range map[string]*int64{"VmRSS:": &u.RSS, "VmHWM:": &u.Peak} {
			if text, ok := strings.CutPrefix(line, label); ok {
				if _, err := fmt.Sscan(text, to); err != nil {
					return u, fmt.Errorf("read what %s uses: %w", p.name, err)
				}
			}
		}
	}
	return u, nil
}

// writeKubeconfig leads to an API server with the rights of a ServiceAccount of ours, and no others.
func writeKubeconfig(path, api, token, account string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["api"] = &clientcmdapi.Cluster{Server: api, InsecureSkipTLSVerify: true}
	config.AuthInfos["account"] = &clientcmdapi.AuthInfo{Token: token,
		Impersonate: "system:serviceaccount:" + v1alpha1.Namespace + ":" + account}
	config.Contexts["context"] = &clientcmdapi.Context{Cluster: "api", AuthInfo: "account"}
	config.CurrentContext = "context"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", account, err)
	}
	return nil
}

// freePorts returns addresses of loopback on which nobody listened just now.
func freePorts(ctx context.Context, count int) ([]string, error) {
	var out []string
	var config net.ListenConfig
	for range count {
		l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		out = append(out, l.Addr().String())
	}
	return out, nil
}
