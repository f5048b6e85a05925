// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"slices"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestExternalCIDRs: a member is told which hosts outside it may export, and no other's. What is stated later reaches
// it too, and what is taken back; what cannot be put into force does not.
func TestExternalCIDRs(t *testing.T) {
	w := newWalk(known(1), known(2))
	state := func(cidrs ...string) {
		t.Helper()
		w.in.Set.Spec.Clusters = []v1alpha1.ClusterOverride{{Name: "c1", ExternalCIDRs: cidrs}}
		w.settle(t)
	}
	want := func(cidrs ...string) {
		t.Helper()
		if got := w.member("c1").Sent.ExternalCIDRs; !slices.Equal(got, cidrs) {
			t.Errorf("c1 is told %v, want %v", got, cidrs)
		}
		if got := w.member("c2").Sent.ExternalCIDRs; len(got) > 0 {
			t.Errorf("c2 is told %v", got)
		}
	}
	state()
	want()
	state("172.31.5.0/24")
	want("172.31.5.0/24")
	w.in.Problems = []v1alpha1.Problem{{Reason: v1alpha1.ReasonInvalidSettings}}
	state("0.0.0.0/0")
	want("172.31.5.0/24")
	w.in.Problems = nil
	state()
	want()
}
