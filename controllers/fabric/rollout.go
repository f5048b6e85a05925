// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/rollout"
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
// about the same time; where agents of it have not taken their nodes over yet they are held. Of too many each member
// has as many told as another: one that reports whatever it likes does not conceal what has failed elsewhere.
func failedElsewhere(s *state, states []*state) []string {
	var out []string
	for i := range v1alpha1.MaxFailedRevisions {
		for _, other := range states {
			if other != s && other.accepted && other.active() && i < len(other.failed) &&
				len(out) < v1alpha1.MaxFailedRevisions && !slices.Contains(out, other.failed[i]) {
				out = append(out, other.failed[i])
			}
		}
	}
	slices.Sort(out)
	return out
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
	if s.accepted && len(s.failed) > 0 {
		s.problem(v1alpha1.ReasonAgentsFailing, fmt.Sprintf(
			"%s stops a roll-out: node agents of revision %s took nodes over and "+
				"have failed there; those that wait in any member are held, and their old ones go on. Repair what failed, "+
				"install a bundle that works, or the former one", s.name(), clip.List(s.failed, maxNamed)))
	}
}

// rollOut decides in which order members get new node agents.
func rollOut(in Input, states []*state, pairs []pair) rollout.Decision {
	input := rollout.Input{Canary: in.Set.Spec.RollOut.Canary, Now: in.Now}
	connected, cut := reachOf(pairs)
	for _, s := range states {
		if !s.accepted || !s.active() {
			continue
		}
		m := rollout.Member{Name: s.name(), Lost: stale(s) != "", Failed: s.failed,
			Connected: connected[s], Cut: cut[s], Record: s.Record.Status.RollOut}
		if s.Report.Known {
			m.Report = rollOutReport(s.Report.Status.RollOut)
			m.Waits = agentsWait(s.Report.Status.Conditions)
		} else if m.Record != nil {
			m.Report = &m.Record.Report
		}
		if m.Report != nil {
			m.Trouble = m.Report.Failing
		}
		input.Members = append(input.Members, m)
	}
	d := rollout.Decide(input)
	for _, p := range d.Problems {
		for _, s := range states {
			if s.name() == p.Cluster {
				s.problem(p.Reason, p.Message)
			}
		}
	}
	return d
}

// rollOutReport returns what a member reports if it can be so.
func rollOutReport(r *v1alpha1.RollOutReport) *v1alpha1.RollOutReport {
	if r == nil || !revisions.MatchString(r.Revision) || min(r.Nodes, r.Updated, r.Outdated) < 0 ||
		int64(r.Updated)+int64(r.Outdated) > int64(r.Nodes) {
		return nil
	}
	out := *r
	out.LastNode, out.Failing = clip.Text(clip.Line(r.LastNode), maxNodeName), bounded(r.Failing)
	return &out
}

// maxNodeName is how long a node's name can be.
const maxNodeName = 253

// agentsWait is what a member says that its node agents wait for.
func agentsWait(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1alpha1.PeeringAgentsRunning); c != nil &&
		c.Status == metav1.ConditionFalse {
		return bounded(c.Message)
	}
	return ""
}

// reachOf returns of each member to which others it is connected, and to which it is known not to be. Left out is one
// that nobody reaches, of a member that reaches others: it is that one which is cut off; and who is behind a relay,
// as the two may not be at fault, and where one is, it does not reach the relay either.
func reachOf(pairs []pair) (connected, cut map[*state][]string) {
	connected, cut = map[*state][]string{}, map[*state][]string{}
	has, isolated := map[*state]int{}, map[*state]bool{}
	broken := func(p pair) bool { return badness(p.worse().status) < badness(v1alpha1.ConnectionUnknown) }
	for _, p := range pairs {
		if p.relay != nil {
			continue
		}
		for _, s := range []*state{p.a, p.b} {
			has[s]++
			isolated[s] = broken(p) && (has[s] == 1 || isolated[s])
		}
	}
	for _, p := range pairs {
		for _, s := range []*state{p.a, p.b} {
			other := p.a
			if s == p.a {
				other = p.b
			}
			switch {
			case p.worse().status == v1alpha1.ConnectionConnected:
				connected[s] = append(connected[s], other.name())
			case p.relay == nil && broken(p) && (isolated[s] || !isolated[other]):
				cut[s] = append(cut[s], other.name())
			}
		}
	}
	return connected, cut
}
