// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
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
	var c claim
	for _, l := range []struct {
		what  string
		texts []string
		into  *[]netip.Prefix
	}{{"pod", n.PodCIDRs, &c.pods}, {"service", n.ServiceCIDRs, &c.services}, {"node", nodeCIDRs, &c.nodes}} {
		for _, text := range l.texts {
			p, err := parsePrefix(text)
			if err != nil {
				return claim{}, fmt.Errorf("%s network %q: %w", l.what, clip(text), err)
			}
			*l.into = append(*l.into, p)
		}
		slices.SortFunc(*l.into, comparePrefix)
		*l.into = slices.Compact(*l.into)
	}
	if p, q, ok := overlap(c.pods, c.services); ok {
		return claim{}, fmt.Errorf("pod network %s overlaps its own service network %s", p, q)
	}
	if p, q, ok := overlap(c.routed(), c.nodes); ok {
		return claim{}, fmt.Errorf("network %s covers its own node address %s; nodes cannot be reached through the tunnels", p, q)
	}
	return c, nil
}

// neverRouted may not be claimed, in part or as a whole.
func neverRouted() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/4"),
		netip.MustParsePrefix("255.255.255.255/32"),
		netip.MustParsePrefix("::/127"),
		netip.MustParsePrefix("::ffff:0:0/96"),
		netip.MustParsePrefix("fe80::/10"),
		netip.MustParsePrefix("ff00::/8"),
	}
}

// The widest networks accepted: wider ones come close to a default route. No cluster's own network is
// wider, since RFC 1918 has nothing wider than /8, and sites get /48 in IPv6.
const (
	widestIPv4 = 8
	widestIPv6 = 16
)

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("expected a CIDR such as 10.8.0.0/16: %w", err)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("host bits are set, expected %s", p.Masked())
	}
	if p.Bits() == 0 {
		return netip.Prefix{}, fmt.Errorf("a default route cannot be claimed")
	}
	widest := widestIPv6
	if p.Addr().Is4() {
		widest = widestIPv4
	}
	if p.Bits() < widest {
		return netip.Prefix{}, fmt.Errorf("wider than /%d, which no single cluster owns", widest)
	}
	for _, never := range neverRouted() {
		if p.Overlaps(never) {
			return netip.Prefix{}, fmt.Errorf("overlaps %s, which is never routed between clusters", never)
		}
	}
	return p, nil
}

func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// overlap returns the first pair of prefixes that overlap.
func overlap(a, b []netip.Prefix) (netip.Prefix, netip.Prefix, bool) {
	for _, p := range a {
		for _, q := range b {
			if p.Overlaps(q) {
				return p, q, true
			}
		}
	}
	return netip.Prefix{}, netip.Prefix{}, false
}

// clash says why two members cannot both have what they claim; "" if they can. The endpoints of other
// are nodes of it, whether it reports their addresses or not.
func clash(newcomer claim, other claim, otherEndpoints []netip.Addr) string {
	var found []string
	for _, c := range []struct {
		what     string
		ours, of []netip.Prefix
	}{
		{"network %s overlaps network %s", newcomer.routed(), other.routed()},
		{"network %s covers the node address %s", newcomer.routed(), other.nodes},
		{"its own node address %s is in network %s", newcomer.nodes, other.routed()},
	} {
		for _, p := range c.ours {
			for _, q := range c.of {
				if p.Overlaps(q) && len(found) < 5 {
					found = append(found, fmt.Sprintf(c.what, p, q))
				}
			}
		}
	}
	for _, p := range newcomer.routed() {
		for _, a := range otherEndpoints {
			if p.Contains(a) && len(found) < 5 {
				found = append(found, fmt.Sprintf("network %s covers the gateway address %s", p, a))
			}
		}
	}
	return strings.Join(found, ", ")
}

// clip bounds what is quoted from a member.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
