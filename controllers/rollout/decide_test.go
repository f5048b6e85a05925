// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// walk is a sequence of decisions about members of three nodes each, all connected to each other.
type walk struct {
	*testing.T
	in Input
	d  Decision
}

func newWalk(t *testing.T, names ...string) *walk {
	w := &walk{T: t, in: Input{Now: noon}}
	for _, name := range names {
		m := Member{Name: name, Report: &v1alpha1.RollOutReport{Revision: "old", Nodes: 3, Updated: 3}}
		for _, other := range names {
			if other != name {
				m.Connected = append(m.Connected, other)
			}
		}
		w.in.Members = append(w.in.Members, m)
	}
	w.after(0)
	return w
}

// after decides once each second, for some seconds, at least once.
func (w *walk) after(seconds int) {
	w.Helper()
	for range max(seconds, 1) {
		w.in.Now = w.in.Now.Add(time.Second)
		w.d = Decide(w.in)
		for i := range w.in.Members {
			m := &w.in.Members[i]
			m.Record = w.d.Records[m.Name]
		}
	}
}

func (w *walk) member(name string) *Member {
	return &w.in.Members[slices.IndexFunc(w.in.Members, func(m Member) bool { return m.Name == name })]
}

// brings a revision to members, none of whose nodes has it.
func (w *walk) brings(revision string, names ...string) {
	for _, name := range names {
		w.member(name).Report = &v1alpha1.RollOutReport{Revision: revision, Nodes: 3, Outdated: 3}
	}
}

// updates all but some nodes of a member, as the member's own DaemonSet does once it may.
func (w *walk) updates(name string, left int32) {
	w.Helper()
	m := w.member(name)
	if m.Record.Released != m.Report.Revision {
		w.Errorf("%s updates, and was told %q", name, m.Record.Released)
	}
	report := *m.Report
	report.Updated, report.Outdated, report.LastNode = 3-left, left, "n"+fmt.Sprint(3-left)
	m.Report = &report
}

// expect the state of each member, and whether what it was told is the revision of its new agents (+) or not (-).
func (w *walk) expect(when, want string) {
	w.Helper()
	var got []string
	for _, m := range w.in.Members {
		if r := w.d.Records[m.Name]; r == nil {
			got = append(got, m.Name+"=none")
		} else {
			mark := "-"
			if r.Released == r.Report.Revision {
				mark = "+"
			}
			got = append(got, m.Name+"="+string(r.State)+mark)
		}
	}
	if got := strings.Join(got, " "); got != want {
		w.Errorf("%s: %s, want %s\n%s", when, got, want, w.d.Condition.Message)
	}
}

// says expects the reason and words of the condition, and of the one problem if it is that it has stopped.
func (w *walk) says(when, reason string, words ...string) {
	w.Helper()
	c := w.d.Condition
	texts := []string{c.Message}
	if reason == v1alpha1.ReasonRollOutStopped {
		if len(w.d.Problems) == 0 {
			w.Fatalf("%s: no problem", when)
		}
		texts = append(texts, w.d.Problems[0].Message)
	} else if len(w.d.Problems) > 0 {
		w.Errorf("%s: problems %v", when, w.d.Problems)
	}
	for _, text := range texts {
		for _, word := range words {
			if c.Reason != reason || !strings.Contains(text, word) {
				w.Errorf("%s: %s %q, want %s with %q", when, c.Reason, text, reason, word)
			}
		}
	}
}

// One member after the other gets new agents, and each only when the one before has them all, has kept them for a
// while, and is connected as before.
func TestMembersTakeTurns(t *testing.T) {
	w := newWalk(t, "c1", "c2", "c3")
	w.expect("before", "c1=Done+ c2=Done+ c3=Done+")
	w.says("before", v1alpha1.ReasonRolledOut, "3 of 3 members")
	w.brings("new", "c3")
	w.after(4)
	w.brings("new", "c1", "c2")
	w.after(9)
	w.expect("Karmada brings it to all", "c1=Waiting- c2=Waiting- c3=Waiting-")
	w.after(2)
	w.expect("gathered", "c1=Turn+ c2=Waiting- c3=Waiting-")
	w.updates("c1", 2)
	w.after(60)
	w.says("on the way", v1alpha1.ReasonRollingOut, "0 of 3 members", "the turn of c1, where 1 of 3 nodes",
		"waiting: c2, c3")
	w.updates("c1", 0)
	w.after(14)
	w.expect("it has just got its last one", "c1=Turn+ c2=Waiting- c3=Waiting-")
	w.after(2)
	w.expect("settled", "c1=Done+ c2=Turn+ c3=Waiting-")
	w.updates("c2", 0)
	w.after(16)
	w.expect("the third", "c1=Done+ c2=Done+ c3=Turn+")
	w.updates("c3", 0)
	w.after(16)
	w.expect("over", "c1=Done+ c2=Done+ c3=Done+")
	if r := w.d.Records["c1"]; r.TurnAt != nil || r.Connected != nil {
		t.Errorf("it is over, and %+v is kept", r)
	}
	if w.after(1); w.d.Again != 0 {
		t.Errorf("looked at again after %v, though it is over", w.d.Again)
	}
	w.member("c1").Cut = []string{"c2"}
	w.after(60)
	w.says("a connection is lost long after", v1alpha1.ReasonRolledOut, "3 of 3")
}

func TestTheCanaryGoesFirst(t *testing.T) {
	w := newWalk(t, "c1", "c2", "c3")
	w.in.Canary = "c2"
	w.brings("new", "c1", "c2", "c3")
	w.after(12)
	w.expect("c2 is named", "c1=Waiting- c2=Turn+ c3=Waiting-")
	w.updates("c2", 0)
	w.after(16)
	w.expect("then by name", "c1=Turn+ c2=Done+ c3=Waiting-")
}

// TestARollOutStops: what goes wrong in the turn of the canary, and what is said of it. No other member gets a new
// agent.
func TestARollOutStops(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(c1 *Member)
		left  int32
		words []string
	}{
		{"an agent has failed", func(m *Member) {
			m.Failed, m.Trouble = []string{"new"}, "pod p of node n1: it ends with exit code 1"
		}, 2, []string{"1 of 3 nodes", "have failed", "node n1"}},
		{"an image that does not exist", func(m *Member) { m.Trouble = "pod p of node n1: ErrImagePull" }, 3,
			[]string{"0 of 3 nodes", "ErrImagePull"}},
		{"a connection is lost", func(m *Member) { m.Cut = []string{"c3"} }, 2,
			[]string{"was connected to c3 before", "n1"}},
		{"a connection is lost with the last node", func(m *Member) { m.Cut = []string{"c3", "c2"} }, 0,
			[]string{"was connected to c2, c3 before", "3 of 3 nodes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWalk(t, "c1", "c2", "c3")
			w.brings("new", "c1", "c2", "c3")
			w.after(12)
			w.updates("c1", tt.left)
			tt.do(w.member("c1"))
			w.after(10)
			w.expect("it may go by", "c1=Turn+ c2=Waiting- c3=Waiting-")
			w.after(10)
			mark := "-"
			if tt.left == 0 {
				mark = "+"
			}
			stopped := "c1=Stopped" + mark + " c2=Waiting- c3=Waiting-"
			w.expect("stopped", stopped)
			w.says("stopped", v1alpha1.ReasonRollOutStopped, append(tt.words, "old agents: c2, c3", "former one")...)
			w.after(3600)
			w.expect("for ever", stopped)

			m := w.member("c1")
			m.Failed, m.Trouble, m.Cut = nil, "", nil
			w.after(1)
			w.says("repaired", v1alpha1.ReasonRollingOut, "c1")
			w.updates("c1", 0)
			w.after(20)
			w.expect("it goes on", "c1=Done+ c2=Turn+ c3=Waiting-")
		})
	}
}

// TestARepairGoesFirstToWhereItIsNeeded: another revision, which may be the former one, has no canary before it there.
func TestARepairGoesFirstToWhereItIsNeeded(t *testing.T) {
	for _, repair := range []string{"newer", "old"} {
		w := newWalk(t, "c1", "c2", "c3")
		w.brings("new", "c1", "c2", "c3")
		w.after(12)
		w.updates("c1", 0)
		w.after(16)
		w.updates("c2", 2)
		w.member("c2").Cut = []string{"c1"}
		w.after(20)
		w.expect("c2 fails", "c1=Done+ c2=Stopped- c3=Waiting-")
		w.brings(repair, "c1", "c2", "c3")
		if repair == "old" {
			w.member("c3").Report = &v1alpha1.RollOutReport{Revision: "old", Nodes: 3, Updated: 3}
		}
		w.after(1)
		rest := "c3=Waiting-"
		if repair == "old" {
			rest = "c3=Done+"
		}
		w.expect("the repair", "c1=Waiting- c2=Turn+ "+rest)
		w.updates("c2", 0)
		w.member("c2").Cut = nil
		w.after(16)
		w.expect("then the rest", "c1=Turn+ c2=Done+ "+rest)
	}
}

// TestATroubleElsewhereStopsTheTurn: members that have their new agents are watched until all have.
func TestATroubleElsewhereStopsTheTurn(t *testing.T) {
	w := newWalk(t, "c1", "c2", "c3")
	w.brings("new", "c1", "c2", "c3")
	w.after(12)
	w.updates("c1", 0)
	w.after(16)
	w.updates("c2", 2)
	w.member("c1").Failed = []string{"new"}
	w.after(20)
	w.expect("c1 fails late", "c1=Stopped+ c2=Turn- c3=Waiting-")
	w.member("c1").Failed = nil
	w.after(1)
	w.expect("it is well again", "c1=Turn+ c2=Turn+ c3=Waiting-")
}

// TestAMemberThatIsLost has no turn, and holds nobody up for ever; a second one in its turn does.
func TestAMemberThatIsLost(t *testing.T) {
	w := newWalk(t, "c1", "c2", "c3", "c4")
	w.member("c1").Lost = true
	w.brings("new", "c1", "c2", "c3", "c4")
	w.after(12)
	w.expect("the first is lost before its turn", "c1=Waiting- c2=Turn+ c3=Waiting- c4=Waiting-")
	w.updates("c2", 1)
	w.member("c2").Lost = true
	w.after(20)
	w.expect("the next one in it", "c1=Waiting- c2=Stopped+ c3=Waiting- c4=Waiting-")
	w.says("lost", v1alpha1.ReasonRollOutStopped, "c2", "Karmada does not reach", "they go on without it")
	w.after(500)
	w.expect("for a while", "c1=Waiting- c2=Stopped+ c3=Waiting- c4=Waiting-")
	w.after(100)
	w.expect("and then", "c1=Waiting- c2=Stopped+ c3=Turn+ c4=Waiting-")
	w.updates("c3", 1)
	w.member("c3").Lost = true
	w.after(3600)
	w.expect("a second one", "c1=Waiting- c2=Stopped+ c3=Stopped+ c4=Waiting-")
	w.member("c3").Lost, w.member("c2").Lost, w.member("c1").Lost = false, false, false
	w.after(1)
	w.expect("all are back", "c1=Waiting- c2=Turn+ c3=Turn+ c4=Waiting-")
	w.updates("c2", 0)
	w.updates("c3", 0)
	w.after(16)
	w.expect("it goes on", "c1=Turn+ c2=Done+ c3=Done+ c4=Waiting-")
}

// TestAMemberThatMakesNoProgress stops the roll-out also where it cannot say what is wrong.
func TestAMemberThatMakesNoProgress(t *testing.T) {
	w := newWalk(t, "c1", "c2")
	w.brings("new", "c1", "c2")
	w.member("c1").Waits = "waiting for pod p"
	w.after(12)
	w.updates("c1", 2)
	w.after(590)
	w.expect("it takes long", "c1=Turn+ c2=Waiting-")
	w.updates("c1", 1)
	w.after(590)
	w.expect("one more node", "c1=Turn+ c2=Waiting-")
	w.after(20)
	w.expect("nothing more", "c1=Stopped+ c2=Waiting-")
	w.says("nothing more", v1alpha1.ReasonRollOutStopped, "2 of 3 nodes", "waiting for pod p")
	w.updates("c1", 0)
	w.after(16)
	w.expect("it goes on", "c1=Done+ c2=Turn+")
}

// TestWhoNeedsNoTurn: where no agent has another before it, and where nothing is said of turns.
func TestWhoNeedsNoTurn(t *testing.T) {
	w := newWalk(t, "c1", "c2")
	w.brings("new", "c1", "c2")
	w.after(12)
	w.in.Members = append(w.in.Members, Member{Name: "c0", Report: &v1alpha1.RollOutReport{Revision: "new", Nodes: 2}})
	w.in.Members = append(w.in.Members, Member{Name: "older"})
	w.after(1)
	w.expect("one joins", "c1=Turn+ c2=Waiting- c0=Done+ older=none")
	w.updates("c1", 0)
	w.after(16)
	w.expect("and holds nobody up", "c1=Done+ c2=Turn+ c0=Done+ older=none")
	// A node that was away comes back with an agent of before.
	w.updates("c2", 0)
	w.after(20)
	m := w.member("c1")
	m.Report = &v1alpha1.RollOutReport{Revision: "new", Nodes: 4, Updated: 3, Outdated: 1}
	w.after(1)
	w.expect("it has its turn already", "c1=Turn+ c2=Done+ c0=Done+ older=none")
	// No node is ready: nothing is known of what they have.
	w.brings("newer", "c2")
	m = w.member("c2")
	m.Report = &v1alpha1.RollOutReport{Revision: "newer"}
	w.after(5)
	if r := w.d.Records["c2"]; r.Released != "new" {
		t.Errorf("without a node that is ready %q was released", r.Released)
	}
}

// TestARevisionThatFailedElsewhere gets no turn: its agents are held wherever they wait. Another one does.
func TestARevisionThatFailedElsewhere(t *testing.T) {
	w := newWalk(t, "c1", "c2", "c3")
	w.member("c3").Failed = []string{"new"}
	w.brings("new", "c1")
	w.brings("other", "c2")
	w.after(40)
	w.expect("c1 is held", "c1=Waiting- c2=Turn+ c3=Done+")
}

// TestARevisionThatChangesAgainAndAgain, as a member may report whatever it likes, takes the turn from nobody.
func TestARevisionThatChangesAgainAndAgain(t *testing.T) {
	w := newWalk(t, "c1", "c2")
	w.brings("new", "c2")
	for i := range 20 {
		w.brings(fmt.Sprint("n", i), "c1")
		w.after(2)
	}
	w.expect("c2 is not held up", "c1=Waiting- c2=Turn+")
}
