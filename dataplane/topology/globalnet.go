// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/external"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Reasons of problems with global addresses.
const (
	// ReasonNoGlobalCIDR: another cluster knows this one by a block that is not known here.
	ReasonNoGlobalCIDR = "NoGlobalCIDR"
	// ReasonNotInBlock: an address is not among those of this cluster's block that services have.
	ReasonNotInBlock = "NotInGlobalCIDR"
	// ReasonInvalidService: the port or a backend of a service cannot be.
	ReasonInvalidService = "InvalidService"
	// ReasonInvalidPod: what has a global address of its own is no pod, and no host outside that may be exported.
	ReasonInvalidPod = "InvalidPod"
)

// Service of the local cluster that others reach by a global address.
type Service struct {
	Address netip.Addr
	Ports   []ServicePort // sorted by protocol and port
	// Affinity says that all connections of a client go to one backend.
	Affinity bool
}

// ServicePort of a service, with a backend at least.
type ServicePort struct {
	// Protocol in lower case, as nft spells it: "tcp", "udp", "sctp".
	Protocol string
	Port     uint16
	// Backends are sorted, all of the family of the service's address.
	Backends []netip.AddrPort
}

// GlobalPod is a pod of the local cluster, or a host outside, that others reach by a global address of its own.
type GlobalPod struct {
	Global, IP netip.Addr
	// Source says that the pod is known by this address where it connects to others: of several that it has, the first.
	Source bool
}

// block takes over this cluster's block of global addresses, and what it has of IPv6.
func (b *builder) block(ref, text, ipv6 string) {
	b.Local.Global, b.Local.GlobalIPv6 = b.blocks(ref, "spec.", text, ipv6, func(p netip.Prefix) *fault {
		if other, taken := b.local.Overlap(p, nobody); taken {
			return faultf(ReasonOverlap, "%s overlaps the local cluster (%s)", p, other.Owner)
		}
		if node, ok := b.nodes.Overlap(p, nobody); ok {
			return faultf(ReasonContainsNode, "%s contains an address of local node %s", p, node.Owner)
		}
		return nil
	})
	for _, p := range []netip.Prefix{b.Local.Global, b.Local.GlobalIPv6} {
		if p.IsValid() {
			b.local.Add(p, ref)
		}
	}
}

// remoteBlock returns the block by which a remote cluster is known here, if it is, and what it has of IPv6.
func (b *builder) remoteBlock(c v1alpha1.RemoteCluster) (block, ipv6 netip.Prefix) {
	return b.blocks("RemoteCluster/"+c.Name, "", c.GlobalCIDR, c.GlobalIPv6CIDR, b.conflict)
}

// blocks parses a block and what it has of IPv6. Without the block there is nothing of IPv6.
func (b *builder) blocks(ref, at, text, textIPv6 string, conflict func(netip.Prefix) *fault) (block,
	ipv6 netip.Prefix) {
	if text == "" {
		return block, ipv6
	}
	p, err := netfacts.ParseGlobal(text)
	f := faultOf(err)
	if f == nil {
		f = conflict(p)
	}
	if f != nil {
		b.left(ref, at+"globalCIDR", f)
		return block, ipv6
	}
	if textIPv6 == "" {
		return p, ipv6
	}
	six, err := globalnet.ParseIPv6(textIPv6, p)
	if f = faultOf(err); err != nil && f == nil {
		f = faultf(ReasonInvalidCIDR, "%v", err)
	}
	if f == nil {
		f = conflict(six)
	}
	if f != nil {
		b.left(ref, at+"globalIPv6CIDR", f)
		return p, ipv6
	}
	return p, six
}

// globalOwner is a service, or one of the pods behind it.
type globalOwner struct{ ref, pod string }

func (o globalOwner) String() string {
	if o.pod == "" {
		return o.ref
	}
	return o.ref + " for " + clip.Quote(o.pod)
}

// globalOwners are who has which global address, by its number, and which pods are the source of what they send by one.
type globalOwners struct {
	owners  map[int]globalOwner
	sources map[netip.Addr]bool
}

// oldest compares allocations by age and, of one age, by their owners and their own names.
func oldest(x, y *v1alpha1.GlobalAllocation) int {
	a, b := &x.Spec.Owner, &y.Spec.Owner
	return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name), cmp.Compare(x.Name, y.Name))
}

// having returns those of the allocations that have something.
func having(allocations []v1alpha1.GlobalAllocation, has func(v1alpha1.GlobalAllocationSpec) bool,
) []*v1alpha1.GlobalAllocation {
	var out []*v1alpha1.GlobalAllocation
	for i := range allocations {
		if has(allocations[i].Spec) {
			out = append(out, &allocations[i])
		}
	}
	return out
}

// buildServices takes the services and the pods that have a global address. Of two with the same the older has it.
func (b *builder) buildServices(allocations []v1alpha1.GlobalAllocation) {
	if !b.Local.Global.IsValid() {
		return
	}
	owned := having(allocations, func(s v1alpha1.GlobalAllocationSpec) bool { return s.Ingress != nil })
	slices.SortFunc(owned, oldest)
	pods := 0
	for _, a := range owned {
		pods += len(a.Spec.Ingress.Pods)
	}
	taken := globalOwners{make(map[int]globalOwner, len(owned)+pods), make(map[netip.Addr]bool, pods)}
	b.Local.GlobalPods = slices.Grow(b.Local.GlobalPods, pods)
	for _, a := range owned {
		ref, ingress := "GlobalIngressIP/"+a.Spec.Owner.Namespace+"/"+a.Spec.Owner.Name, a.Spec.Ingress
		// What is only kept for somebody may be another's by now.
		if ingress.IP != "" && ingress.ReleasedAt == nil {
			b.service(ref, ingress, &taken)
		}
		for _, p := range ingress.Pods {
			if p.GlobalIP != "" && p.ReleasedAt == nil {
				b.globalPod(ref, p, &taken)
			}
		}
	}
	slices.SortFunc(b.Local.Services, func(x, y Service) int { return x.Address.Compare(y.Address) })
	slices.SortFunc(b.Local.GlobalPods, func(x, y GlobalPod) int { return x.Global.Compare(y.Global) })
}

// global returns an address that is for a service or a pod, and nobody else's.
func (b *builder) global(owner globalOwner, text string, taken *globalOwners) (netip.Addr, *fault) {
	a, err := netip.ParseAddr(text)
	number, inBlock := globalnet.Number(b.Local.Global, a)
	other, used := taken.owners[number]
	switch {
	case err != nil || !inBlock:
		return a, faultf(ReasonNotInBlock, "%s is not an address for services in %s", clip.Quote(text), b.Local.Global)
	case used:
		return a, faultf(ReasonDuplicate, "%s is the address of %s", a, other)
	}
	taken.owners[number] = owner
	return a, nil
}

func (b *builder) service(ref string, of *v1alpha1.IngressAllocation, taken *globalOwners) {
	a, f := b.global(globalOwner{ref: ref}, of.IP, taken)
	if f != nil {
		b.left(ref, "status.ip", f)
		return
	}
	ports := b.servicePorts(ref, of.Ports)
	for _, address := range b.families(a) {
		s := Service{Address: address, Ports: ofFamily(ports, address),
			Affinity: of.SessionAffinity == corev1.ServiceAffinityClientIP}
		if len(s.Ports) > 0 {
			b.Local.Services = append(b.Local.Services, s)
		}
	}
}

// buildExternal takes the networks of hosts outside.
func (b *builder) buildExternal(in Input) {
	if len(in.Peering.Spec.ExternalCIDRs) == 0 {
		return
	}
	var apiServers []netip.Addr
	for _, p := range in.Protected {
		if p.Reason == ReasonCoversAPIServer {
			apiServers = append(apiServers, p.Prefix.Addr())
		}
	}
	var errs []error
	b.hosts, errs = external.For(&in.Peering.Spec, in.Nodes, apiServers)
	for _, err := range errs {
		b.left("Peering/"+v1alpha1.PeeringName, "spec.externalCIDRs", faultOf(err))
	}
	if b.Local.Global.IsValid() {
		b.Local.External = b.hosts.Ranges()
	}
}

// families are a global address of IPv4 and, where the block has one, that of IPv6 with the same number.
func (b *builder) families(a netip.Addr) []netip.Addr {
	if !b.Local.GlobalIPv6.IsValid() {
		return []netip.Addr{a}
	}
	return []netip.Addr{a, globalnet.IPv6Addr(b.Local.GlobalIPv6, a)}
}

// ofFamily returns those ports that have backends of the family of an address, with these.
func ofFamily(ports []ServicePort, a netip.Addr) []ServicePort {
	var out []ServicePort
	for _, p := range ports {
		p.Backends = slices.DeleteFunc(slices.Clone(p.Backends), func(b netip.AddrPort) bool {
			return b.Addr().Is4() != a.Is4()
		})
		if len(p.Backends) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// globalPod accepts pods, and hosts outside that may be exported: all ports of these are reached, and those of a node
// are not for others.
func (b *builder) globalPod(ref string, p v1alpha1.GlobalPod, taken *globalOwners) {
	a, f := b.global(globalOwner{ref, p.Name}, p.GlobalIP, taken)
	if f != nil {
		b.left(ref, "status.pods", f)
		return
	}
	for _, own := range []struct {
		text   string
		global netip.Addr
	}{{p.IP, a}, {p.IPv6, globalnet.IPv6Addr(b.Local.GlobalIPv6, a)}} {
		if own.text == "" || own.global.Is6() && !b.Local.GlobalIPv6.IsValid() {
			continue
		}
		ip, f := b.podAddress(own.text)
		if f != nil && ip.IsValid() && b.hosts.Outside(ip) {
			f = nil
			if err := b.hosts.Check(ip); err != nil {
				f = faultf(ReasonInvalidPod, "%v", err)
			}
		}
		if f == nil && ip.Is4() != own.global.Is4() {
			f = faultf(ReasonInvalidPod, "%s is not of the family of %s", ip, own.global)
		}
		if f != nil {
			b.left(ref, "status.pods", f)
			continue
		}
		b.Local.GlobalPods = append(b.Local.GlobalPods, GlobalPod{Global: own.global, IP: ip, Source: !taken.sources[ip]})
		taken.sources[ip] = true
	}
}

// podAddress accepts an address that a pod of this cluster may have, and no node.
func (b *builder) podAddress(text string) (netip.Addr, *fault) {
	ip, f := parseAddr(text)
	if f != nil {
		return ip, f
	}
	_, node := b.nodes.Overlap(netfacts.Host(ip), nobody)
	if node || !slices.ContainsFunc(b.Local.Pods, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return ip, faultf(ReasonInvalidPod, "%s is not the address of a pod of this cluster", ip)
	}
	return ip, nil
}

func (b *builder) servicePorts(ref string, ports []v1alpha1.GlobalPort) []ServicePort {
	var out []ServicePort
	for _, p := range ports {
		protocol := map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp",
			corev1.ProtocolSCTP: "sctp"}[p.Protocol]
		same := func(s ServicePort) bool { return s.Protocol == protocol && int32(s.Port) == p.Port }
		if protocol == "" || p.Port < 1 || p.Port > 65535 || slices.ContainsFunc(out, same) {
			b.left(ref, "status.ports", faultf(ReasonInvalidService, "%s %d is not a port, or there twice",
				clip.Quote(string(p.Protocol)), p.Port))
			continue
		}
		s := ServicePort{Protocol: protocol, Port: uint16(p.Port)}
		for _, backend := range p.Backends {
			a, f := b.backend(backend)
			if f != nil {
				b.left(ref, "status.ports", f)
				continue
			}
			s.Backends = append(s.Backends, a)
		}
		slices.SortFunc(s.Backends, netip.AddrPort.Compare)
		if s.Backends = slices.Compact(s.Backends); len(s.Backends) > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(x, y ServicePort) int {
		return cmp.Or(cmp.Compare(x.Protocol, y.Protocol), cmp.Compare(x.Port, y.Port))
	})
	return out
}

// backend accepts addresses of pods and of nodes: gateways send nothing elsewhere.
func (b *builder) backend(of v1alpha1.GlobalBackend) (netip.AddrPort, *fault) {
	a, f := parseAddr(of.IP)
	if f != nil {
		return netip.AddrPort{}, f
	}
	_, node := b.nodes.Overlap(netfacts.Host(a), nobody)
	pod := slices.ContainsFunc(b.Local.Pods, func(p netip.Prefix) bool { return p.Contains(a) })
	switch {
	case !node && !pod:
		return netip.AddrPort{}, faultf(ReasonInvalidService, "backend %s is neither a pod nor a node of this cluster", a)
	case of.Port < 1 || of.Port > 65535:
		return netip.AddrPort{}, faultf(ReasonInvalidService, "backend %s has port %d", a, of.Port)
	}
	return netip.AddrPortFrom(a, uint16(of.Port)), nil
}
