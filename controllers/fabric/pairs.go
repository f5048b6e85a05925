// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/forward"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/internal/reach"
)

// maxReason bounds the reason that a member gives for a connection, as the CRD does.
const maxReason = 64

// view is what one member reports of its connection to another, or why that is not known.
type view struct {
	status v1alpha1.ConnectionStatus
	reason string
}

func (v view) String() string {
	if v.reason == "" {
		return string(v.status)
	}
	return fmt.Sprintf("%s (%s)", v.status, v.reason)
}

func badness(s v1alpha1.ConnectionStatus) int { return reach.Badness(s) }

// pair is two accepted members, a before b by name, and what each reports.
type pair struct {
	a, b       *state
	from, back view
	// relay by which they reach each other, nil if directly, and what it reports of the two.
	relay          *state
	relayA, relayB view
}

// worse returns the worse of the two views, and of a relay's.
func (p pair) worse() view {
	views := []view{p.from, p.back}
	if p.relay != nil {
		views = append(views, p.relayA, p.relayB)
	}
	return slices.MinFunc(views, func(x, y view) int { return cmp.Compare(badness(x.status), badness(y.status)) })
}

// other returns the name of the member that is not s.
func (p pair) other(s *state) string {
	if p.a == s {
		return p.b.name()
	}
	return p.a.name()
}

// public is what the ClusterSet says of a pair.
func (p pair) public(in Input) v1alpha1.ClusterPair {
	w := p.worse()
	out := v1alpha1.ClusterPair{
		Cluster: p.a.name(), RemoteCluster: p.b.name(), Status: w.status, Reason: w.reason,
		Message: fmt.Sprintf("%s reports %s, %s reports %s", p.a.name(), p.from, p.b.name(), p.back),
	}
	if p.relay != nil {
		out.Through = p.relay.name()
		out.Message = bounded(fmt.Sprintf("%s, and their relay %s reports %s of %s and %s of %s", out.Message, out.Through,
			p.relayA, p.a.name(), p.relayB, p.b.name()))
		return out
	}
	silent := func(v view) bool {
		return v.reason == v1alpha1.ReasonNoHandshake || v.reason == v1alpha1.ReasonNoAddress
	}
	a, b := p.a.told(), p.b.told()
	if silent(p.from) && silent(p.back) && len(a) > 0 && len(b) > 0 {
		first := cmp.Or(in.Set.Spec.Cable.Port, usualCablePort)
		toA, toB := first+b[0].Slot, first+a[0].Slot
		if cableOf(in, p.a, p.b) == v1alpha1.CableIPsec {
			toA, toB = first+netfacts.IPsecOffset, first+netfacts.IPsecOffset
		}
		if advice := forward.Advice(end(p.a, a[0], toA), end(p.b, b[0], toB)); advice != "" {
			out.Message = bounded(out.Message + "; " + advice)
		}
	}
	return out
}

// end is the first gateway of a cluster, which the other one dials at a port.
func end(s *state, e v1alpha1.Endpoint, port int32) forward.Gateway {
	return forward.Gateway{Cluster: s.name(), Port: port, Addresses: e.Addresses, Observed: e.Observed}
}

// pairsOf returns every pair of accepted members, by name.
func pairsOf(states []*state, relays relays) []pair {
	var accepted []*state
	for _, s := range states {
		if s.accepted && s.active() {
			accepted = append(accepted, s)
		}
	}
	slices.SortFunc(accepted, func(a, b *state) int { return cmp.Compare(a.name(), b.name()) })
	seen := func(s, other *state) view {
		if v, ok := s.views[other.name()]; ok {
			return v
		}
		return view{v1alpha1.ConnectionUnknown, cmp.Or(stale(s), v1alpha1.ReasonNotReported)}
	}
	pairs := make([]pair, 0, len(accepted)*(len(accepted)+1)/2)
	for i := range accepted {
		for j := i + 1; j < len(accepted); j++ {
			a, b := accepted[i], accepted[j]
			p := pair{a: a, b: b, from: seen(a, b), back: seen(b, a), relay: relays.of(a, b)}
			if p.relay != nil {
				p.relayA, p.relayB = passedOn(p.relay, seen(p.relay, a)), passedOn(p.relay, seen(p.relay, b))
			}
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// passedOn is what a relay reports of a member of a pair, as far as it passes anything on.
func passedOn(relay *state, v view) view {
	if v.status == v1alpha1.ConnectionConnected && relay.passesNothingOn() {
		return view{v1alpha1.ConnectionError, v1alpha1.ReasonRelayPassesNothingOn}
	}
	return v
}

// stale says why what a member reported may hold no more, as the reason of an unknown connection; "" if it holds.
func stale(s *state) string {
	switch {
	case !s.Report.Known:
		return v1alpha1.ReasonNoReport
	case s.Lost:
		return v1alpha1.ReasonClusterNotReady
	case s.Unanswered:
		return v1alpha1.ReasonUnanswered
	}
	return ""
}

// viewsOf returns what a member reports of each cluster, the first of several entries.
func viewsOf(s *state) map[string]view {
	reported := s.Report.Status.Connections
	if !s.Report.Known {
		reported = s.Record.Status.Connections
	}
	why := stale(s)
	views := make(map[string]view, len(reported))
	for _, c := range reported {
		if _, ok := views[c.Cluster]; ok || badness(c.Status) < 0 {
			continue
		}
		v := view{status: c.Status}
		switch {
		case why != "":
			v = view{v1alpha1.ConnectionUnknown, why}
		case c.Status == v1alpha1.ConnectionConnected:
		case camelCase(c.Reason):
			v.reason = c.Reason
		default:
			v.reason = string(c.Status)
		}
		views[c.Cluster] = v
	}
	return views
}

// camelCase says whether a member's reason is one word.
func camelCase(s string) bool {
	return s != "" && len(s) <= maxReason && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

// connections keeps of a report what concerns members of the set.
func connections(s *state, states []*state, ways fabric, now time.Time) []v1alpha1.MemberConnection {
	out := make([]v1alpha1.MemberConnection, 0, len(s.views))
	for _, o := range states {
		if v, ok := s.views[o.name()]; ok && o != s {
			c := v1alpha1.MemberConnection{Cluster: o.name(), Status: v.status, Reason: v.reason}
			if r := ways.relays.of(s, o); r != nil {
				c.Through = r.name()
			}
			if v.status != v1alpha1.ConnectionUnknown {
				c.NodePairs, c.StraightNodePairs = nodePairs(s, o.name())
			}
			if v.status == v1alpha1.ConnectionConnected && c.Through == "" {
				c.Measured = measured(s, o.name())
				c.MTU = lostAbove(s, o.name())
			}
			c.Observed = s.sees[o.name()]
			if p := ways.meshes.of(s, o); p != nil {
				c.Topology, c.TopologyReason = p.mode, p.reason
			}
			c.LastTransitionTime = lastTransition(s, c, now)
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.MemberConnection) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

// clockSkew is how far ahead of the controller's the clock of a member may be.
const clockSkew = time.Minute

// lastTransition is when the status of a connection last changed: as the member says of the status that it reports, if
// that can be, else when the controller saw it first. No decision depends on it.
func lastTransition(s *state, c v1alpha1.MemberConnection, now time.Time) *metav1.Time {
	if claimed := s.heard[c.Cluster].connection; claimed != nil && claimed.Status == c.Status {
		at := claimed.LastTransitionTime
		if at != nil && at.Unix() > 0 && !at.After(now.Add(clockSkew)) {
			whole := metav1.NewTime(at.UTC().Truncate(time.Second)) // as it is stored, or it would always be news
			return &whole
		}
	}
	if last := s.since[connectionStatus{c.Cluster, c.Status}]; last != nil {
		return last
	}
	seen := metav1.NewTime(now.UTC().Truncate(time.Second))
	return &seen
}

// tally of pairs.
type tally struct {
	connected, unknown int
	// down are the pairs that are not connected, the worst first and then by name; unknown of them are not known to be.
	down []pair
}

func tallyOf(pairs []pair) tally {
	var t tally
	for _, p := range pairs {
		switch p.worse().status {
		case v1alpha1.ConnectionConnected:
			t.connected++
			continue
		case v1alpha1.ConnectionUnknown:
			t.unknown++
		}
		t.down = append(t.down, p)
	}
	slices.SortStableFunc(t.down, func(a, b pair) int {
		return cmp.Compare(badness(a.worse().status), badness(b.worse().status))
	})
	return t
}

// broken is how many pairs are known not to be connected; they are the first of those that are down.
func (t tally) broken() int { return len(t.down) - t.unknown }
