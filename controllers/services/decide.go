// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
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
	// Rivals of services, by "<namespace>/<name>".
	Rivals map[string]Rivals
}

// Member is one cluster as the broker knows it.
type Member struct {
	// Cluster is the member's name. It comes from the namespace of its Works, never from what it reports.
	Cluster string
	// Labels of the Karmada Cluster, by which import scopes select.
	Labels map[string]string
	// Pods, Services and Nodes are the networks accepted: Member.status.networks and .nodeCIDRs.
	Pods, Services, Nodes []netip.Prefix
	// Known says that Exports is the member's report on this shard, at the current revision. When it is
	// false Exports is ignored: what the Bundles last written say of the member stays.
	Known   bool
	Exports []v1alpha1.Export
	// Malformed counts those of its exports that could not be decoded.
	Malformed int
	// Refused says why the member's last report is not used at all; nil if it is, or there is none.
	Refused *v1alpha1.Problem
	// Last is the spec last written for this member and shard, nil when there is none. Where a Work has
	// been deleted by hand and the spec is still remembered, pass that.
	Last *v1alpha1.BundleSpec
}

// Decision is what each member's Bundle should say. Its values share memory with each other and with the
// Input: they are to be read only.
type Decision struct {
	// Bundles by cluster, one for every member, without a revision.
	Bundles map[string]v1alpha1.BundleSpec
	// Problems with what members report, sorted by cluster, at most maxProblems of each.
	Problems []v1alpha1.Problem
	// Services that are exported, and those of them whose exports conflict.
	Services, Conflicts int
}

// Reasons of Problems, beside v1alpha1.ReasonStatusTooLarge; the last is one of the Ready condition, too.
const (
	// ReasonInvalidExport: an export is refused, or a part of it left out.
	ReasonInvalidExport = "InvalidExport"
	// ReasonNotRouted: backends have addresses that are not routed between clusters.
	ReasonNotRouted = "BackendsNotRouted"
	// ReasonInvalidReport: a whole report cannot be decoded.
	ReasonInvalidReport = "InvalidReport"
	// ReasonBundleFull: there is no room left.
	ReasonBundleFull = "BundleFull"
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
	// exports accepted.
	exports []accepted
	// refused says why an export that has a proper name was refused.
	refused map[key]string
	// size of the Bundle so far.
	size       int
	imports    []v1alpha1.Import
	conditions []v1alpha1.ExportCondition
	problems   map[v1alpha1.Problem]bool
}

// problem notes what is wrong, once.
func (m *member) problem(reason, format string, args ...any) {
	m.problems[v1alpha1.Problem{Cluster: m.Cluster, Reason: reason, Message: fmt.Sprintf(format, args...)}] = true
}

// service is what the members export under one name.
type service struct {
	key      key
	exports  []accepted // the oldest first
	policy   policy
	conflict v1alpha1.ExportCondition
	// views of the service, one for each member; nil where the member imports none of it.
	views []*view
	// full are the clusters whose Bundle has no room for the import.
	full []string
}

// Decide merges the exports of one shard. It is pure, and its result does not depend on any order in its
// input.
func Decide(in Input) Decision {
	members := newMembers(in.Members)
	lost := restore(members)
	for _, m := range members {
		if m.Refused != nil {
			m.problems[*m.Refused] = true
		}
		if m.Known {
			m.gather(in, m.Exports, reported)
			continue
		}
		m.gather(in, lost.exports[m.Cluster], restored)
		lost.recall(m)
	}
	d := Decision{Bundles: make(map[string]v1alpha1.BundleSpec, len(members))}
	services, policies := group(members), parsePolicies(in.Policies)
	follow := &rules{services: in.Services, standing: standing(members)}
	for _, s := range services {
		s.policy = policies[s.key]
		s.see(members, follow)
		s.conflict = conflict(s.exports, follow, in.Rivals[s.key.String()])
		if s.conflict.Status == metav1.ConditionTrue {
			d.Conflicts++
		}
	}
	d.Services = len(services)
	fit(members, services)
	for _, m := range members {
		slices.SortFunc(m.imports, func(a, b v1alpha1.Import) int {
			return compareKeys(key{a.Namespace, a.Name}, key{b.Namespace, b.Name})
		})
		slices.SortFunc(m.conditions, compareConditions)
		d.Bundles[m.Cluster] = v1alpha1.BundleSpec{Shard: in.Shard, Imports: m.imports, ExportConditions: m.conditions}
		d.Problems = append(d.Problems, m.sortedProblems()...)
	}
	return d
}

func newMembers(all []Member) []*member {
	out := make([]*member, 0, len(all))
	for i := range all {
		m := &all[i]
		out = append(out, &member{
			Member:   m,
			networks: networks{newPrefixSet(m.Pods), newPrefixSet(m.Services), newPrefixSet(m.Nodes)},
			refused:  map[key]string{},
			imports:  []v1alpha1.Import{}, conditions: []v1alpha1.ExportCondition{},
			problems: map[v1alpha1.Problem]bool{},
		})
	}
	slices.SortFunc(out, func(a, b *member) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

// gather accepts the member's exports one by one.
func (m *member) gather(in Input, exports []v1alpha1.Export, from source) {
	count := make(map[key]int, len(exports))
	for i := range exports {
		count[key{exports[i].Namespace, exports[i].Name}]++
	}
	for _, e := range exports {
		k := key{e.Namespace, e.Name}
		if !named(&e) {
			m.problem(ReasonInvalidExport, "an export is refused: %s/%s cannot be the namespace and name of a Service", quote(e.Namespace), quote(e.Name))
			continue
		}
		if shard := v1alpha1.Shard(e.Namespace, e.Name, in.Shards); shard != in.Shard {
			m.problem(ReasonInvalidExport, "the export of %s is refused: it is reported in shard %d and belongs in %d", k, in.Shard, shard)
			continue
		}
		if count[k] > 1 {
			m.refuse(k, "it is reported %d times", count[k])
			continue
		}
		a, err := accept(m.Cluster, e, &m.networks, from)
		if err != nil {
			m.refuse(k, "%v", err)
			continue
		}
		m.exports = append(m.exports, a)
	}
	slices.SortFunc(m.exports, func(a, b accepted) int {
		return cmp.Or(byAge(a, b), compareKeys(a.key(), b.key()))
	})
	if len(m.exports) > maxExports {
		for i := range m.exports[maxExports:] {
			m.refuse(m.exports[maxExports+i].key(), "the cluster exports more than %d services in this shard, and older ones come first", maxExports)
		}
		m.exports = m.exports[:maxExports]
	}
	for i := range m.exports {
		m.noteLeftOut(&m.exports[i])
	}
	if m.Malformed > 0 {
		m.problem(ReasonInvalidExport, "%d exports are refused: they cannot be decoded", m.Malformed)
	}
}

func (a *accepted) key() key { return key{a.export.Namespace, a.export.Name} }

func (m *member) refuse(k key, format string, args ...any) {
	m.refused[k] = fmt.Sprintf(format, args...)
	m.problem(ReasonInvalidExport, "the export of %s is refused: %s", k, m.refused[k])
}

// noteLeftOut makes a Problem of what accept left out.
func (m *member) noteLeftOut(a *accepted) {
	if a.notRouted > 0 {
		m.problem(ReasonNotRouted, "%d backends of %s have the address of their node, which is not routed between clusters: do not run these pods with hostNetwork", a.notRouted, a.key())
	}
	if a.outside > 0 {
		m.problem(ReasonNotRouted, "%d backends of %s are outside the accepted pod CIDRs: complete them in the ClusterSet, spec.clusters", a.outside, a.key())
	}
	if a.malformed > 0 {
		m.problem(ReasonInvalidExport, "%d backends of %s are left out: they have no valid address, hostname, zone or ports", a.malformed, a.key())
	}
	if a.foreignIPs > 0 {
		m.problem(ReasonInvalidExport, "%d ClusterIPs of %s are left out, being outside the accepted service CIDRs or more than one of a family: complete the CIDRs in the ClusterSet, spec.clusters", a.foreignIPs, a.key())
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
			Cluster: m.Cluster, Reason: out[maxProblems-1].Reason, Message: fmt.Sprintf("and %d more problems with exports", left),
		})
	}
	return out
}

// group returns the services, the one with the oldest export first.
func group(members []*member) []*service {
	byKey := map[key]*service{}
	var out []*service
	for _, m := range members {
		for _, a := range m.exports {
			s := byKey[a.key()]
			if s == nil {
				s = &service{key: a.key()}
				byKey[s.key] = s
				out = append(out, s)
			}
			s.exports = append(s.exports, a)
		}
	}
	for _, s := range out {
		slices.SortFunc(s.exports, byAge)
	}
	slices.SortFunc(out, func(a, b *service) int {
		return cmp.Or(a.exports[0].export.CreatedAt.Compare(b.exports[0].export.CreatedAt.Time), compareKeys(a.key, b.key))
	})
	return out
}
