// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// fabric is by which ways members reach each other, where it is not from gateway to gateway.
type fabric struct {
	relays relays
	meshes meshes
}

// relays are the pairs of members that reach each other by a third one.
type relays struct {
	// by holds the relays, by the names of the pairs, which are sorted; served is what each relay is told.
	by     map[[2]string]*state
	served map[*state][]v1alpha1.RelayedClusters
}

// of returns the relay of a pair; nil if it has none.
func (r relays) of(a, b *state) *state {
	if len(r.by) == 0 {
		return nil
	}
	return r.by[pairName(a.name(), b.name())]
}

func pairName(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

func comparePairs(a, b [2]string) int {
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
}

// relaysOf decides which pairs have a relay, after all networks are known, and says why others that should have one
// have none: these dial each other. A relay hears of a pair first, and the two when it has answered; and it goes on
// until both have answered that they go by it no more. With settings that cannot be put into force it is as the members
// were told before.
func relaysOf(in Input, taken *spaces) (relays, []v1alpha1.Problem) {
	wanted := in.Relays
	if invalidSettings(in) {
		wanted = relaysTold(taken.states)
	}
	passing := passingOn(taken.states)
	if len(wanted)+len(passing) == 0 {
		return relays{}, nil
	}
	by, serves := map[[2]string]*state{}, map[*state]map[[2]string]bool{}
	serve := func(relay *state, pair [2]string) {
		if serves[relay] == nil {
			serves[relay] = map[[2]string]bool{}
		}
		serves[relay][pair] = true
	}
	refused := refusals{}
	for _, pair := range slices.SortedFunc(maps.Keys(wanted), comparePairs) {
		a, b, relay := taken.accepted(pair[0]), taken.accepted(pair[1]), taken.accepted(wanted[pair])
		if a == nil || b == nil {
			continue // there is no such pair yet
		}
		now, why := taken.relayFor(in, wanted, passing, relay, a, b)
		if why.kind == "" || why.kind == waits {
			serve(relay, pair)
		}
		if now != nil {
			serve(now, pair)
			by[pair] = now
		}
		if why.kind != "" {
			refused.add(wanted[pair], pair, why)
		}
	}
	for relay, pairs := range passing {
		for pair := range pairs {
			a, b := taken.accepted(pair[0]), taken.accepted(pair[1])
			if a != nil && b != nil && by[pair] != relay && (mayGoBy(a, b, relay) || mayGoBy(b, a, relay)) {
				serve(relay, pair)
			}
		}
	}
	out := relays{by, map[*state][]v1alpha1.RelayedClusters{}}
	for relay, pairs := range serves {
		out.served[relay] = grouped(pairs)
	}
	return out, refused.problems()
}

// waits is the kind of reason that passes by itself.
const waits = "waits"

// relayFor decides by which relay two members reach each other now, nil if by none, and why that is not the one that is
// wanted. One that is to take the place of another does so when its gateways pass packets on.
func (w *spaces) relayFor(in Input, wanted map[[2]string]string, passing map[*state]map[[2]string]bool,
	relay, a, b *state) (now *state, why refusal) {
	before := w.relayOf(a, b)
	told := passing[relay][pairName(a.name(), b.name())]
	why = w.unfit(in, wanted, relay, a, b)
	if why.kind == "" && before != relay && !told {
		why = unready(relay, a, b) // later it is only that an agent is not heard of
	}
	switch {
	case why.kind != "":
		return nil, why
	case before == relay || told && relay.passesOn(a, b):
		return relay, refusal{}
	}
	why = refusal{kind: waits, why: "it has not said yet that it is connected to both and passes their packets on; if " +
		"that stays, see its gateways"}
	if before != nil && w.unfit(in, wanted, before, a, b).kind == "" {
		why.instead = "which go on by " + before.name()
		return before, why
	}
	return nil, why
}

// accepted returns a member that others are told of; nil if it is none.
func (w *spaces) accepted(name string) *state {
	if s := w.states[name]; s != nil && s.accepted && s.active() {
		return s
	}
	return nil
}

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

// refusal is why a pair has no relay: what kind of reason, the reason itself, and what the two do instead, if they do
// not dial each other.
type refusal struct{ kind, why, instead string }

// refusals are the pairs of a relay that have none for reasons of one kind, and the first of these reasons.
type refusals map[[2]string]*refused

type refused struct {
	refusal
	pairs []string
}

func (r refusals) add(relay string, pair [2]string, why refusal) {
	at := [2]string{relay, why.kind + why.instead}
	if r[at] == nil {
		r[at] = &refused{refusal: why}
	}
	r[at].pairs = append(r[at].pairs, fmt.Sprintf("%s and %s", pair[0], pair[1]))
}

func (r refusals) problems() []v1alpha1.Problem {
	var out []v1alpha1.Problem
	for _, at := range slices.SortedFunc(maps.Keys(r), comparePairs) {
		text := fmt.Sprintf("spec.relays has %s as the relay of %s, %s instead: ", clip.Line(at[0]),
			clip.List(r[at].pairs, maxNamed), cmp.Or(r[at].instead, "which dial each other"))
		if len(r[at].pairs) > 1 {
			text += "of the first, "
		}
		out = append(out, v1alpha1.Problem{Cluster: at[0], Reason: v1alpha1.ReasonRelayNotUsed,
			Message: bounded(text + r[at].why)})
	}
	return out
}

// unfit says why a cluster, nil if it is no member, cannot be the relay of a pair, and what to do; it is empty if it
// can. It passes packets on as they are, so the addresses by which the two know each other have to be those by which it
// knows them; and no packet is to go by a cable that is weaker than the pair's.
func (w *spaces) unfit(in Input, wanted map[[2]string]string, relay, a, b *state) refusal {
	if relay == nil {
		return refusal{kind: "member", why: "it is no accepted member of the ClusterSet; correct the name, or make it one"}
	}
	for _, s := range []*state{a, b} {
		if by := wanted[pairName(relay.name(), s.name())]; by != "" {
			return refusal{kind: "chain", why: fmt.Sprintf("it would have to reach %s by its own gateways, and spec.relays has "+
				"%s as the relay of the two; take that out", s.name(), clip.Line(by))}
		}
	}
	for _, known := range [][2]*state{{a, b}, {b, a}} {
		if !w.sameAddresses(known[0], known[1], relay) {
			return refusal{kind: "addresses", why: fmt.Sprintf("%s knows %s by other addresses than the relay does, as their "+
				"networks overlap; set spec.globalnet.mode to On, so that all know each other by global addresses, or name "+
				"another relay", known[1].name(), known[0].name())}
		}
	}
	for _, family := range []string{"IPv4", "IPv6"} {
		if has(a, family) && has(b, family) && !has(relay, family) {
			return refusal{kind: family, why: fmt.Sprintf("it has no %s networks, which both have", family)}
		}
	}
	if invalidSettings(in) {
		return refusal{} // cables and meshes are as they were told, too
	}
	for _, p := range in.Set.Spec.Topology.Pairs {
		if p.Mode == v1alpha1.TopologyMesh && slices.Contains(p.Clusters, a.name()) && slices.Contains(p.Clusters, b.name()) {
			return refusal{kind: "mesh", why: "spec.topology has them as a pair with mode Mesh; take them out of one of the two"}
		}
	}
	pair := cableOf(in, a, b)
	for _, s := range []*state{a, b} {
		leg := cableOf(in, relay, s)
		if pair != v1alpha1.CableVXLAN && leg == v1alpha1.CableVXLAN || pair == v1alpha1.CableIPsec && leg != pair {
			return refusal{kind: "cables", why: fmt.Sprintf("they are to be reached by %s, and its cable to %s is one by %s; "+
				"give both pairs with it the cable that the pair has, or the pair theirs, in spec.cables", cable(pair), s.name(),
				cable(leg))}
		}
	}
	return refusal{}
}

// unready says that the agents of one of three members are not known to know of relays.
func unready(of ...*state) refusal {
	for _, s := range of {
		if !s.readsRelays() {
			return refusal{kind: "agents", why: fmt.Sprintf("agents of gateways of %s do not know of relays, or none is heard "+
				"of; upgrade them", s.name())}
		}
	}
	return refusal{}
}

// readsRelays says whether a member's agents know of relays, as it last reported.
func (s *state) readsRelays() bool {
	if s.Report.Known {
		return s.Report.Status.Relays != ""
	}
	return s.Record.Status.ReadsRelays
}

// has says whether a member has networks of a family.
func has(s *state, family string) bool {
	return slices.ContainsFunc(s.force.Routed(), func(p netip.Prefix) bool { return p.Addr().Is4() == (family == "IPv4") })
}

func cable(driver v1alpha1.CableDriver) v1alpha1.CableDriver {
	return cmp.Or(driver, v1alpha1.CableWireGuard)
}

// sameAddresses says whether two members know a third by the same addresses.
func (w *spaces) sameAddresses(s, x, y *state) bool {
	byX, ok := w.tell(x, s, v1alpha1.RemoteCluster{})
	byY, also := w.tell(y, s, v1alpha1.RemoteCluster{})
	return ok && also && byX.GlobalCIDR == byY.GlobalCIDR && byX.GlobalIPv6CIDR == byY.GlobalIPv6CIDR
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
