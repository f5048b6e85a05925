// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// A cluster behind a relay is reached by the cables to the relay, whose gateways may have its addresses as sources,
// too. A relay passes on what comes by a cable from a cluster that it is told of, by its gateways' word, to one that
// it is told to pass that on to; as it is, without tracking it, so that each packet may take another of its gateways.

// Names of the sets of a relay, by the place of clusters in Relayed: what they have, and what those have to which their
// packets are passed on.
const (
	setRelayFrom = "relayfrom"
	setRelayTo   = "relayto"
)

// relayed are clusters whose packets this one passes on, with the prefixes that may be their sources and destinations.
type relayed struct{ from, to []netip.Prefix }

// viaRelays returns a topology in which clusters behind a relay have the relay's gateways.
func viaRelays(t topology.Topology) topology.Topology {
	if !slices.ContainsFunc(t.Remotes, func(r topology.Remote) bool { return r.Behind != "" }) {
		return t
	}
	remotes := slices.Clone(t.Remotes)
	for i := range remotes {
		r := &remotes[i]
		if r.Behind == "" {
			continue
		}
		r.Gateways, r.PathMTU = nil, nil
		at := slices.IndexFunc(t.Remotes, func(o topology.Remote) bool { return o.Name == r.Behind && o.Behind == "" })
		if at >= 0 {
			relay := &t.Remotes[at]
			r.Gateways, r.PathMTU, r.IPsec = relay.Gateways, relay.PathMTU, relay.IPsec
		}
	}
	t.Remotes = remotes
	return t
}

// by is the cluster whose gateways carry what goes to another: itself, or the relay that it is behind.
func by(r topology.Remote) string { return cmp.Or(r.Behind, r.Name) }

// direct are the remote clusters with gateways of their own.
func direct(remotes []topology.Remote) []topology.Remote {
	if !slices.ContainsFunc(remotes, func(r topology.Remote) bool { return r.Behind != "" }) {
		return remotes
	}
	return slices.DeleteFunc(slices.Clone(remotes), func(r topology.Remote) bool { return r.Behind != "" })
}

// prefixesBehind are what the clusters behind each relay have.
func prefixesBehind(remotes []topology.Remote) map[string][]netip.Prefix {
	var out map[string][]netip.Prefix
	for i := range remotes {
		if r := &remotes[i]; r.Behind != "" {
			if out == nil {
				out = map[string][]netip.Prefix{}
			}
			out[r.Behind] = append(out[r.Behind], r.Routed...)
		}
	}
	return out
}

// relayedOf are the clusters whose packets a gateway passes on. Where clusters are in both lists of an entry, what one
// of them sends to itself would come back to it, and be dropped there: no other cable may have its sources.
func relayedOf(t topology.Topology) []relayed {
	routed := make(map[string][]netip.Prefix, len(t.Remotes))
	for i := range t.Remotes {
		routed[t.Remotes[i].Name] = t.Remotes[i].Routed
	}
	out := make([]relayed, 0, len(t.Relayed))
	of := func(names []string) []netip.Prefix {
		var out []netip.Prefix
		for _, name := range names {
			out = append(out, routed[name]...)
		}
		return disjoint(out)
	}
	for _, r := range t.Relayed {
		out = append(out, relayed{of(r.Clusters), of(r.With)})
	}
	return out
}

// passesOn says whether packets of a family are passed on for the clusters at a place.
func (v *view) passesOn(i int, f Family) bool {
	return slices.Contains(v.families, f) && len(inFamily(f, v.relayed[i].from)) > 0 &&
		len(inFamily(f, v.relayed[i].to)) > 0
}

// relaySets are the sets of a relay.
func (v *view) relaySets(f Family, add func(name string, elements []netip.Prefix)) {
	for i := range v.relayed {
		if v.passesOn(i, f) {
			add(fmt.Sprintf("%s%d", setRelayFrom, i), slices.Clone(inFamily(f, v.relayed[i].from)))
			add(fmt.Sprintf("%s%d", setRelayTo, i), slices.Clone(inFamily(f, v.relayed[i].to)))
		}
	}
}

// passedOn adds one rule for each entry of clusters whose packets are passed on: before says what else it matches, and
// verdict what it does.
func (v *view) passedOn(f Family, r *rules, before, verdict string) {
	for i := range v.relayed {
		if v.passesOn(i, f) {
			r.add(`%s %s saddr @%s%d %s daddr @%s%d %s`, before, f, setRelayFrom, i, f, setRelayTo, i, verdict)
		}
	}
}

// guardRelayed lets cables deliver what is passed on. Whose it is a cable knows: it lets a gateway have the networks of
// its own cluster alone as sources, and here of those behind it.
func (v *view) guardRelayed(f Family, r *rules) {
	v.passedOn(f, r, fmt.Sprintf(`iifname "%s*"`, CablePrefix), "notrack accept")
}

// handedRelayed does not track what a sibling hands over of it.
func (v *view) handedRelayed(f Family, r *rules) {
	if v.siblingMACs() != "" {
		v.passedOn(f, r, fmt.Sprintf(`iifname "%s" meta mark & 0x%08x == 0x%08x`, OverlayLink, SiblingMark, SiblingMark),
			"notrack")
	}
}

// forwardRelayed lets it go on by cables, and where those are dead over to a sibling, whose cables it goes by then.
func (v *view) forwardRelayed(f Family, r *rules) {
	accept := fmt.Sprintf("meta mark set meta mark | 0x%08x accept", ForwardMark)
	v.passedOn(f, r, fmt.Sprintf(`iifname "%s*" oifname "%s*" ct state untracked`, CablePrefix, CablePrefix), accept)
	if v.siblingMACs() != "" {
		v.passedOn(f, r, fmt.Sprintf(`iifname "%s*" oifname "%s" ct state untracked`, CablePrefix, OverlayLink), accept)
		v.passedOn(f, r, fmt.Sprintf(`iifname "%s" oifname "%s*" meta mark & 0x%08x == 0x%08x ct state untracked`,
			OverlayLink, CablePrefix, SiblingMark, SiblingMark), accept)
	}
}

// noRedirects keeps the kernel from telling pods of other clusters of a shorter way, where what it passes on comes and
// goes by one link: there is none.
func (v *view) noRedirects(f Family, r *rules) {
	if len(v.relayed) == 0 {
		return
	}
	what := "icmp type redirect"
	if f == IPv6 {
		what = "icmpv6 type nd-redirect"
	}
	r.add(`oifname "%s*" %s drop`, CablePrefix, what)
}
