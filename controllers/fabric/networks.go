// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// claim is the part of the address space that one member asks for.
type claim struct {
	pods, services, nodes []netip.Prefix
}

// routed are the prefixes that the others would route to the member.
func (c claim) routed() []netip.Prefix { return slices.Concat(c.pods, c.services) }

func (c claim) networks() v1alpha1.Networks {
	return v1alpha1.Networks{PodCIDRs: stringsOf(c.pods), ServiceCIDRs: stringsOf(c.services)}
}

func stringsOf(prefixes []netip.Prefix) []string {
	out := make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}

// parseClaim parses the networks of one member, which may be valid while clashing with another's.
func parseClaim(n v1alpha1.Networks, nodeCIDRs []string) (claim, error) {
	c, err := usable(n, nodeCIDRs)
	if err != nil {
		return claim{}, err
	}
	return c, c.consistent()
}

// usable returns what of a member's networks can be used, and why the first that cannot is left out.
func usable(n v1alpha1.Networks, nodeCIDRs []string) (c claim, first error) {
	for _, l := range []struct {
		what  string
		texts []string
		parse func(string) (netip.Prefix, error)
		into  *[]netip.Prefix
	}{
		{"pod network", n.PodCIDRs, netfacts.ParsePrefix, &c.pods},
		{"service network", n.ServiceCIDRs, netfacts.ParsePrefix, &c.services},
		{"node address", nodeCIDRs, parseHost, &c.nodes},
	} {
		for _, text := range l.texts {
			p, err := l.parse(text)
			if err == nil {
				*l.into = append(*l.into, p)
			} else if first == nil {
				first = fmt.Errorf("%s %w", l.what, err)
			}
		}
		slices.SortFunc(*l.into, netfacts.Compare)
		*l.into = slices.Compact(*l.into)
	}
	return c, first
}

func parseHost(text string) (netip.Prefix, error) {
	a, err := netfacts.ParseHost(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netfacts.Host(a), nil
}

// consistent says what of a claim excludes what else of it.
func (c claim) consistent() error {
	var own netfacts.Owners
	for _, p := range c.services {
		own.Add(p, "its own service network")
	}
	for _, p := range c.pods {
		if other, ok := own.Overlap(p, ""); ok {
			return fmt.Errorf("pod network %s overlaps %s %s", p, other.Owner, other.Prefix)
		}
	}
	for _, p := range c.pods {
		own.Add(p, "its own pod network")
	}
	for _, p := range c.nodes {
		if other, ok := own.Overlap(p, ""); ok {
			return fmt.Errorf("node address %s is in %s %s; nodes cannot be reached through the tunnels",
				p.Addr(), other.Owner, other.Prefix)
		}
	}
	return nil
}

// space is what the accepted members have. Members that are accepted overlap in no network; their nodes, each
// in its own site, may well have the same addresses.
type space struct {
	routed, nodes, gateways netfacts.Owners
}

// take notes what a member has.
func (s *space) take(owner string, c claim, endpoints []v1alpha1.Endpoint) {
	s.each(c, endpoints, func(table *netfacts.Owners, p netip.Prefix) { table.Add(p, owner) })
}

// release forgets what a member had.
func (s *space) release(owner string, c claim, endpoints []v1alpha1.Endpoint) {
	s.each(c, endpoints, func(table *netfacts.Owners, p netip.Prefix) { table.Remove(p, owner) })
}

func (s *space) each(c claim, endpoints []v1alpha1.Endpoint, do func(*netfacts.Owners, netip.Prefix)) {
	for _, p := range c.routed() {
		do(&s.routed, p)
	}
	for _, p := range c.nodes {
		do(&s.nodes, p)
	}
	for _, a := range addressesOf(endpoints) {
		do(&s.gateways, netfacts.Host(a))
	}
}

// overlaps says whether another has a network that overlaps one of a claim's.
func (s *space) overlaps(owner string, c claim) bool {
	return slices.ContainsFunc(c.routed(), func(p netip.Prefix) bool {
		_, taken := s.routed.Overlap(p, owner)
		return taken
	})
}

// maxClashes is how many clashes a message names.
const maxClashes = 5

// clash says why a member cannot have what it claims beside what another, the first found, has; "" if it can.
// The gateways of others are nodes of theirs, whether they report their addresses or not.
func (s *space) clash(newcomer string, c claim) (other, why string) {
	var found []string
	for _, x := range []struct {
		what   string
		claims []netip.Prefix
		of     *netfacts.Owners
	}{
		{"network %s overlaps network %s", c.routed(), &s.routed},
		{"network %s covers the node address %s", c.routed(), &s.nodes},
		{"network %s covers the gateway address %s", c.routed(), &s.gateways},
		{"its own node address %s is in network %s", c.nodes, &s.routed},
	} {
		for _, p := range x.claims {
			for taken := range x.of.Overlapping(p, newcomer) {
				if other == "" {
					other = taken.Owner
				}
				if taken.Owner == other {
					found = append(found, fmt.Sprintf(x.what, p, taken.Prefix))
				}
				if len(found) == maxClashes {
					return other, strings.Join(found, ", ")
				}
			}
		}
	}
	return other, strings.Join(found, ", ")
}
