// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/claim"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// meshes are the pairs of clusters whose nodes may connect without gateways. Of a pair the first by name comes first.
type meshes map[[2]*state]*mesh

// mesh is such a pair, and what was decided of it.
type mesh struct {
	a, b *state
	mode v1alpha1.TopologyMode
	// before says that the nodes of one were published to the other when they were last told.
	before bool
	// reason why the nodes are not published to each other, and what a person should know of it; empty if they are.
	reason, message string
}

func (m meshes) of(a, b *state) *mesh {
	if b.name() < a.name() {
		a, b = b, a
	}
	return m[[2]*state{a, b}]
}

// meshesOf takes over the nodes that members of a mesh report, after all networks and gateways are known, and decides
// which pairs are put into force. A cluster that is one of no pair publishes nothing.
func meshesOf(in Input, relays relays, states map[string]*state, routed *netfacts.Owners,
	keys map[string]string) meshes {
	pairs := slices.DeleteFunc(meshPairs(in, states), func(p *mesh) bool { return relays.of(p.a, p.b) != nil })
	for _, p := range pairs {
		if p.mode == v1alpha1.TopologyMesh {
			p.a.wantsMesh, p.b.wantsMesh = true, true
		}
	}
	judged := map[*state]bool{}
	for _, p := range pairs {
		for _, s := range []*state{p.a, p.b} {
			if !judged[s] {
				judged[s] = true
				admitNodes(s, routed, keys)
			}
		}
	}
	out, shared, told := meshes{}, sharedAddresses(judged), map[*state]int{}
	for _, p := range pairs {
		p.decide(in, shared, told)
		if p.mode == v1alpha1.TopologyMesh {
			p.complain()
		}
		out[[2]*state{p.a, p.b}] = p
	}
	return out
}

// decide whether the nodes of a pair are published to each other. told is of how many nodes of others each member is
// told by the pairs that were decided before.
func (p *mesh) decide(in Input, shared map[[2]*state]netip.Addr, told map[*state]int) {
	a, b := p.a, p.b
	total := len(a.nodes) + len(b.nodes)
	refuse := func(reason, format string, args ...any) {
		p.reason, p.message = reason, fmt.Sprintf(format, args...)
	}
	address, same := shared[[2]*state{a, b}]
	limit := int(cmp.Or(in.Set.Spec.Topology.MaxNodes, v1alpha1.DefaultAutoMaxNodes))
	if p.before {
		limit += limit / 4 // a node that comes and goes does not move all traffic of the pair each time
	}
	switch {
	case translates(a, b):
		refuse(v1alpha1.ReasonGlobalAddresses, "one knows the other by a block of global addresses, and gateways translate")
	case a.tooManyNodes() || b.tooManyNodes():
		refuse(v1alpha1.ReasonTooManyNodes, "one has more than %d nodes", v1alpha1.MaxMeshNodes)
	case len(a.nodes) == 0:
		refuse(v1alpha1.ReasonNodesNotPublished, "%s", a.unpublished())
	case len(b.nodes) == 0:
		refuse(v1alpha1.ReasonNodesNotPublished, "%s", b.unpublished())
	case same:
		refuse(v1alpha1.ReasonNodeAddressesShared,
			"both have a node with the address %s, so that they are not in one network",
			address)
	case a.family != "" && b.family != "" && a.family != b.family:
		refuse(v1alpha1.ReasonNodeFamiliesDiffer, "nodes of one have %s and those of the other %s addresses alone", a.family,
			b.family)
	case p.mode == v1alpha1.TopologyAuto && (invalidSettings(in) && !p.before || !invalidSettings(in) && total > limit):
		refuse(v1alpha1.ReasonTooManyNodes, "they have %d nodes", total)
	case told[a]+len(b.nodes) > v1alpha1.MaxMeshRemoteNodes || told[b]+len(a.nodes) > v1alpha1.MaxMeshRemoteNodes:
		refuse(v1alpha1.ReasonMeshTooLarge,
			"one of them would have more than %d nodes of others to connect to; take pairs out",
			v1alpha1.MaxMeshRemoteNodes)
	default:
		told[a], told[b] = told[a]+len(b.nodes), told[b]+len(a.nodes)
	}
}

// complain says of a pair with mode Mesh why it is none.
func (p *mesh) complain() {
	a, b := p.a, p.b
	const pair = "%s and %s are a pair of spec.topology with mode Mesh, and go on by gateways: "
	switch p.reason {
	case "":
		ofA, straightA := nodePairs(a, b.name())
		ofB, straightB := nodePairs(b, a.name())
		if stale(a) == "" && stale(b) == "" && ofA > 0 && ofB > 0 && straightA+straightB == 0 {
			a.problem(v1alpha1.ReasonMeshNotConnected, fmt.Sprintf(pair+"no two of their nodes reach each other; see that the "+
				"UDP port of the mesh, cable.port+32, passes between the nodes, or give the pair the mode Auto",
				a.name(), b.name()))
		}
	case v1alpha1.ReasonTooManyNodes: // the one that has says so itself
	case v1alpha1.ReasonNodesNotPublished:
		if (len(a.nodes) > 0 || a.answered()) && (len(b.nodes) > 0 || b.answered()) {
			a.problem(p.reason, fmt.Sprintf(pair+"%s", a.name(), b.name(), p.message))
		}
	default:
		a.problem(p.reason, fmt.Sprintf(pair+"%s", a.name(), b.name(), p.message))
	}
}

// tooManyNodes says that a member has more nodes than one of a mesh may, and publishes none.
func (s *state) tooManyNodes() bool {
	c := meta.FindStatusCondition(s.Report.Status.Conditions, v1alpha1.PeeringNodesPublished)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonTooManyNodes
}

// unpublished says why a member has no nodes that could be published, as far as it tells.
func (s *state) unpublished() string {
	text := s.name() + " publishes no node that others could connect to"
	if c := meta.FindStatusCondition(s.Report.Status.Conditions, v1alpha1.PeeringNodesPublished); c != nil {
		return text + ": " + c.Message
	}
	return text
}

// answered says that a member was asked for its nodes, and has reported since.
func (s *state) answered() bool {
	return s.Sent != nil && s.Report.Status.ObservedRevision >= s.Sent.Revision &&
		slices.ContainsFunc(s.Sent.RemoteClusters, func(r v1alpha1.RemoteCluster) bool {
			return r.Topology == v1alpha1.TopologyMesh
		})
}

// familyOf is the family of all of a member's nodes; empty if they have both.
func familyOf(s *state) string {
	v4 := slices.ContainsFunc(s.addresses, netip.Addr.Is4)
	v6 := slices.ContainsFunc(s.addresses, netip.Addr.Is6)
	switch {
	case v4 && !v6:
		return "IPv4"
	case v6 && !v4:
		return "IPv6"
	}
	return ""
}

// sharedAddresses returns the pairs of members, in both orders, that both have a node with one address which at least
// one of them publishes: two networks behind NAT. Of several addresses it is the first.
func sharedAddresses(members map[*state]bool) map[[2]*state]netip.Addr {
	publishers := map[netip.Addr][]*state{}
	for s := range members {
		for _, a := range s.addresses {
			publishers[a] = append(publishers[a], s)
		}
	}
	out := map[[2]*state]netip.Addr{}
	add := func(s *state, a netip.Addr) {
		for _, p := range publishers[a] {
			if p == s {
				continue
			}
			for _, key := range [][2]*state{{s, p}, {p, s}} {
				if first, ok := out[key]; !ok || a.Less(first) {
					out[key] = a
				}
			}
		}
	}
	for s := range members {
		for _, a := range s.addresses {
			add(s, a)
		}
		for _, p := range s.force.Nodes {
			add(s, p.Addr())
		}
	}
	return out
}

func addressesOf(nodes []v1alpha1.MeshNode) []netip.Addr {
	var out []netip.Addr
	for _, n := range nodes {
		for _, text := range n.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				out = append(out, a)
			}
		}
	}
	return out
}

// meshPairs returns the pairs whose clusters are both accepted, each once: what people chose before what is automatic,
// and of that what is in force first, so that a newcomer takes no place from it. With settings that cannot be put into
// force, they are what members were told before.
func meshPairs(in Input, states map[string]*state) []*mesh {
	before := publishedBefore(states)
	var names []string
	for name, s := range states {
		if s.accepted && s.active() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var pairs []*mesh
	add := func(x, y string, mode v1alpha1.TopologyMode) {
		x, y = min(x, y), max(x, y)
		a, b := states[x], states[y]
		if a != nil && b != nil && a != b && a.accepted && b.accepted && a.active() && b.active() &&
			(mode == v1alpha1.TopologyMesh || mode == v1alpha1.TopologyAuto) {
			pairs = append(pairs, &mesh{a: a, b: b, mode: mode, before: before[[2]string{x, y}]})
		}
	}
	switch spec := in.Set.Spec.Topology; {
	case invalidSettings(in):
		for _, s := range states {
			if s.Sent == nil {
				continue
			}
			for _, r := range s.Sent.RemoteClusters {
				if r.Topology == v1alpha1.TopologyMesh {
					add(s.name(), r.Name, v1alpha1.TopologyAuto)
				}
			}
		}
	default:
		named := map[[2]string]bool{}
		for _, p := range spec.Pairs {
			if len(p.Clusters) == 2 {
				named[[2]string{min(p.Clusters[0], p.Clusters[1]), max(p.Clusters[0], p.Clusters[1])}] = true
				add(p.Clusters[0], p.Clusters[1], p.Mode)
			}
		}
		if spec.Mode == "" || spec.Mode == v1alpha1.TopologyGateways {
			break
		}
		for i, x := range names {
			for _, y := range names[i+1:] {
				if !named[[2]string{x, y}] {
					add(x, y, spec.Mode)
				}
			}
		}
	}
	rank := func(p *mesh) int {
		switch {
		case p.mode == v1alpha1.TopologyMesh:
			return 0
		case p.before:
			return 1
		}
		return 2
	}
	slices.SortFunc(pairs, func(x, y *mesh) int {
		return cmp.Or(rank(x)-rank(y), cmp.Compare(x.a.name(), y.a.name()), cmp.Compare(x.b.name(), y.b.name()))
	})
	return slices.CompactFunc(pairs, func(x, y *mesh) bool { return x.a == y.a && x.b == y.b })
}

// publishedBefore names the pairs of which one was told of nodes of the other.
func publishedBefore(states map[string]*state) map[[2]string]bool {
	out := map[[2]string]bool{}
	for _, s := range states {
		if s.Sent == nil {
			continue
		}
		for i := range s.Sent.RemoteClusters {
			if r := &s.Sent.RemoteClusters[i]; len(r.Nodes) > 0 {
				out[[2]string{min(s.name(), r.Name), max(s.name(), r.Name)}] = true
			}
		}
	}
	return out
}

// admitNodes judges what a member reports of its nodes; without a report the last good ones stay.
func admitNodes(s *state, routed *netfacts.Owners, keys map[string]string) {
	reported := s.Record.Status.Nodes
	if s.Report.Known {
		reported = s.Report.Status.Nodes
	}
	var errs []error
	s.nodes, errs = claim.Nodes(reported, s.force, s.endpoints, claim.Others{Cluster: s.name(), Keys: keys,
		Routed: routed})
	s.addresses = addressesOf(s.nodes)
	s.family = familyOf(s)
	for _, n := range s.nodes {
		keys[n.PublicKey] = s.name()
	}
	if !s.wantsMesh {
		return // what is automatic bothers nobody
	}
	for _, err := range errs {
		s.problem(v1alpha1.ReasonInvalidNodes, fmt.Sprintf("%s reports a node that is left out of the mesh: %v",
			s.name(), err))
	}
}

// remote is what a member is told of another.
func (m meshes) remote(s, other *state) v1alpha1.RemoteCluster {
	r := other.remote
	if p := m.of(s, other); p != nil {
		r.Topology = v1alpha1.TopologyMesh
		if p.reason == "" {
			r.Nodes = other.nodes
		}
	}
	return r
}
