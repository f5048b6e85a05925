// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// What marks an object in the kernel as Sealane's.
const (
	LinkPrefix  = "sl-"
	CablePrefix = "sl-c"
	// vxlanCablePrefix is that of cables by VXLAN.
	vxlanCablePrefix = CablePrefix + "v"
	// ipsecCablePrefix is that of cables by IPsec.
	ipsecCablePrefix = CablePrefix + "i"
	OverlayLink      = "sl-vx"
	// VNI of the overlay between the nodes of one cluster.
	VNI = 5100
	// CableVNI, and the slots of the two gateways more, is that of a cable by VXLAN: both ends reckon the same, and
	// another one for each of their cables.
	CableVNI = 5110
	// Protocol number of our routes.
	Protocol = 81
	// OutboundTable holds the remote CIDRs, InboundTable the nodes of the local cluster.
	OutboundTable = 5100
	InboundTable  = 5101
	// MeshLink has the cables to nodes of other clusters, and MeshTable their pods; what a node's own pods send is looked
	// up there first.
	MeshLink  = CablePrefix + "mesh"
	MeshTable = 5102
	// SiblingTable holds on a gateway, for clusters whose traffic it hands over to its siblings, its own cables: for what
	// siblings hand over to it.
	SiblingTable = 5103
	// FlowTable and as many after it as a cluster may have gateways hold each the way by one of them, for flows that keep
	// their gateway.
	FlowTable = 5110
	// Metrics of our routes. A throw comes before the route that contains it, and what stands behind a route, an
	// unreachable or a blackhole, takes over when the route goes with its link.
	ThrowMetric    = 50
	RouteMetric    = 100
	StandingMetric = 4096
	// ForwardMark is a bit of the packet mark. Our forward chain sets it on what passes between the local
	// cluster and the others, the iptables FORWARD chains accept what has it, and our unmark chain removes
	// it: it exists for the length of the FORWARD chains. What ipvs sends on has it from OUTPUT to behind POSTROUTING,
	// and a rule for it. kube-proxy (0x4000, 0x8000), portmap (0x2000),
	// Calico (0xffff0000), Cilium (0x0f00), the AWS VPC CNI (0x80), OVN-Kubernetes (0x3f0), Istio (0x539)
	// and Tailscale (0xff0000) use other bits.
	ForwardMark = 0x4
	// GatewayMark is such a bit on the answers of services that a gateway has translated for other clusters: they go back
	// by gateways, for no node of a mesh may send from a service's address.
	GatewayMark = 0x2
	// SiblingMark is such a bit on what a gateway gets from its siblings for other clusters.
	SiblingMark = 0x8
	// FlowMask are the bits of the packet mark, and of the mark of connections, that say which gateway a flow keeps; the
	// packet mark has them from just before the look-up of its route until just after it. OVN-Kubernetes (0x3f0) and
	// Istio (0x539) use some of them, and lose them on packets to clusters whose flows keep their gateway.
	FlowMask = 0x1071
	// The rules come after Cilium's local table at 100 and before the per-pod rules of cloud CNIs.
	InboundPriority  = 103
	MeshPriority     = 104
	FlowPriority     = 104
	OutboundPriority = 105
	// TableName of the nftables tables.
	TableName = "sealane"
)

// Bytes of headers on a packet within another, beside the outer IP header.
const (
	wireGuardOverhead = 8 + 32     // UDP, WireGuard
	vxlanOverhead     = 8 + 8 + 14 // UDP, VXLAN, Ethernet
)

const (
	defaultMTU = 1500
	minimumMTU = 1280 // of IPv6, RFC 8200 section 5
)

// Overhead returns the bytes that a driver adds to an inner packet, over outer packets of a family. A driver
// that is unknown adds none, for it carries none: see Kernel.Driver.
func Overhead(driver string, outer Family) int {
	if driver == string(v1alpha1.CableWireGuard) {
		return wireGuardOverhead + outerHeader(outer)
	}
	return 0
}

// outerHeader is the length of an IP header in bytes.
func outerHeader(f Family) int {
	if f == IPv6 {
		return 40
	}
	return 20
}

// KeepaliveSeconds between keepalive packets of a cable. NATs forget UDP flows after 30 s or more.
const KeepaliveSeconds = 5

// RouteTables are the routing tables that hold nothing but ours.
func RouteTables() []int {
	return append([]int{OutboundTable, InboundTable, MeshTable, SiblingTable}, flowTables()...)
}

// CableLink returns the name of the cable to remote gateways of a slot: "sl-c0", …; from "sl-c16" on they are those
// with next keys. Those by VXLAN are "sl-cv0", …, and those by IPsec "sl-ci0", ….
func CableLink(slot int) string {
	if isIPsec(slot) {
		return ipsecCablePrefix + strconv.Itoa(slot-v1alpha1.IPsecSlots)
	}
	if isVXLAN(slot) {
		return vxlanCablePrefix + strconv.Itoa(slot-v1alpha1.VXLANSlots)
	}
	return CablePrefix + strconv.Itoa(slot)
}

// TunnelMTU returns the MTU inside a driver's cables over an underlay of the given MTU in bytes, 0 when
// unknown. The outer family is not known beforehand, for a peer may roam, so there is always room for IPv6.
// It is never below what IPv6 needs: outer packets are rather fragmented.
func TunnelMTU(driver string, underlay int) int {
	return max(knownMTU(underlay)-Overhead(driver, IPv6), minimumMTU)
}

// Sizes of cables by IPsec.
const (
	// ipsecOverhead of ESP with AES-GCM in UDP: UDP, ESP's header, its initialization vector, padding to 4 bytes with its
	// length and what follows, and the integrity check value.
	ipsecOverhead = 8 + 8 + 8 + 5 + 16
	// carrierMost is what strongSwan's device takes at most: larger packets are lost there.
	carrierMost = 1400
)

// CarrierMTU returns the MTU of the link within which cables by IPsec go, over an underlay of the given MTU.
func CarrierMTU(underlay int) int {
	return max(min(carrierMost, knownMTU(underlay)-outerHeader(IPv6)-ipsecOverhead), minimumMTU)
}

// CableMTU returns the MTU inside a gateway's cables. What is sent by one may go by another, so with cables by IPsec
// all have theirs.
func CableMTU(t topology.Topology, underlay int) int {
	mtu := TunnelMTU(t.Cable.Driver, underlay)
	for i := range t.Remotes {
		if t.Remotes[i].IPsec {
			return min(mtu, max(CarrierMTU(underlay)-vxlanOverhead-outerHeader(IPv6), minimumMTU))
		}
	}
	return mtu
}

func knownMTU(mtu int) int {
	if mtu <= 0 {
		return defaultMTU
	}
	return mtu
}

// ULAPrefix holds every probe address. No cluster can claim it.
func ULAPrefix() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x51}), 16)
}

// ULA returns the address, inside the cables, of the gateway with an ID: fd51 and 112 bits of the ID's SHA-256,
// more than anybody can make collide.
func ULA(id PeerID) netip.Addr { return netfacts.ULA(string(id)) }

// ProbeIPv4 returns the IPv4 address, inside the cables, of the gateway with an ID: 248.0.0.0/6 and 26 bits of the ID's
// SHA-256. Anybody can make that collide: see view.remoteProbe.
func ProbeIPv4(id PeerID) netip.Addr {
	sum := sha256.Sum256([]byte(id))
	return netip.AddrFrom4([4]byte{248 | sum[0]&3, sum[1], sum[2], sum[3]})
}

// overlayProbe is the same as overlayULA for a family.
func overlayProbe(node netip.Addr, f Family) netip.Addr {
	if f == IPv4 {
		return ProbeIPv4(PeerID("node " + node.String()))
	}
	return overlayULA(node)
}

// overlayULA returns the address on the overlay link, at a node address, that the node's probes of its cluster's
// gateways come from: fd51 and 112 bits of the SHA-256 of "node" and the address.
func overlayULA(node netip.Addr) netip.Addr { return ULA(PeerID("node " + node.String())) }

// cableNextHop is where routes by several cables lead, each on its own: the kernel spreads IPv6 flows over next
// hops with an address alone. A cable has no neighbours, so any link-local address will do.
func cableNextHop() netip.Addr { return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: 0x51}) }

// RuleID identifies an nftables rule of ours in the kernel, as its comment.
func RuleID(rule string) string {
	sum := sha256.Sum256([]byte(rule))
	return hex.EncodeToString(sum[:8])
}

// vtepMAC returns the hardware address of a VXLAN link, the overlay's or a cable's, at an outer address.
func vtepMAC(outer netip.Addr) string { return macText(netfacts.VTEPMAC(outer)) }

func macText(m [6]byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// vtepLinkLocal returns the modified EUI-64 link-local address of a VXLAN link at an outer address
// (RFC 4291 appendix A), which is the next hop of IPv6 routes to that node.
func vtepLinkLocal(outer netip.Addr) netip.Addr { return linkLocal(netfacts.VTEPMAC(outer)) }

func linkLocal(m [6]byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80,
		8: m[0] ^ 0x02, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// cableAddress is the link-scope IPv4 address of a cable. Without an address on the link the kernel
// drops IPv4 packets that arrive there with a martian check.
func cableAddress(slot int) netip.Prefix {
	last := 10 + slot
	if isIPsec(slot) {
		last = 96 + gatewaySlot(slot)
	} else if isVXLAN(slot) {
		last = 80 + gatewaySlot(slot) // behind those of translated
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 51, byte(last)}), 32)
}

// translated is the address from which flows go on to backends on other nodes that the gateway of a slot has
// translated for other clusters. Answers come back to it over the overlay, and by no other way: on that of a CNI they
// would fail rp_filter, which expects pods of other nodes where packets for them from cables go, on the overlay.
func translated(slot int) netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 51, byte(64 + slot)}) }

// translated6 is the same for IPv6.
func translated6(node netip.Addr) netip.Addr { return ULA(PeerID("translated by " + node.String())) }

// meshAddress is the same for the link to nodes of other clusters.
func meshAddress() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 51, 42}), 32)
}

// MeshULA returns the address of a node on its link to nodes of other clusters, where it answers their probes.
func MeshULA(id PeerID) netip.Addr { return ULA("mesh " + id) }

func overlayAddress() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 51, 0}), 32)
}

// String returns nftables' name of the family: "ip" or "ip6".
func (f Family) String() string {
	if f == IPv6 {
		return "ip6"
	}
	return "ip"
}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}
