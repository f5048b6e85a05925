// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/ipam"
	"github.com/sealane-io/sealane/internal/claim"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// spaces are who has which part of the address space. What is shared is routed by everybody: no two members have
// the same of it. What is real is what members use at home, where those that have global addresses may overlap.
type spaces struct {
	shared, real claim.Space
	blocks       *ipam.Blocks
	globalnet    v1alpha1.GlobalnetSpec
	stated       map[string]v1alpha1.GlobalnetOverride
	states       map[string]*state
	// used says that a member has a block or may get one: else there is nothing to weigh.
	used bool
}

func newSpaces(in Input, states []*state) *spaces {
	w := &spaces{globalnet: in.Set.Spec.Globalnet, stated: map[string]v1alpha1.GlobalnetOverride{},
		states: map[string]*state{}}
	// A pool that is not valid is a problem of the settings; nothing is taken from it.
	pool, _ := globalnet.PoolOf(w.globalnet)
	w.blocks = ipam.NewBlocks(pool)
	for _, c := range in.Set.Spec.Clusters {
		w.stated[c.Name] = c.Globalnet
		w.used = w.used || w.mode(c.Name) != v1alpha1.GlobalnetOff
	}
	w.used = w.used || w.mode("") != v1alpha1.GlobalnetOff || slices.ContainsFunc(states, func(s *state) bool {
		return s.Record.Status.GlobalCIDR != ""
	})
	for _, s := range states {
		w.states[s.name()] = s
		w.restoreBlock(s)
	}
	for _, e := range in.Set.Status.GlobalBlocks {
		if block, err := netfacts.ParseGlobal(e.CIDR); err == nil {
			w.blocks.Keep(e.Cluster, block)
		}
	}
	return w
}

// restoreBlock takes over the block that is recorded for a member, unless one that came earlier has part of it.
func (w *spaces) restoreBlock(s *state) {
	status := s.Record.Status
	block, err := netfacts.ParseGlobal(status.GlobalCIDR)
	if err != nil || !s.active() {
		return
	}
	if stated, err := netfacts.ParseGlobal(w.stated[s.name()].CIDR); status.AcceptedAt == nil &&
		(w.mode(s.name()) == v1alpha1.GlobalnetOff || err == nil && stated != block) {
		return // nobody knows it by this block, and it is to have another, or none
	}
	if _, ok := w.blocks.Take(s.name(), block); ok {
		s.block, s.recorded = block, true
		s.toAll = status.GlobalScope == v1alpha1.GlobalToAll
		s.blockIPv6 = w.blocks.IPv6(block)
		if recorded, err := globalnet.ParseIPv6(status.GlobalIPv6CIDR, block); err == nil {
			s.blockIPv6, s.recordedIPv6 = recorded, true
		}
		w.blocks.TakeIPv6(s.name(), s.blockIPv6)
	}
}

// take puts a member's networks in force.
func (w *spaces) take(s *state) {
	w.shared.Take(s.name(), s.shared(), s.endpoints)
	if w.used {
		w.real.Take(s.name(), s.force, s.endpoints)
		w.avoid(s.name(), s.force)
	}
}

func (w *spaces) release(s *state) {
	w.shared.Release(s.name(), s.shared(), s.endpoints)
	w.real.Release(s.name(), s.force, s.endpoints)
}

// avoid keeps blocks out of the networks of a cluster: its nodes route the blocks of others.
func (w *spaces) avoid(cluster string, c claim.Claim) { eachNetwork(cluster, c, w.blocks.Avoid) }

// reclaim lets blocks be in networks that a cluster claims and does not get.
func (w *spaces) reclaim(cluster string, c claim.Claim) { eachNetwork(cluster, c, w.blocks.Reclaim) }

func eachNetwork(cluster string, c claim.Claim, do func(network netip.Prefix, what string)) {
	for what, prefixes := range map[string][]netip.Prefix{"pods": c.Pods, "services": c.Services, "a node": c.Nodes} {
		for _, p := range prefixes {
			do(p, what+" of cluster "+cluster)
		}
	}
}

// mode of a cluster's global addresses.
func (w *spaces) mode(cluster string) v1alpha1.GlobalnetMode {
	return cmp.Or(w.stated[cluster].Mode, w.globalnet.Mode, v1alpha1.GlobalnetOff)
}

// shared is what the others may route to a member: its own networks unless all know it by its block.
func (s *state) shared() claim.Claim {
	c := s.force
	if s.toAll {
		c = claim.Claim{Nodes: s.force.Nodes}
	}
	c.Pods = append(slices.Clip(c.Pods), s.blocks()...)
	return c
}

// blocks are a member's block and what it has of IPv6.
func (s *state) blocks() []netip.Prefix {
	return slices.DeleteFunc([]netip.Prefix{s.block, s.blockIPv6}, func(p netip.Prefix) bool { return !p.IsValid() })
}

// assign gives those of the members a block that have none, or nobody. Nobody is told of it before it is recorded:
// after a crash another could get it. It returns who has got one.
func (w *spaces) assign(names []string) ([]*state, error) {
	var without []*state
	var wants []ipam.Want
	for _, name := range names {
		if s := w.states[name]; !s.block.IsValid() {
			stated, _ := netfacts.ParseGlobal(w.stated[name].CIDR)
			without, wants = append(without, s), append(wants, ipam.Want{Cluster: name, Stated: stated})
		}
	}
	blocks, err := w.blocks.AssignAll(wants)
	if err != nil {
		return nil, err
	}
	for i, s := range without {
		s.block, s.blockIPv6 = blocks[i], w.blocks.IPv6(blocks[i])
		w.blocks.TakeIPv6(s.name(), s.blockIPv6)
	}
	return without, nil
}

// others is what a member's gateways cannot have. Of one that gets no block this is also what others use at home, since
// the two could not know each other.
func (w *spaces) others(s *state, keys map[string]string) claim.Others {
	out := claim.Others{Cluster: s.name(), Keys: keys, Routed: w.shared.Routed()}
	if w.used && !s.block.IsValid() && w.mode(s.name()) == v1alpha1.GlobalnetOff {
		out.Home = w.real.Routed()
	}
	return out
}

// admitGlobal weighs what a member claims beside those that it overlaps: each of a pair that overlaps needs a block,
// for neither can tell the other's addresses from its own. It returns a reason and a message if that cannot be.
func (w *spaces) admitGlobal(s *state, c claim.Claim, toAll bool) (reason, message string) {
	if !w.used {
		return "", ""
	}
	for _, p := range slices.Concat(c.Routed(), c.Nodes) {
		if other, ok := w.blocks.Overlaps(p, ""); ok {
			return v1alpha1.ReasonCIDROverlap, fmt.Sprintf("%s is refused: its network %s overlaps %s, the block of global "+
				"addresses of %s; give one of them another", s.name(), p, other.Prefix, other.Owner)
		}
	}
	rivals := w.real.Rivals(s.name(), c)
	if len(rivals) == 0 && !toAll {
		return "", ""
	}
	for _, name := range append([]string{s.name()}, rivals...) {
		m := w.states[name]
		if !m.block.IsValid() && w.mode(name) == v1alpha1.GlobalnetOff {
			return v1alpha1.ReasonCIDROverlap, fmt.Sprintf("%s is refused because it overlaps %s, and globalnet is Off for %s; "+
				"set its mode to Auto in spec.clusters[].globalnet, or give one of them other networks", s.name(), rivals[0], name)
		}
	}
	w.avoid(s.name(), c)
	got, err := w.assign(append([]string{s.name()}, rivals...))
	if err != nil {
		w.reclaim(s.name(), c)
		w.avoid(s.name(), s.force)
		return ipam.Reason(err), fmt.Sprintf("%s is refused: %v", s.name(), err)
	}
	for _, m := range got {
		if m != s && m.accepted {
			w.shared.Take(m.name(), claim.Claim{Pods: m.blocks()}, nil)
		}
	}
	s.toAll = s.toAll || toAll
	return "", ""
}

// keepsMode says that a member keeps the addresses it was accepted with, though others are stated for it now: a
// change of what its peers know it by ends every connection of the cluster.
func (w *spaces) keepsMode(s *state) {
	if !s.accepted || !s.active() {
		return
	}
	stated, err := netfacts.ParseGlobal(w.stated[s.name()].CIDR)
	has := "its own networks"
	if s.toAll {
		has = "the global CIDR " + s.block.String()
	}
	var wants string
	switch mode := w.mode(s.name()); {
	case mode == v1alpha1.GlobalnetOff && s.block.IsValid():
		wants = "globalnet Off"
	case mode == v1alpha1.GlobalnetOn && !s.toAll:
		wants = "globalnet On"
	case mode != v1alpha1.GlobalnetOff && err == nil && s.block.IsValid() && s.block != stated:
		wants, has = "the global CIDR "+stated.String(), "the global CIDR "+s.block.String()
	default:
		return
	}
	s.problem(v1alpha1.ReasonGlobalnetChanged, fmt.Sprintf("%s keeps %s until it leaves and joins: %s is stated for it",
		s.name(), has, wants))
}

// overlap says whether two members do, so that each knows the other by its block.
func overlap(a, b *state) bool { return a.rivals[b.name()] || b.rivals[a.name()] }

// translates says whether one of two members knows the other by its block.
func translates(a, b *state) bool { return a.toAll || b.toAll || overlap(a, b) }

// tell returns what one member should know of another, of what it would be told without global addresses; it is false
// while the two must not know each other. Where gateways translate, nobody asks for nodes.
func (w *spaces) tell(s, other *state, remote v1alpha1.RemoteCluster) (v1alpha1.RemoteCluster, bool) {
	rivals := overlap(s, other)
	translated, byBlock := s.toAll || rivals, other.toAll || rivals
	if translated && !s.recorded || byBlock && !other.recorded {
		return v1alpha1.RemoteCluster{}, false
	}
	remote.Translated = translated
	if translated || byBlock {
		remote.Topology = ""
	}
	if byBlock {
		remote.Networks, remote.GlobalCIDR = claim.Claim{}.Networks(), other.block.String()
		remote.GlobalIPv6CIDR = other.toldIPv6()
	}
	return remote, true
}

// findRivals notes which members overlap; none do where nobody has a block.
func (w *spaces) findRivals(states []*state) {
	for _, s := range states {
		if !s.accepted {
			continue
		}
		for _, name := range w.real.Rivals(s.name(), s.force) {
			if s.rivals == nil {
				s.rivals = map[string]bool{}
			}
			s.rivals[name] = true
		}
	}
}

// ledger is the record of the blocks that members have and that are kept for others.
func (w *spaces) ledger(in Input, states []*state) []v1alpha1.GlobalBlock {
	held := map[string]netip.Prefix{}
	for _, s := range states {
		if s.active() && s.block.IsValid() {
			held[s.name()] = s.block
		}
	}
	if len(held) == 0 && len(in.Set.Status.GlobalBlocks) == 0 {
		return nil
	}
	routed := func(block netip.Prefix) bool {
		return slices.ContainsFunc(states, func(s *state) bool { return s.mayRoute(block) })
	}
	return ipam.Ledger(in.Set.Status.GlobalBlocks, held, routed, in.Now)
}

// mayRoute says whether a member routes a block, or may do so since it has not answered what it was told last.
func (s *state) mayRoute(block netip.Prefix) bool {
	if s.Sent == nil {
		return false
	}
	if s.Report.Status.ObservedRevision < s.Sent.Revision {
		return true
	}
	return slices.ContainsFunc(s.Sent.RemoteClusters, func(r v1alpha1.RemoteCluster) bool {
		p, err := netfacts.ParseGlobal(r.GlobalCIDR)
		return err == nil && p.Overlaps(block)
	})
}

// toldIPv6 is what members are told that a block has of IPv6: what is recorded.
func (s *state) toldIPv6() string {
	if !s.recordedIPv6 {
		return ""
	}
	return s.blockIPv6.String()
}

// globalIPv6 returns what a member's block has of IPv6, as it is recorded.
func (s *state) globalIPv6() string {
	if !s.blockIPv6.IsValid() {
		return ""
	}
	return s.blockIPv6.String()
}

// global returns a member's block and who knows it by that, as they are recorded.
func (s *state) global() (string, v1alpha1.GlobalScope) {
	switch {
	case !s.block.IsValid():
		return "", ""
	case s.toAll:
		return s.block.String(), v1alpha1.GlobalToAll
	}
	return s.block.String(), v1alpha1.GlobalToOverlapping
}

// external is where the hosts outside all clusters are that a member may export.
func external(set v1alpha1.ClusterSet, cluster string) []string {
	for _, c := range set.Spec.Clusters {
		if c.Name == cluster {
			return slices.Clone(c.ExternalCIDRs)
		}
	}
	return nil
}
