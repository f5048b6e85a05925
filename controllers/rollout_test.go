// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// rolls is the report of cluster number n of two that are connected, of whose two nodes some have agents of a revision.
func rolls(n int, revision string, updated int32) v1alpha1.PeeringStatus {
	s := connections(n, fmt.Sprintf("c%d=Connected", 3-n))
	s.RollOut = &v1alpha1.RollOutReport{Revision: revision, Nodes: 2, Updated: updated, Outdated: 2 - updated}
	return s
}

// released are the revisions that c1 and c2 were told.
func (f *fleet) released() string {
	var out []string
	for _, name := range []string{"c1", "c2"} {
		if p := f.peering(name); p == nil || p.RollOut == nil {
			out = append(out, "all")
		} else {
			out = append(out, p.RollOut.Revision)
		}
	}
	return strings.Join(out, " ")
}

// rolledOut is the condition RolledOut of the ClusterSet blue.
func (f *fleet) rolledOut() (condition, message string) {
	var set v1alpha1.ClusterSet
	f.must(f.client.Get(f.t.Context(), client.ObjectKey{Name: "blue"}, &set))
	c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ClusterSetRolledOut)
	if c == nil {
		return "", ""
	}
	return string(c.Status) + "/" + c.Reason, c.Message
}

// TestMembersAreReleasedOneByOne: what a member is told of its new agents, also by a controller that starts in the
// middle, and what is said when the canary fails.
func TestMembersAreReleasedOneByOne(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.ready("c1")
	f.ready("c2")
	is := func(why, want, released string) {
		t.Helper()
		f.eventually(why, func() bool {
			got, _ := f.rolledOut()
			return got == want && f.released() == released
		})
	}
	is("members of older agents are told nothing", "", "all all")
	f.report("c1", rolls(1, "old", 2))
	f.report("c2", rolls(2, "old", 2))
	is("nothing is to be done", "True/RolledOut", "old old")
	f.report("c2", rolls(2, "new", 0))
	f.report("c1", rolls(1, "new", 0))
	is("new agents wait", "False/RollingOut", "old old")
	is("the first goes first", "False/RollingOut", "new old")
	f.report("c1", rolls(1, "new", 1))
	f.eventually("c1 is on its way", func() bool {
		r := f.member("c1").Status.RollOut
		return r.State == v1alpha1.RollOutInTurn && r.Report.Updated == 1 && r.TurnAt != nil
	})
	f.stop()
	f.start()
	failed := rolls(1, "new", 1)
	failed.FailedRevisions = []string{"new"}
	failed.RollOut.Failing = "pod p of node n1 fails"
	f.report("c1", failed)
	is("it fails there", "False/RollOutStopped", " old")
	if _, message := f.rolledOut(); !strings.Contains(message, "at c1: 1 of 2 nodes") ||
		!strings.Contains(message, "pod p of node n1") || !strings.Contains(f.problems(), "RollOutStopped") {
		t.Errorf("the ClusterSet says %q, problems %s", message, f.problems())
	}
	f.report("c1", rolls(1, "old", 1)) // the former bundle
	f.report("c2", rolls(2, "old", 2))
	is("it goes back, at once", "False/RollingOut", "old old")
	f.report("c1", rolls(1, "old", 2))
	is("and is done", "True/RolledOut", "old old")
}
