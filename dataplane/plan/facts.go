// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// NodeFacts is what a node knows of itself, apart from API objects.
type NodeFacts struct {
	// Name of the node.
	Name string
	// ID of this node's gateway to its peers; unused on a worker.
	ID PeerID
	// NextID is that of the cables with next keys while this gateway replaces its key, else empty. FormerID is what ID was
	// before its key was promoted, until the replacement has ended: the own cluster's nodes may not have heard of ID yet.
	NextID, FormerID PeerID
	// PodAddresses are the node's addresses inside its cluster's pod CIDRs, at most one a family. Host
	// traffic to remote clusters leaves from them. A CNI may give the node none.
	PodAddresses []netip.Addr
	// Underlays are the networks that the link with the node's address connects it to.
	Underlays []netip.Prefix
	// UnderlayMTU of the link that carries the node address, in bytes; 0 when unknown.
	UnderlayMTU int
	// Carrier is the link through which cables by IPsec go, up and with this gateway's address; empty while there is none.
	Carrier string
	// KernelCarrier says that the link of that name is there, whether it is the carrier or a former one.
	KernelCarrier bool
	// IPv6 says that the kernel has it.
	IPv6 bool
	// Alive holds, for each cluster by name, the slots of its gateways that answer this node's probes: on a
	// gateway remote ones and its siblings, on a worker those of the local cluster.
	Alive map[string][]int
	// Held holds, in the same way, those that answer too but have failed too lately to count as alive.
	Held map[string][]int
	// Shaken holds the slots of the cables that are not probed, and have had a handshake lately with the keys that
	// they have now. It decides between the two cables to a gateway that replaces its key.
	Shaken map[string][]int
	// OffMesh says that this node is about to have another key: it neither probes the nodes of other clusters nor answers
	// their probes, and takes what they still send.
	OffMesh bool
	// Withdrawn says that this gateway's cables are about to end: its own traffic goes by siblings that answer, but for
	// what it translates, to clusters that know this one by its block. That ends with it wherever it goes.
	Withdrawn bool
	// Current holds, for each cluster by name, the slots of its gateways that the node's traffic uses, as Current
	// reads them from its routes.
	Current map[string][]int
	// Straight holds the nodes of other clusters that answer this node's probes, or are current and not known not to.
	Straight map[PeerID]bool
	// PathMTU holds, on a gateway, the size in bytes of the largest packet that passes by its cable to each remote gateway
	// to which larger ones are lost on the way. It is nil where the node does not know, as before its first probes.
	PathMTU map[PeerID]int
}

// Replacement says where this gateway stands in replacing its key.
func (n NodeFacts) Replacement() topology.Replacement {
	switch n.NextID {
	case "":
		return topology.NoReplacement
	case n.ID:
		return topology.Promoted
	}
	return topology.Offered
}
