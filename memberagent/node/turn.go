// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/clip"
)

const (
	// rehearseAgain is the time between two rehearsals.
	rehearseAgain = time.Second
	// deserted is for how long nobody may have the turn until an agent takes it that has not rehearsed with success:
	// longer than a kubelet takes to start another container again for the first times.
	deserted = 30 * time.Second
	// loadPatience is how long the objects may be on their way until it is told that they are not there.
	loadPatience = 30 * time.Second
	// Calm is how long an agent has to live until it is not remembered that those before it died.
	Calm = time.Minute
)

// OpenLock opens, and does not lock, the file that agents of one node lock. A process that has it open on behalf of its
// child keeps the turn when the child dies, and the next child has it at once.
func OpenLock(stateDir string) (*os.File, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(stateDir, "agent.lock"), os.O_RDWR|os.O_CREATE, 0o600)
}

// Turn is what an agent says of its right to program the node.
type Turn struct {
	// Reason is v1alpha1.ReasonProgramming, ReasonCrashing, ReasonRehearsed, ReasonHeld, ReasonUnreleased,
	// ReasonQueued or ReasonNotRehearsed.
	Reason, Message string
}

func (t Turn) condition(now metav1.Time) corev1.PodCondition {
	c := corev1.PodCondition{Type: v1alpha1.PodMayProgram, Status: corev1.ConditionTrue, Reason: t.Reason,
		Message:            t.Message,
		LastTransitionTime: now}
	switch t.Reason {
	case v1alpha1.ReasonHeld, v1alpha1.ReasonUnreleased, v1alpha1.ReasonQueued, v1alpha1.ReasonNotRehearsed:
		c.Status = corev1.ConditionFalse
	}
	return c
}

// TakeTurn waits until no other agent programs the node, the right to which one process at a time has, by flock(2): the
// kernel takes it from a process that dies in whatever way. While it waits, it rehearses, again and again, and the
// agent's pod says with what success. An agent that has not succeeded takes a turn that nobody has only after
// deserted: the other may be about to come back. The error of a file that cannot be locked is returned at once, and
// that of a context that ends while another agent goes on. The file is that of OpenLock.
func (a *Agent) TakeTurn(ctx context.Context, file *os.File) error {
	log := logr.FromContextOrDiscard(ctx)
	go a.turns.each(ctx, a.cluster.SetTurn, func(err error) { log.Error(err, "the pod does not say whose turn it is") })
	first, err := try(file)
	if err == nil && !first {
		log.Info("another agent programs the node: waiting until it ends", "lock", file.Name())
		start := time.Now()
		if err = a.wait(ctx, file); ctx.Err() != nil {
			return ctx.Err()
		}
		log.Info("the other agent has ended", "waited", time.Since(start).Round(time.Millisecond).String(),
			"rehearsed", a.follows)
	}
	// Also an agent that cannot lock programs the node, and a roll-out must go on.
	programming := Turn{v1alpha1.ReasonProgramming, "this agent programs the node"}
	now := programming
	if a.deaths > 1 {
		now = Turn{v1alpha1.ReasonCrashing, fmt.Sprintf("the agent died %d times in a row, see its logs; its cables go on",
			a.deaths)}
		time.AfterFunc(Calm, func() { a.turns.put(programming) }) // nobody else puts by then
	}
	a.turns.put(now)
	return err
}

// wait rehearses until the turn is this agent's.
func (a *Agent) wait(ctx context.Context, file *os.File) error {
	locked := make(chan error, 1)
	r := rehearsal{began: time.Now()}
	for queued := false; ; {
		err := a.rehearse(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.tellTurn(ctx, &r, err)
		// One that is held, or comes later, would do its best.
		a.follows = err == nil || errors.Is(err, errHeld) || errors.Is(err, errUnreleased) || errors.Is(err, errQueued)
		if a.follows && !queued {
			queued = true
			// It outlives a context that ends, but not the process, which then does too.
			go func() { locked <- flock(file, syscall.LOCK_EX) }()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-locked:
			return err
		case <-time.After(rehearseAgain):
		}
		if queued {
			continue
		}
		if mine, err := r.desertedTurn(file); mine || err != nil {
			return err
		}
	}
}

// rehearsal is what one look leaves to the next.
type rehearsal struct {
	began time.Time
	said  Turn
	// free is since when nobody has the turn.
	free time.Time
}

// tellTurn tells the pod how a rehearsal went, if it went otherwise than the one before.
func (a *Agent) tellTurn(ctx context.Context, r *rehearsal, err error) {
	now := Turn{v1alpha1.ReasonRehearsed, "waiting for another agent to end"}
	if err != nil {
		now = Turn{v1alpha1.ReasonNotRehearsed, clip.Text(err.Error(), maxStateError)}
		switch {
		case errors.Is(err, errHeld):
			now.Reason = v1alpha1.ReasonHeld
		case errors.Is(err, errUnreleased):
			now.Reason = v1alpha1.ReasonUnreleased
		case errors.Is(err, errQueued):
			now.Reason = v1alpha1.ReasonQueued
		}
	}
	// At first the objects are merely on their way.
	if now == r.said || errors.Is(err, errNotLoaded) && time.Since(r.began) < loadPatience {
		return
	}
	r.said = now
	logr.FromContextOrDiscard(ctx).Info("another agent programs the node", "reason", now.Reason, "message", now.Message)
	a.turns.put(now)
}

// desertedTurn takes a turn that nobody has had for deserted.
func (r *rehearsal) desertedTurn(file *os.File) (mine bool, err error) {
	switch mine, err = try(file); {
	case err != nil || !mine:
		r.free = time.Time{}
		return false, err
	case r.free.IsZero():
		r.free = time.Now()
	}
	if time.Since(r.free) >= deserted {
		return true, nil
	}
	return false, flock(file, syscall.LOCK_UN)
}

// try takes the turn if nobody has it.
func try(file *os.File) (mine bool, err error) {
	err = flock(file, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// flock locks a file; a signal that interrupts it is none of its business.
func flock(file *os.File, how int) error {
	for {
		switch err := syscall.Flock(int(file.Fd()), how); {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("lock %s: %w", file.Name(), err)
		}
	}
}

// These are no failures of this agent's.
var (
	errHeld       = errors.New("an agent of the same revision has failed on another node")
	errUnreleased = errors.New("it is not this cluster's turn in the roll-out, or the roll-out has stopped: see " +
		"kubectl karmada sealane show rollout")
	errQueued = errors.New("another gateway of the cluster comes first, or is not well yet: the cluster agent gives turns")
)

// rehearse does all of a sync but its changes. What fails here would fail where the old agent has gone already. It
// fails also while an agent that the same roll-out brought has failed.
func (a *Agent) rehearse(ctx context.Context) error {
	o, synced, err := a.cluster.Objects(ctx)
	switch {
	case err != nil:
		return err
	case !synced:
		return errNotLoaded
	case o.Peering == nil:
		return nil // there is nothing to program
	case a.revision != "" && slices.Contains(o.Peering.Status.FailedRevisions, a.revision):
		return errHeld
	case a.revision != "" && slices.Contains(o.Peering.Spec.FailedRevisions, a.revision):
		return fmt.Errorf("%w, in another cluster of the ClusterSet", errHeld)
	}
	top, facts, err := a.know(o)
	if err != nil {
		return err
	}
	if _, err := a.kernel.Driver(top.Cable.Driver); err != nil {
		return err
	}
	have, err := a.kernel.Observe(ctx)
	if err != nil {
		return err
	}
	facts.Current = plan.Current(top, have)
	plan.Diff(plan.For(top, facts), have)
	if r := o.Peering.Spec.RollOut; r != nil && a.revision != "" && r.Revision != a.revision {
		return errUnreleased
	}
	if g := o.gateway(a.node); g != nil && len(o.Gateways) > 1 && !g.Spec.Turn {
		return errQueued
	}
	return nil
}
