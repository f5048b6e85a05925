// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/claim"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// meshes are the pairs of spec.topology, each twice, in either order, and whether the nodes of both are published to
// the other.
type meshes map[[2]string]bool

// meshesOf takes over the nodes that members of a mesh report, after all networks and gateways are known, and decides
// which pairs are put into force. A cluster that is one of no pair publishes nothing.
func meshesOf(in Input, states map[string]*state, routed *netfacts.Owners, keys map[string]string) meshes {
	out := meshes{}
	pairs := meshPairs(in, states)
	// Who has published a key keeps it, whoever else reports it now.
	for _, s := range states {
		for _, n := range s.Record.Status.Nodes {
			if _, taken := keys[n.PublicKey]; !taken {
				keys[n.PublicKey] = s.name()
			}
		}
	}
	judged := map[*state]bool{}
	for _, p := range pairs {
		for _, s := range p {
			if !judged[s] {
				judged[s] = true
				admitNodes(s, routed, keys)
			}
		}
	}
	told := map[*state]int{}
	for _, p := range pairs {
		a, b := p[0], p[1]
		fits := told[a]+len(b.nodes) <= v1alpha1.MaxMeshRemoteNodes && told[b]+len(a.nodes) <= v1alpha1.MaxMeshRemoteNodes
		if fits {
			told[a], told[b] = told[a]+len(b.nodes), told[b]+len(a.nodes)
		} else {
			a.problem(v1alpha1.ReasonMeshTooLarge, fmt.Sprintf("%s and %s are a pair of spec.topology, and one of them would "+
				"have more than %d nodes of others to connect to: they go on by gateways; take pairs out", a.name(), b.name(),
				v1alpha1.MaxMeshRemoteNodes))
		}
		out[[2]string{a.name(), b.name()}], out[[2]string{b.name(), a.name()}] = fits, fits
	}
	return out
}

// meshPairs returns the pairs whose clusters are both accepted, sorted by name, each once. With settings that cannot be
// put into force, they are what members were told before.
func meshPairs(in Input, states map[string]*state) [][2]*state {
	var pairs [][2]*state
	add := func(x, y string) {
		a, b := states[min(x, y)], states[max(x, y)]
		if a != nil && b != nil && a != b && a.accepted && b.accepted && a.active() && b.active() {
			pairs = append(pairs, [2]*state{a, b})
		}
	}
	if invalidSettings(in) {
		for _, s := range states {
			if s.Sent == nil {
				continue
			}
			for _, r := range s.Sent.RemoteClusters {
				if r.Topology == v1alpha1.TopologyMesh {
					add(s.name(), r.Name)
				}
			}
		}
	} else {
		for _, p := range in.Set.Spec.Topology.Pairs {
			if len(p.Clusters) == 2 && p.Mode == v1alpha1.TopologyMesh {
				add(p.Clusters[0], p.Clusters[1])
			}
		}
	}
	slices.SortFunc(pairs, func(x, y [2]*state) int {
		return cmp.Or(cmp.Compare(x[0].name(), y[0].name()), cmp.Compare(x[1].name(), y[1].name()))
	})
	return slices.Compact(pairs)
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
	for _, n := range s.nodes {
		keys[n.PublicKey] = s.name()
	}
	for _, err := range errs {
		s.problem(v1alpha1.ReasonInvalidNodes, fmt.Sprintf("%s reports a node that is left out of the mesh: %v",
			s.name(), err))
	}
}

// remote is what a member is told of another.
func (m meshes) remote(s, other *state) v1alpha1.RemoteCluster {
	r := other.remote
	published, paired := m[[2]string{s.name(), other.name()}]
	if paired {
		r.Topology = v1alpha1.TopologyMesh
	}
	if published {
		r.Nodes = other.nodes
	}
	return r
}

// nodePairs returns what a member reports of the pairs of nodes in a mesh with another; nothing if that cannot be.
func nodePairs(s *state, other string) (pairs, straight int32) {
	reported := s.Report.Status.Connections
	if !s.Report.Known {
		reported = s.Record.Status.Connections
	}
	for _, c := range reported {
		if c.Cluster == other && c.StraightNodePairs >= 0 && c.StraightNodePairs <= c.NodePairs &&
			c.NodePairs <= v1alpha1.MaxMeshNodes*v1alpha1.MaxMeshNodes {
			return c.NodePairs, c.StraightNodePairs
		}
	}
	return 0, 0
}
