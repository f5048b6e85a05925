// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// heard is what a member reports of one other. Each is found once: in a large fleet members report on all others, and
// to look through all of it for each would take the most of a decision.
type heard struct {
	// connection is the first entry with a status that there is, and meshed the first whose pairs of nodes can be.
	connection, meshed *v1alpha1.MemberConnection
}

// connectionStatus is that of a connection to a cluster.
type connectionStatus struct {
	cluster string
	status  v1alpha1.ConnectionStatus
}

// listen notes what the member's report and record say of connections.
func (s *state) listen() {
	reported := s.Report.Status.Connections
	s.heard = make(map[string]heard, len(reported))
	for i := range reported {
		c := &reported[i]
		h := s.heard[c.Cluster]
		if h.connection == nil && badness(c.Status) >= 0 {
			h.connection = c
		}
		if h.meshed == nil && c.StraightNodePairs >= 0 && c.StraightNodePairs <= c.NodePairs &&
			c.NodePairs <= v1alpha1.MaxMeshNodes*v1alpha1.MaxMeshNodes {
			h.meshed = c
		}
		s.heard[c.Cluster] = h
	}
	recorded := s.Record.Status.Connections
	s.since = make(map[connectionStatus]*metav1.Time, len(recorded))
	for i := range recorded {
		c := &recorded[i]
		if at := (connectionStatus{c.Cluster, c.Status}); c.LastTransitionTime != nil && s.since[at] == nil {
			s.since[at] = c.LastTransitionTime
		}
	}
	s.views = viewsOf(s)
}

// nodePairs returns what a member reports of the pairs of nodes in a mesh with another; nothing if that cannot be.
func nodePairs(s *state, other string) (pairs, straight int32) {
	if c := s.heard[other].meshed; c != nil {
		return c.NodePairs, c.StraightNodePairs
	}
	return 0, 0
}
