// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// relayOf is the relay by which a member was told to reach another, or the other it; nil if by none.
func (w *spaces) relayOf(a, b *state) *state {
	for _, sent := range []*v1alpha1.RemoteCluster{sentOf(a, b), sentOf(b, a)} {
		if sent != nil && sent.Relay != "" {
			return w.accepted(sent.Relay)
		}
	}
	return nil
}

// passesOn says that a relay's gateways have in force what it was told last, and that it reaches both of a pair.
func (s *state) passesOn(a, b *state) bool {
	return s.Sent != nil && s.Report.Known && s.Report.Status.Relays == v1alpha1.DigestOfRelays(s.Sent.Relays) &&
		s.views[a.name()].status == v1alpha1.ConnectionConnected && s.views[b.name()].status == v1alpha1.ConnectionConnected
}

// passesNothingOn says that no gateway of a relay does, or not all do, what it was told: they say that they have
// nothing of it in force, or are not of agents that know of relays.
func (s *state) passesNothingOn() bool {
	return stale(s) == "" && (s.Report.Status.Relays == "" || s.Report.Status.Relays == v1alpha1.DigestOfRelays(nil))
}

// sentOf is what a member was told last of another; nil if nothing.
func sentOf(s, other *state) *v1alpha1.RemoteCluster {
	if s.Sent == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(s.Sent.RemoteClusters, other.name(), func(r v1alpha1.RemoteCluster, n string) int {
		return cmp.Compare(r.Name, n)
	})
	if !found {
		return nil
	}
	return &s.Sent.RemoteClusters[i]
}

// goesBy says that a member was told to reach another by a relay.
func goesBy(s, other, relay *state) bool {
	sent := sentOf(s, other)
	return sent != nil && sent.Relay == relay.name()
}

// mayGoBy says that a member may still do so: it has not answered that it was told otherwise. One that nothing is heard
// of keeps no relay.
func mayGoBy(s, other, relay *state) bool {
	return stale(s) == "" && s.Sent != nil &&
		(goesBy(s, other, relay) || s.Report.Status.ObservedRevision < s.Sent.Revision)
}

// passingOn are the pairs that each relay was told of last.
func passingOn(states map[string]*state) map[*state]map[[2]string]bool {
	out := map[*state]map[[2]string]bool{}
	for _, s := range states {
		if s.Sent == nil || len(s.Sent.Relays) == 0 || !s.accepted || !s.active() {
			continue
		}
		out[s] = map[[2]string]bool{}
		for _, r := range s.Sent.Relays {
			for _, a := range r.Clusters {
				for _, b := range r.With {
					if a != b {
						out[s][pairName(a, b)] = true
					}
				}
			}
		}
	}
	return out
}

// relaysTold are those that members were told last, of two by the one whose name comes first.
func relaysTold(states map[string]*state) map[[2]string]string {
	out := map[[2]string]string{}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		s := states[name]
		if s.Sent == nil {
			continue
		}
		for _, r := range s.Sent.RemoteClusters {
			if pair := pairName(name, r.Name); r.Relay != "" && out[pair] == "" {
				out[pair] = r.Relay
			}
		}
	}
	return out
}

// tell a member by which relay it reaches another, if there is one. What the relay has reported holds until it reports
// otherwise: that it is not heard of mends nothing.
func (r relays) tell(remote *v1alpha1.RemoteCluster, s, other *state) {
	relay := r.of(s, other)
	if relay == nil {
		return
	}
	remote.Relay, remote.Endpoints, remote.Cable = relay.name(), []v1alpha1.Endpoint{}, ""
	v, found := relay.views[other.name()], lostAbove(relay, other.name())
	if sent := sentOf(s, other); v.status != v1alpha1.ConnectionConnected && sent != nil && sent.Relay == remote.Relay {
		remote.RelayStatus, found = sent.RelayStatus, sent.RelayMTU
	}
	if v.status == v1alpha1.ConnectionError {
		remote.RelayStatus = v.status
	}
	remote.RelayMTU = smaller(leastMTU(other), found)
}

// smaller of two sizes of which 0 is not known.
func smaller(a, b int32) int32 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// leastMTU is that of the cables of a member's gateways; 0 where none has said.
func leastMTU(s *state) int32 {
	var out int32
	for _, e := range s.endpoints {
		out = smaller(out, e.MTU)
	}
	return out
}

// lostAbove is the size above which a member reports packets to another to be lost; 0 if it reports none that can be.
func lostAbove(s *state, other string) int32 {
	if c := s.heard[other].connection; c != nil && netfacts.CheckMTU(c.MTU) == nil {
		return c.MTU
	}
	return 0
}

// grouped are pairs as a relay is told of them: clusters with the same partners, themselves among these or not, make
// one entry, so that what is said of all pairs of some clusters grows with their number.
func grouped(pairs map[[2]string]bool) []v1alpha1.RelayedClusters {
	with := map[string][]string{}
	for pair := range pairs {
		with[pair[0]] = append(with[pair[0]], pair[1])
		with[pair[1]] = append(with[pair[1]], pair[0])
	}
	open, closed := map[string][]string{}, map[string][]string{}
	key := func(names []string) string { return strings.Join(names, " ") }
	names := slices.Sorted(maps.Keys(with))
	for _, name := range names {
		slices.Sort(with[name])
		open[key(with[name])] = append(open[key(with[name])], name)
		all := key(slices.Sorted(slices.Values(append([]string{name}, with[name]...))))
		closed[all] = append(closed[all], name)
	}
	var out []v1alpha1.RelayedClusters
	done := map[string]bool{}
	for _, name := range names {
		if done[name] {
			continue
		}
		partners := with[name]
		same := open[key(partners)]
		all := slices.Sorted(slices.Values(append([]string{name}, partners...)))
		if others := closed[key(all)]; len(others) > 1 {
			same, partners = others, all
		}
		for _, s := range same {
			done[s] = true
		}
		out = append(out, v1alpha1.RelayedClusters{Clusters: slices.Clone(same), With: partners})
	}
	return out
}
