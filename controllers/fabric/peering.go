// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/internal/claim"
)

// peering builds what one member should be told, and says whether that differs from what it was told.
// With settings that cannot be put into force, what it was told of them before stays.
func peering(in Input, s *state, states []*state, status v1alpha1.MemberStatus,
	taken *spaces, ways fabric) (v1alpha1.PeeringSpec, bool) {
	set := in.Set
	spec := v1alpha1.PeeringSpec{
		Phase:       s.Record.Spec.Phase,
		ClusterSet:  set.Name,
		ClusterID:   s.name(),
		Shards:      set.Spec.Shards,
		Cable:       cableTold(set.Spec.Cable),
		DNS:         set.Spec.DNS,
		HealthCheck: set.Spec.HealthCheck,
		Keys:        keysWanted(set, s.Record),
		Gateways:    v1alpha1.GatewaysSpec{Mode: cmp.Or(set.Spec.Gateways.Mode, v1alpha1.GatewaysActiveActive)},
		Override:    override(set, s.name()),
		Networks:    claim.Claim{}.Networks(),
		// Never null: a list that an API server defaults looks like drift.
		RemoteClusters: make([]v1alpha1.RemoteCluster, 0, len(states)),
		Conditions:     []metav1.Condition{},
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.MemberAccepted); c != nil {
		spec.Conditions = append(spec.Conditions, *c)
	}
	if s.accepted && s.active() {
		spec.Networks = s.force.Networks()
		if s.recorded {
			spec.GlobalCIDR, spec.GlobalIPv6CIDR = s.block.String(), s.toldIPv6()
		}
		spec.ExternalCIDRs = external(set, s.name())
		spec.RemoteClusters = remotes(in, s, states, taken, ways, spec.RemoteClusters)
		spec.Relays = ways.relays.served[s]
		spec.FailedRevisions = failedElsewhere(s, states)
		if r := status.RollOut; r != nil {
			spec.RollOut = &v1alpha1.RollOutTurn{Revision: r.Released}
		}
	}
	return revised(in, s, spec)
}

// remotes appends what a member should be told of the others, by their names.
func remotes(in Input, s *state, states []*state, taken *spaces, ways fabric,
	out []v1alpha1.RemoteCluster) []v1alpha1.RemoteCluster {
	for _, other := range states {
		if other == s || !other.accepted || !other.active() {
			continue
		}
		if remote, ok := taken.tell(s, other, ways.meshes.remote(s, other)); ok {
			remote.Cable = cableOf(in, s, other)
			ways.relays.tell(&remote, s, other)
			out = append(out, remote)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.RemoteCluster) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// revised gives what a member should be told the next revision, if it differs from what the member was told, else the
// one that it has.
func revised(in Input, s *state, spec v1alpha1.PeeringSpec) (v1alpha1.PeeringSpec, bool) {
	invalid := invalidSettings(in)
	last := s.Record.Status.Revision
	if fleet.Released(&s.Record) {
		// A Work written anew would keep it from going.
		spec.Revision = last
		return spec, false
	}
	if s.Sent == nil && (invalid || !s.Writable) {
		spec.Revision = last
		return spec, false
	}
	if s.Sent != nil {
		spec.Revision = s.Sent.Revision
		if invalid {
			spec.Shards, spec.Cable, spec.DNS = s.Sent.Shards, s.Sent.Cable, s.Sent.DNS
			spec.HealthCheck, spec.Override, spec.Gateways = s.Sent.HealthCheck, s.Sent.Override, s.Sent.Gateways
			spec.Keys.MaxAgeDays, spec.ExternalCIDRs = s.Sent.Keys.MaxAgeDays, s.Sent.ExternalCIDRs
		}
		keepTransitions(spec.Conditions, s.Sent.Conditions)
		if !s.Refresh && s.Sent.Revision >= last && same(spec, *s.Sent) {
			return spec, false
		}
		last = max(last, s.Sent.Revision)
	}
	spec.Revision = last + 1
	return spec, true
}

// invalidSettings says that the ClusterSet cannot be put into force.
func invalidSettings(in Input) bool {
	return slices.ContainsFunc(in.Problems, func(p v1alpha1.Problem) bool {
		return p.Reason == v1alpha1.ReasonInvalidSettings
	})
}

// keysWanted says when a member's gateways replace their keys: by the ClusterSet, and as somebody has asked for this
// member. A request that is no time asks for nothing.
func keysWanted(set v1alpha1.ClusterSet, record v1alpha1.Member) v1alpha1.PeeringKeys {
	out := v1alpha1.PeeringKeys{MaxAgeDays: set.Spec.Keys.MaxAgeDays}
	if at, err := time.Parse(time.RFC3339, record.Annotations[v1alpha1.AnnotationRotateKeys]); err == nil {
		t := metav1.NewTime(at.UTC().Truncate(time.Second))
		out.NotBefore = &t
	}
	return out
}

// same compares two specs. Most of them is remote clusters, which reflection would be slow with.
func same(a, b v1alpha1.PeeringSpec) bool {
	remotes := slices.EqualFunc(a.RemoteClusters, b.RemoteClusters, func(x, y v1alpha1.RemoteCluster) bool {
		return x.Name == y.Name && x.Cable == y.Cable && x.Relay == y.Relay && x.RelayStatus == y.RelayStatus &&
			x.RelayMTU == y.RelayMTU &&
			x.GlobalCIDR == y.GlobalCIDR && x.GlobalIPv6CIDR == y.GlobalIPv6CIDR && x.Translated == y.Translated &&
			slices.Equal(x.Networks.PodCIDRs, y.Networks.PodCIDRs) &&
			slices.Equal(x.Networks.ServiceCIDRs, y.Networks.ServiceCIDRs) &&
			slices.EqualFunc(x.Endpoints, y.Endpoints, func(x, y v1alpha1.Endpoint) bool {
				return x.Gateway == y.Gateway && x.Slot == y.Slot && x.PublicKey == y.PublicKey &&
					x.NextPublicKey == y.NextPublicKey && x.IPsecPublicKey == y.IPsecPublicKey && x.MTU == y.MTU &&
					x.IPv4Probes == y.IPv4Probes &&
					slices.Equal(x.Addresses, y.Addresses) && slices.Equal(x.Observed, y.Observed)
			}) && x.Topology == y.Topology && slices.EqualFunc(x.Nodes, y.Nodes, sameNode)
	})
	if !remotes {
		return false
	}
	a.RemoteClusters, b.RemoteClusters = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

func sameNode(x, y v1alpha1.MeshNode) bool {
	return x.Name == y.Name && x.PublicKey == y.PublicKey && x.MTU == y.MTU && slices.Equal(x.Addresses, y.Addresses) &&
		slices.Equal(x.PodCIDRs, y.PodCIDRs)
}

// keepTransitions takes over when a condition turned, so that the clock alone changes nothing.
func keepTransitions(now, before []metav1.Condition) {
	for i := range now {
		if c := meta.FindStatusCondition(before, now[i].Type); c != nil && c.Status == now[i].Status {
			now[i].LastTransitionTime = c.LastTransitionTime
		}
	}
}

func override(set v1alpha1.ClusterSet, cluster string) v1alpha1.Networks {
	n := v1alpha1.Networks{PodCIDRs: []string{}, ServiceCIDRs: []string{}}
	for _, c := range set.Spec.Clusters {
		if c.Name == cluster {
			n.PodCIDRs = append(n.PodCIDRs, c.Networks.PodCIDRs...)
			n.ServiceCIDRs = append(n.ServiceCIDRs, c.Networks.ServiceCIDRs...)
		}
	}
	return n
}

func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
