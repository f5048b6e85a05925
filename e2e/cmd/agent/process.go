// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// build builds the agent of a source tree, as it is released, into a directory, and returns its path.
func build(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "sealane-agent")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/sealane-agent")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	return path, nil
}

// process is a program that runs.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	log  string
}

// launch starts a program, whose log is a file.
func launch(cmd *exec.Cmd, path string) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{}), log: path}
	log, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create a log: %w", err)
	}
	cmd.Stderr = log
	// The kernel kills it should this process die. That is bound to the thread that forked, which is kept.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-started
}

func (p *process) ended() error {
	data, _ := os.ReadFile(p.log)
	if lines := bytes.Split(bytes.TrimSpace(data), []byte("\n")); len(lines) > 20 {
		data = bytes.Join(lines[len(lines)-20:], []byte("\n"))
	}
	return fmt.Errorf("%s has ended: %w\n%s", filepath.Base(p.cmd.Path), p.err, data)
}

// stop ends the program as a kubelet does.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// usage is what a program has used since it started.
type usage struct {
	cpu time.Duration
	// rss is resident now and peak was at most, in KiB; files is the part of rss that is of files.
	rss, peak, files int64
}

func (p *process) usage() (usage, error) {
	var u usage
	dir := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, fmt.Errorf("read what a program uses: %w", err)
	}
	// proc_pid_stat(5): utime and stime are the fields 14 and 15, in ticks of 10 ms; the second may contain blanks.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("read what a program uses: %w", err)
		}
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, fmt.Errorf("read what a program uses: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		for label, to := range map[string]*int64{"VmRSS:": &u.rss, "VmHWM:": &u.peak, "RssFile:": &u.files} {
			if text, ok := strings.CutPrefix(line, label); ok {
				if _, err := fmt.Sscan(text, to); err != nil {
					return u, fmt.Errorf("read what a program uses: %w", err)
				}
			}
		}
	}
	return u, nil
}
