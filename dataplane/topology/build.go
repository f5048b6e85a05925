// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Reasons of problems.
const (
	ReasonInvalidName      = "InvalidName"
	ReasonDuplicate        = "Duplicate"
	ReasonInvalidCIDR      = "InvalidCIDR"
	ReasonNotMasked        = "NotMasked"
	ReasonDefaultRoute     = "DefaultRoute"
	ReasonTooWide          = "TooWide"
	ReasonReserved         = "Reserved"
	ReasonContainsNode     = "ContainsNode"
	ReasonOverlap          = "Overlap"
	ReasonInvalidAddress   = "InvalidAddress"
	ReasonNoAddress        = "NoAddress"
	ReasonInvalidPublicKey = "InvalidPublicKey"
	ReasonInvalidSlot      = "InvalidSlot"
	ReasonInvalidPort      = "InvalidPort"
	ReasonInvalidMTU       = "InvalidMTU"
	ReasonUnknownDriver    = "UnknownDriver"
	ReasonUnknownNode      = "UnknownNode"
)

// Input is what the API server of a member holds. The order of lists does not matter.
type Input struct {
	Peering  *v1alpha1.Peering
	Gateways []v1alpha1.Gateway
	Nodes    []corev1.Node
}

// Build returns the network that the input describes, less what is wrong with it. Where two remote
// clusters claim the same, the first by name keeps it: the broker has let in only one of them. A cluster
// without Peering, or one that is leaving, has no remotes.
func Build(in Input) Topology {
	b := &builder{
		reserved: reserved(), local: newOwnership(), nodes: newOwnership(), remote: newOwnership(),
		keys: map[Key]string{},
	}
	b.buildNodes(in.Nodes)
	if in.Peering != nil {
		b.buildPeering(in.Peering.Spec)
	}
	b.buildGateways(in.Gateways)
	if in.Peering != nil && in.Peering.Spec.Phase != v1alpha1.MemberLeaving {
		b.buildRemotes(in.Peering.Spec.RemoteClusters)
	}
	slices.SortFunc(b.Problems, func(x, y Problem) int {
		return cmp.Or(cmp.Compare(x.Ref, y.Ref), cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.Message, y.Message))
	})
	b.Problems = slices.Compact(b.Problems)
	return b.Topology
}

// builder is the topology so far, and who has what in it.
type builder struct {
	Topology
	reserved ownership
	local    ownership      // pods and services of the local cluster
	nodes    ownership      // addresses of the local nodes
	remote   ownership      // pods and services of remote clusters
	keys     map[Key]string // gateways by public key
}

// fault is a Problem that does not know yet whose it is.
type fault struct{ reason, message string }

func faultf(reason, format string, args ...any) *fault {
	return &fault{reason, fmt.Sprintf(format, args...)}
}

// left notes that something of ref was left out; part, which may be empty, says what.
func (b *builder) left(ref, part string, f *fault) {
	message := f.message
	if part != "" {
		message = part + ": " + message
	}
	b.Problems = append(b.Problems, Problem{ref, f.reason, message})
}

// unique returns the elements whose name is valid and nobody else's, sorted by name. Which of two
// namesakes is meant cannot be known, so neither stays.
func unique[E any](b *builder, kind string, elements []E, name func(E) string) []E {
	count := map[string]int{}
	for _, e := range elements {
		count[name(e)]++
	}
	var out []E
	for _, e := range elements {
		n := name(e)
		switch {
		case len(validation.IsDNS1123Subdomain(n)) > 0:
			b.left(kind+"/"+quote(n), "", faultf(ReasonInvalidName, "not a DNS-1123 subdomain"))
		case count[n] > 1:
			b.left(kind+"/"+n, "", faultf(ReasonDuplicate, "there are %d of that name", count[n]))
		default:
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(x, y E) int { return cmp.Compare(name(x), name(y)) })
	return out
}

func (b *builder) buildNodes(nodes []corev1.Node) {
	for _, node := range unique(b, "Node", nodes, func(n corev1.Node) string { return n.Name }) {
		ref := "Node/" + node.Name
		n := Node{Name: node.Name, Addresses: b.nodeAddresses(ref, node.Status.Addresses)}
		if len(n.Addresses) == 0 {
			b.left(ref, "", faultf(ReasonNoAddress, "no usable InternalIP"))
			continue
		}
		for _, a := range n.Addresses {
			b.nodes.add(single(a), node.Name)
		}
		cidrs := node.Spec.PodCIDRs
		if len(cidrs) == 0 && node.Spec.PodCIDR != "" {
			cidrs = []string{node.Spec.PodCIDR}
		}
		for _, cidr := range cidrs {
			p, f := b.parsePrefix(cidr)
			if f == nil {
				if owner, taken := b.local.overlap(p); taken && owner != ref {
					f = faultf(ReasonOverlap, "%s overlaps pods of %s", p, owner)
				}
			}
			if f != nil {
				b.left(ref, "spec.podCIDRs", f)
				continue
			}
			b.local.add(p, ref)
			n.Pods = append(n.Pods, p)
		}
		n.Pods = sorted(n.Pods)
		b.Local.Nodes = append(b.Local.Nodes, n)
	}
}

// nodeAddresses returns the first usable internal address of each family, IPv4 first.
func (b *builder) nodeAddresses(ref string, addresses []corev1.NodeAddress) []netip.Addr {
	var v4, v6 []netip.Addr
	for _, address := range addresses {
		if address.Type != corev1.NodeInternalIP {
			continue
		}
		a, f := b.parseAddr(address.Address)
		if f == nil {
			if owner, taken := b.nodes.containing(single(a)); taken {
				f = faultf(ReasonDuplicate, "%s is an address of node %s", a, owner)
			}
		}
		switch {
		case f != nil:
			b.left(ref, "status.addresses", f)
		case a.Is4():
			v4 = append(v4, a)
		default:
			v6 = append(v6, a)
		}
	}
	return slices.Concat(v4[:min(1, len(v4))], v6[:min(1, len(v6))])
}

func (b *builder) buildPeering(spec v1alpha1.PeeringSpec) {
	const ref = "Peering/" + v1alpha1.PeeringName
	b.ClusterSet, b.Cluster = spec.ClusterSet, spec.ClusterID
	b.Cable = Cable{
		Driver:    cmp.Or(string(spec.Cable.Driver), string(v1alpha1.CableWireGuard)),
		Port:      b.port(ref, "spec.cable.port", spec.Cable.Port, defaultPort),
		VXLANPort: b.port(ref, "spec.cable.vxlanPort", spec.Cable.VXLANPort, defaultVXLANPort),
	}
	if b.Cable.Driver != string(v1alpha1.CableWireGuard) {
		b.left(ref, "spec.cable.driver", faultf(ReasonUnknownDriver, "%s is not known here, using %s",
			quote(b.Cable.Driver), v1alpha1.CableWireGuard))
		b.Cable.Driver = string(v1alpha1.CableWireGuard)
	}
	if v, p := b.Cable.VXLANPort, b.Cable.Port; v >= p && v <= p+maxSlot {
		b.left(ref, "spec.cable", faultf(ReasonInvalidPort, "vxlanPort %d is among the cables' ports %d to %d, using %d and %d",
			v, p, p+maxSlot, defaultPort, defaultVXLANPort))
		b.Cable.Port, b.Cable.VXLANPort = defaultPort, defaultVXLANPort
	}
	b.Local.Pods = b.localNetworks(ref, "spec.networks.podCIDRs", spec.Networks.PodCIDRs)
	services := b.localNetworks(ref, "spec.networks.serviceCIDRs", spec.Networks.ServiceCIDRs)
	b.Local.Announced = sorted(slices.Concat(b.Local.Pods, services))
}

const (
	defaultPort      = 4500
	defaultVXLANPort = 4800
	maxSlot          = 15
)

func (b *builder) port(ref, field string, port int32, fallback uint16) uint16 {
	switch {
	case port == 0:
		return fallback
	case port < 0 || port > 65535-maxSlot:
		b.left(ref, field, faultf(ReasonInvalidPort, "%d is not a port with %d more above it, using %d", port, maxSlot, fallback))
		return fallback
	}
	return uint16(port)
}

func (b *builder) localNetworks(ref, field string, cidrs []string) []netip.Prefix {
	var out []netip.Prefix
	for _, cidr := range cidrs {
		p, f := b.parsePrefix(cidr)
		if f != nil {
			b.left(ref, field, f)
			continue
		}
		b.local.add(p, ref)
		out = append(out, p)
	}
	return sorted(out)
}

// buildGateways takes the local gateways whose node exists.
func (b *builder) buildGateways(gateways []v1alpha1.Gateway) {
	taken := map[int]string{}
	for _, g := range unique(b, "Gateway", gateways, func(g v1alpha1.Gateway) string { return g.Name }) {
		ref := "Gateway/" + g.Name
		gateway := Gateway{Node: g.Name, Slot: int(g.Spec.Slot)}
		var f *fault
		switch other, used := taken[gateway.Slot]; {
		case !slices.ContainsFunc(b.Local.Nodes, func(n Node) bool { return n.Name == g.Name }):
			f = faultf(ReasonUnknownNode, "there is no node of that name with an address")
		case gateway.Slot < 0 || gateway.Slot > maxSlot:
			f = faultf(ReasonInvalidSlot, "slot %d is not in 0 to %d", gateway.Slot, maxSlot)
		case used:
			f = faultf(ReasonDuplicate, "slot %d is that of gateway %s", gateway.Slot, other)
		}
		if f != nil {
			b.left(ref, "", f)
			continue
		}
		taken[gateway.Slot] = g.Name
		if e := g.Status.Endpoint; e != nil {
			gateway.MTU = b.mtu(ref, "status.endpoint.mtu", e.MTU)
			if key, f := parseKey(e.PublicKey); f != nil {
				b.left(ref, "status.endpoint.publicKey", f)
			} else {
				b.keys[key] = ref
				gateway.PublicKey = key
			}
		}
		b.Local.Gateways = append(b.Local.Gateways, gateway)
	}
	sortGateways(b.Local.Gateways)
}

func sortGateways(gateways []Gateway) {
	slices.SortFunc(gateways, func(x, y Gateway) int { return cmp.Compare(x.Slot, y.Slot) })
}

// mtu accepts what can carry IPv6 and counts anything else as unknown.
func (b *builder) mtu(ref, part string, mtu int32) int {
	if mtu == 0 {
		return 0
	}
	if mtu < 1280 || mtu > 65535 {
		b.left(ref, part, faultf(ReasonInvalidMTU, "%d is not in 1280 to 65535", mtu))
		return 0
	}
	return int(mtu)
}
