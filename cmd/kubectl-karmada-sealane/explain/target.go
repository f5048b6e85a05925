// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/trace"
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
	// Spots are the nodes that the packet may pass, the source's first, maxWatched at most; Cut are those above that.
	Spots, Cut []Spot
	// Clusters that an answer may come from.
	Clusters []string
	// lookUps are the destinations that the packet may have on nodes of a cluster.
	lookUps map[string][]netip.Addr
	// ends are where a destination is, as nodes of a cluster have it; without a node where the objects name none.
	ends map[view]Spot
	// gateways of the clusters that it may pass.
	gateways map[string][]Spot
	// next is the node that the explanation has behind each.
	next map[Spot]Spot
}

// view of an address in a cluster: others may have it, too.
type view struct {
	cluster string
	addr    netip.Addr
}

// Aim explains a request, and says what a probe for it has to be sent to.
func Aim(f *Fleet, r Request) (Explanation, Target) {
	x := explained(f, r)
	t := Target{Source: Spot{r.From.Cluster, x.node}, Addresses: r.From.Addresses, Port: x.request.Port,
		lookUps: map[string][]netip.Addr{}, ends: map[view]Spot{}, gateways: map[string][]Spot{}, next: map[Spot]Spot{}}
	if x.from == nil {
		return x.out, t
	}
	t.Host, t.Port = x.host()
	clusters := []string{r.From.Cluster}
	if r.To != nil {
		clusters = append(clusters, r.To.Cluster)
		t.Clusters = append(t.Clusters, r.To.Cluster)
	}
	t.IPv6 = len(x.ways) > 0 && plan.FamilyOf(x.ways[0].leg.dst) == plan.IPv6
	spots := []Spot{t.Source}
	for i := range x.ways {
		spots = append(spots, t.hops(x.ways[i].hops)...)
		if cluster := x.ways[i].leg.cluster; cluster != "" {
			clusters, t.Clusters = append(clusters, cluster), append(t.Clusters, cluster)
		}
	}
	var backends []Spot
	for i := range x.ways {
		for at, s := range t.end(x, &x.ways[i]) {
			if at == 0 {
				spots = append(spots, s)
			} else {
				backends = append(backends, s)
			}
		}
	}
	for _, cluster := range clusters {
		n := x.network(cluster)
		if _, known := t.gateways[cluster]; known || n == nil || n.Unread != "" {
			continue
		}
		for _, g := range n.top.Local.Gateways {
			t.gateways[cluster] = append(t.gateways[cluster], Spot{n.Name, g.Node})
		}
		spots = append(spots, t.gateways[cluster]...)
	}
	seen := map[Spot]bool{}
	for _, s := range append(spots, backends...) {
		if s.Node == "" || seen[s] {
			continue
		}
		seen[s] = true
		if len(t.Spots) < maxWatched {
			t.Spots = append(t.Spots, s)
		} else {
			t.Cut = append(t.Cut, s)
		}
	}
	return x.out, t
}

// hops are the nodes of a way, each of which next has behind the one before.
func (t *Target) hops(hops []string) []Spot {
	var out []Spot
	for _, hop := range hops {
		cluster, node, isNode := strings.Cut(hop, "/")
		if !isNode {
			continue
		}
		s := Spot{cluster, node}
		if n := len(out); n > 0 && out[n-1] != s {
			t.next[out[n-1]] = s
		}
		out = append(out, s)
	}
	return out
}

// end notes where the destinations of a way are, and returns their nodes, as far as they are known.
func (t *Target) end(x *explainer, w *way) []Spot {
	n := x.network(w.leg.cluster)
	if n == nil {
		return nil
	}
	var out []Spot
	is := func(cluster string, a netip.Addr, node string) {
		v := view{cluster, a}
		if _, known := t.ends[v]; !known {
			t.lookUps[cluster] = append(t.lookUps[cluster], a)
		}
		if t.ends[v].Node == "" {
			t.ends[v] = Spot{n.Name, node}
		}
		if node != "" {
			out = append(out, Spot{n.Name, node})
		}
	}
	for _, a := range append([]netip.Addr{w.leg.dst}, w.leg.backends...) {
		pod := a
		for _, g := range n.top.Local.GlobalPods {
			if g.Global == a {
				pod = g.IP
			}
		}
		is(x.from.Name, a, n.owner(pod))
		is(n.Name, a, n.owner(a))
		is(n.Name, pod, n.owner(pod))
	}
	for _, a := range w.targets {
		is(n.Name, a, n.owner(a))
	}
	return out
}

// LookUps are the destinations that the packet may have on a node: what it is sent to, and what that is translated to.
func (t *Target) LookUps(at Spot) []netip.Addr {
	all := t.lookUps[at.Cluster]
	return all[:min(len(all), trace.MaxLookUps)]
}

// behind are the nodes at which a packet can come in that another has sent by one of our links; none where the objects
// do not tell. Answers go to the source.
func (t *Target) behind(at Spot, device string, to netip.Addr, back bool) []Spot {
	end := t.ends[view{at.Cluster, to}]
	if back {
		end = t.Source
	}
	var out []Spot
	switch {
	case end.Cluster == "":
	case device == plan.MeshLink && end.Node != "":
		out = []Spot{end}
	case device == plan.MeshLink:
	case isCable(device):
		out = slices.Clone(t.gateways[end.Cluster])
	case end.Cluster != at.Cluster:
		out = slices.Clone(t.gateways[at.Cluster])
	case end.Node != "": // a gateway that has translated the flow gets answers, too
		out = append([]Spot{end}, t.gateways[at.Cluster]...)
	}
	slices.SortFunc(out, func(a, b Spot) int { return strings.Compare(a.String(), b.String()) })
	return slices.DeleteFunc(slices.Compact(out), func(s Spot) bool { return s == at })
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
