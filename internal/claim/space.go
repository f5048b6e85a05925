// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Space is what the accepted members have. Members that are accepted overlap in no network; their nodes, each
// in its own site, may well have the same addresses.
type Space struct {
	routed, nodes, gateways netfacts.Owners
}

// Routed are the networks of the accepted members, by their owners.
func (s *Space) Routed() *netfacts.Owners { return &s.routed }

// Take notes what a member has.
func (s *Space) Take(owner string, c Claim, endpoints []v1alpha1.Endpoint) {
	s.each(c, endpoints, func(table *netfacts.Owners, p netip.Prefix) { table.Add(p, owner) })
}

// Release forgets what a member had.
func (s *Space) Release(owner string, c Claim, endpoints []v1alpha1.Endpoint) {
	s.each(c, endpoints, func(table *netfacts.Owners, p netip.Prefix) { table.Remove(p, owner) })
}

func (s *Space) each(c Claim, endpoints []v1alpha1.Endpoint, do func(*netfacts.Owners, netip.Prefix)) {
	for _, p := range c.Routed() {
		do(&s.routed, p)
	}
	for _, p := range c.Nodes {
		do(&s.nodes, p)
	}
	for _, a := range addressesOf(endpoints) {
		do(&s.gateways, netfacts.Host(a))
	}
}

// Overlaps says whether another has a network that overlaps one of a claim's.
func (s *Space) Overlaps(owner string, c Claim) bool {
	return slices.ContainsFunc(c.Routed(), func(p netip.Prefix) bool {
		_, taken := s.routed.Overlap(p, owner)
		return taken
	})
}

// Rivals returns whose networks, nodes or gateways clash with a claim, sorted by name.
func (s *Space) Rivals(newcomer string, c Claim) []string {
	found := map[string]bool{}
	s.clashes(newcomer, c, func(_ string, _ netip.Prefix, taken netfacts.Owned) bool {
		found[taken.Owner] = true
		return true
	})
	return slices.Sorted(maps.Keys(found))
}

// maxClashes is how many clashes a message names.
const maxClashes = 5

// Clash says why a member cannot have what it claims beside what another, the first found, has; "" if it can.
// The gateways of others are nodes of theirs, whether they report their addresses or not.
func (s *Space) Clash(newcomer string, c Claim) (other, why string) {
	var found []string
	s.clashes(newcomer, c, func(what string, p netip.Prefix, taken netfacts.Owned) bool {
		if other == "" {
			other = taken.Owner
		}
		if taken.Owner == other {
			found = append(found, fmt.Sprintf(what, p, taken.Prefix))
		}
		return len(found) < maxClashes
	})
	return other, strings.Join(found, ", ")
}

// clashes calls found with each prefix of a claim and what of another's it cannot be beside, until that returns false.
func (s *Space) clashes(newcomer string, c Claim, found func(what string, p netip.Prefix, taken netfacts.Owned) bool) {
	for _, x := range []struct {
		what   string
		claims []netip.Prefix
		of     *netfacts.Owners
	}{
		{"network %s overlaps network %s", c.Routed(), &s.routed},
		{"network %s covers the node address %s", c.Routed(), &s.nodes},
		{"network %s covers the gateway address %s", c.Routed(), &s.gateways},
		{"its own node address %s is in network %s", c.Nodes, &s.routed},
	} {
		for _, p := range x.claims {
			for taken := range x.of.Overlapping(p, newcomer) {
				if !found(x.what, p, taken) {
					return
				}
			}
		}
	}
}
