// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestDeltasAreAnswered, and are no reason to look at all imports for the Peering's report.
func TestDeltasAreAnswered(t *testing.T) {
	for name, c := range map[string]struct{ answered, looked bool }{
		"sealane-0": {true, true}, "sealane-3-01": {true, true}, "sealane-4": {false, true}, "other": {false, true},
		v1alpha1.DeltaName(0): {true, false}, v1alpha1.DeltaName(63): {true, false},
	} {
		if got := partOf(name, 4); got != c.answered {
			t.Errorf("%s: answered is %t", name, got)
		}
		before, after := &v1alpha1.Bundle{}, &v1alpha1.Bundle{}
		before.Name, after.Name = name, name
		after.Spec.Imports = []v1alpha1.Import{{Namespace: "sample", Name: "web"}}
		p := otherImports()
		if got := p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != c.looked {
			t.Errorf("%s that changes: the Peering's report is made anew is %t", name, got)
		}
		if got := p.Create(event.CreateEvent{Object: after}); got != c.looked {
			t.Errorf("%s that appears: the Peering's report is made anew is %t", name, got)
		}
		if p.Update(event.UpdateEvent{ObjectOld: after, ObjectNew: after}) {
			t.Errorf("%s with the same imports: the Peering's report is made anew", name)
		}
	}
}
