// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CableImplementation is where packets are encrypted.
// +kubebuilder:validation:Enum=Kernel;Userspace
type CableImplementation string

// The implementations of a cable.
const (
	CableKernel    CableImplementation = "Kernel"
	CableUserspace CableImplementation = "Userspace"
)

// HAState is a gateway's part in its cluster.
// +kubebuilder:validation:Enum=Active;Standby
type HAState string

// The HA states of a gateway.
const (
	GatewayActive  HAState = "Active"
	GatewayStandby HAState = "Standby"
)

// GatewaySpec is written by the cluster agent: that the object exists makes its node a gateway.
type GatewaySpec struct {
	// Slot is stable for the gateway's life; see Endpoint.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=15
	Slot int32 `json:"slot"`
	// Turn says that an agent that waits on the node for another to end may take it over. Where a cluster has several
	// gateways, agents of these wait for it, and get it one gateway after the other.
	// +optional
	Turn bool `json:"turn,omitempty"`
}

// RTT of the probes through a tunnel over the last minute, in microseconds.
type RTT struct {
	Last int64 `json:"lastMicroseconds"`
	Min  int64 `json:"minMicroseconds"`
	Avg  int64 `json:"avgMicroseconds"`
	Max  int64 `json:"maxMicroseconds"`
	Dev  int64 `json:"devMicroseconds"`
}

// Traffic that passes, without the probes of gateways.
type Traffic struct {
	// +kubebuilder:validation:Minimum=0
	ReceivedBytesPerSecond int64 `json:"receivedBytesPerSecond"`
	// +kubebuilder:validation:Minimum=0
	SentBytesPerSecond int64 `json:"sentBytesPerSecond"`
}

// Connection is this gateway's tunnel to one remote gateway.
type Connection struct {
	// Cluster and Gateway at the other end.
	Cluster string `json:"cluster"`
	Gateway string `json:"gateway"`
	// Slot of the remote gateway.
	Slot int32 `json:"slot"`
	// Link that carries the tunnel.
	Link string `json:"link"`
	// Cable that the link is one of. One by vxlan is not encrypted. Empty, as of an older agent: wireguard.
	// +optional
	Cable CableDriver `json:"cable,omitempty"`
	// Algorithms that a connection by ipsec has, as strongSwan calls them: those of IKE and of ESP, and whether the kernel
	// encrypts. While others follow, the ones that are about to go.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Algorithms string `json:"algorithms,omitempty"`
	// Through is the cluster whose gateways pass on what goes to and from this one; gateway, slot, link and address are of
	// the tunnel to it. Empty of a tunnel to the cluster itself.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Through string `json:"through,omitempty"`
	// Status of the tunnel as the probes see it.
	Status ConnectionStatus `json:"status"`
	// LastTransitionTime is when the status last changed, by the clock of the node. A node agent that restarts within
	// 90 s and finds the connection as it was keeps it.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// Address and UDP port in use, as "ip:port".
	// +optional
	Address string `json:"address,omitempty"`
	// Active says whether traffic to that cluster uses this tunnel.
	Active bool `json:"active"`
	// NAT says that the remote's address in use is not one of its private ones.
	NAT bool `json:"nat"`
	// RTT measured by the probes, written at most every 30 s.
	// +optional
	RTT *RTT `json:"rtt,omitempty"`
	// LossPercent of the probes over the last minute.
	LossPercent int32 `json:"lossPercent"`
	// Traffic through the tunnel, the average of the last minute that was looked at, written as RTT is; not set before the
	// first. What a tunnel carries without traffic is 0.
	// +optional
	Traffic *Traffic `json:"traffic,omitempty"`
	// MTU is the size in bytes of the largest packet that passes through the tunnel, where larger ones that the gateways
	// at both ends could carry are lost on the way. Traffic to that cluster is kept as small.
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// Reason of a status other than Connected, of an MTU, or of a cable other than the pair is to have, in CamelCase.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message explains a status other than Connected, an MTU, or that cable.
	// +optional
	Message string `json:"message,omitempty"`
	// Heard says, where the status is not Connected, whether anything of the remote gateway has arrived here by UDP in the
	// last 30 s. Where each of the two gateways is heard by the other or not, it is known which way packets are lost. Not
	// set while it is too early to tell.
	// +optional
	Heard *bool `json:"heard,omitempty"`
}

// MaxUnheardNodes is how many nodes a Gateway names that it does not hear.
const MaxUnheardNodes = 16

// KeyPhase is where a gateway stands in replacing its private key.
// +kubebuilder:validation:Enum=Current;Due;Offered;Promoted
type KeyPhase string

// The phases of a key.
const (
	// KeyCurrent: there is one key, and it need not be replaced.
	KeyCurrent KeyPhase = "Current"
	// KeyDue: the key is to be replaced, and something has to happen before that can begin.
	KeyDue KeyPhase = "Due"
	// KeyOffered: the next key is made and told to the other clusters. Both keys work, and each peer moves to the cables
	// with the next one as soon as probes pass there.
	KeyOffered KeyPhase = "Offered"
	// KeyPromoted: the next key is the key now; what had the former one is refused by this gateway. Each peer moves back
	// to the usual cables, which have the new key, as soon as probes pass there.
	KeyPromoted KeyPhase = "Promoted"
)

// GatewayKeys is what a gateway says of its private keys.
type GatewayKeys struct {
	// Phase of the replacement.
	Phase KeyPhase `json:"phase"`
	// MadeAt is when the key was made that publicKey belongs to, or asked for if that is later by another clock.
	MadeAt metav1.Time `json:"madeAt"`
	// Since is when the phase began, if it is Offered or Promoted.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Waiting names what the next step waits for: gateways of other clusters that have not moved, as "cluster/gateway", at
	// most 16 of them.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Waiting []string `json:"waiting,omitempty"`
	// Peers is how many gateways of other clusters there are, Moved how many of them have moved in this phase.
	Peers int32 `json:"peers"`
	Moved int32 `json:"moved"`
	// Abandoned names the gateways that the last step did not wait for any longer, as Waiting does.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Abandoned []string `json:"abandoned,omitempty"`
}

// MaxKeyPeers is how many gateways Waiting and Abandoned name.
const MaxKeyPeers = 16

// FlowHash is what a node hashes of a packet to choose among several next hops: those with the same hash take the same.
// +kubebuilder:validation:Enum=Addresses;Ports
type FlowHash string

// The hashes, as net.ipv4.fib_multipath_hash_policy and fib_multipath_hash_fields of the node say.
const (
	// FlowHashAddresses: all flows between two addresses take the same way.
	FlowHashAddresses FlowHash = "Addresses"
	// FlowHashPorts: flows between two addresses are spread by their ports.
	FlowHashPorts FlowHash = "Ports"
)

// GatewayStatus is written by the node agent of the gateway's node, on change and at least every 60 s; silentSince by
// the cluster agent.
type GatewayStatus struct {
	// HAState of this gateway.
	// +optional
	HAState HAState `json:"haState,omitempty"`
	// Endpoint that this node publishes; slot and gateway repeat the spec and the name.
	// +optional
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// Implementation of the cable on this node.
	// +optional
	Implementation CableImplementation `json:"implementation,omitempty"`
	// Version of the node agent.
	// +optional
	Version string `json:"version,omitempty"`
	// FlowHash is by what the node spreads IPv4 flows over several gateways; empty where it does not know.
	// +optional
	FlowHash FlowHash `json:"flowHash,omitempty"`
	// Connections to remote gateways, sorted by cluster and slot.
	// +listType=atomic
	// +optional
	Connections []Connection `json:"connections,omitempty"`
	// Relays is the digest of what the node has in force of the Peering's spec.relays, once it has; empty, as of an agent
	// that does not know of relays.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Relays string `json:"relays,omitempty"`
	// RelaysVersion is the version of the node agent that says so. An older one leaves both as they are: see
	// RelaysInForce.
	// +optional
	RelaysVersion string `json:"relaysVersion,omitempty"`
	// Summary of the connections for kubectl: "2 of 3 connected".
	// +optional
	Summary string `json:"summary,omitempty"`
	// Keys of this gateway.
	// +optional
	Keys *GatewayKeys `json:"keys,omitempty"`
	// UnheardNodes are the first of the other nodes of the cluster of which nothing has arrived over the overlay for 20 s:
	// their agents do not run, are older, or VXLAN does not pass from there to here.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	// +optional
	UnheardNodes []string `json:"unheardNodes,omitempty"`
	// ReportedAt is when this status was written; older than 90 s it is unknown.
	// +optional
	ReportedAt *metav1.Time `json:"reportedAt,omitempty"`
	// SilentSince is when the node agent was last heard of, by the clock of its node, where that is longer ago than it may
	// be: nothing else in this status is known to hold since.
	// +optional
	SilentSince *metav1.Time `json:"silentSince,omitempty"`
	// Conditions: Ready, NetworksAccepted, ConnectionTrackingAvailable, FullSizePacketsPass, KeyCurrent.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GatewayReady is the condition that the node's data plane matches the plan.
const GatewayReady = "Ready"

// GatewayNetworksAccepted is the condition that the node has left out nothing of what the objects of its
// cluster ask for: no network, node or gateway, of this cluster or of another.
const GatewayNetworksAccepted = "NetworksAccepted"

// GatewayTrackingAvailable is the condition that the node can track many more connections than it does. At its limit,
// the kernel drops packets of new ones.
const GatewayTrackingAvailable = "ConnectionTrackingAvailable"

// Reasons of GatewayTrackingAvailable, and of the events of its changes.
const (
	ReasonTrackingAvailable = "ConnectionTrackingAvailable"
	ReasonTrackingNearLimit = "ConnectionTrackingNearLimit"
)

// GatewayFullSize is the condition that packets of the size that cables carry pass through all of the gateway's
// tunnels that are connected.
const GatewayFullSize = "FullSizePacketsPass"

// Reasons of GatewayFullSize, and of the events of its changes. ReasonPathMTULow is that of a connection too: the path
// drops large packets without a word, and traffic is kept smaller.
const (
	ReasonFullSizePasses = "FullSizePacketsPass"
	ReasonPathMTULow     = "PathMTULow"
)

// ReasonCableSilent is of a connection that is Connected: the pair is to have another cable, which does not answer.
const ReasonCableSilent = "CableSilent"

// ReasonKeysStay is of a connection by ipsec that is Connected: its keys are not renewed, for charon does not answer.
const ReasonKeysStay = "KeysStay"

// ReasonAlgorithmsDiffer is of a connection by ipsec that is Connected: it has other algorithms than the ClusterSet
// asks for, until the other gateway takes these.
const ReasonAlgorithmsDiffer = "AlgorithmsDiffer"

// ReasonNoIPv6 is of a connection that is to be by ipsec: the gateway's kernel has no IPv6, which that needs. Where the
// gateway has no container for it the reason is ReasonNoIPsecContainer.
const ReasonNoIPv6 = "NoIPv6"

// GatewayKeyCurrent is the condition that the gateway has one key, which need not be replaced.
const GatewayKeyCurrent = "KeyCurrent"

// Reasons of GatewayKeyCurrent, and of the events of its changes.
const (
	ReasonKeyCurrent = "KeyCurrent"
	// ReasonKeyOffered: peers move to the next key.
	ReasonKeyOffered = "KeyOffered"
	// ReasonKeyPromoted: peers move back to the usual cables, with the new key.
	ReasonKeyPromoted = "KeyPromoted"
	// ReasonKeyWaits: gateways of other clusters replace theirs first.
	ReasonKeyWaits = "KeyWaits"
	// ReasonKeyNotKept: the node cannot keep another key.
	ReasonKeyNotKept = "KeyNotKept"
	// ReasonPortTaken: the UDP ports that the next key needs are not free.
	ReasonPortTaken = "PortTaken"
)

// EventKeyReplaced is the reason of the event that a gateway's private key was lost: it has another one since.
const EventKeyReplaced = "KeyReplaced"

// Gateway is one gateway node of this cluster, named after the node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=sealane,shortName=sgw
// +kubebuilder:printcolumn:name="HA",type=string,JSONPath=`.status.haState`
// +kubebuilder:printcolumn:name="Slot",type=integer,JSONPath=`.spec.slot`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.endpoint.addresses[0].ip`
// +kubebuilder:printcolumn:name="Implementation",type=string,JSONPath=`.status.implementation`
// +kubebuilder:printcolumn:name="Connections",type=string,JSONPath=`.status.summary`
// +kubebuilder:printcolumn:name="Silent",type=date,JSONPath=`.status.silentSince`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Gateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GatewaySpec   `json:"spec"`
	Status GatewayStatus `json:"status,omitempty"`
}

// GatewayList is a list of Gateways.
// +kubebuilder:object:root=true
type GatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gateway `json:"items"`
}
