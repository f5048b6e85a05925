// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/memberagent/node"
)

const (
	// holderFD and lockFD are what the child inherits.
	holderFD, lockFD = 3, 4
	// restartFirst and restartMost bound the wait before a child that died is started again; the wait doubles, and begins
	// anew after a child that lived for node.Calm.
	restartFirst, restartMost = 50 * time.Millisecond, 10 * time.Second
	// lookEvery is how often the child is asked whether it is alive, and stuckLooks without a good answer, one after the
	// other, are a child that is stuck.
	lookEvery, stuckLooks = 10 * time.Second, 6
)

// supervisor holds what must outlive the agent, which is its child: the userspace devices, through which packets go on
// while there is no agent, and the node's lock, so that no other agent takes over meanwhile.
type supervisor struct {
	log    logr.Logger
	holder *cable.Holder
	lock   *os.File
	health string   // where the child says whether it is alive; "0" for nowhere
	args   []string // of the child
	// every is lookEvery but in tests.
	every time.Duration
	// stuck says that the last child was killed for it.
	stuck atomic.Bool
}

// supervise runs the agent until the context ends, or until it gives up.
func supervise(ctx context.Context, log logr.Logger, stateDir, health string, args []string) error {
	lock, err := openLock(log, stateDir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // after the devices
	s := supervisor{log: log, holder: cable.NewHolder(log), lock: lock, health: health, args: args, every: lookEvery}
	defer s.holder.Close()
	go s.holder.BoundMemory(ctx)
	return s.loop(ctx)
}

// loop runs the agent until the context ends, which the child is told, or until it ends with nothing to hold for it,
// which is the kubelet's to show and to start again. With devices to hold, an agent that ends is started again at
// once, and later the more often it has. One that is stuck is killed, once: a second one may be stuck because of the
// devices.
func (s *supervisor) loop(ctx context.Context) error {
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	wait, deaths, stuck := restartFirst, 0, 0
	for {
		started := time.Now()
		s.stuck.Store(false)
		err := s.run(ctx, deaths)
		if ctx.Err() != nil {
			if errors.Is(err, ctx.Err()) {
				return nil // it ended well, as it was told to
			}
			return err
		}
		held := s.holder.Holds()
		if held == 0 {
			return err
		}
		if time.Since(started) > node.Calm {
			wait, deaths = restartFirst, 0
		}
		if deaths++; s.stuck.Load() {
			stuck++
		} else {
			stuck = 0
		}
		if stuck > 1 {
			return errors.New("the agent is stuck again")
		}
		s.log.Info("the agent ended: starting it again", "how", fmt.Sprint(err), "after", wait.String(), "devicesHeld", held)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, restartMost)
	}
}

// run runs the child to its end. When the context ends, it is told to end.
func (s *supervisor) run(ctx context.Context, deaths int) error {
	ours, theirs, err := socketpair()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	c, err := net.FileConn(ours)
	_ = ours.Close() // it is duplicated
	if err != nil {
		return fmt.Errorf("connect to the agent: %w", err)
	}
	defer func() { _ = c.Close() }()
	go func() {
		if err := s.holder.Serve(c); err != nil {
			s.log.Error(err, "the agent cannot make devices")
		}
	}()
	child := exec.CommandContext(ctx, "/proc/self/exe", append(slices.Clone(s.args),
		fmt.Sprintf("--deaths=%d", deaths))...)
	child.Args[0] = os.Args[0] // what people look for
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{theirs, s.lock}
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil {
		return err
	}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	go s.watch(watched, child.Process)
	return child.Wait()
}

// watch kills a child that is stuck.
func (s *supervisor) watch(ctx context.Context, child *os.Process) {
	if s.health == "0" {
		return
	}
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	for bad := 0; bad < stuckLooks; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := s.look(ctx)
		if err == nil {
			bad = 0
			continue
		}
		bad++
		s.log.Info("the agent does not say that it is alive", "times", bad, "of", stuckLooks, "why", err.Error())
	}
	s.log.Info("the agent is stuck: killing it")
	s.stuck.Store(true)
	if err := child.Kill(); err != nil {
		s.log.Error(err, "the agent was not killed")
	}
}

// look asks the child whether it is alive. An agent that waits for another to end is not asked: that one answers.
func (s *supervisor) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.every/2)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.health+"/healthz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("expected status 200, found %s", response.Status)
	}
	return nil
}

// socketpair returns two ends of a connection that nobody else can reach.
func socketpair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the agent: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "holder"), os.NewFile(uintptr(fds[1]), "agent"), nil
}

// inherited returns the devices and the lock that the process that supervises this one holds.
func inherited() (cable.Devices, *os.File, error) {
	file := os.NewFile(holderFD, "holder")
	c, err := net.FileConn(file)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the process that holds the devices: %w", err)
	}
	_ = file.Close() // it is duplicated
	syscall.CloseOnExec(lockFD)
	return cable.Remote(c), os.NewFile(lockFD, "agent.lock"), nil
}
