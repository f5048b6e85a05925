// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// revisions are the hashes that Kubernetes gives to revisions of a DaemonSet.
var revisions = regexp.MustCompile(`^[a-z0-9]{1,63}$`)

// failedRevisions are those of the node agents that have failed in a member, as far as it is known: what a member that
// is not heard of has said last stays.
func (s *state) failedRevisions() []string {
	if !s.Report.Known {
		return s.Record.Status.FailedRevisions
	}
	return few(slices.DeleteFunc(slices.Clone(s.Report.Status.FailedRevisions), func(r string) bool {
		return !revisions.MatchString(r)
	}))
}

// failedElsewhere are the revisions of which agents have failed in other members. A roll-out reaches all members at
// about the same time; where agents of it have not taken their nodes over yet they are held.
func failedElsewhere(s *state, states []*state) []string {
	var out []string
	for _, other := range states {
		if other != s && other.accepted && other.active() {
			out = append(out, other.failedRevisions()...)
		}
	}
	return few(out)
}

// few returns a list sorted, each once, and as many as a Peering holds.
func few(list []string) []string {
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) == 0 {
		return nil
	}
	return list[:min(len(list), v1alpha1.MaxFailedRevisions)]
}

// holds says that a member stops the roll-out in the others.
func (s *state) holds() {
	if failed := s.failedRevisions(); s.accepted && len(failed) > 0 {
		s.problem(v1alpha1.ReasonAgentsFailing, fmt.Sprintf(
			"%s stops a roll-out: node agents of revision %s took nodes over and "+
				"have failed there; those that wait in any member are held, and their old ones go on. Repair what failed, "+
				"install a bundle that works, or the former one", s.name(), clip.List(failed, maxNamed)))
	}
}
