// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"strings"
	"testing"

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
	w.member("c2").Report.Known = false
	check("and the member is gone", "7d9f  7d9f")
	w.member("c2").Report.Known = true
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
