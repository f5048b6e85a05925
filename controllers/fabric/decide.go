// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/rollout"
	"github.com/sealane-io/sealane/internal/claim"
)

// Input is all that the fabric of one ClusterSet depends on.
type Input struct {
	Set v1alpha1.ClusterSet
	// Members of the set, in any order.
	Members []Member
	// Joining are the clusters that are about to become members.
	Joining []string
	// Problems of membership: clusters that are selected and cannot belong.
	Problems []v1alpha1.Problem
	// Cables are the drivers of the pairs that have another than wireguard, by their names, which are sorted.
	Cables map[[2]string]v1alpha1.CableDriver
	// Relays are the clusters by which pairs are to reach each other, by the pairs' names, which are sorted.
	Relays map[[2]string]string
	// Now is the time of new conditions and acceptances.
	Now time.Time
}

// Member is one cluster as Decide sees it.
type Member struct {
	// Record is the Member, whose status holds the last good state.
	Record v1alpha1.Member
	// Report of the member's Peering.
	Report Report
	// Sent is the Peering last written, nil if there is none.
	Sent *v1alpha1.PeeringSpec
	// Writable says that Karmada has the cluster and that it knows the kinds of the wire: their CRDs are
	// applied there.
	Writable bool
	// Refresh asks for a new revision: the member did not answer the last one.
	Refresh bool
	// Unanswered says that the member has left a revision unanswered for longer than one that works would, and Lost that
	// Karmada does not reach its cluster: either way what it reported last may hold no more.
	Unanswered, Lost bool
}

// Decision is what follows from an Input. It holds only what has to be written, but for the status.
type Decision struct {
	// Peerings to write, by cluster.
	Peerings map[string]v1alpha1.PeeringSpec
	// Statuses of every Member, by cluster.
	Statuses map[string]v1alpha1.MemberStatus
	// Set is the status of the ClusterSet.
	Set v1alpha1.ClusterSetStatus
	// UnknownPairs is how many pairs of members are not known to be connected or not.
	UnknownPairs int32
	// RollOut is the order in which members get new node agents, and when to decide about it anew.
	RollOut rollout.Decision
}

// state is one member while Decide is at work.
type state struct {
	Member
	// heard is what the member reports of others, views what holds of that, and since when a connection has been what it
	// is, as its record has it.
	heard map[string]heard
	views map[string]view
	since map[connectionStatus]*metav1.Time
	// force is what the others route to the member, and endpoints how; valid if accepted.
	force     claim.Claim
	endpoints []v1alpha1.Endpoint
	// sees is where the member sees gateways of others, by cluster; observed is where they see its own, by name.
	sees     map[string][]v1alpha1.ObservedGateway
	observed map[string][]v1alpha1.ObservedAddress
	// nodes are those of a mesh, with their addresses and the family of all of them, and wantsMesh says that somebody
	// chose the mode Mesh for a pair with the member.
	nodes     []v1alpha1.MeshNode
	addresses []netip.Addr
	family    string
	wantsMesh bool
	accepted  bool
	// block of global addresses, if it has one, and whether it is in the Member's record. Others know the member by it:
	// all of them, or its rivals, whose networks it overlaps.
	block           netip.Prefix
	recorded, toAll bool
	// blockIPv6 is what the block has of IPv6, and recordedIPv6 says that this is recorded.
	blockIPv6    netip.Prefix
	recordedIPv6 bool
	rivals       map[string]bool
	// failed are the revisions of node agents that have failed there.
	failed []string
	// remote is what the others are told.
	remote v1alpha1.RemoteCluster
	// reason and message of the Accepted condition.
	reason, message string
	problems        []v1alpha1.Problem
}

func (s *state) name() string { return s.Record.Name }

func (s *state) active() bool { return s.Record.Spec.Phase == v1alpha1.MemberActive }

func (s *state) problem(reason, message string) {
	s.problems = append(s.problems, v1alpha1.Problem{Cluster: s.name(), Reason: reason, Message: bounded(message)})
}

// Decide is pure. What a member has once been given it keeps: a later claim, whoever makes it, is
// weighed against what is in force.
func Decide(in Input) Decision {
	states := order(in.Members)
	taken := newSpaces(in, states)
	for _, s := range states {
		if restore(s, taken); s.accepted {
			taken.take(s)
		}
	}
	allowed := claim.LimitsOf(&in.Set)
	for _, s := range states {
		if s.active() {
			admit(s, allowed, taken)
			grandfather(s, allowed)
			taken.keepsMode(s)
		}
	}
	taken.findRivals(states)
	keys := keysOf(states)
	for _, s := range states {
		if s.active() {
			admitEndpoints(s, taken.others(s, keys))
		}
	}
	for _, s := range states {
		s.sees = sightings(s, taken.states)
	}
	for _, s := range states {
		s.observed = observed(s, states, taken.others(s, keys))
	}
	relays, problems := relaysOf(in, taken)
	in.Problems = slices.Concat(in.Problems, problems)
	meshes := meshesOf(in, relays, taken.states, taken.shared.Routed(), keys)
	for _, s := range states {
		s.failed = s.failedRevisions()
	}
	for _, s := range states {
		complain(s)
		if s.active() {
			s.holds()
		}
		s.remote = v1alpha1.RemoteCluster{Name: s.name(), Networks: s.force.Networks(), Endpoints: nonNil(s.told())}
	}
	pairs := pairsOf(states, relays)
	t, order := tallyOf(pairs), rollOut(in, states, pairs)
	d := Decision{
		RollOut:  order,
		Peerings: map[string]v1alpha1.PeeringSpec{},
		Statuses: map[string]v1alpha1.MemberStatus{},
	}
	for _, s := range states {
		status := memberStatus(s, states, fabric{relays, meshes}, t.down, in.Now)
		status.RollOut = order.Records[s.name()]
		spec, changed := peering(in, s, states, status, taken, fabric{relays, meshes})
		if changed {
			d.Peerings[s.name()] = spec
		}
		status.Revision = spec.Revision
		d.Statuses[s.name()] = status
	}
	d.Set, d.UnknownPairs = setStatus(in, states, t, d.Statuses), int32(t.unknown)
	setRolledOut(&d.Set, order.Condition, in)
	d.Set.UnencryptedPairs = unencrypted(in, states)
	d.Set.GlobalBlocks = taken.ledger(in, states)
	return d
}

// order sorts members by who came first: those accepted by the time of it, then the rest by age.
func order(members []Member) []*state {
	states := make([]*state, 0, len(members))
	for _, m := range members {
		s := &state{Member: m}
		s.listen()
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b *state) int {
		x, y := a.Record.Status.AcceptedAt, b.Record.Status.AcceptedAt
		switch {
		case x != nil && y == nil:
			return -1
		case x == nil && y != nil:
			return 1
		case x != nil && !x.Equal(y):
			return x.Compare(y.Time)
		}
		return cmp.Or(a.Record.CreationTimestamp.Compare(b.Record.CreationTimestamp.Time), cmp.Compare(a.name(), b.name()))
	})
	return states
}

// restore puts the last good state in force, less what an earlier version accepted and this one does not: that
// must not cut off the rest. A record that contradicts itself, or that of one accepted earlier, was written by
// somebody else or comes from a backup, and counts as not accepted.
func restore(s *state, taken *spaces) {
	status := s.Record.Status
	if status.AcceptedAt == nil || !s.active() {
		return
	}
	c, _ := claim.Usable(status.Networks, status.NodeCIDRs)
	if len(c.Routed()) == 0 || c.Consistent() != nil || status.GlobalScope == v1alpha1.GlobalToAll && !s.toAll {
		return
	}
	s.force = c
	if taken.shared.Overlaps(s.name(), s.shared()) {
		s.force = claim.Claim{}
		return
	}
	s.endpoints, s.accepted = slices.Clone(status.Endpoints), true
	for i := range s.endpoints {
		s.endpoints[i].Observed = nil // what holds of it is found anew
	}
	s.accept()
}

func (s *state) accept() {
	s.accepted = true
	s.reason, s.message = v1alpha1.ReasonAccepted, "networks and gateways are known to the other members"
}

// refuse leaves in force what was accepted before.
func (s *state) refuse(reason, message string) {
	s.problem(reason, message)
	if s.accepted {
		reason, message = v1alpha1.ReasonKeptLastGood, message+"; what was accepted before stays in force"
	}
	s.reason, s.message = reason, bounded(message)
}

// admit weighs the networks that a member reports.
func admit(s *state, allowed claim.Limits, taken *spaces) {
	c, ok := reportedClaim(s)
	if !ok {
		return
	}
	// A list that gets narrower, maybe by mistake, cuts off nobody: only what is new is judged by it.
	if why := allowed.Outside(s.name(), c.Beyond(s.force)); why != "" {
		s.refuse(v1alpha1.ReasonNotAllowed, fmt.Sprintf("%s claims more than it may: %s", s.name(), why))
		return
	}
	name, why := taken.shared.Clash(s.name(), c)
	mode := taken.mode(s.name())
	toAll := s.toAll || !s.accepted && (mode == v1alpha1.GlobalnetOn || mode == v1alpha1.GlobalnetAuto && why != "")
	if why != "" && !toAll {
		s.refuse(v1alpha1.ReasonCIDROverlap, fmt.Sprintf(
			"%s is refused because of %s, accepted earlier: %s; give one of them other networks, or let them have global "+
				"addresses: see globalnet in the ClusterSet", s.name(), name, why))
		other := taken.states[name]
		other.message = bounded(fmt.Sprintf("%s stays connected; %s is refused: %s", name, s.name(), why))
		other.problem(v1alpha1.ReasonCIDROverlap, other.message)
		return
	}
	if reason, message := taken.admitGlobal(s, c, toAll); reason != "" {
		s.refuse(reason, message)
		return
	}
	if s.toAll && !s.recorded {
		s.reason, s.message = v1alpha1.ReasonGlobalCIDRRecorded, fmt.Sprintf(
			"%s gets the global CIDR %s, which is being recorded", s.name(), s.block)
		return
	}
	if s.accepted {
		taken.release(s)
	}
	s.force = c
	taken.take(s)
	s.accept()
}

// grandfather says that a member has what it could not claim today. It keeps it: a mistake in a list that all
// depend on would otherwise cut off every cluster at once.
func grandfather(s *state, allowed claim.Limits) {
	why := allowed.Outside(s.name(), s.force)
	if !s.accepted || why == "" {
		return
	}
	message := fmt.Sprintf("%s keeps what it may no longer claim: %s; to take the network from it, make it leave",
		s.name(), why)
	s.problem(v1alpha1.ReasonNotAllowed, message)
	if s.reason == v1alpha1.ReasonAccepted {
		s.message = bounded(message)
	}
}

// reportedClaim returns what a member reports, unless there is nothing, or nothing valid, to weigh.
func reportedClaim(s *state) (claim.Claim, bool) {
	switch {
	case s.Report.Problem != nil:
		s.refuse(s.Report.Problem.Reason, s.Report.Problem.Message)
		return claim.Claim{}, false
	case !s.Report.Known:
		if !s.accepted {
			s.reason, s.message = v1alpha1.ReasonWaitingForFacts, "the agent has not reported yet; see the pods in "+
				"sealane-system in the member"
		}
		return claim.Claim{}, false
	}
	reported := s.Report.Status
	if len(reported.Networks.PodCIDRs) == 0 || len(reported.Networks.ServiceCIDRs) == 0 {
		s.refuse(v1alpha1.ReasonWaitingForFacts, fmt.Sprintf(
			"%s reports no pod or no service network; state them in spec.clusters of the ClusterSet", s.name()))
		return claim.Claim{}, false
	}
	c, err := claim.Parse(reported.Networks, reported.NodeCIDRs)
	if err != nil {
		s.refuse(v1alpha1.ReasonInvalidNetworks, fmt.Sprintf("%s cannot have what it claims: %v", s.name(), err))
		return claim.Claim{}, false
	}
	return c, true
}

// keysOf returns the public keys in force, those of gateways and of nodes that were published for a mesh, and whose
// they are. Who has published a key keeps it, whoever else reports it now.
func keysOf(states []*state) map[string]string {
	keys := map[string]string{}
	for _, s := range states {
		for _, e := range s.endpoints {
			for _, key := range claim.KeysOf(e) {
				keys[key] = s.name()
			}
		}
	}
	for _, s := range states {
		s.keepNodeKeys(keys)
	}
	return keys
}

// keepNodeKeys notes the keys of nodes that a member has published for a mesh.
func (s *state) keepNodeKeys(keys map[string]string) {
	for _, n := range s.Record.Status.Nodes {
		if _, taken := keys[n.PublicKey]; !taken {
			keys[n.PublicKey] = s.name()
		}
	}
}

// admitEndpoints takes over the gateways that an accepted member reports, after all networks are known.
func admitEndpoints(s *state, others claim.Others) {
	if !s.accepted || !s.Report.Known {
		return
	}
	good, errs := claim.Endpoints(s.Report.Status.Endpoints, s.endpoints, others)
	keys := others.Keys
	for _, e := range s.endpoints {
		for _, key := range claim.KeysOf(e) {
			delete(keys, key)
		}
	}
	for _, e := range good {
		for _, key := range claim.KeysOf(e) {
			keys[key] = s.name()
		}
	}
	s.keepNodeKeys(keys)
	s.endpoints = good
	for _, err := range errs {
		s.problem(v1alpha1.ReasonInvalidEndpoints, fmt.Sprintf("%s reports a gateway that is left out: %v", s.name(), err))
	}
}
