// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// process is a child that dies with its parent.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

// start runs a program with its output in the server's directory. The kernel kills it should the test
// binary die without stopping it; since that is bound to the thread that forked, the thread is kept.
func (s *Server) start(ctx context.Context, path string, args ...string) error {
	p := &process{log: filepath.Join(s.dir, filepath.Base(path)+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return fmt.Errorf("create a log: %w", err)
	}
	// Not bound to a context: a server outlives the one that it is started under.
	command := append([]string{path}, args...)
	if s.nice > 0 {
		command = append([]string{"nice", "-n", strconv.Itoa(s.nice)}, command...)
	}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = out.Close() }()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	s.processes = append(s.processes, p)
	return nil
}

// ended returns an error if the process is no longer running.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %w", strings.TrimSuffix(filepath.Base(p.log), ".log"), p.err)
	default:
		return nil
	}
}

// stop kills the process: a server that is told to end takes more than a second, and nothing of it is kept.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// logs returns the last lines that the processes wrote.
func (s *Server) logs() string {
	var b strings.Builder
	for _, p := range s.processes {
		data, err := os.ReadFile(p.log)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		fmt.Fprintf(&b, "%s:\n%s\n", filepath.Base(p.log), strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	return b.String()
}
