// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/controllers/metrics"
	"github.com/sealane-io/sealane/controllers/rollout"
	"github.com/sealane-io/sealane/controllers/takeover"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/internal/reach"
	"github.com/sealane-io/sealane/propagation"
)

// callEvery is how often a member is asked for a report though nothing has changed: it shows that its cluster agent is
// alive and that what it says arrives, at the price of six small writes.
const callEvery = 5 * time.Minute

// setPace is the least time between two writes of a ClusterSet's status: where one cluster is lost all others say so,
// one after the other, and each changes what the status counts.
const setPace = 500 * time.Millisecond

// parallelWrites of Works; the client's own rate limit is the real bound.
const parallelWrites = 16

// Reconciler keeps the fabric of every ClusterSet.
type Reconciler struct {
	Client  client.Client
	Works   propagation.Writer
	Events  record.EventRecorder
	Metrics *metrics.Metrics
	// Others are problems that are found elsewhere, and Changed tells of a ClusterSet that has others now.
	Others interface {
		Problems(set string) []v1alpha1.Problem
	}
	Changed <-chan event.GenericEvent
	// Now is the clock.
	Now func() time.Time

	mu   sync.Mutex
	seen map[string]*memory
	// sets are the ClusterSets, and when their status was last written.
	sets map[string]time.Time
}

// memory is what was read of a cluster's Work, what was written for it and may not be in the cache yet, when its record
// was, and what was last refused.
type memory struct {
	read    read
	peering propagation.WriteBehind[v1alpha1.PeeringSpec]
	// work is what the Work of the Peering was after the write.
	work     propagation.Written
	echo     fleet.Echo
	record   *v1alpha1.Member
	recordOf string // resourceVersion that record replaced
	recorded time.Time
	refused  string
}

// Reconcile brings one ClusterSet's Peerings, Member records and status up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var set v1alpha1.ClusterSet
	if err := r.Client.Get(ctx, req.NamespacedName, &set); err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.Forget(req.Name)
			r.mu.Lock()
			delete(r.sets, req.Name)
			r.mu.Unlock()
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	in, again, err := r.gather(ctx, set)
	if err != nil {
		return ctrl.Result{}, err
	}
	start := time.Now()
	d := Decide(in)
	r.Metrics.Decided("fabric", time.Since(start))
	later, err := r.apply(ctx, in, d)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.Metrics.Members(set.Name, d.Set.Members, d.Set.AcceptedMembers, d.Set.ConnectedMembers)
	r.Metrics.Pairs(set.Name, d.Set.Pairs, d.Set.ConnectedPairs, d.UnknownPairs)
	r.Metrics.RollOut(set.Name, rollout.Count(d.RollOut.Records))
	return ctrl.Result{RequeueAfter: reach.Sooner(reach.Sooner(again, later), d.RollOut.Again)}, nil
}

// gather reads everything that Decide needs, and says when to look again.
func (r *Reconciler) gather(ctx context.Context, set v1alpha1.ClusterSet) (Input, time.Duration, error) {
	in := Input{Set: set, Now: r.Now().Truncate(time.Microsecond)}
	fleetState, err := fleet.Gather(ctx, r.Client)
	if err != nil {
		return in, 0, err
	}
	in.Problems = append(fleet.Problems(fleetState, set.Name), r.Others.Problems(set.Name)...)
	in.Joining = fleet.Joining(fleetState, set.Name)
	in.Cables = fleet.Cables(fleetState, set.Name)
	in.Relays = fleet.Relays(fleetState, set.Name)
	var again time.Duration
	for _, m := range fleetState.Members {
		if m.Spec.ClusterSet != set.Name {
			continue
		}
		member, after, err := r.gatherMember(ctx, fleetState, m, in.Now)
		if err != nil {
			return in, 0, err
		}
		if after > 0 && (again == 0 || after < again) {
			again = after
		}
		in.Members = append(in.Members, member)
	}
	return in, again, nil
}

func (r *Reconciler) gatherMember(ctx context.Context, fleetState fleet.State, record v1alpha1.Member,
	now time.Time) (Member, time.Duration, error) {
	mem := r.memory(&record)
	c := fleetState.Cluster(record.Name)
	m := Member{Record: record, Writable: c != nil && c.DeletionTimestamp.IsZero() && fleetState.WireApplied(record.Name)}
	if mem.record != nil && mem.recordOf == record.ResourceVersion && mem.record.UID == record.UID {
		m.Record = *mem.record
	}
	var work workv1alpha1.Work
	err := r.Client.Get(ctx, propagation.PeeringKey(record.Name), &work, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return m, 0, fmt.Errorf("read the Work of Peering for %s: %w", record.Name, err)
	}
	gone := err != nil || !work.DeletionTimestamp.IsZero()
	var cached *v1alpha1.PeeringSpec
	lag := propagation.CacheLag
	if !gone {
		mem.read.update(record.Name, &work, m.Record.Status.ObservedRevision)
		cached = mem.read.spec
		lag = propagation.Lag(mem.work.UID, mem.work.Generation, &work)
	}
	sent, again := mem.peering.Latest(lag, cached, func(written, cached *v1alpha1.PeeringSpec) bool {
		return written.Revision > cached.Revision
	}, now)
	m.Sent = sent
	if gone {
		return m, again, nil
	}
	m.Report = mem.read.report
	// What is written of it is decoded into again, from the answer of the API server.
	m.Report.Status = *m.Report.Status.DeepCopy()
	m.Lost = fleet.Lost(c)
	if again == 0 {
		answered := m.Sent != nil && m.Report.Status.ObservedRevision >= m.Sent.Revision
		m.Refresh, again = mem.echo.Overdue(c, answered, propagation.Failed(&work), now)
	}
	// Else the cache does not show what was sent last, nor whether it is answered: an API server that is late with that is
	// no member that does not answer.
	unanswered, patience := mem.echo.Unanswered(now)
	m.Unanswered = unanswered
	return m, reach.Sooner(again, patience), nil
}

// read is what was read of one Work, of which nearly all are as they were when one member reports.
type read struct {
	uid     types.UID
	version string
	floor   int64
	// spec of the Peering, nil if it cannot be decoded.
	spec   *v1alpha1.PeeringSpec
	report Report
}

// update reads a Work that has changed, or the floor of whose revision has.
func (r *read) update(cluster string, work *workv1alpha1.Work, floor int64) {
	if r.version != "" && r.uid == work.UID && r.version == work.ResourceVersion && r.floor == floor {
		return
	}
	r.uid, r.version, r.floor, r.spec = work.UID, work.ResourceVersion, floor, nil
	if spec := new(v1alpha1.PeeringSpec); propagation.Spec(work, spec) == nil {
		r.spec = spec
	}
	r.report = ParseReport(cluster, propagation.Status(work), floor)
}

// memory of a Member; a new object under the same name has none.
func (r *Reconciler) memory(record *v1alpha1.Member) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[string]*memory{}
	}
	key := string(record.UID)
	if r.seen[key] == nil {
		r.seen[key] = &memory{echo: fleet.NewEcho(key, callEvery)}
	}
	return r.seen[key]
}

// apply writes what was decided: first what the others need to know, then the records. That one member's Work
// cannot be written, since it is being unjoined say, is no reason to leave the others out. It returns when to write
// what has to wait (0: nothing).
func (r *Reconciler) apply(ctx context.Context, in Input, d Decision) (later time.Duration, err error) {
	var g errgroup.Group
	g.SetLimit(parallelWrites)
	for _, m := range in.Members {
		spec, ok := d.Peerings[m.Record.Name]
		if !ok {
			continue
		}
		mem := r.memory(&m.Record)
		g.Go(func() error {
			written, err := r.Works.ApplyPeering(ctx, m.Record.Name, mem.work, spec)
			if err != nil {
				return err
			}
			mem.peering.Wrote(&spec, r.Now())
			mem.work = propagation.Written{UID: written.UID, Generation: written.Generation}
			r.Metrics.Wrote(propagation.KindPeering)
			log.FromContext(ctx).V(1).Info("peering written", "cluster", m.Record.Name, "revision", spec.Revision)
			return nil
		})
	}
	unwritten := g.Wait()
	for _, m := range in.Members {
		wait, err := r.applyRecord(ctx, m, d.Statuses[m.Record.Name])
		if err != nil {
			return 0, errors.Join(unwritten, err)
		}
		later = reach.Sooner(later, wait)
	}
	if equality.Semantic.DeepEqual(in.Set.Status, d.Set) {
		return later, unwritten
	}
	if wait := setPace - r.Now().Sub(r.setWritten(in.Set.Name)); wait > 0 && unwritten == nil {
		return reach.Sooner(later, wait), nil
	}
	set := in.Set.DeepCopy()
	set.Status = d.Set
	if err := r.Client.Status().Update(ctx, set); err != nil {
		return 0, errors.Join(unwritten, fmt.Errorf("update the status of ClusterSet %s: %w", set.Name, err))
	}
	r.wroteSet(set.Name)
	return later, unwritten
}

// setWritten returns when the status of a ClusterSet was last written.
func (r *Reconciler) setWritten(name string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sets[name]
}

func (r *Reconciler) wroteSet(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sets == nil {
		r.sets = map[string]time.Time{}
	}
	r.sets[name] = r.Now()
}

// applyRecord writes a record that differs, and returns when to if that has to wait.
func (r *Reconciler) applyRecord(ctx context.Context, m Member, status v1alpha1.MemberStatus) (time.Duration, error) {
	mem := r.memory(&m.Record)
	if p := m.Report.Problem; p != nil && mem.refused != p.Message {
		r.Metrics.Refused(propagation.KindPeering)
		log.FromContext(ctx).Info("report refused", "cluster", m.Record.Name, "reason", p.Reason, "message", p.Message)
		mem.refused = p.Message
	} else if p == nil {
		mem.refused = ""
	}
	if equality.Semantic.DeepEqual(m.Record.Status, status) {
		return 0, nil
	}
	if wait := mem.unhurried(m.Record.Status, status, r.Now()); wait > 0 {
		return wait, nil
	}
	record := m.Record.DeepCopy()
	record.Status = status
	if err := r.Client.Status().Update(ctx, record); err != nil {
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		return 0, fmt.Errorf("update the status of Member %s: %w", record.Name, err)
	}
	mem.recorded = r.Now()
	var cached v1alpha1.Member
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(record), &cached); err == nil &&
		cached.ResourceVersion != record.ResourceVersion {
		mem.record, mem.recordOf = record, cached.ResourceVersion
	}
	r.announce(&m.Record, record)
	return 0, nil
}

// EventNetworksChanged says that a member has other networks than it was accepted with.
const EventNetworksChanged = "NetworksChanged"

// announce tells of transitions.
func (r *Reconciler) announce(before, after *v1alpha1.Member) {
	if text := networksChanged(before.Status, after.Status); text != "" {
		r.Events.Event(after, corev1.EventTypeNormal, EventNetworksChanged, text)
	}
	for _, kind := range []string{v1alpha1.MemberAccepted, v1alpha1.MemberConnected} {
		was, is := meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(after.Status.Conditions,
			kind)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		level := corev1.EventTypeNormal
		if was != nil && is.Status != "True" {
			level = corev1.EventTypeWarning
		}
		r.Events.Event(after, level, is.Reason, is.Message)
	}
}

// SetupWithManager starts the controller, once the caches show what was written before.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, before *takeover.Caches) error {
	return ctrl.NewControllerManagedBy(mgr).Named("fabric").
		For(&v1alpha1.ClusterSet{}).
		Watches(&v1alpha1.Member{}, fleet.ToSet(func(ctx context.Context, o client.Object) []string {
			return []string{o.(*v1alpha1.Member).Spec.ClusterSet}
		}), builder.WithPredicates(fleet.Unmeasured())).
		Watches(&workv1alpha1.Work{}, r.ofPeerings()).
		Watches(&clusterv1alpha1.Cluster{}, fleet.ToSet(func(ctx context.Context, o client.Object) []string {
			return fleet.SetOf(ctx, r.Client, o.GetName())
		}), builder.WithPredicates(fleet.Decisive())).
		WatchesRawSource(source.Channel(r.Changed, &handler.EnqueueRequestForObject{})).
		Watches(&workv1alpha2.ClusterResourceBinding{}, fleet.ToSet(func(ctx context.Context, _ client.Object) []string {
			return fleet.Sets(ctx, r.Client)
		}), builder.WithPredicates(fleet.Wire())).
		WatchesRawSource(takeover.Shown[ctrl.Request](before)).
		Complete(raced.Reconciler(r))
}
