// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// A revision that has failed in one member is told to the others, which hold it, until it is mended there or the member
// leaves. One that is not heard of any more, or that Sealane has not accepted, changes nothing.
func TestAFailedRollOutIsToldToTheOthers(t *testing.T) {
	w := newWalk(known(1), known(2), known(3))
	w.step()
	check := func(when, want string) {
		t.Helper()
		w.step()
		var got []string
		for _, m := range w.in.Members {
			got = append(got, strings.Join(m.Sent.FailedRevisions, "+"))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: told %q, want %q", when, got, want)
		}
		named := strings.Contains(fmt.Sprint(w.d.Set.Problems), "c2 stops a roll-out: node agents of revision 7d9f")
		if named != strings.Contains(want, "7d9f") {
			t.Errorf("%s: problems %v", when, w.d.Set.Problems)
		}
	}
	check("nothing has failed", "  ")
	reported := func(list ...string) { w.member("c2").Report.Status.FailedRevisions = list }
	reported("7d9f", "not a hash", "../x", "7d9f")
	check("one has failed", "7d9f  7d9f")
	heard := w.silence("c2")
	check("and the member is gone", "7d9f  7d9f")
	heard()
	reported()
	check("it is mended", "  ")
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("7d9f%02d", i))
	}
	reported(many...)
	w.step()
	if n := len(w.member("c1").Sent.FailedRevisions); n != v1alpha1.MaxFailedRevisions {
		t.Errorf("told %d, want %d", n, v1alpha1.MaxFailedRevisions)
	}
	reported("7d9f")
	check("again", "7d9f  7d9f")
	w.member("c2").Record.Spec.Phase = v1alpha1.MemberLeaving
	check("it leaves", "  ")
}

// TestTheOrderIsToldToMembers: the broker's order as a member's Peering, its record and the ClusterSet say it.
func TestTheOrderIsToldToMembers(t *testing.T) {
	w := newWalk(known(1), known(2), known(3))
	for i := range w.in.Members {
		m := &w.in.Members[i]
		for j := range w.in.Members {
			if i != j {
				m.Report.Status.Connections = append(m.Report.Status.Connections, v1alpha1.MemberConnection{
					Cluster: w.in.Members[j].Record.Name, Status: v1alpha1.ConnectionConnected})
			}
		}
	}
	check := func(when, want, condition string) {
		t.Helper()
		w.step()
		var got []string
		for _, m := range w.in.Members {
			text := "all"
			if r := m.Sent.RollOut; r != nil {
				text = r.Revision
			}
			got = append(got, text)
		}
		c := meta.FindStatusCondition(w.d.Set.Conditions, v1alpha1.ClusterSetRolledOut)
		reason := ""
		if c != nil {
			reason = c.Reason
		}
		if got := strings.Join(got, " "); got != want || reason != condition {
			t.Errorf("%s: told %q, %s, want %q, %s", when, got, reason, want, condition)
		}
	}
	report := func(name, revision string, updated, outdated int32) {
		w.member(name).Report.Status.RollOut = &v1alpha1.RollOutReport{Revision: revision, Nodes: 2, Updated: updated,
			Outdated: outdated}
	}
	check("nobody reports", "all all all", "")
	report("c1", "a0", 2, 0)
	report("c2", "a0", 2, 0)
	check("two do", "a0 a0 all", v1alpha1.ReasonRolledOut)
	report("c3", "a0", 1, 2)
	check("more than there are", "a0 a0 all", v1alpha1.ReasonRolledOut)
	report("c3", "../a0", 2, 0)
	check("no revision", "a0 a0 all", v1alpha1.ReasonRolledOut)
	report("c3", "a0", 2, 0)
	for _, name := range []string{"c1", "c2", "c3"} {
		report(name, "b1", 0, 2)
	}
	w.in.Set.Spec.RollOut.Canary = "c2"
	check("another bundle", "a0 a0 ", v1alpha1.ReasonRollingOut)
	check("the canary", "a0 b1 ", v1alpha1.ReasonRollingOut)
	report("c2", "b1", 1, 1)
	w.member("c2").Report.Status.Connections[0].Status = v1alpha1.ConnectionError
	check("it loses c1", "a0 b1 ", v1alpha1.ReasonRollingOut)
	check("for long", "a0  ", v1alpha1.ReasonRollOutStopped)
	if text := fmt.Sprint(w.d.Set.Problems); !strings.Contains(text, "stopped at c2") ||
		!strings.Contains(text, "c1 before") {
		t.Errorf("problems: %s", text)
	}
	heard := w.silence("c2")
	check("and is silent", "a0 b1 ", v1alpha1.ReasonRollOutStopped)
	heard()
	w.member("c2").Record.Spec.Phase = v1alpha1.MemberLeaving
	check("it leaves", "b1 all ", v1alpha1.ReasonRollingOut)
	if r := w.member("c2").Record.Status.RollOut; r != nil {
		t.Errorf("%+v of one that leaves", r)
	}
}

// TestWhoIsCutOff: of a pair that is broken, one that no other reaches is not the fault of a member that reaches
// others.
func TestWhoIsCutOff(t *testing.T) {
	for _, tt := range []struct{ name, broken, want string }{
		{"none", "", ""},
		{"c1 and c2", "1-2", "c1:c2 c2:c1"},
		{"c3 is down", "1-3 2-3", "c3:c1+c2"},
		{"c1 loses all", "1-2 1-3", "c1:c2+c3"},
		{"all are", "1-2 1-3 2-3", "c1:c2+c3 c2:c1+c3 c3:c1+c2"},
	} {
		var states []*state
		for i := range 3 {
			s := &state{Member: known(i + 1), accepted: true}
			for j := range 3 {
				status := v1alpha1.ConnectionConnected
				if strings.Contains(tt.broken, fmt.Sprintf("%d-%d", min(i, j)+1, max(i, j)+1)) {
					status = v1alpha1.ConnectionError
				}
				s.Report.Status.Connections = append(s.Report.Status.Connections,
					v1alpha1.MemberConnection{Cluster: fmt.Sprint("c", j+1), Status: status})
			}
			s.listen()
			states = append(states, s)
		}
		_, cut := reachOf(pairsOf(states, relays{}))
		var got []string
		for _, s := range states {
			if len(cut[s]) > 0 {
				got = append(got, s.name()+":"+strings.Join(cut[s], "+"))
			}
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
