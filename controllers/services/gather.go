// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/propagation"
)

// sentBundle is one Bundle of a member as it is on its way.
type sentBundle struct {
	// half that it is, "" for the shard's own.
	half string
	box  *mailbox
	// sent is the spec in force, nil when the Work is to be created.
	sent *Bundle
	// missing says that sent is remembered, and not on the Karmada API.
	missing bool
	// terminating says that its Work is being deleted, which takes until Karmada reaches the member again: until then it
	// cannot be written.
	terminating bool
	refresh     bool
	// unseen says that sent was written, and that the cache does not show it yet, nor whether it is answered: that an API
	// server is late with that is no reason to send it anew.
	unseen bool
	// observed is the revision that the member has answered, and apart the one that it has answered in another Bundle, as
	// it does of deltas; 0 while that is unknown.
	observed, apart int64
}

// answered says that the member has just what was sent. What answers a later revision is an answer to something else.
func (b *sentBundle) answered() bool {
	return b.sent != nil && !b.missing && (b.observed == b.sent.Revision || b.apart == b.sent.Revision)
}

// target is one member whose Bundles and record are kept.
type target struct {
	cluster    string
	mem        *memory
	sentBundle // the shard's own
	halves     map[string]*sentBundle
	sorted     []string // names of halves
	writable   bool
	// readsParts says that the member's agent finds imports in halves, and waits for the rest of one that is withheld.
	readsParts bool
	// readsText says that it reads backends that are text.
	readsText bool
	// deltas of the member, nil if its agent reads none, and known is what Karmada says of the cluster.
	deltas *deltas
	known  *clusterv1alpha1.Cluster
	// said is what the member reports, nil while that is unknown, and lost says that Karmada does not reach it.
	said *report
	lost bool
	// owner of the record, and the record in force: nil when it is to be created.
	owner  *v1alpha1.Member
	record *v1alpha1.ExportRecord
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
		Global: globalOf(record.Status), ReadsParts: record.Status.ReadsParts,
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
	t := target{cluster: record.Name, mem: r.memory(record, shard), writable: known.applied[record.Name] == known.bindings}
	t.box = &t.mem.mailbox
	m := memberOf(record)
	t.readsParts, t.readsText = m.ReadsParts, record.Status.ReadsText
	c := known.clusters[record.Name]
	t.deltas, t.known = r.deltasOf(record), c
	if t.lost = fleet.Lost(c); c != nil {
		m.Labels = c.Labels
	}
	again, err := r.gatherRecord(ctx, &m, &t, record, shard)
	if err != nil {
		return m, t, 0, err
	}
	work, err := r.bundle(ctx, t.mem.key)
	if err != nil {
		return m, t, 0, err
	}
	work, t.terminating = lasting(work)
	var cached *Bundle
	if work != nil {
		t.mem.held.read(work)
		cached = t.mem.held.spec
	}
	var after time.Duration
	t.sent, after = t.mem.latest(work, cached, now)
	t.unseen = after > 0
	again = sooner(again, after)
	if work == nil {
		if t.sent == nil {
			t.sent = t.mem.bundle.Remembered()
			t.missing = true
		}
		m.Last = t.sent
		after, err = r.gatherHalves(ctx, &t, c, shard)
		return m, t, sooner(again, after), err
	}
	m.Last = t.sent
	said := r.report(ctx, &m, t.mem)
	m.Known = t.sent != nil && said != nil && said.revision >= t.mem.answered
	if m.Known {
		t.said = said
		m.Exports, m.Malformed, t.mem.answered = said.exports, said.malformed, min(said.revision, t.sent.Revision)
		t.observed = said.revision
	}
	if !t.unseen {
		delivered := m.Known && said.revision >= t.sent.Revision
		t.refresh, after = t.mem.echo.Overdue(c, delivered, propagation.Failed(work), now)
		again = sooner(again, after)
	}
	if after, err = r.gatherHalves(ctx, &t, c, shard); m.Known {
		m.Unusable = t.unusable(said.imports)
	}
	return m, t, sooner(again, after), err
}

// bundle returns the Work of a shard's own Bundle, to be read only; nil if there is none.
func (r *Reconciler) bundle(ctx context.Context, key client.ObjectKey) (*workv1alpha1.Work, error) {
	var work workv1alpha1.Work
	if err := r.Client.Get(ctx, key, &work, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read the Work %s: %w", key, err)
	}
	return &work, nil
}

// lasting returns a Work that lasts, else nil and whether there is one that does not.
func lasting(work *workv1alpha1.Work) (_ *workv1alpha1.Work, terminating bool) {
	if work != nil && !work.DeletionTimestamp.IsZero() {
		return nil, true
	}
	return work, false
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
	t.record, again = t.mem.latestRecord(cached, r.Now())
	record := t.record
	if record == nil {
		// Somebody has deleted it: what it said stays in force, and is written again.
		record = t.mem.record.Remembered()
	}
	switch {
	case t.mem.pending != nil:
		m.Record = t.mem.pending
	case record != nil && record.Spec.MemberUID == owner.UID:
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
