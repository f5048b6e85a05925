// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// relays renders by which relays a member is told to reach others, and for whom it is one.
func (w *walk) relays(name string) string {
	var out []string
	for _, r := range w.member(name).Sent.RemoteClusters {
		if r.Relay != "" {
			out = append(out, strings.TrimSuffix(fmt.Sprintf("%s:%s/%s", r.Name, r.Relay, r.RelayStatus), "/"))
		}
		ofItsOwn := r.Cable != "" || r.Topology != "" || len(r.Nodes) > 0
		if (r.Relay == "") != (len(r.Endpoints) > 0) || r.Relay != "" && ofItsOwn {
			out = append(out, fmt.Sprintf("%s has both, or neither: %+v", r.Name, r))
		}
	}
	for _, r := range w.member(name).Sent.Relays {
		out = append(out, fmt.Sprintf("%s->%s", strings.Join(r.Clusters, "+"), strings.Join(r.With, "+")))
	}
	return strings.Join(out, " ")
}

// allRelays renders it of all members.
func (w *walk) allRelays() string {
	var out []string
	for _, m := range w.in.Members {
		out = append(out, m.Record.Name+"["+w.relays(m.Record.Name)+"]")
	}
	return strings.Join(out, " ")
}

// knowing is a member whose agents know of relays.
func knowing(n int) Member {
	m := known(n)
	m.Report.Status.Relays = v1alpha1.DigestOfRelays(nil)
	return m
}

// relayed is c1 and c2, which reach each other by c3.
func relayed(more ...Member) *walk {
	w := newWalk(append([]Member{knowing(1), knowing(2), knowing(3)}, more...)...)
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
	w.allConnected()
	w.step()
	w.step()
	return w
}

// allConnected has each member report that it is connected to all others.
func (w *walk) allConnected() {
	for _, m := range w.in.Members {
		var others []string
		for _, o := range w.in.Members {
			if o.Record.Name != m.Record.Name {
				others = append(others, o.Record.Name+"=Connected")
			}
		}
		w.says(m.Record.Name, strings.Join(others, " "))
	}
}

const throughC3 = "c1[c2:c3] c2[c1:c3] c3[c1+c2->c1+c2]"

// TestThreeAreToldOfARelay, and nothing is written again; what is not valid changes nothing, and without the entry the
// two are told of each other's gateways.
func TestThreeAreToldOfARelay(t *testing.T) {
	w := relayed()
	w.expect(t, "told", w.allRelays(), throughC3)
	w.expect(t, "again", w.step(), "")
	w.in.Problems = []v1alpha1.Problem{{Reason: v1alpha1.ReasonInvalidSettings}}
	w.in.Relays = nil
	w.expect(t, "what is not valid changes nothing", w.step(), "")
	w.expect(t, "told still", w.allRelays(), throughC3)
	w.in.Problems = nil
	w.expect(t, "taken out", w.step(), "c1,c2")
	w.expect(t, "told then", w.allRelays(), "c1[] c2[] c3[c1+c2->c1+c2]")
	w.expect(t, "when both have answered", w.step(), "c3")
	w.expect(t, "told at last", w.allRelays(), "c1[] c2[] c3[]")
	w.expect(t, "again", w.step(), "")
}

// TestARelayHearsFirst: the two go on directly, and the ClusterSet says so, until its gateways pass packets on and
// reach both; then they go by it, whatever it says later.
func TestARelayHearsFirst(t *testing.T) {
	w := newWalk(knowing(1), knowing(2), knowing(3))
	w.allConnected()
	w.step()
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
	w.says("c3", "c1=Connected c2=Error/ProbesLost")
	w.expect(t, "who is told", w.step(), "c3")
	w.expect(t, "it does not reach c2", w.step(), "")
	if got := w.complaints(); !strings.Contains(got, "c1 and c2, which dial each other instead: it has not said yet") {
		t.Errorf("problems: %s", got)
	}
	w.says("c3", "c1=Connected c2=Connected")
	status := &w.member("c3").Report.Status
	digest := status.Relays
	for _, other := range []string{v1alpha1.DigestOfRelays(nil), ""} {
		status.Relays = other
		w.expect(t, "its gateways have something else", w.step(), "")
	}
	status.Relays = digest
	w.expect(t, "they have it", w.step(), "c1,c2")
	w.expect(t, "told", w.allRelays(), throughC3)
	w.expect(t, "problems", w.complaints(), "")
	status.Relays = ""
	w.expect(t, "they are not heard of", w.step(), "")
	status.Relays = digest
	status.ObservedRevision--
	w.expect(t, "it has another revision to answer", w.step(), "")
	end := w.silence("c3")
	w.expect(t, "nothing is heard of it", w.step(), "")
	end()

	// c2 is not heard of when the entry is taken out: it is not waited for.
	delete(w.in.Relays, [2]string{"c1", "c2"})
	w.silence("c2")
	w.expect(t, "taken out", w.step(), "c1,c2")
	w.expect(t, "c1 has answered", w.step(), "c3")
	w.expect(t, "told at last", w.allRelays(), "c1[] c2[] c3[]")
}

// TestRelaysWhosePeeringsAreLost: what a member was told is not known, as when somebody has broken its Work.
func TestRelaysWhosePeeringsAreLost(t *testing.T) {
	for _, lost := range []string{"c1", "c2", "c3"} {
		w := relayed()
		delete(w.in.Relays, [2]string{"c1", "c2"})
		w.member(lost).Sent = nil
		for range 4 {
			w.step()
		}
		w.expect(t, "told when it is taken out", w.allRelays(), "c1[] c2[] c3[]")
		w.in.Relays[[2]string{"c1", "c2"}] = "c3"
		w.step()
		w.member(lost).Sent = nil
		for range 4 {
			w.step()
		}
		w.expect(t, "told when it is there", w.allRelays(), throughC3)
	}
}

// TestAnotherRelay takes the place of one when it passes packets on; until then the two go on by the former. One that
// cannot be a relay takes no place, and the two dial each other.
func TestAnotherRelay(t *testing.T) {
	w := relayed(knowing(4))
	w.in.Relays[[2]string{"c1", "c2"}] = "c4"
	w.says("c4", "c1=Connected")
	w.expect(t, "who is told", w.step(), "c4")
	w.expect(t, "told", w.allRelays(), throughC3+" c4[c1+c2->c1+c2]")
	if got := w.complaints(); !strings.Contains(got, "which go on by c3 instead") {
		t.Errorf("problems: %s", got)
	}
	w.says("c4", "c1=Connected c2=Connected")
	w.expect(t, "when it reaches both", w.step(), "c1,c2")
	w.expect(t, "told", w.allRelays(), "c1[c2:c4] c2[c1:c4] c3[c1+c2->c1+c2] c4[c1+c2->c1+c2]")
	w.expect(t, "when both have answered", w.step(), "c3")
	w.in.Relays[[2]string{"c1", "c2"}] = "c44"
	w.step()
	w.step()
	w.expect(t, "told of one that does not exist", w.allRelays(), "c1[] c2[] c3[] c4[]")
}

// TestSizesBehindARelay are the least of what the other end has, and of what passes from the relay to there.
func TestSizesBehindARelay(t *testing.T) {
	w := relayed()
	size := func() int32 { return w.member("c1").Sent.RemoteClusters[0].RelayMTU }
	c2 := &w.member("c2").Report.Status.Endpoints[0]
	c2.MTU = 1400
	w.step()
	if size() != 1400 {
		t.Errorf("%d, want what c2 has", size())
	}
	w.says("c3", "c1=Connected c2=Connected")
	c3 := w.member("c3").Report.Status.Connections
	c3[1].MTU = 1330
	w.expect(t, "who is told", w.step(), "c1")
	if size() != 1330 {
		t.Errorf("%d, want what passes from the relay", size())
	}
	c3[1].Status = v1alpha1.ConnectionError
	w.step()
	if size() != 1330 {
		t.Errorf("%d, want what passed when it was reached", size())
	}
	c3[1].Status, c3[1].MTU = v1alpha1.ConnectionConnected, 7
	w.step()
	if size() != 1400 {
		t.Errorf("%d, want no size that cannot be", size())
	}
}

// TestWhatARelayReports of its own connections is told to who goes by it, and counts as what both report.
func TestWhatARelayReports(t *testing.T) {
	w := relayed()
	w.says("c3", "c1=Connected c2=Error/ProbesLost")
	w.expect(t, "who is told that the relay lost c2", w.step(), "c1")
	w.expect(t, "told", w.relays("c1"), "c2:c3/Error")
	w.expect(t, "again", w.step(), "")
	for _, silent := range []string{"c1=Connected c2=Unknown/AgentSilent", "c1=Connected c2=Connecting/NoHandshake"} {
		w.says("c3", silent)
		w.expect(t, "who is told of "+silent, w.step(), "")
	}
	end := w.silence("c3")
	w.expect(t, "who is told when nothing is heard", w.step(), "")
	w.says("c1", "c2=Connected c3=Connected")
	w.says("c2", "c1=Connected c3=Connected")
	w.step()
	w.expect(t, "pairs of whose relay nothing is heard", w.pairs(),
		"0/3 c1-c2=Unknown/NoReport c1-c3=Unknown/NoReport c2-c3=Unknown/NoReport")
	end()
	w.says("c3", "c1=Connected c2=Connected")
	w.expect(t, "who is told that it is back", w.step(), "c1")
	w.expect(t, "told", w.relays("c1"), "c2:c3")
	w.says("c1", "c2=Error/RelayNotConnected c3=Connected")
	w.says("c2", "c1=Connected c3=Connected")
	w.says("c3", "c1=Connected c2=Connected")
	w.step()
	w.expect(t, "pairs", w.pairs(), "2/3 c1-c2=Error/RelayNotConnected")
	p := w.d.Set.UnconnectedPairs[0]
	w.expect(t, "through", p.Through, "c3")
	const legs = "their relay c3 reports Connected of c1 and Connected of c2"
	if !strings.Contains(p.Message, legs) || strings.Contains(p.Message, "forward UDP") {
		t.Errorf("the message is %q", p.Message)
	}
	for _, c := range w.member("c1").Record.Status.Connections {
		if want := map[string]string{"c2": "c3", "c3": ""}[c.Cluster]; c.Through != want {
			t.Errorf("c1 has %s through %q, want %q", c.Cluster, c.Through, want)
		}
	}
}

// TestUnfitRelays: the pair dials directly, and one problem says why.
func TestUnfitRelays(t *testing.T) {
	pair := [2]string{"c1", "c2"}
	for name, c := range map[string]struct {
		change func(w *walk)
		want   string // part of the problem
	}{
		"nobody": {func(w *walk) { w.in.Relays[pair] = "c9" }, "c9 as the relay of c1 and c2, which dial each other " +
			"instead: it is no accepted member"},
		"one that leaves": {func(w *walk) { w.member("c3").Record.Spec.Phase = v1alpha1.MemberLeaving },
			"no accepted member"},
		"one behind a relay": {func(w *walk) { w.in.Relays[[2]string{"c1", "c3"}] = "c4" },
			"it would have to reach c1 by its own gateways, and spec.relays has c4"},
		"a leg in clear": {func(w *walk) {
			w.in.Cables = map[[2]string]v1alpha1.CableDriver{{"c2", "c3"}: v1alpha1.CableVXLAN}
		}, "they are to be reached by wireguard, and its cable to c2 is one by vxlan"},
		"a leg without ipsec": {func(w *walk) {
			w.in.Cables = map[[2]string]v1alpha1.CableDriver{pair: v1alpha1.CableIPsec, {"c2", "c3"}: v1alpha1.CableIPsec}
		}, "they are to be reached by ipsec, and its cable to c1 is one by wireguard"},
		"all by ipsec": {func(w *walk) {
			w.in.Cables = map[[2]string]v1alpha1.CableDriver{pair: v1alpha1.CableIPsec, {"c1", "c3"}: v1alpha1.CableIPsec,
				{"c2", "c3"}: v1alpha1.CableIPsec}
		}, ""},
		"all in clear, as is said": {func(w *walk) {
			w.in.Cables = map[[2]string]v1alpha1.CableDriver{pair: v1alpha1.CableVXLAN, {"c1", "c3"}: v1alpha1.CableVXLAN}
		}, ""},
		"a mesh": {func(w *walk) {
			w.in.Set.Spec.Topology.Pairs = []v1alpha1.TopologyPair{{Clusters: []string{"c2", "c1"}, Mode: v1alpha1.TopologyMesh}}
		}, "spec.topology has them as a pair with mode Mesh"},
		"an automatic mesh": {func(w *walk) { w.in.Set.Spec.Topology.Mode = v1alpha1.TopologyAuto }, ""},
		"agents of before": {func(w *walk) { w.member("c2").Report.Status.Relays = "" },
			""},
		"one family less": {func(w *walk) {
			for _, name := range []string{"c1", "c2"} {
				n := &w.member(name).Report.Status.Networks
				n.PodCIDRs = append(n.PodCIDRs, "fd00:"+name[1:]+"::/48")
			}
		}, "it has no IPv6 networks, which both have"},
	} {
		t.Run(name, func(t *testing.T) {
			w := relayed(knowing(4))
			w.expect(t, "before", w.relays("c1"), "c2:c3")
			c.change(w)
			w.step()
			var found []string
			for _, p := range w.d.Set.Problems {
				if p.Reason == v1alpha1.ReasonRelayNotUsed {
					found = append(found, p.Message)
				}
			}
			if c.want == "" {
				w.expect(t, "after", w.relays("c1"), "c2:c3")
				w.expect(t, "problems", strings.Join(found, "; "), "")
				return
			}
			if strings.Contains(w.relays("c1"), "c2:") {
				t.Errorf("it is a relay: %s", w.relays("c1"))
			}
			if !strings.Contains(strings.Join(found, "; "), c.want) {
				t.Errorf("problems %q, want %q", found, c.want)
			}
		})
	}
}

// TestARelayOfMany has each pair, and no other; what all pairs of some clusters have is one entry.
func TestARelayOfMany(t *testing.T) {
	w := relayed(knowing(4), knowing(5))
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3", {"c1", "c4"}: "c3", {"c2", "c4"}: "c5"}
	w.step()
	w.step()
	w.expect(t, "told", w.allRelays(), "c1[c2:c3 c4:c3] c2[c1:c3 c4:c5] c3[c1->c2+c4 c2+c4->c1] c4[c1:c3 c2:c5] "+
		"c5[c2+c4->c2+c4]")
	w.expect(t, "again", w.step(), "")

	pairs := map[[2]string]bool{}
	var names []string
	for i := range 250 {
		names = append(names, fmt.Sprintf("c%03d", i))
		for k := range i {
			pairs[[2]string{names[k], names[i]}] = true
		}
	}
	if got := grouped(pairs); len(got) != 1 || len(got[0].Clusters) != 250 || len(got[0].With) != 250 {
		t.Errorf("all pairs of 250 clusters make %d entries", len(got))
	}
	delete(pairs, [2]string{"c007", "c008"})
	if got := grouped(pairs); len(got) != 2 {
		t.Errorf("all but one make %d entries", len(got))
	}
}

// TestEntriesAreThePairs: what a relay is told allows these pairs and no others.
func TestEntriesAreThePairs(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		pairs := map[[2]string]bool{}
		for range rnd.IntN(12) {
			a, b := rnd.IntN(7), rnd.IntN(7)
			if a != b {
				pairs[pairName(fmt.Sprint(a), fmt.Sprint(b))] = true
			}
		}
		got := map[[2]string]int{}
		for _, r := range grouped(pairs) {
			for _, a := range r.Clusters {
				for _, b := range r.With {
					if a != b {
						got[pairName(a, b)]++
					}
				}
			}
		}
		for pair := range pairs {
			if got[pair] != 2 {
				t.Fatalf("%v is there %d times, want once each way: %v", pair, got[pair], grouped(pairs))
			}
		}
		if len(got) != len(pairs) {
			t.Fatalf("%v, want %v", got, pairs)
		}
	}
}

// TestRefusalsOfOneKindAreOneProblem.
func TestRefusalsOfOneKindAreOneProblem(t *testing.T) {
	w := newWalk(knowing(1), knowing(2), knowing(3), knowing(4))
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3", {"c1", "c4"}: "c3", {"c2", "c4"}: "c3"}
	w.in.Cables = map[[2]string]v1alpha1.CableDriver{}
	for _, n := range []string{"c1", "c2"} {
		w.in.Cables[[2]string{n, "c3"}] = v1alpha1.CableVXLAN
	}
	w.step()
	if got := w.d.Set.Problems; len(got) != 1 || !strings.Contains(got[0].Message, "c1 and c2, c1 and c4, c2 and c4") {
		t.Errorf("%v", w.d.Set.Problems)
	}
}

// TestARelayKnowsBothByTheSameAddresses: twins know each other by blocks, which a third does not know them by unless
// all do.
func TestARelayKnowsBothByTheSameAddresses(t *testing.T) {
	twins := func() []Member {
		of := []Member{known(1), twin(2), known(3)}
		for i := range of {
			of[i].Report.Status.Relays = v1alpha1.DigestOfRelays(nil)
		}
		return of
	}
	w := auto(newWalk(twins()...))
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
	w.settle(t)
	if got := w.relays("c1"); got != "" {
		t.Errorf("c3 is a relay of twins that it knows by other addresses: %s; c1 knows %s, c3 knows %s", got, w.knows("c1"),
			w.knows("c3"))
	}
	if !strings.Contains(w.complaints(), "RelayNotUsed") || !strings.Contains(w.complaints(), "globalnet.mode to On") {
		t.Errorf("problems: %s", w.complaints())
	}

	w = auto(newWalk(twins()...))
	w.allConnected()
	w.in.Set.Spec.Globalnet.Mode = v1alpha1.GlobalnetOn
	w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
	w.settle(t)
	w.expect(t, "with global addresses of all", w.allRelays(), throughC3)
}

// BenchmarkDecideByARelay is BenchmarkDecide where all pairs have one relay.
func BenchmarkDecideByARelay(b *testing.B) {
	for _, count := range []int{10, 100, 200} {
		b.Run(fmt.Sprintf("clusters=%d", count), func(b *testing.B) {
			w := large(b, count)
			w.in.Relays = map[[2]string]string{}
			relay := w.in.Members[0].Record.Name
			for i := range w.in.Members {
				w.in.Members[i].Report.Status.Relays = v1alpha1.DigestOfRelays(nil)
				for k := range i {
					if k > 0 {
						w.in.Relays[pairName(w.in.Members[k].Record.Name, w.in.Members[i].Record.Name)] = relay
					}
				}
			}
			w.settle(b)
			if n := len(w.member(relay).Sent.Relays); n != 1 {
				b.Fatalf("%d entries of the relay", n)
			}
			b.ReportAllocs()
			for b.Loop() {
				Decide(w.in)
			}
		})
	}
}

// TestAgentsThatDoNotKnowOfRelays: a pair of which a gateway's agent does not has none.
func TestAgentsThatDoNotKnowOfRelays(t *testing.T) {
	for _, old := range []string{"c1", "c2", "c3"} {
		w := newWalk(knowing(1), knowing(2), knowing(3))
		w.in.Relays = map[[2]string]string{{"c1", "c2"}: "c3"}
		w.allConnected()
		w.member(old).Report.Status.Relays = ""
		w.step()
		w.step()
		w.expect(t, "told", w.allRelays(), "c1[] c2[] c3[]")
		if got := w.complaints(); !strings.Contains(got, "agents of gateways of "+old+" do not know of relays") {
			t.Errorf("%s: problems: %s", old, got)
		}
	}
}
