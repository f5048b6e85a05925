// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	networkingv1alpha1 "github.com/karmada-io/karmada/pkg/apis/networking/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/membership"
	"github.com/sealane-io/sealane/controllers/metrics"
	"github.com/sealane-io/sealane/propagation"
)

const (
	// parallelWrites of Works; the client's own rate limit is the real bound.
	parallelWrites = 16
	// parallelShards are decided at once; nothing is shared between two of them.
	parallelShards = 4
	// settle is how long a write may take to show in the cache.
	settle = 2 * time.Second
	// quick is the delay after a write that lost a race.
	quick = 10 * time.Millisecond
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
	// Board shows the reports that are refused.
	Board *Board
	// Now is the clock.
	Now func() time.Time

	mu   sync.Mutex
	seen map[seenKey]*memory
	// plain are the shards in which no import scope depends on the labels of clusters.
	plain map[Shard]bool
}

type seenKey struct {
	uid   string // of the Member
	shard int32
}

// memory is what was written for a member and may not be in the cache, or not in the API any more.
type memory struct {
	sent   *v1alpha1.BundleSpec
	sentAt time.Time
	echo   membership.Echo
	// answered is the newest revision that the member has answered. What answers an older one comes
	// from the past, say from a restored backup.
	answered int64
	// refused says why the last report was not used.
	refused string
}

// target is one member whose Bundle is kept.
type target struct {
	cluster string
	mem     *memory
	// sent is the spec in force, nil when the Work is to be created.
	sent *v1alpha1.BundleSpec
	// missing says that sent is remembered, and not on the Karmada API.
	missing  bool
	refresh  bool
	writable bool
}

// Reconcile brings one shard's Bundles up to date.
func (r *Reconciler) Reconcile(ctx context.Context, shard Shard) (ctrl.Result, error) {
	var set v1alpha1.ClusterSet
	if err := r.Client.Get(ctx, client.ObjectKey{Name: shard.Set}, &set); err != nil {
		if apierrors.IsNotFound(err) {
			r.Board.forget(shard.Set)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if shard.Number >= set.Spec.Shards {
		return ctrl.Result{}, nil
	}
	// Labels that change from here on count, until it is known that they do not matter.
	r.notePlain(shard, false)
	in, targets, again, err := r.gather(ctx, set, shard.Number)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.notePlain(shard, !in.Selects())
	r.Board.show(ctx, shard, in.refused())
	start := time.Now()
	d := Decide(in)
	r.Metrics.Decided("services", time.Since(start))
	exports := 0
	for _, m := range in.Members {
		exports += len(m.Exports)
	}
	r.Metrics.Services(set.Name, strconv.Itoa(int(shard.Number)), exports, d.Services, d.Conflicts)
	for _, p := range d.Problems {
		log.FromContext(ctx).V(1).Info("export not used as reported", "cluster", p.Cluster, "reason", p.Reason, "message", p.Message)
	}
	if err := r.apply(ctx, targets, d); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return ctrl.Result{RequeueAfter: quick}, nil
		}
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// gather reads what the accepted members report on a shard, and says when to look again.
func (r *Reconciler) gather(ctx context.Context, set v1alpha1.ClusterSet, shard int32) (Input, []target, time.Duration, error) {
	in := Input{Shard: shard, Shards: set.Spec.Shards, Services: set.Spec.Services}
	var policies v1alpha1.ServicePolicyList
	if err := r.Client.List(ctx, &policies); err != nil {
		return in, nil, 0, fmt.Errorf("list the ServicePolicies: %w", err)
	}
	for i := range policies.Items {
		if p := &policies.Items[i]; v1alpha1.Shard(p.Namespace, p.Name, in.Shards) == shard {
			in.Policies = append(in.Policies, *p)
		}
	}
	if err := r.gatherRivals(ctx, &in); err != nil {
		return in, nil, 0, err
	}
	world, err := membership.Gather(ctx, r.Client)
	if err != nil {
		return in, nil, 0, err
	}
	var targets []target
	var again time.Duration
	for i := range world.Members {
		record := &world.Members[i]
		if record.Spec.ClusterSet != set.Name || record.Spec.Phase != v1alpha1.MemberActive ||
			!meta.IsStatusConditionTrue(record.Status.Conditions, v1alpha1.MemberAccepted) {
			continue
		}
		m, t, after, err := r.gatherMember(ctx, world, record, shard)
		if err != nil {
			return in, nil, 0, err
		}
		if after > 0 && (again == 0 || after < again) {
			again = after
		}
		in.Members = append(in.Members, m)
		targets = append(targets, t)
	}
	return in, targets, again, nil
}

// gatherRivals reads what Karmada's own controllers act on in the shard.
func (r *Reconciler) gatherRivals(ctx context.Context, in *Input) error {
	var imports mcsv1alpha1.ServiceImportList
	var services networkingv1alpha1.MultiClusterServiceList
	for _, list := range []client.ObjectList{&imports, &services} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
	}
	in.Rivals = map[string]Rivals{}
	for i := range imports.Items {
		k := key{imports.Items[i].Namespace, imports.Items[i].Name}.String()
		rivals := in.Rivals[k]
		rivals.ServiceImport = true
		in.Rivals[k] = rivals
	}
	for i := range services.Items {
		k := key{services.Items[i].Namespace, services.Items[i].Name}.String()
		rivals := in.Rivals[k]
		rivals.MultiClusterService = slices.Contains(services.Items[i].Spec.Types, networkingv1alpha1.ExposureTypeCrossCluster)
		in.Rivals[k] = rivals
	}
	return nil
}

func (r *Reconciler) gatherMember(ctx context.Context, world membership.World, record *v1alpha1.Member, shard int32) (Member, target, time.Duration, error) {
	now := r.Now()
	t := target{cluster: record.Name, mem: r.memory(record, shard), writable: world.WireApplied(record.Name)}
	m := Member{
		Cluster: record.Name,
		Pods:    prefixes(record.Status.Networks.PodCIDRs), Services: prefixes(record.Status.Networks.ServiceCIDRs),
		Nodes: prefixes(record.Status.NodeCIDRs),
	}
	if c := world.Cluster(record.Name); c != nil {
		m.Labels = c.Labels
	}
	var work workv1alpha1.Work
	err := r.Client.Get(ctx, propagation.BundleKey(record.Name, shard), &work)
	if apierrors.IsNotFound(err) || err == nil && !work.DeletionTimestamp.IsZero() {
		t.sent = t.mem.sent
		t.missing = now.Sub(t.mem.sentAt) >= settle
		m.Last = t.sent
		if t.sent != nil && !t.missing {
			return m, t, settle, nil
		}
		return m, t, 0, nil
	}
	if err != nil {
		return m, t, 0, fmt.Errorf("read the Work of Bundle %d for %s: %w", shard, record.Name, err)
	}
	var again time.Duration
	sent := new(v1alpha1.BundleSpec)
	if err := propagation.Spec(&work, sent); err == nil {
		t.sent = sent
	}
	if t.mem.sent != nil && now.Sub(t.mem.sentAt) < settle {
		t.sent, again = t.mem.sent, settle
	}
	t.mem.sent = t.sent
	m.Last = t.sent
	said := r.report(ctx, &m, t.mem, propagation.Status(&work))
	m.Known = t.sent != nil && said != nil && said.revision >= t.mem.answered
	if m.Known {
		m.Exports, m.Malformed, t.mem.answered = said.exports, said.malformed, said.revision
	}
	delivered := m.Known && said.revision >= t.sent.Revision
	refresh, after := t.mem.echo.Overdue(world.Cluster(record.Name), delivered, propagation.Failed(&work), now)
	t.refresh = refresh
	if after > 0 && (again == 0 || after < again) {
		again = after
	}
	return m, t, again, nil
}

// report reads what a member says; nil when it says nothing that can be used, which is unknown.
func (r *Reconciler) report(ctx context.Context, m *Member, mem *memory, raw []byte) *report {
	out, err := readReport(raw)
	before := mem.refused
	mem.refused = ""
	var refused *unusable
	if errors.As(err, &refused) {
		mem.refused = refused.message
		m.Refused = &v1alpha1.Problem{
			Cluster: m.Cluster, Reason: refused.reason,
			Message: "the report of cluster " + m.Cluster + " on its exports is not used, what was last known stays in force: " + refused.message,
		}
	}
	if mem.refused != "" && mem.refused != before {
		r.Metrics.Refused(propagation.KindBundle)
		log.FromContext(ctx).Info("report refused", "cluster", m.Cluster, "message", mem.refused)
	}
	return out
}

// prefixes parses what the fabric has accepted.
func prefixes(cidrs []string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(cidrs))
	for _, c := range cidrs {
		if p, err := netip.ParsePrefix(c); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// memory of a Member's shard; a new Member under the same name has none.
func (r *Reconciler) memory(record *v1alpha1.Member, shard int32) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[seenKey]*memory{}
	}
	k := seenKey{string(record.UID), shard}
	if r.seen[k] == nil {
		r.seen[k] = new(memory)
	}
	return r.seen[k]
}

// apply writes the Bundles that differ. One that cannot be written is no reason to leave the others out.
func (r *Reconciler) apply(ctx context.Context, targets []target, d Decision) error {
	var g errgroup.Group
	g.SetLimit(parallelWrites)
	for _, t := range targets {
		spec, ok := d.Bundles[t.cluster]
		if !ok || !t.writable {
			continue
		}
		spec.Revision = 1
		if t.sent != nil {
			spec.Revision = t.sent.Revision
		}
		if t.sent != nil && !t.missing && !t.refresh && equality.Semantic.DeepEqual(*t.sent, spec) {
			continue
		}
		// The answer to it tells that it has arrived.
		if t.sent != nil {
			spec.Revision++
		}
		g.Go(func() error {
			if err := r.Works.ApplyBundle(ctx, t.cluster, spec); err != nil {
				return err
			}
			t.mem.sent, t.mem.sentAt = &spec, r.Now()
			r.Metrics.Wrote(propagation.KindBundle)
			log.FromContext(ctx).V(1).Info("bundle written", "cluster", t.cluster, "shard", spec.Shard, "revision", spec.Revision)
			return nil
		})
	}
	return g.Wait()
}

func (r *Reconciler) notePlain(shard Shard, plain bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plain == nil {
		r.plain = map[Shard]bool{}
	}
	r.plain[shard] = plain
}
