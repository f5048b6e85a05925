// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Input is all that decides about one shard.
type Input struct {
	// Shard, from 0, of the ClusterSet's Shards.
	Shard, Shards int32
	// Members are the accepted, active members of the ClusterSet, in any order. One that is not listed
	// exports nothing and gets no Bundle.
	Members []Member
	// Services is what the ClusterSet says of all services.
	Services v1alpha1.ServicesSpec
	// Policies steer the services of their own namespace and name, those of this shard, in any order.
	Policies []v1alpha1.ServicePolicy
	// Karmada is what Karmada's own controllers act on, by "<namespace>/<name>" of the service.
	Karmada map[string]KarmadaServices
	// Scheduled are the clusters that Karmada places a ServiceExport in, by "<namespace>/<name>". Only those
	// of Member.Withdrawn matter.
	Scheduled map[string][]string
	// Placed are the clusters that Karmada places the Service itself in, of those that it places at all.
	Placed map[string][]string
	// Now is the time.
	Now time.Time
}

// Member is one cluster as the broker knows it.
type Member struct {
	// Cluster is the member's name. It comes from the namespace of its Works, never from what it reports.
	Cluster string
	// UID of the Member.
	UID types.UID
	// Accepted is when the Member was created or, if that is later, accepted.
	Accepted time.Time
	// Labels of the Karmada Cluster, by which import scopes select.
	Labels map[string]string
	// Pods, Services and Nodes are the networks accepted: Member.status.networks and .nodeCIDRs.
	Pods, Services, Nodes []netip.Prefix
	// Global addresses of the cluster.
	Global Global
	// Known says that Exports is the member's report on this shard, at the current revision. When it is
	// false Exports is ignored: what the record says stays.
	Known   bool
	Exports []v1alpha1.Export
	// Record is the broker's own of this member and shard, nil when there is none.
	Record *v1alpha1.ExportRecordSpec
	// Unusable are the imports that, as the member reports, do not exist or cannot be used there.
	Unusable []v1alpha1.ImportProblem
	// ReadsParts says that its agent waits for the rest of an import that is withheld.
	ReadsParts bool
	// Malformed counts those of its exports that could not be decoded.
	Malformed int
	// Refused says why the member's last report is not used at all; nil if it is, or there is none.
	Refused *v1alpha1.Problem
	// Last is the spec last written for this member and shard, nil when there is none. The member may have
	// rewritten it: it is read for the conditions of the member's own exports, and for nothing else.
	Last *Bundle
}

// Decision is what each member's Bundle should say. Its values share memory with each other and with the
// Input: they are to be read only.
type Decision struct {
	// Bundles by cluster, one for every member, without a revision and as if all imports were in one. One that is withheld
	// has its endpoints here, too.
	Bundles map[string]Bundle
	// Sizes are the bytes in JSON of the imports of each Bundle, in their order.
	Sizes map[string][]int
	// Records by cluster, one for every member.
	Records map[string]v1alpha1.ExportRecordSpec
	// Again is after how long to decide anew although nothing has changed; 0 is never.
	Again time.Duration
	// Problems with what members report, sorted by cluster, at most maxProblems of each.
	Problems []v1alpha1.Problem
	// Services that are exported, and those of them whose exports conflict.
	Services, Conflicts int
}

// Reasons of Problems, beside v1alpha1.ReasonStatusTooLarge and v1alpha1.ReasonBundleFull. The last is a reason of the
// Ready condition, too.
const (
	// ReasonInvalidExport: an export is refused, or a part of it left out.
	ReasonInvalidExport = "InvalidExport"
	// ReasonNotRouted: backends have addresses that are not routed between clusters. As a reason of the Ready condition:
	// all of them.
	ReasonNotRouted = "BackendsNotRouted"
	// ReasonInvalidExporters: a rule of the ClusterSet's exporters cannot be used.
	ReasonInvalidExporters = "InvalidExporters"
	// ReasonInvalidReport: a whole report cannot be decoded.
	ReasonInvalidReport = "InvalidReport"
	// ReasonNotPermitted: the cluster may not export a service of that name.
	ReasonNotPermitted = "NotPermitted"
)

const maxProblems = 10

// key of a service.
type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// member is a Member and its Bundle in the making.
type member struct {
	*Member
	networks networks
	// before is the member's record by name, and seen what it becomes.
	before, seen map[key]v1alpha1.SeenExport
	// exports accepted, and those withdrawn that are kept.
	exports, withdrawn []accepted
	// refused says why an export that has a proper name was refused.
	refused map[key]refusal
	// size of the Bundle so far.
	size       int
	imports    []*sized // sorted
	conditions []v1alpha1.ExportCondition
	problems   map[v1alpha1.Problem]bool
	// overdrawn says in which Bundles its exports exceed its share.
	overdrawn overdraft
}

// refusal says why an export is refused: the reason of its Ready condition, and a message.
type refusal struct{ reason, message string }

// problem notes what is wrong, once.
func (m *member) problem(reason, format string, args ...any) {
	m.problems[v1alpha1.Problem{Cluster: m.Cluster, Reason: reason, Message: fmt.Sprintf(format, args...)}] = true
}

// service is what the members export under one name.
type service struct {
	key key
	// exports, the oldest first, then those that are withdrawn and kept.
	exports  []accepted
	policy   policy
	conflict v1alpha1.ExportCondition
	// views of the service, one for each member; nil where the member imports none of it.
	views []*view
	// byVisible are the views by the exports in them.
	byVisible map[string]*view
	// full are the clusters whose Bundle has no room for an export, by exporter.
	full map[string][]string
}

// live are the exports that are not withdrawn.
func (s *service) live() []accepted {
	n := slices.IndexFunc(s.exports, func(a accepted) bool { return a.withdrawn() })
	if n < 0 {
		return s.exports
	}
	return s.exports[:n]
}

// Decide merges the exports of one shard. It is pure, and its result does not depend on any order in its
// input.
func Decide(in Input) Decision { return decideWith(in, &mergedImports{made: map[key][]*merged{}}) }

// decideWith takes the memory of imports from the decision before, where they are the same.
func decideWith(in Input, kept *mergedImports) Decision {
	members, policies := newMembers(in.Members), parsePolicies(in.Policies)
	permits := newPermits(in.Services.Exporters, policies)
	for _, m := range members {
		if m.Refused != nil {
			m.problems[*m.Refused] = true
		}
		m.gather(in, permits)
	}
	d := Decision{
		Bundles: make(map[string]Bundle, len(members)),
		Sizes:   make(map[string][]int, len(members)),
		Records: make(map[string]v1alpha1.ExportRecordSpec, len(members)),
		Again:   retain(members, in),
	}
	services := group(members)
	follow := &rules{services: in.Services, standing: standing(members), large: map[share]bool{}, imports: kept}
	byName := make(map[string]*member, len(members))
	for _, m := range members {
		byName[m.Cluster] = m
	}
	for _, s := range services {
		s.policy = policies[s.key]
		s.see(members, byName, follow)
		live := s.live()
		if len(live) == 0 {
			continue
		}
		d.Services++
		s.conflict = conflict(live, follow, in.Karmada[s.key.String()])
		if s.conflict.Status == metav1.ConditionTrue {
			d.Conflicts++
		}
	}
	fit(members, byName, services, follow)
	for _, m := range members {
		slices.SortFunc(m.conditions, compareConditions)
		d.Bundles[m.Cluster], d.Sizes[m.Cluster] = m.bundle(in.Shard)
		d.Records[m.Cluster] = m.record(in.Shard, follow)
		d.Problems = append(d.Problems, m.sortedProblems()...)
	}
	return d
}

func newMembers(all []Member) []*member {
	out := make([]*member, 0, len(all))
	for i := range all {
		m := &all[i]
		out = append(out, &member{
			Member: m,
			networks: networks{netfacts.Set(m.Pods), netfacts.Set(m.Services), netfacts.Set(m.Nodes), m.Global.Block,
				m.Global.IPv6, !m.Global.ToAll},
			before: map[key]v1alpha1.SeenExport{}, seen: map[key]v1alpha1.SeenExport{},
			refused:    map[key]refusal{},
			conditions: []v1alpha1.ExportCondition{},
			problems:   map[v1alpha1.Problem]bool{},
		})
	}
	slices.SortFunc(out, func(a, b *member) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

// gather accepts the member's exports one by one.
func (m *member) gather(in Input, permits *permits) {
	m.index()
	exports := m.Exports
	if !m.Known {
		exports = m.recorded()
		for k, s := range m.before {
			if s.WithdrawnAt == nil {
				m.seen[k] = s
			}
		}
	}
	count := make(map[key]int, len(exports))
	for i := range exports {
		count[key{exports[i].Namespace, exports[i].Name}]++
	}
	for _, e := range exports {
		k := key{e.Namespace, e.Name}
		if !m.placed(in, &e) {
			continue
		}
		first := m.firstSeen(k, e.CreatedAt, in.Now)
		if m.Known {
			m.seen[k] = v1alpha1.SeenExport{Namespace: e.Namespace, Name: e.Name, CreatedAt: e.CreatedAt, FirstSeen: first}
		}
		if count[k] > 1 {
			m.refuse(k, "it is reported %d times", count[k])
			continue
		}
		if text := permits.refuses(m.Member, k); text != "" {
			m.refused[k] = refusal{ReasonNotPermitted, text}
			m.problem(ReasonNotPermitted, "the export of %s is refused: %s", k, text)
			continue
		}
		a, err := accept(m.Cluster, e, &m.networks)
		if err != nil {
			m.refuse(k, "%v", err)
			continue
		}
		a.age = later(e.CreatedAt.Time, first.Time)
		m.exports = append(m.exports, a)
	}
	m.limit(in.Shard)
	ownGlobals(m.exports)
	for i := range m.exports {
		m.noteLeftOut(&m.exports[i])
	}
	m.noteWithdrawn(in.Now)
	if m.Malformed > 0 {
		m.problem(ReasonInvalidExport, "%d exports are refused: they cannot be decoded", m.Malformed)
	}
}

// placed says whether an export has a proper name that belongs in this shard.
func (m *member) placed(in Input, e *v1alpha1.Export) bool {
	if !named(e) {
		m.problem(ReasonInvalidExport, "an export is refused: %s/%s cannot be the namespace and name of a Service",
			clip.Quote(e.Namespace), clip.Quote(e.Name))
		return false
	}
	if shard := v1alpha1.Shard(e.Namespace, e.Name, in.Shards); shard != in.Shard {
		m.problem(ReasonInvalidExport, "the export of %s/%s is refused: it is reported in shard %d and belongs in %d",
			e.Namespace, e.Name, in.Shard, shard)
		return false
	}
	return true
}

// limit refuses what one member cannot export in one shard, the youngest first: no Bundle had room for it.
func (m *member) limit(shard int32) {
	slices.SortFunc(m.exports, func(a, b accepted) int {
		return cmp.Or(byAge(a, b), compareKeys(a.key(), b.key()))
	})
	size := 0
	kept := m.exports[:0]
	for i, a := range m.exports {
		bytes := maxSize(&a.export)
		switch {
		case i >= maxExports:
			m.refuse(a.key(), "the cluster exports more than %d services in this shard, and older ones come first", maxExports)
		case size+bytes > maxRecord:
			m.refused[a.key()] = refusal{v1alpha1.ReasonBundleFull, fmt.Sprintf("the cluster's exports in this shard exceed "+
				"%d KiB, and older ones come first", maxRecord>>10)}
			m.problem(v1alpha1.ReasonBundleFull, "the cluster exports more than %d KiB in shard %d: younger exports are refused",
				maxRecord>>10, shard)
		default:
			size += bytes
			kept = append(kept, a)
		}
	}
	m.exports = kept
}

func (a *accepted) key() key { return key{a.export.Namespace, a.export.Name} }

func (m *member) refuse(k key, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m.refused[k] = refusal{string(mcs.ServiceExportReasonFailed), text}
	m.problem(ReasonInvalidExport, "the export of %s is refused: %s", k, text)
}

// noteLeftOut makes a Problem of what accept left out.
func (m *member) noteLeftOut(a *accepted) {
	if a.notRouted > 0 {
		m.problem(ReasonNotRouted, "%d backends of %s have the address of their node, which is not routed between "+
			"clusters; %s", a.notRouted, a.key(), a.whyNotRouted)
	}
	if a.outside > 0 {
		m.problem(ReasonNotRouted, "%d backends of %s are outside the accepted pod CIDRs: complete them in the ClusterSet, "+
			"spec.clusters", a.outside, a.key())
	}
	if a.malformed > 0 {
		m.problem(ReasonInvalidExport, "%d backends of %s are left out: they have no valid address, hostname, zone or ports",
			a.malformed, a.key())
	}
	if a.foreignIPs > 0 {
		m.problem(ReasonInvalidExport, "%d ClusterIPs of %s are left out, being outside the accepted service CIDRs or more "+
			"than one of a family: complete the CIDRs in the ClusterSet, spec.clusters", a.foreignIPs, a.key())
	}
	if a.foreignGlobal > 0 {
		m.problem(ReasonInvalidExport, "%d global addresses of %s are left out: they are not for services and pods in %s",
			a.foreignGlobal, a.key(), m.Global.Block)
	}
	if a.sharedGlobal > 0 {
		m.problem(ReasonInvalidExport, "%d global addresses of %s are left out: another service or pod of the cluster has "+
			"them, or its pod has another", a.sharedGlobal, a.key())
	}
	for _, text := range a.dropped {
		if text != "" {
			m.problem(ReasonInvalidExport, "of %s is not exported: %s", a.key(), text)
		}
	}
}

// sortedProblems returns at most maxProblems.
func (m *member) sortedProblems() []v1alpha1.Problem {
	out := slices.SortedFunc(maps.Keys(m.problems), func(a, b v1alpha1.Problem) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	if left := len(out) - maxProblems + 1; left > 1 {
		out = append(out[:maxProblems-1], v1alpha1.Problem{
			Cluster: m.Cluster, Reason: out[maxProblems-1].Reason, Message: fmt.Sprintf("and %d more problems with exports",
				left),
		})
	}
	return out
}

// group returns the services, the one with the oldest export first.
func group(members []*member) []*service {
	byKey := map[key]*service{}
	var out []*service
	for _, m := range members {
		for _, all := range [][]accepted{m.exports, m.withdrawn} {
			for _, a := range all {
				s := byKey[a.key()]
				if s == nil {
					s = &service{key: a.key()}
					byKey[s.key] = s
					out = append(out, s)
				}
				s.exports = append(s.exports, a)
			}
		}
	}
	for _, s := range out {
		slices.SortFunc(s.exports, byAge)
	}
	slices.SortFunc(out, func(a, b *service) int {
		return cmp.Or(a.exports[0].age.Compare(b.exports[0].age), compareKeys(a.key, b.key))
	})
	return out
}
