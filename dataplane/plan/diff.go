// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/internal/netfacts"
)

// Op is what a Change does.
type Op string

// The operations. Add and Replace both mean "make it so"; Replace says that an element of the same key
// is there. Delete of what is gone is success.
const (
	Add     Op = "add"
	Replace Op = "replace"
	Delete  Op = "delete"
)

// Kind of element that a Change is about.
type Kind string

// The kinds of elements, in the order in which they are made.
const (
	KindTable      Kind = "table"      // Table, or TableEdit where Replace need not make the table anew
	KindRoute      Kind = "route"      // Route; one over links comes after the neighbours
	KindRule       Kind = "rule"       // Rule
	KindConnection Kind = "connection" // ConntrackFlush
	KindLink       Kind = "link"       // Link
	KindAddress    Kind = "address"    // Address
	KindTunnel     Kind = "tunnel"     // Tunnel, without its peers
	KindPeer       Kind = "peer"       // TunnelPeer
	KindFDB        Kind = "fdb"        // FDBEntry
	KindNeighbour  Kind = "neighbour"  // Neighbour
	KindForward    Kind = "forward"    // ForwardAccept
)

// Change of one element of the kernel.
type Change struct {
	Op   Op
	Kind Kind
	// Element is a value of the type named at its Kind.
	Element any
}

// TunnelPeer is one peer of the tunnel on Link. Its key is Link and ID.
type TunnelPeer struct {
	Link string
	Peer
}

// ForwardAccept accepts, in the FORWARD chains of a family, what Sealane's own chain has marked.
type ForwardAccept struct{ Family Family }

// ConntrackFlush forgets the connections of a family from or to prefixes. They began before the prefixes were
// remote, or while the table was away, so they may be bound to a masquerade that the null SNAT cannot undo.
type ConntrackFlush struct {
	Family   Family
	Prefixes []netip.Prefix // sorted
	// Translated spares the connections whose source is their own, or was translated into Local.
	Translated bool
	Local      []netip.Prefix
	// From, unless it is empty, leaves of them those that come from there to a service and were translated to a backend
	// in Prefixes.
	From []netip.Prefix
}

// Diff returns the changes that turn have into want, in an order that is safe to apply one by one. First
// comes what keeps packets out of the clear and guards the links: tables, the routes that need no link, and
// rules. Then connections are forgotten that began without them. Then from links to routes over them, and the
// deletions the other way round. A link that must be made anew is deleted before that and takes with it what it
// carried. Last come the addresses that answer probes, with the routes that need them as a source: others send here as
// soon as they are answered. Diff(p, p) is empty and Diff(Plan{}, have) removes everything.
func Diff(want, have Plan) []Change {
	anew, gone := lostLinks(want.Links, have.Links)
	var out, deletes []Change
	step := func(set, del []Change) {
		out, deletes = append(out, set...), append(deletes, del...)
	}
	on := carried{anew, gone}
	routes, oldRoutes := on.routes(want.Routes, have.Routes)
	step(diffTables(want.Tables, have.Tables))
	step(filter(routes, Change.standing), filter(oldRoutes, Change.standing))
	step(diff(KindRule, want.Rules, have.Rules, func(r Rule) Rule { return r }, equal))
	out = append(out, flushes(want, have)...)
	for _, l := range have.Links {
		if anew[l.Name] {
			out = append(out, Change{Delete, KindLink, l})
		}
	}
	step(diff(KindLink, want.Links, slices.DeleteFunc(slices.Clone(have.Links), func(l Link) bool { return anew[l.Name] }),
		func(l Link) string { return l.Name }, equal))
	addresses, oldAddresses := diffOn(on, KindAddress, want.Addresses, have.Addresses,
		func(a Address) string { return a.Link }, func(a Address) Address { return Address{Link: a.Link, Prefix: a.Prefix} },
		nil, equal)
	silent := func(c Change) bool { return !c.answering() }
	step(filter(addresses, silent), filter(oldAddresses, silent))
	step(diffOn(on, KindTunnel, want.Tunnels, have.Tunnels,
		func(t Tunnel) string { return t.Link }, func(t Tunnel) string { return t.Link }, nil, sameTunnel))
	step(diffOn(on, KindPeer, peers(want.Tunnels), peers(have.Tunnels),
		func(p TunnelPeer) string { return p.Link }, peerKey, comparePeer, samePeer))
	step(diffOn(on, KindFDB, want.FDB, have.FDB,
		func(f FDBEntry) string { return f.Link }, func(f FDBEntry) FDBEntry { return FDBEntry{Link: f.Link, MAC: f.MAC} },
		nil, equal))
	step(diffOn(on, KindNeighbour, want.Neighbours, have.Neighbours,
		func(n Neighbour) string { return n.Link }, func(n Neighbour) Neighbour { return Neighbour{Link: n.Link, IP: n.IP} },
		nil, equal))
	linked := func(c Change) bool { return !c.standing() && !c.answering() }
	step(filter(routes, linked), filter(oldRoutes, linked))
	step(diff(KindForward, accepts(want), accepts(have), func(f ForwardAccept) ForwardAccept { return f }, equal))
	step(filter(addresses, Change.answering), filter(oldAddresses, Change.answering))
	answering := func(c Change) bool { return !c.standing() && c.answering() }
	step(filter(routes, answering), filter(oldRoutes, answering))
	slices.Reverse(deletes)
	return append(out, deletes...)
}

// standing says that the change is of a route without next hops, which no link takes along.
func (c Change) standing() bool {
	r, ok := c.Element.(Route)
	return ok && len(r.NextHops) == 0
}

// answering says that the change is of an address that probes go to or come from, or of a route from such an address.
func (c Change) answering() bool {
	switch e := c.Element.(type) {
	case Address:
		return IsProbe(e.Prefix.Addr())
	case Route:
		return IsProbe(e.Source)
	}
	return false
}

// IsProbe says whether probes go to or come from an address.
func IsProbe(a netip.Addr) bool {
	return ULAPrefix().Contains(a) || netfacts.ProbePrefix4().Contains(a)
}

// Guards says that the change is one of those that come first: until all of them are made, nothing that
// carries packets may be.
func (c Change) Guards() bool { return c.Kind == KindTable || c.Kind == KindRule || c.standing() }

// Additions returns those of the changes that add what is missing.
func Additions(changes []Change) []Change {
	return filter(changes, func(c Change) bool { return c.Op == Add })
}

func filter(changes []Change, keep func(Change) bool) []Change {
	var out []Change
	for _, c := range changes {
		if keep(c) {
			out = append(out, c)
		}
	}
	return out
}

// carried says what becomes of elements on links that are made anew, or that go.
type carried struct{ anew, gone map[string]bool }

// lostLinks returns the links to be made anew, for they differ in what cannot be changed, and those to
// be removed.
func lostLinks(want, have []Link) (anew, gone map[string]bool) {
	anew, gone = map[string]bool{}, map[string]bool{}
	wanted := index(want, func(l Link) string { return l.Name })
	for _, h := range have {
		w, ok := wanted[h.Name]
		switch {
		case !ok:
			gone[h.Name] = true
		case w.Kind != h.Kind || w.Driver != h.Driver || w.VNI != h.VNI || w.Port != h.Port || w.Local != h.Local ||
			w.MAC != h.MAC:
			anew[h.Name] = true
		}
	}
	return anew, gone
}

// diffOn is diff for elements that belong to a link, or diffSorted where there is an order.
func diffOn[E any, K comparable](on carried, kind Kind, want, have []E, link func(E) string, key func(E) K,
	compare func(a, b E) int, same func(want, have E) bool) (set, del []Change) {
	if len(on.anew) > 0 {
		have = slices.DeleteFunc(slices.Clone(have), func(e E) bool { return on.anew[link(e)] })
	}
	if compare == nil {
		set, del = diff(kind, want, have, key, same)
	} else {
		set, del = diffSorted(kind, want, have, key, compare, same)
	}
	del = slices.DeleteFunc(del, func(c Change) bool { return on.gone[link(c.Element.(E))] })
	return set, del
}

// routes is diff for routes, which may use several links. A route by a link that is made anew may be gone
// with it or not, so it is set again; one by nothing but links that go needs no deletion.
func (c carried) routes(want, have []Route) (set, del []Change) {
	anew := func(h NextHop) bool { return c.anew[h.Link] }
	if len(c.anew) > 0 {
		have = slices.DeleteFunc(slices.Clone(have), func(r Route) bool { return slices.ContainsFunc(r.NextHops, anew) })
	}
	set, del = diffSorted(KindRoute, want, have, keyOf, compareRoute, sameRoute)
	del = slices.DeleteFunc(del, func(change Change) bool {
		hops := change.Element.(Route).NextHops
		return len(hops) > 0 && !slices.ContainsFunc(hops, func(h NextHop) bool { return !c.gone[h.Link] })
	})
	return set, del
}

// routeKey identifies a route in the kernel.
type routeKey struct {
	table, metric int
	dst           netip.Prefix
}

func keyOf(r Route) routeKey { return routeKey{r.Table, r.Metric, r.Dst} }

func sameRoute(want, have Route) bool {
	return want.Type == have.Type && want.Source == have.Source && want.MTU == have.MTU && want.MTULock == have.MTULock &&
		slices.Equal(want.NextHops, have.NextHops)
}

// diffSorted is diff, and needs no map where both are sorted.
func diffSorted[E any, K comparable](kind Kind, want, have []E, key func(E) K, compare func(a, b E) int,
	same func(want, have E) bool) (set, del []Change) {
	if !slices.IsSortedFunc(want, compare) || !slices.IsSortedFunc(have, compare) {
		return diff(kind, want, have, key, same)
	}
	for len(want) > 0 || len(have) > 0 {
		var c int
		switch {
		case len(have) == 0:
			c = -1
		case len(want) == 0:
			c = 1
		default:
			c = compare(want[0], have[0])
		}
		switch {
		case c < 0:
			set, want = append(set, Change{Add, kind, bare(want[0])}), want[1:]
		case c > 0:
			if !kernelOwned(have[0]) {
				del = append(del, Change{Delete, kind, bare(have[0])})
			}
			have = have[1:]
		default:
			if !same(want[0], have[0]) {
				set = append(set, Change{Replace, kind, bare(want[0])})
			}
			want, have = want[1:], have[1:]
		}
	}
	return set, del
}

// shared says that two slices are the same memory, as those of two plans are that have it in common.
func shared[E any](a, b []E) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// diff returns what to add or replace, in the order of want, and what to delete, in the order of have.
func diff[E any, K comparable](kind Kind, want, have []E, key func(E) K,
	same func(want, have E) bool) (set, del []Change) {
	if shared(want, have) {
		return nil, nil
	}
	there := index(have, key)
	for _, w := range want {
		h, ok := there[key(w)]
		delete(there, key(w))
		switch {
		case !ok:
			set = append(set, Change{Add, kind, bare(w)})
		case !same(w, h):
			set = append(set, Change{Replace, kind, bare(w)})
		}
	}
	for _, h := range have {
		if _, ok := there[key(h)]; ok && !kernelOwned(h) {
			del = append(del, Change{Delete, kind, bare(h)})
		}
	}
	return set, del
}

func index[E any, K comparable](elements []E, key func(E) K) map[K]E {
	m := make(map[K]E, len(elements))
	for _, e := range elements {
		m[key(e)] = e
	}
	return m
}

// bare returns the element of a Change: peers are elements of their own.
func bare(e any) any {
	if t, ok := e.(Tunnel); ok {
		t.Peers = nil
		return t
	}
	return e
}

// kernelOwned says that the kernel made the element by itself and would miss it.
func kernelOwned(e any) bool {
	a, ok := e.(Address)
	return ok && a.Prefix.Addr().Is6() && a.Prefix.Addr().IsLinkLocalUnicast()
}

func equal[E comparable](a, b E) bool { return a == b }

func sameTunnel(want, have Tunnel) bool {
	return want.ListenPort == have.ListenPort && want.ID == have.ID
}

// samePeer leaves out the endpoint: the handshake may have roamed, and trying candidates is the cable's.
func samePeer(want, have TunnelPeer) bool {
	return want.KeepaliveSeconds == have.KeepaliveSeconds && slices.Equal(want.AllowedIPs, have.AllowedIPs)
}

// diffTables is diff for tables, of which no more is replaced than has to be.
func diffTables(want, have []Table) (set, del []Change) {
	family := func(t Table) Family { return t.Family }
	set, del = diff(KindTable, want, have, family, sameTable)
	there := index(have, family)
	for i, c := range set {
		table := c.Element.(Table)
		if c.Op != Replace {
			continue
		}
		if e, ok := edit(table, there[table.Family]); ok {
			set[i].Element = e
		}
	}
	return set, del
}

func sameTable(want, have Table) bool {
	return slices.EqualFunc(want.Sets, have.Sets, func(w, h Set) bool {
		return w.Name == h.Name && slices.Equal(w.Elements, h.Elements)
	}) && slices.EqualFunc(want.Maps, have.Maps, func(w, h Map) bool {
		return w.Name == h.Name && w.Key == h.Key && w.Value == h.Value && slices.Equal(w.Elements, h.Elements)
	}) && slices.EqualFunc(want.Chains, have.Chains, sameChain)
}

func sameChain(want, have Chain) bool {
	return want.Name == have.Name && want.Type == have.Type && want.Hook == have.Hook &&
		want.Priority == have.Priority &&
		slices.EqualFunc(want.Rules, have.Rules, func(w, h string) bool { return w == h || RuleID(w) == h })
}

type linkPeer struct {
	link string
	id   PeerID
}

func comparePeer(a, b TunnelPeer) int {
	if a.Link != b.Link {
		return cmp.Compare(a.Link, b.Link)
	}
	return cmp.Compare(a.ID, b.ID)
}

func peerKey(p TunnelPeer) linkPeer { return linkPeer{p.Link, p.ID} }

func peers(tunnels []Tunnel) []TunnelPeer {
	var out []TunnelPeer
	for _, t := range tunnels {
		for _, p := range t.Peers {
			out = append(out, TunnelPeer{t.Link, p})
		}
	}
	return out
}

func accepts(p Plan) []ForwardAccept {
	var out []ForwardAccept
	for _, f := range p.ForwardAccepts {
		out = append(out, ForwardAccept{f})
	}
	return out
}

// flushes forgets connections with the prefixes that become remote. What was remote before is known from the
// routes and from the tables: others delete either, and the next plan brings it back. While a table was away,
// connections began that others may have masqueraded; those that began before keep their state.
//
// A gateway that begins to give what it translates an address of its own, or ceases to, forgets what it has translated
// to backends on other nodes: their answers have another way now, on which nobody would translate them back.
func flushes(want, have Plan) []Change {
	if shared(want.Tables, have.Tables) {
		return nil
	}
	guarded, routed := map[netip.Prefix]bool{}, map[netip.Prefix]bool{}
	for _, t := range have.Tables {
		for _, p := range elementsOf(t, setRemote) {
			guarded[p] = true
		}
	}
	for _, r := range have.Routes {
		if r.Table == OutboundTable && r.Type != Throw {
			routed[r.Dst] = true
		}
	}
	var out []Change
	for _, t := range want.Tables {
		all := ConntrackFlush{Family: t.Family}
		some := ConntrackFlush{Family: t.Family, Translated: true, Local: elementsOf(t, setLocal)}
		for _, p := range elementsOf(t, setRemote) {
			switch {
			case within(guarded, p):
			case within(routed, p):
				some.Prefixes = append(some.Prefixes, p)
			default:
				all.Prefixes = append(all.Prefixes, p)
			}
		}
		for _, f := range []ConntrackFlush{all, some} {
			if len(f.Prefixes) > 0 {
				out = append(out, Change{Add, KindConnection, f})
			}
		}
		i := slices.IndexFunc(have.Tables, func(h Table) bool { return h.Family == t.Family })
		if i < 0 || hasSet(t, setTransit) == hasSet(have.Tables[i], setTransit) {
			continue
		}
		f := ConntrackFlush{Family: t.Family, From: elementsOf(t, setRemote),
			Prefixes: append(slices.Clone(elementsOf(t, setTransit)), elementsOf(have.Tables[i], setTransit)...)}
		if len(f.From) > 0 && len(f.Prefixes) > 0 {
			out = append(out, Change{Add, KindConnection, f})
		}
	}
	return out
}

func hasSet(t Table, name string) bool {
	return slices.ContainsFunc(t.Sets, func(s Set) bool { return s.Name == name })
}

// elementsOf a set of a table.
func elementsOf(t Table, set string) []netip.Prefix {
	for _, s := range t.Sets {
		if s.Name == set {
			return s.Elements
		}
	}
	return nil
}

// within says whether a prefix of the set contains p.
func within(set map[netip.Prefix]bool, p netip.Prefix) bool {
	for bits := p.Bits(); bits >= 0; bits-- {
		if q, err := p.Addr().Prefix(bits); err == nil && set[q] {
			return true
		}
	}
	return false
}
