// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

var (
	c1c2 = [2]string{"c1", "c2"}
	c1c3 = [2]string{"c1", "c3"}
	c2c3 = [2]string{"c2", "c3"}
)

// TestAllPairsGoToAnotherRelay: of the two ends and the former relay no two are told of the next one before that passes
// packets on between the ends, and those with the former relay not before it has done with the ends.
func TestAllPairsGoToAnotherRelay(t *testing.T) {
	w := relayed(knowing(4))
	w.in.Relays = map[[2]string]string{c1c2: "c4", c1c3: "c4", c2c3: "c4"}
	w.says("c4", "c1=Connected c2=Connecting/NoHandshake c3=Connected")
	for range 3 {
		w.step()
		w.expect(t, "c4 does not reach c2", w.allRelays(), throughC3+" c4[c1+c2+c3->c1+c2+c3]")
	}
	want := "RelayNotUsed: spec.relays has c4 as the relay of c1 and c2, which go on by c3 instead: "
	if got := w.complaints(); !strings.Contains(got, want) || !strings.Contains(got, "c3 passes on what c1 and c2 send") {
		t.Errorf("problems: %s", got)
	}
	w.says("c4", "c1=Connected c2=Connected c3=Connected")
	w.step()
	w.expect(t, "the two first", w.allRelays(), "c1[c2:c4] c2[c1:c4] c3[c1+c2->c1+c2] c4[c1+c2+c3->c1+c2+c3]")
	w.step()
	w.expect(t, "then the former relay", w.allRelays(),
		"c1[c2:c4 c3:c4] c2[c1:c4 c3:c4] c3[c1:c4 c2:c4] c4[c1+c2+c3->c1+c2+c3]")
	w.expect(t, "problems", w.complaints(), "")
	w.expect(t, "again", w.step(), "")
}

// TestTheFormerRelayServesUntilTheNextOneIsReady, whose agents, or an end's, are not heard of for a moment or know
// nothing of relays.
func TestTheFormerRelayServesUntilTheNextOneIsReady(t *testing.T) {
	for _, who := range []string{"c4", "c1"} {
		w := relayed(knowing(4))
		status := &w.member(who).Report.Status
		before := status.Relays
		status.Relays = ""
		w.in.Relays[c1c2] = "c4"
		w.step()
		w.expect(t, who+" says nothing", w.relays("c1"), "c2:c3")
		if got := w.complaints(); !strings.Contains(got, "agents of gateways of "+who) ||
			!strings.Contains(got, "go on by c3 instead") {
			t.Errorf("problems: %s", got)
		}
		status.Relays = before
		w.step()
		w.step()
		w.expect(t, who+" says it again", w.relays("c1"), "c2:c4")
	}
}

// TestNobodyGoesByARelayAlone: an end that Karmada does not reach, or that does not answer, goes on as before, and so
// does the other.
func TestNobodyGoesByARelayAlone(t *testing.T) {
	for name, of := range map[string]func(*Member) *bool{
		"not ready":  func(m *Member) *bool { return &m.Lost },
		"unanswered": func(m *Member) *bool { return &m.Unanswered },
	} {
		w := newWalk(knowing(1), knowing(2), knowing(3))
		w.allConnected()
		w.step()
		off := of(w.member("c1"))
		*off = true
		w.in.Relays = map[[2]string]string{c1c2: "c3"}
		for range 4 {
			w.step()
		}
		w.expect(t, name, w.allRelays(), "c1[] c2[] c3[c1+c2->c1+c2]")
		if got := w.complaints(); !strings.Contains(got, "c1, which would not hear of it, is not heard of itself") {
			t.Errorf("%s: problems: %s", name, got)
		}
		*off = false
		w.step()
		w.expect(t, name+" no more", w.allRelays(), throughC3)
	}
}

// TestARelayPassesNothingOnByAWeakerCable: where one becomes weaker than the pair's, it stops in the same decision,
// though an end has not answered that it goes another way.
func TestARelayPassesNothingOnByAWeakerCable(t *testing.T) {
	cables := func(pair, leg v1alpha1.CableDriver) map[[2]string]v1alpha1.CableDriver {
		return map[[2]string]v1alpha1.CableDriver{c1c2: pair, c1c3: pair, c2c3: leg}
	}
	for _, weaker := range []struct{ pair, leg v1alpha1.CableDriver }{
		{"", v1alpha1.CableVXLAN}, {v1alpha1.CableIPsec, ""}, {v1alpha1.CableIPsec, v1alpha1.CableVXLAN},
	} {
		w := newWalk(knowing(1), knowing(2), knowing(3))
		w.in.Relays = map[[2]string]string{c1c2: "c3"}
		w.in.Cables = cables(weaker.pair, weaker.pair)
		w.allConnected()
		w.step()
		w.step()
		w.expect(t, "before", w.allRelays(), throughC3)
		w.in.Cables = cables(weaker.pair, weaker.leg)
		w.step()
		w.member("c1").Report.Status.ObservedRevision = 1
		w.expect(t, "weaker", w.allRelays(), "c1[] c2[] c3[]")
	}
}

// TestAPairByIPsecWaitsForItsRelaysIPsec: cables that become ones by IPsec carry by WireGuard until IPsec answers.
func TestAPairByIPsecWaitsForItsRelaysIPsec(t *testing.T) {
	for _, leg := range [][2]string{{"c1", "c3"}, {"c2", "c3"}, {"c3", "c1"}, {"c3", "c2"}} {
		w := newWalk(knowing(1), knowing(2), knowing(3))
		w.in.Cables = map[[2]string]v1alpha1.CableDriver{c1c2: v1alpha1.CableIPsec, c1c3: v1alpha1.CableIPsec,
			c2c3: v1alpha1.CableIPsec}
		w.in.Relays = map[[2]string]string{c1c2: "c3"}
		w.allConnected()
		connections := w.member(leg[0]).Report.Status.Connections
		for i := range connections {
			if connections[i].Cluster == leg[1] {
				connections[i].Reason = v1alpha1.ReasonCableSilent
			}
		}
		for range 3 {
			w.step()
		}
		w.expect(t, "by WireGuard still", w.allRelays(), "c1[] c2[] c3[c1+c2->c1+c2]")
		if got := w.complaints(); !strings.Contains(got, "its cable by ipsec to") {
			t.Errorf("problems: %s", got)
		}
		w.allConnected()
		w.step()
		w.expect(t, "by IPsec", w.allRelays(), throughC3)
	}
}

// TestARelayThatPassesNothingOnIsNoConnection: its agents are rolled back, or have nothing in force of what it is told,
// while each of the three reports its cables to be well.
func TestARelayThatPassesNothingOnIsNoConnection(t *testing.T) {
	for name, says := range map[string]string{"agents that do not know of relays": "",
		"agents that have nothing in force": v1alpha1.DigestOfRelays(nil)} {
		w := relayed()
		w.expect(t, name+", pairs before", w.pairs(), "3/3")
		for range 3 {
			w.member("c3").Report.Status.Relays = says
			w.step()
		}
		w.expect(t, name+", told", w.allRelays(), throughC3)
		w.expect(t, name+", pairs", w.pairs(), "2/3 c1-c2=Error/RelayPassesNothingOn")
		if w.ready() {
			t.Errorf("%s: expected the ClusterSet not to be ready", name)
		}
	}
}

// TestARelayThatIsDownStopsNoRollOutElsewhere: it cuts c1 from c2, which is no fault of c1's new agents.
func TestARelayThatIsDownStopsNoRollOutElsewhere(t *testing.T) {
	w := newWalk(knowing(1), knowing(2), knowing(3), knowing(4))
	w.allConnected()
	w.in.Relays = map[[2]string]string{c1c2: "c3"}
	w.in.Set.Spec.RollOut.Canary = "c1"
	report := func(revision string, updated, outdated int32, names ...string) {
		for _, name := range names {
			w.member(name).Report.Status.RollOut = &v1alpha1.RollOutReport{Revision: revision, Nodes: 2, Updated: updated,
				Outdated: outdated}
		}
	}
	all := []string{"c1", "c2", "c3", "c4"}
	report("a0", 2, 0, all...)
	w.step()
	w.step()
	w.expect(t, "told", w.relays("c1"), "c2:c3")
	report("b1", 0, 2, all...)
	w.step()
	w.step() // c1's turn
	w.member("c3").Lost = true
	w.says("c1", "c2=Error/ProbesLost c3=Error/ProbesLost c4=Connected")
	w.says("c2", "c1=Error/ProbesLost c3=Error/ProbesLost c4=Connected")
	w.says("c4", "c1=Connected c2=Connected c3=Error/ProbesLost")
	report("b1", 1, 1, "c1")
	for range 3 {
		w.step()
	}
	w.expect(t, "problems", w.complaints(), "")
}

// TestAnEndIsRolledBackWhileItWaits for the relay, which has heard already and does not reach the other end yet.
func TestAnEndIsRolledBackWhileItWaits(t *testing.T) {
	w := newWalk(knowing(1), knowing(2), knowing(3))
	w.allConnected()
	w.step()
	w.in.Relays = map[[2]string]string{c1c2: "c3"}
	w.says("c3", "c1=Connected c2=Connecting/NoHandshake")
	w.step()
	w.step()
	w.expect(t, "c1 waits", w.allRelays(), "c1[] c2[] c3[c1+c2->c1+c2]")
	w.member("c1").Report.Status.Relays = ""
	w.step()
	w.says("c3", "c1=Connected c2=Connected")
	w.step()
	w.expect(t, "c1's agents do not know of relays", w.relays("c1"), "")
}

// TestWhatARelayIsToldIsBounded: a few members decide what a relay is told of hundreds, where each leaves out another
// half of the others, by networks that overlap theirs, so that no two have the same partners.
func TestWhatARelayIsToldIsBounded(t *testing.T) {
	const members, hostile = 250, 7
	name := func(i int) string { return fmt.Sprintf("production-cluster-of-a-region-%03d", i) }
	relay := &state{}
	first := pairName(name(0), name(1))
	d := deciding{by: map[[2]string]*state{}, refused: map[[2]string]refusal{},
		passing: map[*state]map[[2]string]bool{relay: {first: true}},
		serves:  map[*state]map[[2]string]bool{relay: {}}}
	for i := range members {
		for k := range i {
			if k < hostile && i>>k&1 == 1 && pairName(name(k), name(i)) != first {
				continue // k overlaps i
			}
			d.serves[relay][pairName(name(k), name(i))] = true
		}
	}
	pairs := len(d.serves[relay])
	if n := lengthOf(grouped(d.serves[relay])); n <= maxRelayed {
		t.Fatalf("%d bytes, want more than the bound", n)
	}
	told := d.bounded(relay)
	if len(told) != 1 || len(d.refused) != pairs-1 || d.refused[first].kind != "" {
		t.Errorf("told %+v, %d of %d pairs refused; want the one that it was told before, and all others refused", told,
			len(d.refused), pairs)
	}
}
