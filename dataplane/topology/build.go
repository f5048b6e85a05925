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
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/external"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Reasons of problems.
const (
	ReasonInvalidName      = "InvalidName"
	ReasonDuplicate        = "Duplicate"
	ReasonInvalidCIDR      = netfacts.ReasonInvalidCIDR
	ReasonNotMasked        = netfacts.ReasonNotMasked
	ReasonDefaultRoute     = netfacts.ReasonDefaultRoute
	ReasonTooWide          = netfacts.ReasonTooWide
	ReasonReserved         = netfacts.ReasonReserved
	ReasonContainsNode     = "ContainsNode"
	ReasonOverlap          = "Overlap"
	ReasonInvalidAddress   = netfacts.ReasonInvalidAddress
	ReasonNoAddress        = "NoAddress"
	ReasonInvalidPublicKey = netfacts.ReasonInvalidPublicKey
	ReasonInvalidSlot      = netfacts.ReasonInvalidSlot
	ReasonInvalidPort      = netfacts.ReasonInvalidPort
	ReasonInvalidMTU       = netfacts.ReasonInvalidMTU
	ReasonUnknownDriver    = "UnknownDriver"
	ReasonUnknownAlgorithm = "UnknownAlgorithm"
	ReasonUnknownNode      = "UnknownNode"
	ReasonUnknownRelay     = "UnknownRelay"
	ReasonNoPods           = "NoPods"
	ReasonTooManyNodes     = v1alpha1.ReasonTooManyNodes
	ReasonNotOfCluster     = "NotOfCluster"
	// Of a remote network that would take what the node itself needs.
	ReasonCoversAPIServer = "CoversAPIServer"
	ReasonCoversGateway   = "CoversDefaultGateway"
	ReasonCoversResolver  = "CoversResolver"
	ReasonOverlapsLink    = "OverlapsConnectedNetwork"
)

// Input is what the API server of a member holds. The order of lists does not matter.
type Input struct {
	Peering  *v1alpha1.Peering
	Gateways []v1alpha1.Gateway
	Nodes    []corev1.Node
	// NodeNetworks say which addresses the pods of nodes have beyond spec.podCIDRs.
	NodeNetworks []v1alpha1.NodeNetwork
	// GlobalAllocations say whose the global addresses are. A Problem of one names its owner, and where that has it.
	GlobalAllocations []v1alpha1.GlobalAllocation
	// ClusterGlobalEgressIP is nil while there is none.
	ClusterGlobalEgressIP *v1alpha1.ClusterGlobalEgressIP
	// Protected is what this node must go on reaching as it does without other clusters.
	Protected []Protected
}

// Protected is a network, or one address, that no other cluster's networks may overlap.
type Protected struct {
	Prefix netip.Prefix
	// Reason of the Problem of a network that does, and what the prefix is, for people.
	Reason, What string
}

// Build returns the network that the input describes, less what is wrong with it. Where two remote
// clusters claim the same, the first by name keeps it: the broker has let in only one of them. A cluster
// without Peering, or one that is leaving, has no remotes.
func Build(in Input) Topology {
	b := &builder{keys: map[Key]string{}, protected: in.Protected, paths: map[string]map[string]int{}}
	b.buildNodes(in.Nodes)
	if in.Peering != nil {
		b.buildPeering(in.Peering.Spec)
		b.buildNodeNetworks(in.NodeNetworks)
		b.buildExternal(in)
	}
	b.buildServices(in.GlobalAllocations)
	b.buildEgress(in.ClusterGlobalEgressIP, in.GlobalAllocations)
	b.buildGateways(in.Gateways)
	if in.Peering != nil && in.Peering.Spec.Phase != v1alpha1.MemberLeaving {
		b.buildRemotes(in.Peering.Spec.RemoteClusters, in.Peering.Spec.Relays)
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
	local  netfacts.Owners // pods and services of the local cluster
	nodes  netfacts.Owners // addresses of the local nodes
	remote netfacts.Owners // pods and services of remote clusters
	keys   map[Key]string  // gateways by public key
	// protected is what this node needs.
	protected []Protected
	// paths are the MTUs of paths by remote cluster and local gateway.
	paths map[string]map[string]int
	// hosts outside all clusters.
	hosts external.Hosts
}

// nobody is the owner of nothing: whatever overlaps counts.
const nobody = ""

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
			b.left(kind+"/"+clip.Quote(n), "", faultf(ReasonInvalidName, "not a DNS-1123 subdomain"))
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
		n := Node{Name: node.Name, Addresses: b.nodeAddresses(ref, node.Status.Addresses),
			Balanced: len(netfacts.LoadBalancers(node.Annotations[v1alpha1.AnnotationPublicIP])) > 0}
		if len(n.Addresses) == 0 {
			b.left(ref, "", faultf(ReasonNoAddress, "no usable InternalIP that no other node has"))
			continue
		}
		for _, a := range n.Addresses {
			b.nodes.Add(netfacts.Host(a), node.Name)
		}
		cidrs := node.Spec.PodCIDRs
		if len(cidrs) == 0 && node.Spec.PodCIDR != "" {
			cidrs = []string{node.Spec.PodCIDR}
		}
		for _, cidr := range cidrs {
			p, f := parsePrefix(cidr)
			if f == nil {
				if other, taken := b.local.Overlap(p, ref); taken {
					f = faultf(ReasonOverlap, "%s overlaps pods of %s", p, other.Owner)
				}
			}
			if f != nil {
				b.left(ref, "spec.podCIDRs", f)
				continue
			}
			b.local.Add(p, ref)
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
		a, f := parseAddr(address.Address)
		if f == nil {
			if other, taken := b.nodes.Overlap(netfacts.Host(a), nobody); taken {
				f = faultf(ReasonDuplicate, "%s is an address of node %s", a, other.Owner)
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
	b.Cable = b.cable(ref, spec.Cable)
	b.ActivePassive = spec.Gateways.Mode == v1alpha1.GatewaysActivePassive
	b.Local.Pods = b.localNetworks(ref, "spec.networks.podCIDRs", spec.Networks.PodCIDRs)
	services := b.localNetworks(ref, "spec.networks.serviceCIDRs", spec.Networks.ServiceCIDRs)
	b.Local.Announced = sorted(slices.Concat(b.Local.Pods, services))
	b.block(ref, spec.GlobalCIDR, spec.GlobalIPv6CIDR)
}

const (
	defaultPort      = 4500
	defaultVXLANPort = 4800
)

// cable falls back to the defaults of what cannot be used, so that the rest works.
func (b *builder) cable(ref string, spec v1alpha1.CableSpec) Cable {
	driver := cmp.Or(spec.Driver, v1alpha1.CableWireGuard)
	if driver != v1alpha1.CableWireGuard {
		b.left(ref, "spec.cable.driver", faultf(ReasonUnknownDriver,
			"%s is not known here: nodes stay as they are", clip.Quote(string(driver))))
	}
	port, vxlanPort := cmp.Or(spec.Port, defaultPort), cmp.Or(spec.VXLANPort, defaultVXLANPort)
	if f := faultOf(netfacts.CheckPorts(port, vxlanPort)); f != nil {
		port, vxlanPort = defaultPort, defaultVXLANPort
		b.left(ref, "spec.cable", faultf(f.reason, "%s, using %d and %d", f.message, port, vxlanPort))
	}
	meshPort, _ := netfacts.MeshPort(port, vxlanPort) // buildMesh tells, where it is needed
	cablePort, _ := netfacts.VXLANCablePort(port, vxlanPort)
	c := Cable{Driver: string(driver), Port: uint16(port), VXLANPort: uint16(vxlanPort), MeshPort: meshPort,
		VXLANCablePort: cablePort}
	if ipsec, err := netfacts.IPsecPort(port, vxlanPort); err == nil {
		c.IPsecPort, c.IPsecVXLANPort = ipsec, ipsec+netfacts.IPsecVXLANOffset-netfacts.IPsecOffset
	}
	switch spec.IPsecAlgorithms {
	case "", v1alpha1.IPsecDefault:
	case v1alpha1.IPsecFIPS:
		c.FIPS = true
	default:
		c.IPsecPort, c.IPsecVXLANPort = 0, 0
		b.left(ref, "spec.cable.ipsecAlgorithms", faultf(ReasonUnknownAlgorithm,
			"%s is not known here: nothing is reached by ipsec", clip.Quote(string(spec.IPsecAlgorithms))))
	}
	return c
}

func (b *builder) localNetworks(ref, field string, cidrs []string) []netip.Prefix {
	var out []netip.Prefix
	for _, cidr := range cidrs {
		p, f := parsePrefix(cidr)
		if f != nil {
			b.left(ref, field, f)
			continue
		}
		b.local.Add(p, ref)
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
		f := faultOf(netfacts.CheckSlot(g.Spec.Slot))
		switch other, used := taken[gateway.Slot]; {
		case f != nil:
		case !slices.ContainsFunc(b.Local.Nodes, func(n Node) bool { return n.Name == g.Name }):
			f = faultf(ReasonUnknownNode, "there is no node of that name with an address")
		case used:
			f = faultf(ReasonDuplicate, "slot %d is that of gateway %s", gateway.Slot, other)
		}
		if f != nil {
			b.left(ref, "", f)
			continue
		}
		taken[gateway.Slot] = g.Name
		b.buildPaths(ref, g)
		if e := g.Status.Endpoint; e != nil {
			gateway.MTU = b.mtu(ref, "status.endpoint.mtu", e.MTU)
			gateway.IPv4Probes = e.IPv4Probes
			if key, f := parseKey(e.PublicKey); f != nil {
				b.left(ref, "status.endpoint.publicKey", f)
			} else {
				b.keys[key] = ref
				gateway.PublicKey, gateway.NextKey = key, b.nextKey(ref, "status.endpoint", *e)
			}
		}
		b.Local.Gateways = append(b.Local.Gateways, gateway)
	}
	sortGateways(b.Local.Gateways)
}

// buildPaths takes the sizes that the cables of a local gateway carry on paths on which larger ones are lost.
func (b *builder) buildPaths(ref string, g v1alpha1.Gateway) {
	for _, c := range g.Status.Connections {
		if c.Through != "" {
			continue
		}
		mtu := b.mtu(ref, "status.connections.mtu", c.MTU)
		if mtu == 0 {
			continue
		}
		of := b.paths[c.Cluster]
		if of == nil {
			of = map[string]int{}
			b.paths[c.Cluster] = of
		}
		if least, ok := of[g.Name]; !ok || mtu < least {
			of[g.Name] = mtu
		}
	}
}

func sortGateways(gateways []Gateway) {
	slices.SortFunc(gateways, func(x, y Gateway) int { return cmp.Compare(x.Slot, y.Slot) })
}

// mtu counts what cannot be used as unknown.
func (b *builder) mtu(ref, part string, mtu int32) int {
	if f := faultOf(netfacts.CheckMTU(mtu)); f != nil {
		b.left(ref, part, f)
		return 0
	}
	return int(mtu)
}
