// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
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
	passing := passingOn(taken.states)
	if len(in.Relays)+len(passing) == 0 && !invalidSettings(in) {
		return relays{}, nil
	}
	wanted, told := in.Relays, relaysTold(taken.states)
	if invalidSettings(in) {
		wanted = told
	}
	d := deciding{spaces: taken, in: in, wanted: wanted, told: told, passing: passing,
		by: map[[2]string]*state{}, serves: map[*state]map[[2]string]bool{}, refused: map[[2]string]refusal{}}
	for pair := range wanted {
		if a, b := taken.accepted(pair[0]), taken.accepted(pair[1]); a != nil && b != nil { // else there is no such pair yet
			d.decide(pair, a, b)
		}
	}
	d.passOn()
	d.holdLegs()
	out := relays{d.by, map[*state][]v1alpha1.RelayedClusters{}}
	for relay := range d.serves {
		out.served[relay] = d.bounded(relay)
	}
	return out, d.problems()
}

// deciding is what a decision about all relays comes to.
type deciding struct {
	*spaces
	in Input
	// wanted and told are the relays of pairs, by the ClusterSet and as members were told last; passing those of the
	// relays.
	wanted, told map[[2]string]string
	passing      map[*state]map[[2]string]bool
	// by are the relays by which pairs go, serves what relays pass on, and refused why a pair does not go by the one that
	// is wanted.
	by      map[[2]string]*state
	serves  map[*state]map[[2]string]bool
	refused map[[2]string]refusal
}

func (d *deciding) serve(relay *state, pair [2]string) {
	if d.serves[relay] == nil {
		d.serves[relay] = map[[2]string]bool{}
	}
	d.serves[relay][pair] = true
}

// decide about a pair.
func (d *deciding) decide(pair [2]string, a, b *state) {
	relay := d.accepted(d.wanted[pair])
	now, why := d.relayFor(relay, a, b)
	if why.kind == "" || why.kind == waits {
		d.serve(relay, pair)
	}
	if now != nil {
		d.serve(now, pair)
		d.by[pair] = now
	}
	if why.kind != "" {
		d.refused[pair] = why
	}
}

// passOn has relays pass packets on between pairs of which one may not have heard yet that it goes another way; but not
// by a cable that has become too weak.
func (d *deciding) passOn() {
	for relay, pairs := range d.passing {
		for pair := range pairs {
			a, b := d.accepted(pair[0]), d.accepted(pair[1])
			if a == nil || b == nil || d.by[pair] == relay {
				continue
			}
			leaving := mayGoBy(a, b, relay) || mayGoBy(b, a, relay)
			if invalidSettings(d.in) || leaving && d.weaker(relay, a, b).kind == "" {
				d.serve(relay, pair)
			}
		}
	}
}

// holdLegs keeps a relay and a cluster connected by their own gateways as long as it passes on what that cluster may
// send: as where all pairs are to go by another relay.
func (d *deciding) holdLegs() {
	held := map[[2]string][3]string{} // by what relay and pair, the first of several
	for relay, pairs := range d.serves {
		for pair := range pairs {
			a, b := d.accepted(pair[0]), d.accepted(pair[1])
			if d.by[pair] != relay && !mayGoBy(a, b, relay) && !mayGoBy(b, a, relay) {
				continue // it hears first
			}
			for _, end := range pair {
				leg, why := pairName(relay.name(), end), [3]string{relay.name(), pair[0], pair[1]}
				if first, is := held[leg]; d.by[leg] != nil && (!is || slices.Compare(why[:], first[:]) < 0) {
					held[leg] = why
				}
			}
		}
	}
	for leg, why := range held {
		delete(d.by, leg)
		d.refused[leg] = refusal{kind: waits, why: fmt.Sprintf("%s passes on what %s and %s send each other, until they go "+
			"another way", why[0], why[1], why[2])}
	}
}

// maxRelayed bounds in bytes what a relay is told of others, as etcd takes 1.5 MiB of an object. Where hardly any
// cluster has the same partners as another, each pair is two names.
const maxRelayed = 512 << 10

// bounded is what a relay is told, without new pairs if that is too much.
func (d *deciding) bounded(relay *state) []v1alpha1.RelayedClusters {
	out := grouped(d.serves[relay])
	if lengthOf(out) <= maxRelayed {
		return out
	}
	for pair := range d.serves[relay] {
		if d.passing[relay][pair] {
			continue
		}
		delete(d.serves[relay], pair)
		if d.by[pair] == relay {
			delete(d.by, pair)
		}
		d.refused[pair] = refusal{kind: "size", why: fmt.Sprintf("what it would be told of all pairs is over %d KiB, as "+
			"too few clusters have the same partners; give some pairs another relay", maxRelayed>>10)}
	}
	return grouped(d.serves[relay])
}

// lengthOf is about how many bytes entries take.
func lengthOf(entries []v1alpha1.RelayedClusters) (out int) {
	for _, e := range entries {
		for _, name := range slices.Concat(e.Clusters, e.With) {
			out += len(name) + len(`"",`)
		}
	}
	return out
}

// problems are why pairs do not go by the relays that are wanted.
func (d *deciding) problems() []v1alpha1.Problem {
	all := refusals{}
	for _, pair := range slices.SortedFunc(maps.Keys(d.refused), comparePairs) {
		all.add(d.wanted[pair], pair, d.refused[pair])
	}
	return all.problems()
}

// waits is the kind of reason that passes by itself.
const waits = "waits"

// relayFor decides by which relay two members reach each other now, nil if by none, and why that is not the one that is
// wanted. One that is to take the place of another does so when its gateways pass packets on.
func (d *deciding) relayFor(relay, a, b *state) (now *state, why refusal) {
	before := d.relayOf(a, b)
	why = d.unfit(d.wanted, relay, a, b)
	switch {
	case why.kind != "":
		return nil, why
	case before == relay:
		return relay, refusal{}
	}
	why = unready(relay, a, b, d.passing[relay][pairName(a.name(), b.name())])
	if why.kind == "" && cableOf(d.in, a, b) == v1alpha1.CableIPsec && !invalidSettings(d.in) {
		why = withoutIPsecStill(relay, a, b)
	}
	if why.kind == "" {
		return relay, refusal{}
	}
	if before != nil && d.unfit(d.told, before, a, b).kind == "" {
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
