// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Topology is the validated network as one node of the local cluster needs to know it: sorted, without
// duplicates, and free of anything that the local cluster must not route.
type Topology struct {
	// ClusterSet and Cluster name the local cluster.
	ClusterSet, Cluster string
	// Cable between gateways and overlay between nodes.
	Cable Cable
	// ActivePassive lets one gateway of each cluster carry its traffic; else all that are alive do.
	ActivePassive bool
	// Local holds the local cluster's own prefixes and nodes.
	Local Local
	// Remotes are the other clusters, sorted by name.
	Remotes []Remote
	// Relayed are those of them between which this cluster passes packets on, sorted.
	Relayed []Relayed
	// Problems found on the way, one for every object or field that was left out.
	Problems []Problem
}

// Cable holds the settings that every member shares.
type Cable struct {
	// Driver of the cables, by name. One that is unknown is a Problem, and there is no plan with it.
	Driver    string
	Port      uint16 // UDP port of slot 0
	VXLANPort uint16
	// MeshPort is the UDP port between nodes of meshed clusters; 0 where the others leave none for it.
	MeshPort uint16
	// VXLANCablePort is the UDP port of cables by VXLAN; 0 where the others leave none for it.
	VXLANCablePort uint16
	// IPsecPort is the UDP port of cables by IPsec, for IKE and ESP, and IPsecVXLANPort that of the VXLAN in them; 0 where
	// the others leave none.
	IPsecPort, IPsecVXLANPort uint16
	// FIPS says that cables by IPsec have the algorithms that FIPS 140 approves, and no others.
	FIPS bool
}

// Local is the cluster that this node is part of.
type Local struct {
	// Pods are the prefixes of the cluster's pods.
	Pods []netip.Prefix
	// Announced is what the other clusters route to this one: pods and services.
	// Those that know it by its block are routed to that instead.
	Announced []netip.Prefix
	// Global is the cluster's block of global addresses, invalid if it has none, and Services are reached by addresses
	// of it, sorted by address.
	Global netip.Prefix
	// GlobalIPv6 is what it has of IPv6, invalid if there is none.
	GlobalIPv6 netip.Prefix
	Services   []Service
	// External holds the hosts outside all clusters that exports may lead to, and that may connect to others.
	External []netip.Prefix
	// GlobalPods have addresses of their own in it, sorted by these.
	GlobalPods []GlobalPod
	// ClusterEgress are the addresses of what nothing else is said of, and Egress those that some pods have for their
	// connections to others, sorted by range.
	ClusterEgress EgressRange
	Egress        []EgressPool
	Nodes         []Node    // sorted by name
	Gateways      []Gateway // sorted by slot
}

// Node of the local cluster.
type Node struct {
	Name string
	// Addresses are the node's internal addresses, at most one a family, IPv4 first.
	Addresses []netip.Addr
	// Pods are the node's own pod prefixes.
	Pods []netip.Prefix
	// Balanced says that load balancers may lead to the node, whose service proxy then translates what comes by a cable.
	Balanced bool
}

// Remote is another cluster.
type Remote struct {
	Name string
	// Routed is what this cluster routes to that one: pods and services, or the block by which it is known here.
	Routed []netip.Prefix
	// Block is that block; invalid if it is known by its own networks.
	Block netip.Prefix
	// BlockIPv6 is what it has of IPv6; invalid if there is none.
	BlockIPv6 netip.Prefix
	// Translated says that this cluster is known there by its own block, into which gateways translate.
	Translated bool
	// VXLAN says that gateways are to reach each other by VXLAN, which does not encrypt, where that answers.
	VXLAN bool
	// IPsec says that nothing is sent to the cluster but by IPsec, unless it goes by another cable already: then until
	// IPsec answers.
	IPsec bool
	// Behind is the remote cluster whose gateways pass on what goes between this cluster and that one, which then has no
	// gateways here; empty if its own are reached. BehindStatus is what that one reports of it, if that is Error, and
	// BehindMTU the size of the largest packet that passes from there on; 0 when unknown.
	Behind       string
	BehindStatus v1alpha1.ConnectionStatus
	BehindMTU    int
	Gateways     []Gateway // sorted by slot
	// PathMTU holds, by the node of a local gateway, the size in bytes of the largest packet that passes by each of its
	// cables to the cluster, if larger ones are lost on the way; nil if that is so at none.
	PathMTU map[string]int
	// Nodes of that cluster to connect to without gateways, sorted by name. Each pod prefix is one node's.
	Nodes []MeshNode
}

// MeshNode is a node of another cluster.
type MeshNode struct {
	Name      string
	PublicKey Key
	// Addresses of the node, at most one a family, IPv4 first. None is in a network of any cluster.
	Addresses []netip.Addr
	// Pods are the node's own pod prefixes, within those of its cluster.
	Pods []netip.Prefix
	// MTU inside the node's cables; 0 when unknown.
	MTU int
	// Leaving says that the node is one of the mesh no more: nothing is sent to it, and its probes are not answered, but
	// what it still sends is taken.
	Leaving bool
}

// Gateway is a node that carries cables.
type Gateway struct {
	Node string
	Slot int
	// PublicKey of the gateway's cables.
	PublicKey Key
	// NextKey is the public key that follows while the gateway replaces its key, and PublicKey once it has followed; else
	// it is zero.
	NextKey Key
	// Next says that this stands for the cables of a gateway with its next key, beside those of the same gateway in the
	// slot NextKeySlots lower; and Preferred that traffic goes by them if they work, else by the usual ones.
	Next, Preferred bool
	// VTEPs are the gateway's outer addresses for cables by VXLAN, at most one a family, IPv4 first. Empty but in a remote
	// cluster with VXLAN.
	VTEPs []netip.Addr
	// VTEP is valid where this stands for the cable by VXLAN to a gateway, beside the same gateway in the slot VXLANSlots
	// lower: that one's outer address. Leaving says that nothing is sent by it, and what still comes is taken.
	VTEP    netip.Addr
	Leaving bool
	// IPsec says that this stands for the cable by IPsec, in the slot IPsecSlots higher than the gateway's, and that VTEP
	// is within it.
	IPsec bool
	// IPsecKey belongs to PublicKey; zero of a gateway that publishes none, as of an older agent.
	IPsecKey IPsecKey
	// Candidates at which the gateway may be reached, most preferred first. Empty for local ones.
	Candidates []Candidate
	// MTU inside the gateway's cables; 0 when unknown.
	MTU int
	// IPv4Probes says that the gateway's kernel has no IPv6.
	IPv4Probes bool
}

// Candidate address of a gateway.
type Candidate struct {
	Addr    netip.Addr
	Private bool
	// Observed says that others claim to see the gateway there, and Port which one stands there for the first of the
	// cables'; 0 where the ports are as usual.
	Observed bool
	Port     uint16
}

// Key is an X25519 public key.
type Key [32]byte

// IPsecKey is a public key of the curve P-256, as an uncompressed point.
type IPsecKey [netfacts.IPsecKeySize]byte

// Problem is something left out, and why. Ref is "<kind>/<name>" of the object at fault.
type Problem struct {
	Ref, Reason, Message string
}
