// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/metrics"
	"github.com/sealane-io/sealane/propagation"
)

const (
	// parallelWrites of Works are under way at once at most, of all shards.
	parallelWrites = 16
	// parallelShards are worked on at once. What they share is locked for as long as it is read or changed, and the
	// places of writes and of decisions.
	parallelShards = 4
	// maxRevision is the largest that JSON numbers hold everywhere. A larger one is a member's invention.
	maxRevision = 1 << 53
)

// Shard is one shard of one ClusterSet: what is decided, and written, at once.
type Shard struct {
	Set    string
	Number int32
}

// Reconciler keeps the Bundles of every ClusterSet.
type Reconciler struct {
	Client  client.Client
	Works   propagation.Writer
	Metrics *metrics.Metrics
	// Problems is where those go that concern the whole ClusterSet.
	Problems *ProblemIndex
	// Now is the clock.
	Now func() time.Time

	gate gate
	// processors has a place for each of the process's, once there was a decision.
	processors *semaphore.Weighted

	mu   sync.Mutex
	seen map[seenKey]*memory
	// deltas of the members whose agents read them, by the UID of the Member.
	deltas map[string]*deltas
	// queues of what is to be looked at again, nil before they are started.
	shardQueue workqueue.TypedInterface[Shard]
	deltaQueue workqueue.TypedInterface[string]
	// unlabelled are the shards in which no scope depends on the labels of clusters.
	unlabelled map[Shard]bool
	// records are the ExportRecords that were last written, or are being written, by name.
	records map[string]v1alpha1.ExportRecordSpec
	// decided are the last decisions.
	decided map[Shard]*latest
	// arrivals are when the first of the Works came that the next decision on a shard is about.
	arrivals map[Shard]time.Time
	// started is when this controller first decided anything.
	started time.Time
	// holding is since when clusters that come are waited for.
	holding map[Shard]holding
	// rested is until when a shard is not decided on for what members report.
	rested map[Shard]time.Time
}

// Reconcile brings one shard's Bundles up to date.
func (r *Reconciler) Reconcile(ctx context.Context, shard Shard) (ctrl.Result, error) {
	p, err := r.planInTurn(ctx, shard)
	if err != nil {
		return ctrl.Result{}, err
	}
	all, err := r.carryOut(ctx, p.writes)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !all {
		p.again = time.Millisecond
	}
	return ctrl.Result{RequeueAfter: p.again}, nil
}

// plan is what to write of a shard, and when to look again (0: never).
type plan struct {
	writes []write
	again  time.Duration
}

// plan decides on a shard, and writes nothing.
func (r *Reconciler) plan(ctx context.Context, shard Shard) (plan, error) {
	seen := r.arrival(shard)
	var set v1alpha1.ClusterSet
	if err := r.Client.Get(ctx, client.ObjectKey{Name: shard.Set}, &set); err != nil {
		if apierrors.IsNotFound(err) {
			r.Problems.forget(shard.Set)
			r.forgetDecision(shard)
		}
		return plan{}, client.IgnoreNotFound(err)
	}
	if shard.Number >= set.Spec.Shards {
		r.forgetDecision(shard)
		return plan{}, nil
	}
	// Labels that change from here on count, until it is known that they do not matter.
	r.noteUnlabelled(shard, false)
	in, targets, again, err := r.gather(ctx, set, shard.Number)
	if err != nil {
		r.arrived(shard, seen)
		return plan{}, err
	}
	r.noteUnlabelled(shard, !in.Selects())
	again = sooner(again, r.follow(set.Name, targets, seen))
	start := time.Now()
	d := r.last(shard).decide(in)
	r.Metrics.Decided("services", time.Since(start))
	exports := 0
	for _, m := range in.Members {
		exports += len(m.Exports)
	}
	r.Metrics.Services(set.Name, strconv.Itoa(int(shard.Number)), exports, d.Services, d.Conflicts)
	for _, p := range d.Problems {
		log.FromContext(ctx).V(1).Info("export not used as reported", "cluster", p.Cluster, "reason", p.Reason,
			"message", p.Message)
	}
	r.Problems.set(ctx, shard, fleetWide(&in, &d))
	r.gate.adapt(late(targets, r.Now()))
	writes, after, err := r.changes(ctx, targets, d, in.Shards, r.holds(shard, in.Members, targets))
	if err != nil {
		return plan{}, err
	}
	return plan{writes, sooner(sooner(again, after), d.Again)}, nil
}

// sooner returns the shorter of two delays, of which 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
