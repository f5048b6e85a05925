// SPDX-License-Identifier: Apache-2.0

// Package rollout decides in which order the members of a ClusterSet get new node agents: one member at a time, the
// canary first, the next one when the one before has them all and works as before.
//
// A bundle reaches all members at about the same time. Each says which revision of the DaemonSet its newest agents are
// of; these wait beside the old ones until the broker releases that revision to that member. Revisions of different
// members are not compared, for members may have templates of their own.
package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/reach"
)

const (
	// gather is how long a new revision has to be known before its first agent takes a node over: Karmada brings it to
	// all members within that time, so that it is the canary that goes first. The canary is not waited for longer than
	// three times that, should its revision change again and again.
	gather = 10 * time.Second
	// settle is for how long a member that has all new agents is watched until the next one follows, and for how long
	// something may be wrong that goes by: longer than it takes to notice that an agent is silent, and to hear of it.
	settle = 15 * time.Second
	// patience is for how long a member's turn may bring no node forward.
	patience = 10 * time.Minute
	// maxNamed is how many clusters a message names.
	maxNamed = 8
)

// Input is all that the order depends on.
type Input struct {
	// Canary is the member that goes first; without one by that name the one whose name comes first.
	Canary string
	// Members that are accepted, in any order.
	Members []Member
	Now     time.Time
}

// Member is one cluster.
type Member struct {
	Name string
	// Report of the member, nil if it makes none: its agents need no turn.
	Report *v1alpha1.RollOutReport
	// Lost says that the member is not reached: its report is its last one.
	Lost bool
	// Failed are the revisions of which agents took nodes over and have failed there.
	Failed []string
	// Trouble is what the member says is wrong with its new agents, and Waits what they wait for; "" if nothing.
	Trouble, Waits string
	// Connected are the clusters to which it is connected as both see it, and Cut those to which it is known not to be,
	// and which are not themselves cut off from all.
	Connected, Cut []string
	// Record is what was decided before.
	Record *v1alpha1.MemberRollOut
}

// Decision is what follows from an Input.
type Decision struct {
	// Records of the members that report, by name.
	Records map[string]*v1alpha1.MemberRollOut
	// Problems that need a person.
	Problems []v1alpha1.Problem
	// Condition is v1alpha1.ClusterSetRolledOut; nil if no member reports.
	Condition *metav1.Condition
	// Again is after what time to decide anew although nothing has changed; 0 is never.
	Again time.Duration
}

// member while Decide is at work.
type member struct {
	Member
	r *v1alpha1.MemberRollOut
}

// behind says that agents of another revision are on nodes of the member.
func (m *member) behind() bool { return m.r.Report.Outdated > 0 }

// inTurn says that the member has had its turn in the roll-out that goes on.
func (m *member) inTurn() bool { return m.r.TurnAt != nil }

// done says that every node has its new agent.
func (m *member) done() bool { return !m.behind() && m.r.Report.Updated >= m.r.Report.Nodes }

// failed says that agents of a revision have failed in the member.
func (m *member) failed(revision string) bool { return slices.Contains(m.Failed, revision) }

func (m *member) nodes() string {
	return fmt.Sprintf("%d of %d nodes have node agents of revision %s", m.r.Report.Updated, m.r.Report.Nodes,
		m.r.Report.Revision)
}

// Decide is pure. What was released stays so, but for a member whose turn goes wrong.
func Decide(in Input) Decision {
	c := &decider{in: in, now: metav1.NewTime(in.Now.Truncate(time.Second))}
	for _, m := range in.Members {
		c.add(m)
	}
	slices.SortFunc(c.members, c.order)
	if !slices.ContainsFunc(c.members, func(m *member) bool { return m.behind() && !m.Lost }) {
		c.over()
	}
	if c.blocked() == nil {
		c.next()
	}
	for _, m := range c.members {
		c.describe(m)
	}
	return c.decision()
}

type decider struct {
	in      Input
	now     metav1.Time
	members []*member
	// turn is the member that all others wait for.
	turn  *member
	again time.Duration
}

// left says how long it takes until something is so old, and if it is not so already sees to it that it is asked again.
func (c *decider) left(since metav1.Time, age time.Duration) time.Duration {
	left := max(age-c.now.Sub(since.Time), 0)
	c.again = reach.Sooner(c.again, left)
	return left
}

// add takes over what a member reports.
func (c *decider) add(m Member) {
	if m.Report == nil {
		return
	}
	r, fresh := m.Record.DeepCopy(), *m.Report
	switch {
	case r == nil || r.Report.Revision != fresh.Revision:
		// Its turn, if it had one, was another bundle's.
		next := &v1alpha1.MemberRollOut{SeenAt: c.now, ProgressedAt: c.now}
		if r != nil {
			next.Released = r.Released
			next.Repairs = r.Repairs || r.State == v1alpha1.RollOutStopped
		}
		r = next
	case r.Report.Updated != fresh.Updated:
		r.ProgressedAt = c.now
	}
	r.Report = fresh
	if !m.Lost && fresh.Nodes > 0 && fresh.Outdated == 0 && r.TurnAt == nil {
		r.Released, r.Repairs = fresh.Revision, false
	}
	c.members = append(c.members, &member{m, r})
}

// order of members: one where the revision before has failed, of which this is the repair, then the canary, and the
// rest by name.
func (c *decider) order(a, b *member) int {
	rank := func(m *member) int {
		switch {
		case m.r.Repairs, len(m.Failed) > 0 && !m.failed(m.r.Report.Revision):
			return 0
		case m.Name == c.in.Canary:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
}

// over ends the roll-out: how members were connected before it is of no interest any more.
func (c *decider) over() {
	for _, m := range c.members {
		if m.r.TurnAt == nil {
			continue
		}
		if !m.Lost && (c.unsettled(m) > 0 || m.trouble() != "") {
			continue
		}
		m.r.TurnAt, m.r.UnwellSince, m.r.Connected = nil, nil, nil
	}
}

// unsettled is how long a member that is done has to be watched yet.
func (c *decider) unsettled(m *member) time.Duration { return c.left(m.r.ProgressedAt, settle) }

// trouble is what is wrong with a member in its turn.
func (m *member) trouble() string {
	if m.Lost {
		return "Karmada does not reach the cluster, or its cluster agent does not answer"
	}
	var all []string
	if m.failed(m.r.Report.Revision) {
		all = append(all, "agents of this revision took nodes over and have failed")
	}
	if m.Trouble != "" {
		all = append(all, m.Trouble)
	}
	var cut []string
	for _, name := range m.Cut {
		if slices.Contains(m.r.Connected, name) {
			cut = append(cut, name)
		}
	}
	if len(cut) > 0 {
		slices.Sort(cut)
		text := "it was connected to " + clip.List(cut, maxNamed) + " before and is not now"
		if m.r.Report.LastNode != "" {
			text += ", the last node with a new agent is " + m.r.Report.LastNode
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// blocked returns the member that the others wait for, nil if there is none. Of those that are lost in their turn it is
// passed over one, after patience: a second one is no accident.
func (c *decider) blocked() *member {
	turns := slices.DeleteFunc(slices.Clone(c.members), func(m *member) bool { return !m.inTurn() })
	slices.SortStableFunc(turns, func(a, b *member) int { return a.r.TurnAt.Compare(b.r.TurnAt.Time) })
	var passed, halted bool
	for _, m := range turns {
		finished := c.watch(m)
		switch {
		case finished:
			continue
		case m.Lost && !passed && c.left(*m.r.UnwellSince, patience) == 0:
			passed = true
		case c.turn == nil:
			c.turn = m
		}
		// Agents that merely take long may go on.
		halted = halted || m.r.State == v1alpha1.RollOutStopped && !m.Lost && m.r.UnwellSince != nil
	}
	for _, m := range turns {
		if halted && !m.done() {
			m.r.Released = "" // also of one that is well itself
		}
	}
	return c.turn
}

// watch follows a member in its turn, and says whether the next one may have it.
func (c *decider) watch(m *member) (finished bool) {
	m.r.State, m.r.Message, m.r.Released = v1alpha1.RollOutInTurn, m.nodes(), m.r.Report.Revision
	why := m.trouble()
	switch {
	case why == "" && m.r.UnwellSince != nil:
		m.r.UnwellSince, m.r.ProgressedAt = nil, c.now
	case why != "" && m.r.UnwellSince == nil:
		m.r.UnwellSince = &c.now
	}
	switch {
	case why != "" && c.left(*m.r.UnwellSince, settle) == 0:
		m.stop(why)
	case why != "":
	case m.done():
		return c.unsettled(m) == 0
	case c.left(m.r.ProgressedAt, patience) == 0:
		m.stop(cmp.Or(m.Waits, "no node has got its new agent for "+patience.String()))
	}
	return false
}

// stop says why a member's turn does not come to its end.
func (m *member) stop(why string) {
	m.r.State, m.r.Message = v1alpha1.RollOutStopped, clip.Text(m.nodes()+": "+why, maxMessage)
}

// maxMessage bounds what a member has a part in.
const maxMessage = 800

// waiting are the members that have new agents and wait for their turn, those first that are first to have it.
func (c *decider) waiting() []*member {
	return slices.DeleteFunc(slices.Clone(c.members), func(m *member) bool {
		return m.Lost || !m.behind() || m.inTurn() || m.r.Released == m.r.Report.Revision
	})
}

// next gives the turn to a member that waits.
func (c *decider) next() {
	list := slices.DeleteFunc(c.waiting(), func(m *member) bool {
		// Agents of the revision are held wherever they are.
		return slices.ContainsFunc(c.members, func(o *member) bool { return o.failed(m.r.Report.Revision) })
	})
	for i, m := range list {
		wait := gather
		switch {
		case m.r.Repairs:
			wait = 0
		case i > 0:
			wait = 3 * gather
		}
		if c.left(m.r.SeenAt, wait) > 0 {
			continue
		}
		m.r.TurnAt, m.r.ProgressedAt, m.r.UnwellSince, m.r.Repairs = &c.now, c.now, nil, false
		m.r.Connected, m.r.Released = slices.Sorted(slices.Values(m.Connected)), m.r.Report.Revision
		m.r.State, m.r.Message = v1alpha1.RollOutInTurn, m.nodes()
		c.turn = m
		c.left(c.now, patience)
		return
	}
}

// describe says where a member stands that has not its turn.
func (c *decider) describe(m *member) {
	switch {
	case m.inTurn() && (m.r.State == v1alpha1.RollOutStopped || !m.done() || m == c.turn):
		return
	case !m.behind():
		m.r.State, m.r.Message = v1alpha1.RollOutDone, m.nodes()
	case m.Lost:
		m.r.State = v1alpha1.RollOutWaiting
		m.r.Message = m.nodes() + "; it has its turn when Karmada reaches the cluster and its cluster agent answers"
	case m.r.Released == m.r.Report.Revision:
		m.r.State, m.r.Message = v1alpha1.RollOutInTurn, m.nodes()
	case c.turn != nil:
		m.r.State, m.r.Message = v1alpha1.RollOutWaiting, m.nodes()+"; it is the turn of "+c.turn.Name
	default:
		m.r.State, m.r.Message = v1alpha1.RollOutWaiting, m.nodes()+"; it has its turn as soon as the new agents are known "+
			"to all members, and not to have failed in any"
	}
}
