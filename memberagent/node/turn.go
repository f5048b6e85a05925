// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// rehearseAgain is the wait after a rehearsal that failed, in which the API server may come back.
const rehearseAgain = time.Second

// OpenLock opens, and does not lock, the file that agents of one node lock. A process that has it open on behalf of its
// child keeps the turn when the child dies, and the next child has it at once.
func OpenLock(stateDir string) (*os.File, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(stateDir, "agent.lock"), os.O_RDWR|os.O_CREATE, 0o600)
}

// TakeTurn waits until no other agent programs the node, the right to which one process at a time has, by flock(2): the
// kernel takes it from a process that dies in whatever way. While it does, it rehearses, and calls rehearsed once that
// has succeeded; an agent that has not to wait does not rehearse. The error of a file that cannot be locked is
// returned at once, and that of a context that ends while another agent goes on. The file is that of OpenLock.
func (a *Agent) TakeTurn(ctx context.Context, file *os.File, rehearsed func()) error {
	path := file.Name()
	switch err := flock(file, syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		return nil
	case !errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("lock %s: %w", path, err)
	}
	log := logr.FromContextOrDiscard(ctx)
	log.Info("another agent programs the node: waiting until it ends", "lock", path)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	go a.rehearseUntil(inner, rehearsed)
	// It outlives a context that ends, but not the process, which then does too.
	locked := make(chan error, 1)
	start := time.Now()
	go func() { locked <- flock(file, syscall.LOCK_EX) }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-locked:
		if err != nil {
			return fmt.Errorf("lock %s: %w", path, err)
		}
	}
	a.follows = true
	log.Info("the other agent has ended", "waited", time.Since(start).Round(time.Millisecond).String())
	return nil
}

// flock locks a file; a signal that interrupts it is none of its business.
func flock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// rehearseUntil rehearses until it succeeds, and then says so.
func (a *Agent) rehearseUntil(ctx context.Context, rehearsed func()) {
	log, said := logr.FromContextOrDiscard(ctx), ""
	for {
		changes, err := a.rehearse(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			log.Info("rehearsed: ready to take over", "changes", changes)
			rehearsed()
			return
		}
		if said != err.Error() && !errors.Is(err, errNotLoaded) {
			said = err.Error()
			log.Error(err, "not ready to take over")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rehearseAgain):
		}
	}
}

// rehearse does all of a sync but its changes, and returns how many there would be. What fails here would fail where
// the old agent has gone already.
func (a *Agent) rehearse(ctx context.Context) (int, error) {
	o, synced, err := a.cluster.Objects(ctx)
	switch {
	case err != nil:
		return 0, err
	case !synced:
		return 0, errNotLoaded
	case o.Peering == nil:
		return 0, nil // there is nothing to program
	}
	top, facts, err := a.know(o)
	if err != nil {
		return 0, err
	}
	if _, err := a.kernel.Driver(top.Cable.Driver); err != nil {
		return 0, err
	}
	have, err := a.kernel.Observe(ctx)
	if err != nil {
		return 0, err
	}
	facts.Current = plan.Current(top, have)
	return len(plan.Diff(plan.For(top, facts), have)), nil
}
