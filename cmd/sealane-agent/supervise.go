// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/dataplane/cable"
)

const (
	// holderFD and lockFD are what the child inherits.
	holderFD, lockFD = 3, 4
	// panicked is the exit code of a Go program that panics.
	panicked = 2
	// restartFirst and restartMost bound the wait before a child that died is started again; the wait doubles, and begins
	// anew after a child that lived for restartCalm.
	restartFirst, restartMost, restartCalm = 50 * time.Millisecond, 10 * time.Second, time.Minute
)

// supervisor holds what must outlive the agent, which is its child: the userspace devices, through which packets go on
// while there is no agent, and the node's lock, so that no other agent takes over meanwhile.
type supervisor struct {
	log    logr.Logger
	holder *cable.Holder
	lock   *os.File
	args   []string // of the child
}

// supervise runs the agent until the context ends, which the child is told, or until it gives up: the agent ends by
// itself with nothing to hold for it, as it does with options that are wrong. An agent that dies is started again at
// once, and later the more often it has died.
func supervise(ctx context.Context, log logr.Logger, stateDir string, args []string) error {
	lock, err := openLock(log, stateDir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // after the devices
	s := supervisor{log: log, holder: cable.NewHolder(log), lock: lock, args: args}
	defer s.holder.Close()
	go s.holder.BoundMemory(ctx)
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	wait := restartFirst
	for {
		started := time.Now()
		err := s.run(ctx)
		if ctx.Err() != nil {
			if errors.Is(err, ctx.Err()) {
				return nil // it ended well, as it was told to
			}
			return err
		}
		held := s.holder.Holds()
		if !died(err) && held == 0 {
			return err
		}
		if time.Since(started) > restartCalm {
			wait = restartFirst
		}
		log.Info("the agent ended: starting it again", "how", fmt.Sprint(err), "after", wait.String(), "devicesHeld", held)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, restartMost)
	}
}

// died says whether a process ended otherwise than it meant to: by a signal, or a panic.
func died(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && (exit.ExitCode() == -1 || exit.ExitCode() == panicked)
}

// run runs the child to its end. When the context ends, it is told to end.
func (s *supervisor) run(ctx context.Context) error {
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
	child := exec.CommandContext(ctx, "/proc/self/exe", s.args...)
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{theirs, s.lock}
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return child.Run()
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
