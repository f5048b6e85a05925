// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// SetClusterSet merges JSON into the spec of the lab's ClusterSet, of which null takes fields out.
func SetClusterSet(t *testing.T, spec string) {
	t.Helper()
	if err := setClusterSet(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

// SetClusterSetAfter does so when the test ends.
func SetClusterSetAfter(t *testing.T, spec string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := setClusterSet(ctx, spec); err != nil {
			t.Error(err)
		}
	})
}

func setClusterSet(ctx context.Context, spec string) error {
	_, err := TryKubectl(ctx, "--context", lab.ContextKarmada, "patch", "clusterset", "default", "--type=merge", "-p",
		`{"spec":`+spec+`}`)
	return err
}
