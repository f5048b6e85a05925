// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/base64"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// Plan is everything that Sealane wants in one node's kernel, as a comparable value. The same type
// describes what is there (kernel.Observe), so that Diff compares like with like. All slices are
// sorted by their element's key; the zero Plan is a clean node.
type Plan struct {
	Links      []Link
	Addresses  []Address
	Neighbours []Neighbour
	FDB        []FDBEntry
	Routes     []Route
	Rules      []Rule
	Tunnels    []Tunnel
	// VXLAN are the cables by VXLAN and who is behind them, as Tunnels has it of others. They are no elements of the
	// kernel, and Diff ignores them: there they are links, neighbours, forwarding entries and the rules of Tables, which
	// are their receive filter.
	VXLAN  []Tunnel
	Tables []Table
	// ForwardAccepts asks for accepting "sl-*" at the head of the iptables FORWARD chains.
	ForwardAccepts []Family
	// Active says by which gateways traffic goes. It is not in the kernel, and Diff ignores it.
	Active Active
}

// Active names the gateways that carry one node's traffic to the other clusters.
type Active struct {
	// Gateways are the nodes of the local cluster by which a worker's traffic leaves, in the order of their
	// slots; none while there is none, and none on a gateway.
	Gateways []string
	// Remotes holds, on a gateway and by name of the remote cluster, the slots of the remote gateways to which
	// its own cables carry the traffic, sorted. A cluster without gateways is not in it.
	Remotes map[string][]int
	// Siblings holds, on a gateway whose cables to a remote cluster are all dead or about to end, the nodes of the
	// local gateways that it hands the traffic over to, in the order of their slots.
	Siblings map[string][]string
	// Received holds, by name of each cluster in Siblings, the slots of the remote gateways to which this node's own
	// cables carry what siblings hand over to it, sorted.
	Received map[string][]int
	// Straight holds, by name of the remote cluster, the nodes to whose pods this node's own pods send without gateways,
	// sorted.
	Straight map[string][]string
}

// Family of addresses: 4 or 6.
type Family int

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// LinkKind is what a link is for.
type LinkKind string

// The kinds of links: the VXLAN between the nodes of the cluster, and cables to other clusters.
const (
	VXLAN LinkKind = "vxlan"
	Cable LinkKind = "cable"
)

// PeerID identifies a gateway to its peers. It is what the driver of their cable keeps of a peer in the kernel,
// so that one that no plan knows has an ID as well: with WireGuard the 32 bytes of its public key.
type PeerID string

// PeerOf returns the ID of a gateway. A driver whose peers have no X25519 key takes theirs from another field.
func PeerOf(g topology.Gateway) PeerID { return PeerID(g.PublicKey[:]) }

// String is base64: an ID need not be text.
func (id PeerID) String() string { return base64.StdEncoding.EncodeToString([]byte(id)) }

// Link is a network interface, named "sl-…". Its key is Name; a change of Kind, Driver, VNI, Port, Local or
// MAC needs a new link.
type Link struct {
	Name string
	Kind LinkKind
	MTU  int
	// Driver of a cable, by name.
	Driver string
	// VXLAN only.
	VNI   int
	Port  uint16
	Local netip.Addr
	MAC   string
	// RPFilter is net.ipv4.conf.<link>.rp_filter; DisableIPv6 is net.ipv6.conf.<link>.disable_ipv6.
	RPFilter    int
	DisableIPv6 bool
}

// Address of a link. Its key is Link and Prefix. The link-local addresses that the kernel gives every
// link are never wanted and never removed.
type Address struct {
	Link      string
	Prefix    netip.Prefix // host bits set
	LinkScope bool
}

// Neighbour is a permanent neighbour. Its key is Link and IP.
type Neighbour struct {
	Link string
	IP   netip.Addr
	MAC  string
}

// Cables are those of all kinds.
func (p Plan) Cables() []Tunnel { return slices.Concat(p.Tunnels, p.VXLAN) }

// FDBEntry is a permanent forwarding entry of the VXLAN. Its key is Link and MAC.
type FDBEntry struct {
	Link string
	MAC  string
	Dst  netip.Addr
}

// RouteType of a route.
type RouteType string

// The types of routes. Unreachable answers the sender of a packet with an ICMP error, Blackhole drops it without. The
// kernel lists IPv6 routes of all types but unicast with the device lo, which is not their Link.
const (
	Unicast     RouteType = "unicast"
	Throw       RouteType = "throw"
	Unreachable RouteType = "unreachable"
	Blackhole   RouteType = "blackhole"
)

// Route in one of our tables. Its key is Table, Dst and Metric.
type Route struct {
	Table int
	Dst   netip.Prefix
	// Metric of the route; of several to one destination the lowest counts. It is never 0, of which the
	// kernel makes 1024 for IPv6.
	Metric int
	Type   RouteType
	// NextHops of a unicast route, sorted by link and address. Flows are spread over several. For IPv6 the
	// kernel takes several only if each has an address.
	NextHops []NextHop
	Source   netip.Addr // preferred source; may be invalid
	MTU      int        // 0 leaves the link's
	// MTULock has the kernel keep to MTU for the IPv6 packets that it forwards too: else it takes the link's for them.
	MTULock bool
}

// NextHop of a route.
type NextHop struct {
	Link string
	Via  netip.Addr // onlink, of IPv6 also in a route of IPv4; invalid for a device route
	// Weight is the share of the flows, relative to the other next hops': 1 to 256, and 1 for a single one.
	Weight int
}

// Rule of the routing policy. Its key is the whole value.
type Rule struct {
	Family   Family
	Priority int
	IIF      string // may be empty
	// From is what the source must be in; invalid matches all.
	From netip.Prefix
	// Mark matches packets whose mark, of which only the bits in Mask count, is Mark. A Mask of 0 matches all.
	Mark, Mask uint32
	Table      int
}

// Tunnel is the configuration of a cable's link, without its private key. Its key is Link.
type Tunnel struct {
	Link       string
	ListenPort uint16
	// ID of this node's gateway to the peers; with WireGuard it belongs to the private key in use.
	ID    PeerID
	Peers []Peer // sorted by ID
}

// Peer of a tunnel.
type Peer struct {
	ID PeerID
	// Cluster and Node say whose it is, Active whether traffic to the cluster uses it. They are not in the
	// kernel, and Diff ignores them.
	Cluster, Node string
	Active        bool
	// Probe is the address at which the peer is probed; invalid if it is not. Diff ignores it too.
	Probe netip.Addr
	// Candidates at which the peer may be reached, most preferred first. Diff looks at neither them
	// nor the endpoint: the handshake decides, and may roam.
	Candidates []netip.AddrPort
	// Endpoint in use; only observed.
	Endpoint   netip.AddrPort
	AllowedIPs []netip.Prefix // sorted
	// KeepaliveSeconds between keepalive packets.
	KeepaliveSeconds int
}

// Table is our nftables table of one family, named "sealane". Its key is Family.
type Table struct {
	Family Family
	Sets   []Set
	Maps   []Map
	Chains []Chain
}

// Set of prefixes (flags interval), named after what it holds. Its key is Name.
type Set struct {
	Name     string
	Elements []netip.Prefix // sorted; none contains another
}

// Map of nftables. Its key is Name.
type Map struct {
	Name string
	// Key and Value are types as nft spells them: "ipv4_addr . inet_proto", "mark", "verdict".
	Key, Value string
	Elements   []MapElement // sorted by key
}

// MapElement is spelled as nft lists it: "10.8.0.7 . tcp", "0x5e000001", "goto whereami".
type MapElement struct{ Key, Value string }

// Chain of rules. Its key is Name. One without Hook is entered by jumps, and has neither Type nor Priority.
type Chain struct {
	Name     string
	Type     string // filter, nat
	Hook     string
	Priority string // as knftables spells it: "srcnat-5"
	// Rules in nft's spelling. In what was observed, a rule may be its RuleID instead.
	Rules []string
}
