// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// cables renders by which cables a member is told to reach the others.
func (w *walk) cables(name string) string {
	out := []string{string(w.member(name).Sent.Cable.Driver)}
	for _, r := range w.member(name).Sent.RemoteClusters {
		out = append(out, fmt.Sprintf("%s:%s", r.Name, r.Cable))
	}
	return strings.Join(out, " ")
}

// TestBothEndsAreToldOfACable, and beside it all members of wireguard, as an agent that does not know another needs it.
func TestBothEndsAreToldOfACable(t *testing.T) {
	w := newWalk(known(1), known(2), known(3))
	w.in.Set.Spec.Cable.Driver, w.in.Set.Spec.Cable.Unencrypted = v1alpha1.CableVXLAN, true
	w.in.Cables = map[[2]string]v1alpha1.CableDriver{{"c1", "c2"}: v1alpha1.CableVXLAN}
	w.step()
	want := map[string]string{"c1": "wireguard c2:vxlan c3:", "c2": "wireguard c1:vxlan c3:", "c3": "wireguard c1: c2:"}
	expect := func(when string) {
		t.Helper()
		for name, cables := range want {
			w.expect(t, when+": "+name, w.cables(name), cables)
			if w.member(name).Sent.Cable.Unencrypted {
				t.Errorf("%s: %s is told that wireguard is not encrypted", when, name)
			}
		}
	}
	expect("a pair")
	w.expect(t, "pairs that are not encrypted", fmt.Sprint(w.in.Set.Status.UnencryptedPairs), "1")

	w.in.Cables = map[[2]string]v1alpha1.CableDriver{{"c1", "c3"}: v1alpha1.CableVXLAN}
	w.in.Problems = []v1alpha1.Problem{{Reason: v1alpha1.ReasonInvalidSettings}}
	w.expect(t, "what is not valid changes nothing", w.step(), "")
	expect("what is not valid")
	w.expect(t, "pairs that are not encrypted still", fmt.Sprint(w.in.Set.Status.UnencryptedPairs), "1")

	w.in.Problems = nil
	w.expect(t, "another pair", w.step(), "c1,c2,c3")
	want = map[string]string{"c1": "wireguard c2: c3:vxlan", "c2": "wireguard c1: c3:", "c3": "wireguard c1:vxlan c2:"}
	expect("another pair")
}
