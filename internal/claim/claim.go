// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Claim is the part of the address space that one member asks for.
type Claim struct {
	Pods, Services, Nodes []netip.Prefix
}

// Routed are the prefixes that the others would route to the member.
func (c Claim) Routed() []netip.Prefix { return slices.Concat(c.Pods, c.Services) }

// Networks of a claim as they are written in a Member and in a Peering; no list is nil.
func (c Claim) Networks() v1alpha1.Networks {
	return v1alpha1.Networks{PodCIDRs: stringsOf(c.Pods), ServiceCIDRs: stringsOf(c.Services)}
}

// NodeCIDRs are the node addresses of a claim, each a /32 or /128; the list is never nil.
func (c Claim) NodeCIDRs() []string { return stringsOf(c.Nodes) }

func stringsOf(prefixes []netip.Prefix) []string {
	out := make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}

// Parse parses the networks of one member, which may be valid while clashing with another's.
func Parse(n v1alpha1.Networks, nodeCIDRs []string) (Claim, error) {
	c, err := Usable(n, nodeCIDRs)
	if err != nil {
		return Claim{}, err
	}
	return c, c.Consistent()
}

// Usable returns what of a member's networks can be used, and why the first that cannot is left out.
func Usable(n v1alpha1.Networks, nodeCIDRs []string) (c Claim, first error) {
	for _, l := range []struct {
		what  string
		texts []string
		parse func(string) (netip.Prefix, error)
		into  *[]netip.Prefix
	}{
		{"pod network", n.PodCIDRs, netfacts.ParsePrefix, &c.Pods},
		{"service network", n.ServiceCIDRs, netfacts.ParsePrefix, &c.Services},
		{"node address", nodeCIDRs, parseHost, &c.Nodes},
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

// Consistent says what of a claim excludes what else of it.
func (c Claim) Consistent() error {
	var own netfacts.Owners
	for _, p := range c.Services {
		own.Add(p, "its own service network")
	}
	for _, p := range c.Pods {
		if other, ok := own.Overlap(p, ""); ok {
			return fmt.Errorf("pod network %s overlaps %s %s", p, other.Owner, other.Prefix)
		}
	}
	for _, p := range c.Pods {
		own.Add(p, "its own pod network")
	}
	for _, p := range c.Nodes {
		if other, ok := own.Overlap(p, ""); ok {
			return fmt.Errorf("node address %s is in %s %s; nodes cannot be reached through the tunnels",
				p.Addr(), other.Owner, other.Prefix)
		}
	}
	return nil
}

// Beyond returns what of a claim's networks lies outside of those that another has.
func (c Claim) Beyond(had Claim) Claim {
	if slices.Equal(c.Pods, had.Pods) && slices.Equal(c.Services, had.Services) {
		return Claim{}
	}
	set := netfacts.Set(had.Routed())
	without := func(list []netip.Prefix) (out []netip.Prefix) {
		for _, p := range list {
			if !set.ContainsPrefix(p) {
				out = append(out, p)
			}
		}
		return out
	}
	return Claim{Pods: without(c.Pods), Services: without(c.Services)}
}
