// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/controllers/metrics"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/propagation"
)

const (
	// parallelWrites of Works; the client's own rate limit is the real bound.
	parallelWrites = 16
	// parallelShards are decided at once; nothing is shared between two of them.
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

	mu   sync.Mutex
	seen map[seenKey]*memory
	// unlabelled are the shards in which no scope depends on the labels of clusters.
	unlabelled map[Shard]bool
	// records are the ExportRecords that were last written, or are being written, by name.
	records map[string]v1alpha1.ExportRecordSpec
	// decided are the last decisions.
	decided map[Shard]*latest
	// arrivals are when the first of the Works came that the next decision on a shard is about.
	arrivals map[Shard]time.Time
}

type seenKey struct {
	uid   string // of the Member
	shard int32
}

// memory is what was written for a member and may not be in the cache, or not in the API any more.
type memory struct {
	bundle propagation.WriteBehind[v1alpha1.BundleSpec]
	record propagation.WriteBehind[v1alpha1.ExportRecord]
	echo   fleet.Echo
	// answered is the newest revision that the member has answered. What answers an older one comes
	// from the past, say from a restored backup.
	answered int64
	// held is what was read of the Work, and kept the record as it was last read.
	held held
	kept *v1alpha1.ExportRecord
	// refused says why the last report was not used.
	refused string
	// exported is what the member was last found to export. Of changes of others' exports, unsent is when the first was
	// seen that is to be written for the member, and underWay are those that were and are not answered.
	exported exported
	unsent   time.Time
	underWay underWay
}

// target is one member whose Bundle and record are kept.
type target struct {
	cluster string
	mem     *memory
	// sent is the spec in force, nil when the Work is to be created.
	sent *v1alpha1.BundleSpec
	// missing says that sent is remembered, and not on the Karmada API.
	missing  bool
	refresh  bool
	writable bool
	// said is what the member reports, nil while that is unknown, and lost says that Karmada does not reach it.
	said *report
	lost bool
	// owner of the record, and the record in force: nil when it is to be created.
	owner  *v1alpha1.Member
	record *v1alpha1.ExportRecord
}

// Reconcile brings one shard's Bundles up to date.
func (r *Reconciler) Reconcile(ctx context.Context, shard Shard) (ctrl.Result, error) {
	p, err := r.plan(ctx, shard)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.write(ctx, p.writes); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.again}, nil
}

// plan is what to write of a shard, and when to look again (0: never).
type plan struct {
	writes []func(context.Context) error
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
	return plan{r.changes(targets, d), sooner(again, d.Again)}, nil
}

// sooner returns the shorter of two delays, of which 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// gather reads what the accepted members report on a shard, and says when to look again.
func (r *Reconciler) gather(ctx context.Context, set v1alpha1.ClusterSet,
	shard int32) (Input, []target, time.Duration, error) {
	in := Input{Shard: shard, Shards: set.Spec.Shards, Services: set.Spec.Services, Now: r.Now(),
		Scheduled: map[string][]string{}, Placed: map[string][]string{}}
	var policies v1alpha1.ServicePolicyList
	if err := r.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return in, nil, 0, fmt.Errorf("list the ServicePolicies: %w", err)
	}
	slices.SortFunc(policies.Items, func(a, b v1alpha1.ServicePolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range policies.Items {
		if p := &policies.Items[i]; v1alpha1.Shard(p.Namespace, p.Name, in.Shards) == shard {
			in.Policies = append(in.Policies, *p)
		}
	}
	if err := r.gatherKarmada(ctx, &in); err != nil {
		return in, nil, 0, err
	}
	// Of all this nothing is changed here.
	state, err := fleet.Gather(ctx, r.Client, client.UnsafeDisableDeepCopy)
	if err != nil {
		return in, nil, 0, err
	}
	// In one order, so that a decision can be compared with the last.
	slices.SortFunc(state.Members, func(a, b v1alpha1.Member) int { return cmp.Compare(a.Name, b.Name) })
	r.forgetGone(state.Members, shard)
	known := knownOf(&state)
	var targets []target
	var again time.Duration
	var importers []string
	for i := range state.Members {
		record := &state.Members[i]
		if record.Spec.ClusterSet != set.Name {
			continue
		}
		importers = append(importers, record.Name)
		if !takesPart(record) {
			r.letGo(record, shard)
			continue
		}
		m, t, after, err := r.gatherMember(ctx, known, record, shard)
		if err != nil {
			return in, nil, 0, err
		}
		again = sooner(again, after)
		if err := r.gatherScheduled(ctx, &in, m.Withdrawn()); err != nil {
			return in, nil, 0, err
		}
		in.Members = append(in.Members, m)
		targets = append(targets, t)
	}
	r.Metrics.Importers(set.Name, importers)
	return in, targets, again, nil
}

// takesPart says whether the services of a member are decided on.
func takesPart(record *v1alpha1.Member) bool {
	return record.Spec.Phase == v1alpha1.MemberActive &&
		meta.IsStatusConditionTrue(record.Status.Conditions, v1alpha1.MemberAccepted)
}

// memberOf is what a record says that services are decided by. Other changes of it decide nothing (decisive).
func memberOf(record *v1alpha1.Member) Member {
	return Member{
		Cluster: record.Name, UID: record.UID, Accepted: acceptedSince(record),
		Pods: prefixes(record.Status.Networks.PodCIDRs), Services: prefixes(record.Status.Networks.ServiceCIDRs),
		Nodes:  prefixes(record.Status.NodeCIDRs),
		Global: globalOf(record.Status),
	}
}

// known is what Karmada says of clusters, by name.
type known struct {
	clusters map[string]*clusterv1alpha1.Cluster
	// applied counts the bindings of the wire that a cluster has applied, of all that there are.
	applied  map[string]int
	bindings int
}

func knownOf(state *fleet.State) known {
	k := known{make(map[string]*clusterv1alpha1.Cluster, len(state.Clusters)), map[string]int{}, len(state.Bindings)}
	for i := range state.Clusters {
		k.clusters[state.Clusters[i].Name] = &state.Clusters[i]
	}
	for _, b := range state.Bindings {
		if b == nil {
			continue
		}
		for _, cluster := range slices.Compact(propagation.AppliedBy(b)) {
			k.applied[cluster]++
		}
	}
	return k
}

func (r *Reconciler) gatherMember(ctx context.Context, known known, record *v1alpha1.Member,
	shard int32) (Member, target, time.Duration, error) {
	now := r.Now()
	t := target{cluster: record.Name, mem: r.memory(record, shard),
		writable: known.applied[record.Name] == known.bindings}
	m := memberOf(record)
	c := known.clusters[record.Name]
	if t.lost = fleet.Lost(c); c != nil {
		m.Labels = c.Labels
	}
	again, err := r.gatherRecord(ctx, &m, &t, record, shard)
	if err != nil {
		return m, t, 0, err
	}
	work, err := r.bundle(ctx, record.Name, shard)
	if err != nil {
		return m, t, 0, err
	}
	var cached *v1alpha1.BundleSpec
	if work != nil {
		t.mem.held.read(work)
		cached = t.mem.held.spec
	}
	var after time.Duration
	t.sent, after = t.mem.bundle.Latest(cached, newerBundle, now)
	again = sooner(again, after)
	if work == nil {
		if t.sent == nil {
			t.sent = t.mem.bundle.Remembered()
			t.missing = true
		}
		m.Last = t.sent
		return m, t, again, nil
	}
	m.Last = t.sent
	said := r.report(ctx, &m, t.mem)
	m.Known = t.sent != nil && said != nil && said.revision >= t.mem.answered
	if m.Known {
		t.said = said
		m.Exports, m.Malformed, t.mem.answered = said.exports, said.malformed, min(said.revision, t.sent.Revision)
		m.Unusable = said.imports
	}
	delivered := m.Known && said.revision >= t.sent.Revision
	var refresh bool
	refresh, after = t.mem.echo.Overdue(c, delivered, propagation.Failed(work), now)
	t.refresh = refresh
	return m, t, sooner(again, after), nil
}

// newerBundle says whether a write supersedes what the cache has.
func newerBundle(written, cached *v1alpha1.BundleSpec) bool {
	return written.Revision > cached.Revision
}

// newerRecord says so of records. Of another UID is what was created after the cached one was deleted.
func newerRecord(written, cached *v1alpha1.ExportRecord) bool {
	return written.UID != cached.UID || written.Generation > cached.Generation
}

// bundle returns the Work of a member's Bundle, to be read only; nil if there is none that lasts.
func (r *Reconciler) bundle(ctx context.Context, cluster string, shard int32) (*workv1alpha1.Work, error) {
	var work workv1alpha1.Work
	if err := r.Client.Get(ctx, propagation.BundleKey(cluster, shard), &work, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read the Work of Bundle %d for %s: %w", shard, cluster, err)
	}
	if !work.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return &work, nil
}

// gatherRecord reads the broker's record of a member, which is nothing if it is that of another Member.
func (r *Reconciler) gatherRecord(ctx context.Context, m *Member, t *target, owner *v1alpha1.Member,
	shard int32) (time.Duration, error) {
	cached := new(v1alpha1.ExportRecord)
	err := r.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.ExportRecordName(owner.Name, shard)}, cached,
		client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		cached = nil
	case err != nil:
		return 0, fmt.Errorf("read the ExportRecord of %s, shard %d: %w", owner.Name, shard, err)
	case t.mem.kept != nil && t.mem.kept.UID == cached.UID && t.mem.kept.ResourceVersion == cached.ResourceVersion:
		cached = t.mem.kept
	}
	t.mem.kept = cached
	var again time.Duration
	t.owner = owner
	t.record, again = t.mem.record.Latest(cached, newerRecord, r.Now())
	record := t.record
	if record == nil {
		// Somebody has deleted it: what it said stays in force, and is written again.
		record = t.mem.record.Remembered()
	}
	if record != nil && record.Spec.MemberUID == owner.UID {
		m.Record = &record.Spec
	}
	return again, nil
}

// globalOf reads what is recorded of a member's global addresses.
func globalOf(status v1alpha1.MemberStatus) Global {
	block, err := netfacts.ParseGlobal(status.GlobalCIDR)
	if err != nil {
		return Global{}
	}
	ipv6, err := globalnet.ParseIPv6(status.GlobalIPv6CIDR, block)
	if err != nil {
		ipv6 = netip.Prefix{}
	}
	return Global{Block: block, IPv6: ipv6, ToAll: status.GlobalScope == v1alpha1.GlobalToAll,
		Overlapping: status.OverlappingClusters}
}

// acceptedSince is when a Member was created or, if that is later, accepted.
func acceptedSince(record *v1alpha1.Member) time.Time {
	at := record.CreationTimestamp.Time
	if c := meta.FindStatusCondition(record.Status.Conditions, v1alpha1.MemberAccepted); c != nil {
		at = later(at, c.LastTransitionTime.Time)
	}
	return at
}

// report reads what a member says; nil when it says nothing that can be used, which is unknown.
func (r *Reconciler) report(ctx context.Context, m *Member, mem *memory) *report {
	out, err := mem.held.report, mem.held.err
	before := mem.refused
	mem.refused = ""
	var refused *unusable
	if errors.As(err, &refused) {
		mem.refused = refused.message
		m.Refused = &v1alpha1.Problem{
			Cluster: m.Cluster, Reason: refused.reason,
			Message: "the report of cluster " + m.Cluster + " on its exports is not used, what was last known stays in force: " +
				refused.message,
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
		r.seen[k] = &memory{echo: fleet.NewEcho(fmt.Sprintf("%s/%d", k.uid, shard), 0), held: newHeld()}
	}
	return r.seen[k]
}

// changes are the writes of the records and Bundles that differ.
func (r *Reconciler) changes(targets []target, d Decision) []func(context.Context) error {
	var writes []func(context.Context) error
	compared := comparison{}
	for _, t := range targets {
		if record, ok := d.Records[t.cluster]; ok &&
			(t.record == nil || !equality.Semantic.DeepEqual(t.record.Spec, record)) {
			writes = append(writes, func(ctx context.Context) error { return r.applyRecord(ctx, t, record) })
		}
		spec, ok := d.Bundles[t.cluster]
		if !ok || !t.writable {
			continue
		}
		if t.sent != nil && !t.missing && !t.refresh {
			spec.Revision = t.sent.Revision
			if compared.bundles(t.sent, &spec) {
				t.mem.held.matches(t.sent, &spec)
				t.mem.unsent = time.Time{}
				continue
			}
		}
		spec.Revision = t.next()
		t.mem.unsent = t.carries(spec, targets)
		writes = append(writes, func(ctx context.Context) error { return r.applyBundle(ctx, t, spec) })
	}
	decided(targets)
	return writes
}

// write carries out writes. One that fails is no reason to leave the others out.
func (r *Reconciler) write(ctx context.Context, writes []func(context.Context) error) error {
	var g errgroup.Group
	g.SetLimit(parallelWrites)
	for _, write := range writes {
		g.Go(func() error { return write(ctx) })
	}
	return g.Wait()
}

// next is the revision to write: the answer to it tells that it has arrived.
func (t *target) next() int64 {
	if t.sent == nil {
		return 1
	}
	return t.sent.Revision + 1
}

func (r *Reconciler) applyBundle(ctx context.Context, t target, spec v1alpha1.BundleSpec) error {
	manifest, err := r.Works.ApplyBundle(ctx, t.cluster, spec)
	if err != nil {
		return err
	}
	t.mem.held.wrote(&spec, manifest)
	if t.sent == nil {
		t.mem.answered = 0
	}
	t.mem.wrote(spec.Revision)
	t.mem.bundle.Wrote(&spec, r.Now())
	r.Metrics.Wrote(propagation.KindBundle)
	log.FromContext(ctx).V(1).Info("bundle written", "cluster", t.cluster, "shard", spec.Shard, "revision", spec.Revision)
	return nil
}

func (r *Reconciler) applyRecord(ctx context.Context, t target, spec v1alpha1.ExportRecordSpec) error {
	record := &v1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ExportRecordName(t.cluster, spec.Shard)}}
	write := func(ctx context.Context, o client.Object) error { return r.Client.Create(ctx, o) }
	if t.record != nil {
		record = t.record.DeepCopy()
		write = func(ctx context.Context, o client.Object) error { return r.Client.Update(ctx, o) }
	}
	record.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Member", Name: t.owner.Name, UID: t.owner.UID,
	}}
	// The client decodes the answer of the API server into what it sends, and spec is shared with others that read it.
	record.Spec = *spec.DeepCopy()
	r.writing(record.Name, spec)
	if err := write(ctx, record); err != nil {
		return fmt.Errorf("write the ExportRecord of %s, shard %d: %w", t.cluster, spec.Shard, err)
	}
	t.mem.record.Wrote(record, r.Now())
	return nil
}

// forgetDecision drops what is kept of a shard that is no more.
func (r *Reconciler) forgetDecision(shard Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.decided, shard)
	delete(r.unlabelled, shard)
}

// forgetGone drops what is remembered of a shard's Work of members that are gone, of any ClusterSet.
func (r *Reconciler) forgetGone(members []v1alpha1.Member, shard int32) {
	there := make(map[string]bool, len(members))
	for i := range members {
		there[string(members[i].UID)] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.seen, func(k seenKey, _ *memory) bool { return k.shard == shard && !there[k.uid] })
}

// last is the last decision on a shard.
func (r *Reconciler) last(shard Shard) *latest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decided == nil {
		r.decided = map[Shard]*latest{}
	}
	if r.decided[shard] == nil {
		r.decided[shard] = new(latest)
	}
	return r.decided[shard]
}

// writing notes what an ExportRecord is about to say: its event may come before the write returns.
func (r *Reconciler) writing(name string, spec v1alpha1.ExportRecordSpec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records == nil {
		r.records = map[string]v1alpha1.ExportRecordSpec{}
	}
	r.records[name] = spec
}

func (r *Reconciler) noteUnlabelled(shard Shard, unlabelled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unlabelled == nil {
		r.unlabelled = map[Shard]bool{}
	}
	r.unlabelled[shard] = unlabelled
}
