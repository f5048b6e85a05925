// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition types of a Member, and of a Peering, which carries them to the member's own admins.
const (
	// MemberAccepted: the cluster's facts are valid and clash with nobody's.
	MemberAccepted = "Accepted"
	// MemberReported: the agent has answered the current revision.
	MemberReported = "Reported"
	// MemberConnected: the cluster and every other accepted member reach each other, as both sides see it.
	MemberConnected = "Connected"
	// MemberMCSAPI: the cluster serves the MCS API in full.
	MemberMCSAPI = "MCSAPI"
	// MemberCleaned: the cluster leaves and has answered that its nodes are clean.
	MemberCleaned = "Cleaned"
)

// Reasons of MemberAccepted.
const (
	ReasonAccepted        = "Accepted"
	ReasonWaitingForFacts = "WaitingForFacts"
	ReasonCIDROverlap     = "CIDROverlap"
	// ReasonGlobalCIDRRecorded: the cluster's block of global addresses is being recorded; it is accepted next.
	ReasonGlobalCIDRRecorded = "GlobalCIDRRecorded"
	// ReasonGlobalnetChanged: the cluster keeps what it has until it leaves and joins, though another mode or block is
	// stated for it.
	ReasonGlobalnetChanged = "GlobalnetChanged"
	// ReasonNotAllowed: the cluster claims networks that the ClusterSet does not allow it.
	ReasonNotAllowed       = "NotAllowed"
	ReasonInvalidNetworks  = "InvalidNetworks"
	ReasonInvalidEndpoints = "InvalidEndpoints"
	ReasonStatusTooLarge   = "StatusTooLarge"
	// ReasonKeptLastGood: a new report was refused, and what was accepted before stays in force.
	ReasonKeptLastGood = "KeptLastGood"
)

// MemberRefused says whether a member is not accepted, by its condition MemberAccepted, for a reason that needs a
// person. The other reasons pass by themselves.
func MemberRefused(accepted *metav1.Condition) bool {
	if accepted == nil || accepted.Status == metav1.ConditionTrue {
		return false
	}
	switch accepted.Reason {
	case "", ReasonAccepted, ReasonWaitingForFacts, ReasonGlobalCIDRRecorded:
		return false
	}
	return true
}

// Reasons of MemberReported.
const (
	// ReasonReported: the member has answered the current revision.
	ReasonReported = "Reported"
	// ReasonUnknown: the member has not answered it yet.
	ReasonUnknown = "Unknown"
)

// MemberPhase is where a member stands in its life.
// +kubebuilder:validation:Enum=Active;Leaving
type MemberPhase string

// The phases of a member.
const (
	MemberActive  MemberPhase = "Active"
	MemberLeaving MemberPhase = "Leaving"
)

// MemberSpec is what the broker assigned.
type MemberSpec struct {
	// ClusterSet that the cluster belongs to.
	ClusterSet string `json:"clusterSet"`
	// ClusterUID is the identity of the cluster (Karmada's Cluster.spec.id, the UID of its
	// kube-system namespace). Another UID under the same name is another cluster: its
	// predecessor's record is dropped.
	ClusterUID string `json:"clusterUID"`
	// Phase of the member.
	Phase MemberPhase `json:"phase"`
	// ServesExports says that the cluster serves ServiceExport, and that Karmada's scheduler was asked to look again
	// at the exports that waited for that.
	// +optional
	ServesExports bool `json:"servesExports,omitempty"`
}

// Measurements of a connection, in the steps of internal/coarse: each write of them travels through Karmada, and noise
// is to cost none. They are for people to read and decide nothing.
type Measurements struct {
	// RTTMicroseconds is the average round-trip time of the probes, of the slowest tunnel in use; the least step stands
	// for all that is shorter. 0 where no probe was answered.
	// +kubebuilder:validation:Minimum=0
	// +optional
	RTTMicroseconds int64 `json:"rttMicroseconds,omitempty"`
	// LossPercent of the probes, of the tunnel in use that loses most.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	LossPercent int32 `json:"lossPercent"`
	// Traffic through all tunnels; not set where no gateway knows.
	// +optional
	Traffic *Traffic `json:"traffic,omitempty"`
}

// MemberConnection is a member's view of its connection to another cluster.
type MemberConnection struct {
	// Cluster at the other end.
	Cluster string `json:"cluster"`
	// Status of the connection.
	Status ConnectionStatus `json:"status"`
	// LastTransitionTime is when the status last changed: by the clocks of the member, or of the controller where that
	// has found out, as of one that is Unknown since nothing is heard of the member. It decides nothing.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason of a status other than Connected, in CamelCase.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason string `json:"reason,omitempty"`
	// Through is the cluster whose gateways pass on what goes between the two; empty if theirs reach each other.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Through string `json:"through,omitempty"`
	// MTU is the size in bytes of the largest packet that passes by every tunnel to the cluster, where larger ones are
	// lost.
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// NodePairs, of a mesh, is how many pairs there are of a node here and one there, and StraightNodePairs for how many
	// of them the node here sends without gateways.
	// +optional
	NodePairs int32 `json:"nodePairs,omitempty"`
	// +optional
	StraightNodePairs int32 `json:"straightNodePairs,omitempty"`
	// Topology, of a Member, is Mesh or Auto where the pair's mode is that.
	// +optional
	Topology TopologyMode `json:"topology,omitempty"`
	// TopologyReason says why all nodes of such a pair go by gateways, in CamelCase; empty if they need not.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TopologyReason string `json:"topologyReason,omitempty"`
	// Measured is what the connection was like, within a step, when the member last reported, while it is Connected.
	// Something worse is reported within two minutes; the rest goes along with other reports, which the broker asks for
	// about every 5 min.
	// +optional
	Measured *Measurements `json:"measured,omitempty"`
	// Observed is where gateways of that cluster are seen, if they do not publish that themselves: one address each. A new
	// address is reported within two minutes, another port alone within ten.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Observed []ObservedGateway `json:"observed,omitempty"`
}

// ObservedGateway is where a gateway of another cluster is seen.
type ObservedGateway struct {
	// Gateway is the name of its node.
	// +kubebuilder:validation:MaxLength=253
	Gateway         string `json:"gateway"`
	ObservedAddress `json:",inline"`
}

// MemberStatus is the last known good state of a cluster: everything in it was validated.
type MemberStatus struct {
	// Networks accepted.
	// +optional
	Networks Networks `json:"networks,omitempty"`
	// PodNetworks and ServiceNetworks are those of Networks, joined by commas: of a list, kubectl shows the JSON.
	// +optional
	PodNetworks string `json:"podNetworks,omitempty"`
	// +optional
	ServiceNetworks string `json:"serviceNetworks,omitempty"`
	// GlobalCIDR is the cluster's block of global addresses; empty if it has none.
	// +optional
	GlobalCIDR string `json:"globalCIDR,omitempty"`
	// GlobalIPv6CIDR is what that block has of IPv6.
	// +optional
	GlobalIPv6CIDR string `json:"globalIPv6CIDR,omitempty"`
	// GlobalScope says to which clusters it is known by that block, and not by Networks.
	// +optional
	GlobalScope GlobalScope `json:"globalScope,omitempty"`
	// OverlappingClusters are the members whose networks overlap this one's, sorted. Each of the two knows the other by
	// its global CIDR.
	// +listType=atomic
	// +optional
	OverlappingClusters []string `json:"overlappingClusters,omitempty"`
	// NodeCIDRs are the cluster's node addresses, /32 and /128; nobody may claim them as pod or service networks.
	// +listType=atomic
	// +optional
	NodeCIDRs []string `json:"nodeCIDRs,omitempty"`
	// Endpoints accepted, sorted by slot.
	// +listType=atomic
	// +optional
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	// Nodes accepted, of a member that is one of a mesh, sorted by name.
	// +listType=atomic
	// +optional
	Nodes []MeshNode `json:"nodes,omitempty"`
	// Connections as the member reports them, sorted by cluster. Unknown while its report may be old.
	// +listType=atomic
	// +optional
	Connections []MemberConnection `json:"connections,omitempty"`
	// AcceptedAt is when the networks were first accepted. Of two that overlap, the earlier stays. A member that
	// leaves gives them up.
	// +optional
	AcceptedAt *metav1.MicroTime `json:"acceptedAt,omitempty"`
	// FailedRevisions of the node agents, as the member reported them last; see PeeringStatus. The other members are told.
	// +listType=set
	// +optional
	FailedRevisions []string `json:"failedRevisions,omitempty"`
	// RollOut of node agents in the member; not set where its cluster agent reports none.
	// +optional
	RollOut *MemberRollOut `json:"rollOut,omitempty"`
	// AgentVersion that the member runs.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// ReadsParts, ReadsText and ReadsDeltas are what the member's agent reports as such.
	// +optional
	ReadsParts bool `json:"readsParts,omitempty"`
	// +optional
	ReadsText bool `json:"readsText,omitempty"`
	// +optional
	ReadsDeltas bool `json:"readsDeltas,omitempty"`
	// ReadsRelays says that the agents of the member's gateways know of relays, as it last reported.
	// +optional
	ReadsRelays bool `json:"readsRelays,omitempty"`
	// Revision last sent and ObservedRevision last echoed.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// +optional
	ObservedRevision int64 `json:"observedRevision,omitempty"`
	// Conditions: Accepted, Reported, Connected, Cleaned, MCSAPI, DNSConfigured, NodesProgrammed,
	// AgentsRunning, GatewaysReady, NetworksAccepted.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Member is the broker's record of one cluster. It is named after the Karmada Cluster and written by
// the controller alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=sealane
// +kubebuilder:printcolumn:name="ClusterSet",type=string,JSONPath=`.spec.clusterSet`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.spec.phase`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Connected",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].status`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.podNetworks`
// +kubebuilder:printcolumn:name="Services",type=string,JSONPath=`.status.serviceNetworks`
// +kubebuilder:printcolumn:name="Global",type=string,JSONPath=`.status.globalCIDR`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Member struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MemberSpec   `json:"spec"`
	Status MemberStatus `json:"status,omitempty"`
}

// MemberList is a list of Members.
// +kubebuilder:object:root=true
type MemberList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Member `json:"items"`
}
