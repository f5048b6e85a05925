// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/imports"
)

// TestBeingMade: an import that is not made becomes a problem when its own time is up, however many others began later.
func TestBeingMade(t *testing.T) {
	key := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "sample", Name: fmt.Sprintf("web-%d", i)}
	}
	pending := imports.Verdict{Reason: v1alpha1.ReasonImportPending}
	making := map[types.NamespacedName]time.Time{key(0): now.Add(-makingGrace + time.Millisecond), key(99): now}
	look := func(at time.Time) (problems int, again time.Duration) {
		verdicts := map[types.NamespacedName]imports.Verdict{}
		for i := range 50 {
			verdicts[key(i)] = pending
		}
		again = beingMade(verdicts, making, at)
		return len(verdicts), again
	}
	for _, c := range []struct {
		after    time.Duration
		problems int
		again    time.Duration
	}{{0, 0, time.Millisecond}, {time.Millisecond, 1, makingGrace - time.Millisecond}, {makingGrace, 50, 0}} {
		if problems, again := look(now.Add(c.after)); problems != c.problems || again != c.again {
			t.Errorf("after %s: %d problems, look again after %s; want %d and %s", c.after, problems, again, c.problems,
				c.again)
		}
	}
	if len(making) != 50 {
		t.Errorf("%d imports are being made, want 50", len(making))
	}
}
