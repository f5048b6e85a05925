// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestARelayIsToldUntilBothHaveAnswered: either of the two may still send by it, whichever answers last.
func TestARelayIsToldUntilBothHaveAnswered(t *testing.T) {
	for _, last := range []string{"c1", "c2"} {
		w := relayed()
		delete(w.in.Relays, [2]string{"c1", "c2"})
		w.expect(t, "taken out", w.step(), "c1,c2")
		w.member(last).Report.Status.ObservedRevision--
		w.expect(t, last+" has not answered", w.step(), "")
		w.expect(t, "told", w.allRelays(), "c1[] c2[] c3[c1+c2->c1+c2]")
		w.member(last).Report.Status.ObservedRevision++
		w.expect(t, last+" has answered", w.step(), "c3")
		w.expect(t, "told at last", w.allRelays(), "c1[] c2[] c3[]")
	}
}

// TestNoPairGoesByARelayThatHasNotHeardOfIt, though it is connected to both and passes on what it was told before.
func TestNoPairGoesByARelayThatHasNotHeardOfIt(t *testing.T) {
	w := relayed(knowing(4))
	w.in.Relays[[2]string{"c1", "c4"}] = "c3"
	w.expect(t, "who is told first", w.step(), "c3")
	w.expect(t, "and then", w.step(), "c1,c4")
	w.expect(t, "told", w.allRelays(), "c1[c2:c3 c4:c3] c2[c1:c3] c3[c1->c2+c4 c2+c4->c1] c4[c1:c3]")
}

// TestARelayReachesBothFirst: one of the two is not enough, whichever it is.
func TestARelayReachesBothFirst(t *testing.T) {
	for _, lost := range []string{"c1", "c2"} {
		w := newWalk(knowing(1), knowing(2), knowing(3))
		w.allConnected()
		w.step()
		w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
		w.says("c3", strings.Replace("c1=Connected c2=Connected", lost+"=Connected", lost+"=Error/ProbesLost", 1))
		w.step()
		w.step()
		w.expect(t, "told where it does not reach "+lost, w.allRelays(), "c1[] c2[] c3[c1+c2->c1+c2]")
		w.says("c3", "c1=Connected c2=Connected")
		w.expect(t, "when it does", w.step(), "c1,c2")
	}
}

// TestAPairStaysWithARelayThatIsNotHeardOf, though what one of the three was told is lost meanwhile.
func TestAPairStaysWithARelayThatIsNotHeardOf(t *testing.T) {
	for _, lost := range []string{"c1", "c2", "c3"} {
		w := relayed()
		w.member("c3").Report.Status.Relays = ""
		w.member(lost).Sent = nil
		w.expect(t, "who is told anew", w.step(), lost)
		w.expect(t, "told without what "+lost+" was told", w.allRelays(), throughC3)
		w.expect(t, "problems", w.complaints(), "")
	}
}

// TestAFormerRelayThatIsUnfit carries nothing on until another takes its place: the two dial each other.
func TestAFormerRelayThatIsUnfit(t *testing.T) {
	w := relayed(knowing(4))
	w.in.Relays[[2]string{"c1", "c2"}] = "c4"
	w.says("c4", "c1=Connected")
	w.step()
	w.expect(t, "told while the other is waited for", w.allRelays(), throughC3+" c4[c1+c2->c1+c2]")
	w.in.Cables = map[[2]string]v1alpha1.CableDriver{{"c2", "c3"}: v1alpha1.CableVXLAN}
	w.step()
	w.step()
	w.expect(t, "told when c3 reaches c2 in clear", w.allRelays(), "c1[] c2[] c3[] c4[c1+c2->c1+c2]")
	if got := w.complaints(); !strings.Contains(got, "c4 as the relay of c1 and c2, which dial each other instead") {
		t.Errorf("problems: %s", got)
	}
}

// TestAgentsThatAreNotHeardOf know of relays as they last said, so that the relay hears already.
func TestAgentsThatAreNotHeardOf(t *testing.T) {
	for _, c := range []struct {
		first Member
		want  string
	}{{knowing(1), "c1[] c2[] c3[c1+c2->c1+c2]"}, {known(1), "c1[] c2[] c3[]"}} {
		w := newWalk(c.first, knowing(2), knowing(3))
		w.allConnected()
		w.step()
		w.silence("c1")
		w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
		w.step()
		w.step()
		w.expect(t, "told", w.allRelays(), c.want)
	}
}

// TestRelaysOfInvalidSettings are those that members were told of, whatever cables and meshes the settings ask for; of
// two that were told differently the one whose name comes first.
func TestRelaysOfInvalidSettings(t *testing.T) {
	w := relayed()
	w.in.Cables = map[[2]string]v1alpha1.CableDriver{{"c1", "c2"}: v1alpha1.CableVXLAN, {"c1", "c3"}: v1alpha1.CableVXLAN}
	w.settle(t)
	w.expect(t, "told, all in clear", w.allRelays(), throughC3)
	w.in.Problems = []v1alpha1.Problem{{Reason: v1alpha1.ReasonInvalidSettings}}
	w.in.Cables, w.in.Set.Spec.Topology.Pairs = nil, []v1alpha1.TopologyPair{pairOf("c1", "c2")}
	w.expect(t, "what is not valid changes nothing", w.step(), "")
	w.expect(t, "told still", w.allRelays(), throughC3)

	w = newWalk(knowing(1), knowing(2), knowing(3))
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
	w.step()
	w.expect(t, "told, while it is not connected", w.allRelays(), "c1[] c2[] c3[c1+c2->c1+c2]")
	w.in.Problems = []v1alpha1.Problem{{Reason: v1alpha1.ReasonInvalidSettings}}
	w.expect(t, "what is not valid changes nothing that waits", w.step(), "")

	w = relayed(knowing(4))
	w.in.Problems = []v1alpha1.Problem{{Reason: v1alpha1.ReasonInvalidSettings}}
	w.member("c2").Sent.RemoteClusters[0].Relay = "c4"
	w.expect(t, "who is told, where c2 had another", w.step(), "c2")
	w.expect(t, "told", w.allRelays(), throughC3+" c4[]")
}

// TestRefusalsThatDiffer are problems of their own: pairs that go on by another relay, and those that dial each other.
func TestRefusalsThatDiffer(t *testing.T) {
	w := relayed(knowing(4), knowing(5), knowing(6))
	w.says("c4", "")
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c4", {"c1", "c5"}: "c4", {"c1", "c6"}: "c4"}
	w.step()
	var found []string
	for _, p := range w.d.Set.Problems {
		found = append(found, p.Cluster+": "+p.Message)
	}
	const waits = "it has not said yet that it is connected to both and passes their packets on; if that stays, see its " +
		"gateways"
	want := []string{
		"c4: spec.relays has c4 as the relay of c1 and c2, which go on by c3 instead: " + waits,
		"c4: spec.relays has c4 as the relay of c1 and c5, c1 and c6, which dial each other instead: of the first, " + waits,
	}
	w.expect(t, "problems", strings.Join(found, "\n"), strings.Join(want, "\n"))
}

// TestAPairIsAsItsRelayReports: it is connected where the relay is to both, and what is said names each leg.
func TestAPairIsAsItsRelayReports(t *testing.T) {
	for lost, legs := range map[string]string{
		"c1": "Error (ProbesLost) of c1 and Connected of c2", "c2": "Connected of c1 and Error (ProbesLost) of c2"} {
		w := relayed()
		w.says("c3", strings.Replace("c1=Connected c2=Connected", lost+"=Connected", lost+"=Error/ProbesLost", 1))
		w.step()
		w.expect(t, "pairs where the relay has lost "+lost, w.pairs(),
			fmt.Sprintf("1/3 c1-c2=Error/ProbesLost %s-c3=Error/ProbesLost", lost))
		for _, p := range w.d.Set.UnconnectedPairs {
			if p.Through != "" && !strings.HasSuffix(p.Message, "and their relay c3 reports "+legs) {
				t.Errorf("the message is %q, want %q", p.Message, legs)
			}
		}
	}
}
