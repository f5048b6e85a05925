// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"os"
	"testing"

	"github.com/sealane-io/sealane/e2e/lab"
)

// RestoreAfter restores the lab when the test has ended, however it ended: it is for a test that uninstalls, takes a
// cluster out of Karmada, or stops what others need. First come the undo commands of the plugin, whose failures are
// ignored, since a test may have failed before what they undo.
func RestoreAfter(t *testing.T, undo ...[]string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 4*Patience)
		defer cancel()
		for _, args := range undo {
			_, _ = TryPlugin(ctx, args...)
		}
		if err := Restore(ctx); err != nil {
			t.Errorf("restore the lab: %v", err)
		}
	})
}

// Restore boots, joins, installs and deploys what is missing of the lab, and waits until it is ready. What Karmada
// takes away with a cluster that is unjoined, the workload's namespace among it, is there again.
func Restore(ctx context.Context) error {
	return complete(ctx, lab.Options{Name: Lab().Dir, Topology: Lab().Topology, Out: os.Stderr})
}
