// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// relayWalk is a fleet in which entries, cables, and what members say change at random.
type relayWalk struct {
	*walk
	*rand.Rand
	names []string
}

// TestRelaysWalk: whatever changes in whatever order, both ends are told of the same relay, which knows both by their
// own gateways, passes their packets on, and by no weaker cable; and when all is well again it is as if it had always
// been.
func TestRelaysWalk(t *testing.T) {
	for seed := range uint64(60) {
		w := newRelayWalk(seed)
		for n := range 40 {
			what := w.disturb()
			w.step()
			if problem := w.inconsistent(); problem != "" {
				t.Fatalf("seed %d, step %d, %s: %s\n%s", seed, n, what, problem, w.allRelays())
			}
		}
		w.mend()
		for range 8 {
			w.step()
		}
		w.expect(t, fmt.Sprintf("seed %d: written when nothing changes", seed), w.step(), "")
		fresh := newRelayWalk(seed)
		fresh.in.Relays, fresh.in.Cables = w.in.Relays, w.in.Cables
		for range 8 {
			fresh.step()
		}
		w.expect(t, fmt.Sprintf("seed %d: in the end", seed), w.allRelays(), fresh.allRelays())
		w.expect(t, fmt.Sprintf("seed %d: problems", seed), w.complaints(), fresh.complaints())
	}
}

func newRelayWalk(seed uint64) relayWalk {
	w := relayWalk{newWalk(knowing(1), knowing(2), knowing(3), knowing(4), knowing(5)),
		rand.New(rand.NewPCG(seed, 5100)), nil}
	for _, m := range w.in.Members {
		w.names = append(w.names, m.Record.Name)
	}
	w.allConnected()
	w.step()
	return w
}

func (w relayWalk) any() string { return w.names[w.IntN(len(w.names))] }

// disturb changes one thing, and says what.
func (w relayWalk) disturb() string {
	m := w.member(w.any())
	switch w.IntN(7) {
	case 0: // all pairs by one
		relay := w.any()
		w.in.Relays = map[[2]string]string{}
		for i, a := range w.names {
			for _, b := range w.names[i+1:] {
				if a != relay && b != relay {
					w.in.Relays[pairName(a, b)] = relay
				}
			}
		}
		return "all by " + relay
	case 1: // one pair by another, or directly
		a, b, relay := w.any(), w.any(), w.any()
		if a == b || relay == a || relay == b {
			w.in.Relays = map[[2]string]string{}
			return "no relays"
		}
		relays := map[[2]string]string{pairName(a, b): relay}
		for pair, by := range w.in.Relays {
			if pair != pairName(a, b) {
				relays[pair] = by
			}
		}
		w.in.Relays = relays
		return fmt.Sprintf("%s and %s by %s", a, b, relay)
	case 2: // a cable
		a, b := w.any(), w.any()
		drivers := []v1alpha1.CableDriver{"", v1alpha1.CableVXLAN, v1alpha1.CableIPsec}
		cables := map[[2]string]v1alpha1.CableDriver{pairName(a, b): drivers[w.IntN(len(drivers))]}
		if a == b {
			cables = nil
		}
		w.in.Cables = cables
		return fmt.Sprintf("cables %v", cables)
	case 3:
		m.Lost = !m.Lost
		return fmt.Sprintf("%s lost: %t", m.Record.Name, m.Lost)
	case 4:
		m.Unanswered = !m.Unanswered
		return fmt.Sprintf("%s unanswered: %t", m.Record.Name, m.Unanswered)
	case 5:
		m.Report.Status.Relays = ""
		return m.Record.Name + " says nothing of relays"
	}
	m.Report.Status.Relays = v1alpha1.DigestOfRelays(m.Sent.Relays)
	return m.Record.Name + " has in force what it was told"
}

// mend makes all members well.
func (w relayWalk) mend() {
	for i := range w.in.Members {
		m := &w.in.Members[i]
		m.Lost, m.Unanswered = false, false
		m.Report.Status.ObservedRevision = m.Sent.Revision
		m.Report.Status.Relays = v1alpha1.DigestOfRelays(m.Sent.Relays)
	}
}

// inconsistent says what is wrong with what the members are told.
func (w relayWalk) inconsistent() string {
	to := func(a, b string) v1alpha1.RemoteCluster {
		for _, r := range w.member(a).Sent.RemoteClusters {
			if r.Name == b {
				return r
			}
		}
		return v1alpha1.RemoteCluster{}
	}
	strength := func(c v1alpha1.CableDriver) int {
		return map[v1alpha1.CableDriver]int{v1alpha1.CableVXLAN: 0, "": 1, v1alpha1.CableIPsec: 2}[c]
	}
	for i, a := range w.names {
		for _, b := range w.names[i+1:] {
			relay := to(a, b).Relay
			if other := to(b, a).Relay; other != relay {
				return fmt.Sprintf("%s reaches %s by %q, and it by %q", a, b, relay, other)
			}
			for _, r := range w.names {
				if !w.passes(r, a, b) {
					if r == relay {
						return fmt.Sprintf("%s passes nothing on between %s and %s", r, a, b)
					}
					continue
				}
				for _, end := range []string{a, b} {
					if leg := to(r, end); strength(leg.Cable) < strength(w.in.Cables[pairName(a, b)]) {
						return fmt.Sprintf("%s passes on what %s and %s send by %q to %s", r, a, b, leg.Cable, end)
					}
					if r == relay && (to(r, end).Relay != "" || to(end, r).Relay != "") {
						return fmt.Sprintf("%s, the relay of %s and %s, reaches %s by another one", r, a, b, end)
					}
				}
			}
		}
	}
	return ""
}

// passes says that a member was told to pass packets on between two.
func (w relayWalk) passes(relay, a, b string) bool {
	for _, entry := range strings.Fields(w.relays(relay)) {
		clusters, with, found := strings.Cut(entry, "->")
		has := func(list, name string) bool { return strings.Contains("+"+list+"+", "+"+name+"+") }
		if found && (has(clusters, a) && has(with, b) || has(clusters, b) && has(with, a)) {
			return true
		}
	}
	return false
}
