// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// String lists the plan as ip, wg and nft would list it. The tables are valid input to nft.
func (p Plan) String() string {
	var b strings.Builder
	b.WriteString(p.Active.String())
	lines(&b, "link ", p.Links)
	lines(&b, "address ", p.Addresses)
	for _, t := range p.Cables() {
		fmt.Fprintf(&b, "tunnel %v\n", t)
		for _, peer := range t.Peers {
			fmt.Fprintf(&b, "  peer %v\n", peer)
		}
	}
	lines(&b, "fdb ", p.FDB)
	lines(&b, "neighbour ", p.Neighbours)
	lines(&b, "route ", p.Routes)
	lines(&b, "rule ", p.Rules)
	lines(&b, "forward ", accepts(p))
	lines(&b, "", p.Tables)
	return b.String()
}

func lines[E fmt.Stringer](b *strings.Builder, prefix string, elements []E) {
	for _, e := range elements {
		fmt.Fprintf(b, "%s%s\n", prefix, e)
	}
}

// String names the operation and the element, on one line.
func (c Change) String() string {
	switch e := c.Element.(type) {
	case Table:
		return fmt.Sprintf("%s table %s %s", c.Op, e.Family, TableName)
	case Link:
		if c.Op == Delete {
			return fmt.Sprintf("%s link %s", c.Op, e.Name)
		}
	}
	return fmt.Sprintf("%s %s %s", c.Op, c.Kind, c.Element)
}

func (l Link) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s mtu %d", l.Name, l.MTU)
	if l.MAC != "" {
		fmt.Fprintf(&b, " address %s", l.MAC)
	}
	fmt.Fprintf(&b, " type %s", cmp.Or(l.Driver, string(l.Kind)))
	if l.Kind == VXLAN {
		fmt.Fprintf(&b, " id %d local %s dstport %d nolearning", l.VNI, l.Local, l.Port)
	}
	fmt.Fprintf(&b, " rp_filter %d disable_ipv6 %d", l.RPFilter, map[bool]int{true: 1}[l.DisableIPv6])
	return b.String()
}

func (a Address) String() string {
	if a.LinkScope {
		return fmt.Sprintf("%s dev %s scope link", a.Prefix, a.Link)
	}
	return fmt.Sprintf("%s dev %s", a.Prefix, a.Link)
}

func (n Neighbour) String() string {
	return fmt.Sprintf("%s dev %s lladdr %s nud permanent", n.IP, n.Link, n.MAC)
}

func (f FDBEntry) String() string {
	return fmt.Sprintf("%s dev %s dst %s self permanent", f.MAC, f.Link, f.Dst)
}

func (r Route) String() string {
	var b strings.Builder
	if r.Type != Unicast {
		fmt.Fprintf(&b, "%s ", r.Type)
	}
	fmt.Fprintf(&b, "%s", r.Dst)
	if len(r.NextHops) == 1 {
		b.WriteString(r.NextHops[0].path(r.Dst))
	}
	fmt.Fprintf(&b, " table %d proto %d", r.Table, Protocol)
	if r.Source.IsValid() {
		fmt.Fprintf(&b, " src %s", r.Source)
	}
	fmt.Fprintf(&b, " metric %d", r.Metric)
	if r.MTU > 0 {
		b.WriteString(" mtu ")
		if r.MTULock {
			b.WriteString("lock ")
		}
		fmt.Fprint(&b, r.MTU)
	}
	if len(r.NextHops) == 1 {
		b.WriteString(r.NextHops[0].flags())
		return b.String()
	}
	for _, h := range r.NextHops {
		fmt.Fprintf(&b, " nexthop%s weight %d%s", h.path(r.Dst), h.Weight, h.flags())
	}
	return b.String()
}

// path as iproute2 writes it in a route to a destination.
func (h NextHop) path(dst netip.Prefix) string {
	if h.Via.Is6() && dst.Addr().Is4() {
		return fmt.Sprintf(" via inet6 %s dev %s", h.Via, h.Link)
	}
	if h.Via.IsValid() {
		return fmt.Sprintf(" via %s dev %s", h.Via, h.Link)
	}
	return " dev " + h.Link
}

func (h NextHop) flags() string {
	if h.Via.IsValid() {
		return " onlink"
	}
	return ""
}

func (r Rule) String() string {
	var b strings.Builder
	from := "all"
	if r.From.IsValid() {
		from = r.From.String()
	}
	fmt.Fprintf(&b, "%s %d: from %s", r.Family, r.Priority, from)
	if r.Mask != 0 {
		fmt.Fprintf(&b, " fwmark %#x/%#x", r.Mark, r.Mask)
	}
	if r.IIF != "" {
		fmt.Fprintf(&b, " iif %s", r.IIF)
	}
	fmt.Fprintf(&b, " lookup %d", r.Table)
	return b.String()
}

// String has a line for the local cluster and for each remote one.
func (a Active) String() string {
	var b strings.Builder
	if len(a.Gateways) > 0 {
		fmt.Fprintf(&b, "active gateways %s\n", strings.Join(a.Gateways, " "))
	}
	for _, cluster := range slices.Sorted(maps.Keys(a.Remotes)) {
		fmt.Fprintf(&b, "active remote %s slots %v\n", cluster, a.Remotes[cluster])
	}
	for _, cluster := range slices.Sorted(maps.Keys(a.Siblings)) {
		fmt.Fprintf(&b, "active remote %s by sibling %s\n", cluster, strings.Join(a.Siblings[cluster], " "))
	}
	for _, cluster := range slices.Sorted(maps.Keys(a.Straight)) {
		fmt.Fprintf(&b, "active remote %s straight to %s\n", cluster, strings.Join(a.Straight[cluster], " "))
	}
	return b.String()
}

func (t Tunnel) String() string {
	return fmt.Sprintf("%s id %s listening port %d", t.Link, t.ID, t.ListenPort)
}

func (p Peer) String() string {
	var b strings.Builder
	b.WriteString(p.ID.String())
	if p.Cluster != "" {
		fmt.Fprintf(&b, " (%s/%s)", p.Cluster, p.Node)
	}
	if p.Active {
		b.WriteString(" active")
	}
	if p.Endpoint.IsValid() {
		fmt.Fprintf(&b, " endpoint %s", p.Endpoint)
	}
	if len(p.Candidates) > 0 {
		fmt.Fprintf(&b, " candidates %s", join(p.Candidates))
	}
	fmt.Fprintf(&b, " allowed ips %s keepalive %d", join(p.AllowedIPs), p.KeepaliveSeconds)
	return b.String()
}

func (p TunnelPeer) String() string { return p.Link + " " + p.Peer.String() }

func (f ForwardAccept) String() string {
	return fmt.Sprintf("%s accept %s* mark %#x/%#x", f.Family, LinkPrefix, ForwardMark, ForwardMark)
}

func (f ConntrackFlush) String() string {
	text := "flush " + join(f.Prefixes)
	if f.Translated {
		text += " from a source translated to none of " + join(f.Local)
	}
	if len(f.From) > 0 {
		text += " that services led to from " + join(f.From)
	}
	return text
}

// String is valid input to nft -f.
func (t Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", t.Family, TableName)
	for _, s := range t.Sets {
		fmt.Fprintf(&b, "\tset %s {\n\t\ttype %s\n\t\tflags interval\n\t\telements = { %s }\n\t}\n",
			s.Name, map[Family]string{IPv4: "ipv4_addr", IPv6: "ipv6_addr"}[t.Family], join(s.Elements))
	}
	for _, m := range t.Maps {
		fmt.Fprintf(&b, "\tmap %s {\n\t\ttype %s : %s\n", m.Name, m.Key, m.Value)
		if len(m.Elements) > 0 {
			fmt.Fprintf(&b, "\t\telements = { %s }\n", join(m.Elements))
		}
		b.WriteString("\t}\n")
	}
	for _, c := range t.Chains {
		if c.Hook == "" {
			fmt.Fprintf(&b, "\tchain %s {\n\t\t%s\n\t}\n", c.Name, strings.Join(c.Rules, "\n\t\t"))
			continue
		}
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype %s hook %s priority %s; policy accept;\n",
			c.Name, c.Type, c.Hook, strings.TrimSpace(strings.NewReplacer("-", " - ", "+", " + ").Replace(c.Priority)))
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}")
	return b.String()
}

func (e MapElement) String() string { return e.Key + " : " + e.Value }

func join[E netip.Prefix | netip.AddrPort | MapElement](elements []E) string {
	texts := make([]string, len(elements))
	for i, e := range elements {
		texts[i] = fmt.Sprint(e)
	}
	return strings.Join(texts, ", ")
}
