// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// maxWatched is how many nodes are watched at most.
const maxWatched = 24

// Spot is a node of a cluster.
type Spot struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
}

func (s Spot) String() string { return s.Cluster + "/" + s.Node }

// Target is what a probe of a packet's way is sent to, and where that may pass.
type Target struct {
	// Host is a name or an address; "" where the way ends before that is known.
	Host string
	// Port is without a number where none was asked for and the objects do not have it.
	Port Port
	IPv6 bool
	// Source is the node that the packet starts on; Addresses are those of its pod, none of a node.
	Source    Spot
	Addresses []netip.Addr
	// Spots are the nodes that the packet may pass, the source's first, maxWatched at most.
	Spots []Spot
	// LookUp are addresses that the destination is translated to.
	LookUp []netip.Addr
	// Clusters that an answer may come from.
	Clusters []string
	// owners are the nodes of what the destination is translated to, as far as they are known.
	owners map[netip.Addr]Spot
	// next is the node that the explanation has behind each.
	next map[Spot]Spot
}

// Aim explains a request, and says what a probe for it has to be sent to.
func Aim(f *Fleet, r Request) (Explanation, Target) {
	x := explained(f, r)
	t := Target{Source: Spot{r.From.Cluster, x.node}, Addresses: r.From.Addresses, Port: x.request.Port,
		next: map[Spot]Spot{}, owners: map[netip.Addr]Spot{}}
	if x.from == nil {
		return x.out, t
	}
	t.Host, t.Port = x.host()
	clusters := []string{r.From.Cluster}
	if r.To != nil {
		clusters = append(clusters, r.To.Cluster)
		t.Clusters = append(t.Clusters, r.To.Cluster)
	}
	spots := []Spot{t.Source}
	for i := range x.ways {
		w := &x.ways[i]
		t.IPv6 = i == 0 && plan.FamilyOf(w.leg.dst) == plan.IPv6 || i > 0 && t.IPv6
		for _, a := range append([]netip.Addr{w.leg.dst}, w.targets...) {
			if !slices.Contains(t.LookUp, a) {
				t.LookUp = append(t.LookUp, a)
			}
		}
		clusters = append(clusters, w.leg.cluster)
		if w.leg.cluster != "" {
			t.Clusters = append(t.Clusters, w.leg.cluster)
		}
		last := Spot{}
		for _, hop := range w.hops {
			cluster, node, isNode := strings.Cut(hop, "/")
			if !isNode {
				continue
			}
			s := Spot{cluster, node}
			if last.Node != "" && last != s {
				t.next[last] = s
			}
			spots, last = append(spots, s), s
		}
		if n := x.network(w.leg.cluster); n != nil {
			for _, a := range append([]netip.Addr{w.leg.dst}, w.targets...) {
				if owner := n.owner(a); owner != "" {
					t.owners[a] = Spot{n.Name, owner}
					spots = append(spots, t.owners[a])
				}
			}
		}
	}
	for _, cluster := range clusters {
		if n := x.network(cluster); n != nil && n.Unread == "" {
			for _, g := range n.top.Local.Gateways {
				spots = append(spots, Spot{n.Name, g.Node})
			}
		}
	}
	for _, s := range spots {
		if s.Node != "" && !slices.Contains(t.Spots, s) {
			t.Spots = append(t.Spots, s)
		}
	}
	t.Spots = t.Spots[:min(len(t.Spots), maxWatched)]
	return x.out, t
}

// host is what the source would connect to: the name that it looks up, or an address.
func (x *explainer) host() (string, Port) {
	r, port := &x.request, x.request.Port
	first := func(namespace, name string) {
		if im := x.from.imported(namespace, name); im != nil && port.Number == 0 {
			if p, _ := servicePort(im.Settings.Ports, port); p != nil {
				port = Port{Number: uint16(p.Port), Protocol: p.Protocol}
			}
		}
	}
	switch {
	case r.Name != nil:
		first(r.Name.Name.Namespace, r.Name.Name.Service)
		name := r.Name.Name.FQDN
		if n := &r.Name.Name; n.Protocol != "" { // _port._protocol. is of SRV records
			_, name, _ = strings.Cut(strings.TrimPrefix(name, "_"), "._")
			_, name, _ = strings.Cut(name, ".")
		}
		return name, port
	case r.To != nil && len(x.ways) > 0:
		return x.ways[0].leg.dst.String(), port
	case r.To != nil:
		for _, a := range x.hostAddresses() {
			return a.String(), port
		}
		return "", port
	}
	if im := x.from.importAt(r.Address); im != nil {
		first(im.Namespace, im.Name)
	}
	return r.Address.String(), port
}

// hostAddresses are those of a destination to which the objects have no way: a pod's own, or its node's.
func (x *explainer) hostAddresses() []netip.Addr {
	to := x.request.To
	all := slices.Clone(to.Addresses)
	if n := x.network(to.Cluster); to.Host && n != nil {
		node, _ := n.node(to.Node)
		all = append(all, node.Addresses...)
	}
	return slices.DeleteFunc(all, func(a netip.Addr) bool {
		_, has := x.sourceOf(a)
		return !has
	})
}

// Supported says whether a probe can be sent by a protocol.
func (p Port) Supported() bool {
	return p.Protocol == corev1.ProtocolTCP || p.Protocol == corev1.ProtocolUDP
}
