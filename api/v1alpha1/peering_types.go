// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RemoteCluster is another member of the ClusterSet as this one should reach it.
type RemoteCluster struct {
	// Name of the cluster in Karmada, which is also its cluster ID.
	Name string `json:"name"`
	// Networks of that cluster; empty where it is known here by GlobalCIDR.
	Networks Networks `json:"networks"`
	// GlobalCIDR is the block of global addresses by which that cluster is known here.
	// +kubebuilder:validation:MaxLength=18
	// +optional
	GlobalCIDR string `json:"globalCIDR,omitempty"`
	// GlobalIPv6CIDR is what that block has of IPv6.
	// +kubebuilder:validation:MaxLength=43
	// +optional
	GlobalIPv6CIDR string `json:"globalIPv6CIDR,omitempty"`
	// Translated says that this cluster is known there by its own global CIDR: gateways translate what passes between
	// the two.
	// +optional
	Translated bool `json:"translated,omitempty"`
	// Cable by which gateways of the two clusters reach each other, if both ends can. Empty, and as long as another cable
	// does not answer: wireguard. An agent that does not know the driver goes on with wireguard.
	// +optional
	Cable CableDriver `json:"cable,omitempty"`
	// Relay is the name of another remote cluster, whose gateways pass on what goes between this one and that one. There
	// are no endpoints then: an agent that does not know of relays does not reach that cluster.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Relay string `json:"relay,omitempty"`
	// RelayStatus is Error after the relay has reported that it does not reach that cluster, until it says that it does.
	// +optional
	RelayStatus ConnectionStatus `json:"relayStatus,omitempty"`
	// RelayMTU is the size in bytes of the largest packet that the relay can send to that cluster; 0 where that is not
	// known.
	// +optional
	RelayMTU int32 `json:"relayMTU,omitempty"`
	// Endpoints of that cluster, sorted by slot. Empty while it has no gateway, and of one behind a relay.
	// +listType=atomic
	Endpoints []Endpoint `json:"endpoints"`
	// Topology Mesh asks this cluster to publish its nodes, for that one to connect to, whether the pair's mode is Mesh or
	// Auto. Empty: by gateways alone.
	// +optional
	Topology TopologyMode `json:"topology,omitempty"`
	// Nodes of that cluster to connect to without gateways, sorted by name.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Nodes []MeshNode `json:"nodes,omitempty"`
}

// RelayedClusters are clusters for which another one is a relay.
type RelayedClusters struct {
	// Clusters are the names of remote clusters, sorted, and With of those to which the packets of each of them are passed
	// on. These have an entry for the way back. A cluster that is in both lists has none to itself.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Clusters []string `json:"clusters"`
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	With []string `json:"with"`
}

// PeeringSpec is written by the broker. Every field is always filled.
type PeeringSpec struct {
	// Revision is raised to ask the member for a fresh report; it is echoed in
	// status.observedRevision.
	Revision int64 `json:"revision"`
	// Phase Leaving asks the agents to clean the nodes and to report status.cleaned.
	Phase MemberPhase `json:"phase"`
	// ClusterSet that this cluster belongs to.
	ClusterSet string `json:"clusterSet"`
	// ClusterID of this cluster: its Karmada name.
	ClusterID string `json:"clusterID"`
	// Shards is the number of Bundles; a service's shard is FNV-1a 32 of "<namespace>/<name>"
	// modulo Shards.
	Shards int32 `json:"shards"`
	// Gateways of the ClusterSet; what an older controller left out is the default.
	// +optional
	Gateways GatewaysSpec `json:"gateways,omitzero"`
	// Keys says when this cluster's gateways replace theirs; what an older controller left out is never.
	// +optional
	Keys PeeringKeys `json:"keys,omitzero"`
	// Cable, DNS and HealthCheck of the ClusterSet.
	Cable       CableSpec       `json:"cable"`
	DNS         DNSSpec         `json:"dns"`
	HealthCheck HealthCheckSpec `json:"healthCheck"`
	// Override of what the agent would discover; empty lists override nothing.
	Override Networks `json:"override"`
	// Networks of this cluster that were accepted: what the others route here, but for those that know it by its
	// global CIDR. Empty before acceptance.
	Networks Networks `json:"networks"`
	// GlobalCIDR is this cluster's block of global addresses; empty if it has none.
	// +optional
	GlobalCIDR string `json:"globalCIDR,omitempty"`
	// GlobalIPv6CIDR is what that block has of IPv6.
	// +optional
	GlobalIPv6CIDR string `json:"globalIPv6CIDR,omitempty"`
	// ExternalCIDRs are where hosts outside all clusters are that this cluster may export.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=18
	// +listType=atomic
	// +optional
	ExternalCIDRs []string `json:"externalCIDRs,omitempty"`
	// RemoteClusters, sorted by name. Empty while this cluster is not accepted.
	// +listType=map
	// +listMapKey=name
	RemoteClusters []RemoteCluster `json:"remoteClusters"`
	// Relays are the clusters for which this one is a relay: its gateways pass packets on between those that it says, and
	// between no others.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	Relays []RelayedClusters `json:"relays,omitempty"`
	// FailedRevisions are those of status.failedRevisions of the other members, sorted: agents of the same that wait for
	// their turn are held here, too.
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +optional
	FailedRevisions []string `json:"failedRevisions,omitempty"`
	// RollOut says which node agents may take nodes over from others. Where it is not set, as of an older broker, and of a
	// member that reports no roll-out, all may.
	// +optional
	RollOut *RollOutTurn `json:"rollOut,omitempty"`
	// Conditions of this cluster's Member that concern its admins: Accepted.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions"`
}

// PeeringStatus is written by this cluster's agent. It names no cluster of its own: the broker takes the
// reporter's identity from the Work's namespace. It holds no heartbeat and no timestamp, and what is measured in coarse
// steps alone, since each write travels through Karmada.
type PeeringStatus struct {
	// ObservedRevision is the spec.revision that this report answers. A report of an older
	// revision is unknown, which is never the same as empty.
	// +optional
	ObservedRevision int64 `json:"observedRevision,omitempty"`
	// Cleaned says that every node is free of Sealane's links, routes, rules and tables.
	// +optional
	Cleaned bool `json:"cleaned,omitempty"`
	// Networks of this cluster as discovered or given.
	// +optional
	Networks Networks `json:"networks,omitempty"`
	// NodeCIDRs are the node addresses, as /32 and /128.
	// +kubebuilder:validation:MaxItems=10240
	// +listType=atomic
	// +optional
	NodeCIDRs []string `json:"nodeCIDRs,omitempty"`
	// Endpoints, one per gateway node, sorted by slot.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	// Nodes that other clusters may connect to without gateways, sorted by name. None unless a remote cluster's topology
	// asks for them.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Nodes []MeshNode `json:"nodes,omitempty"`
	// Connections to the other clusters, sorted by cluster.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	Connections []MemberConnection `json:"connections,omitempty"`
	// AgentVersion that reports.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// ReadsParts says that the agent reads Bundles that have a part of what is imported: it finds imports in the halves
	// that one lists, and waits for the rest of one that is withheld.
	// +optional
	ReadsParts bool `json:"readsParts,omitempty"`
	// ReadsText says that the agent reads backends that are text.
	// +optional
	ReadsText bool `json:"readsText,omitempty"`
	// ReadsDeltas says that the agent finds imports that have changed in Bundles of deltas.
	// +optional
	ReadsDeltas bool `json:"readsDeltas,omitempty"`
	// Relays is the digest of spec.relays, once all gateways have that in force: also those that are not heard of, as
	// their cables may carry on. Until then it is that of a gateway which has something else; empty where there is no
	// gateway, or one of them has an agent that does not know of relays.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Relays string `json:"relays,omitempty"`
	// FailedRevisions of the node agents' DaemonSet (the label controller-revision-hash of its pods): an agent of each
	// took its node over and has failed. Agents of the same revision that wait for their turn are held.
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +optional
	FailedRevisions []string `json:"failedRevisions,omitempty"`
	// RollOut says how far the nodes have come with the agents that the DaemonSet brings; not set while there are none.
	// +optional
	RollOut *RollOutReport `json:"rollOut,omitempty"`
	// Conditions that the agent knows: MCSAPI, DNSConfigured, NodesProgrammed, AgentsRunning, GatewaysReady,
	// NetworksAccepted, ExportsAccepted, ImportsApplied, PodsRouted, in a mesh NodesPublished,
	// and of an underlay UnderlayRouted.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaxFailedRevisions is how many there can be.
const MaxFailedRevisions = 16

// Condition types of a Peering's status, copied to the Member.
const (
	// PeeringDNSConfigured: the cluster's own DNS forwards Sealane's domains.
	PeeringDNSConfigured = "DNSConfigured"
	// PeeringNodesProgrammed: the node agents have programmed every node.
	PeeringNodesProgrammed = "NodesProgrammed"
	// PeeringAgentsRunning: every pod of the node agents runs, also those that are to follow others in a roll-out.
	PeeringAgentsRunning = "AgentsRunning"
	// PeeringGatewaysReady: the gateways' nodes are ready, and their agents heard of. One of them that is not, and that
	// Sealane has picked itself, is being replaced while another is well.
	PeeringGatewaysReady = "GatewaysReady"
	// PeeringNetworksAccepted: no node has refused a network, node or gateway of this or another cluster.
	PeeringNetworksAccepted = "NetworksAccepted"
	// PeeringExportsAccepted: no ServiceExport of the cluster is refused or in conflict.
	PeeringExportsAccepted = "ExportsAccepted"
	// PeeringImportsApplied: every service that the cluster imports has its ServiceImport, and can be used.
	PeeringImportsApplied = "ImportsApplied"
	// PeeringNodesPublished, of a cluster that is one of a mesh: every node that could be is one of status.nodes.
	PeeringNodesPublished = "NodesPublished"
	// PeeringNetworksDiscovered: pod and service networks of the cluster are known.
	PeeringNetworksDiscovered = "NetworksDiscovered"
	// PeeringPodsRouted: every pod has addresses that other clusters route to its node. Not there until the cluster is
	// accepted.
	PeeringPodsRouted = "PodsRouted"
	// PeeringUnderlayRouted, where pods share networks with nodes or Spiderpool is installed: the CNI plugin is told to
	// have pods route the other clusters' networks by their nodes. It is Unknown where there is no plugin to tell.
	PeeringUnderlayRouted = "UnderlayRouted"
)

// Reasons of these conditions that need a person.
const (
	// Of PeeringDNSConfigured: there is no Corefile, it cannot be parsed, the marks in it are broken, or the
	// cluster's own DNS serves a domain, or one above or below it, already.
	ReasonNoCorefile      = "NoCorefile"
	ReasonInvalidCorefile = "InvalidCorefile"
	ReasonMarkersBroken   = "MarkersBroken"
	ReasonDomainTaken     = "DomainTaken"
	// Of PeeringDNSConfigured: the cluster's DNS is none that can be configured, its configuration may not be read or
	// changed, or something puts that back as it was.
	ReasonUnknownClusterDNS = "UnknownClusterDNS"
	ReasonDNSNotAllowed     = "DNSNotAllowed"
	ReasonDNSPutBack        = "DNSPutBack"
	// Of PeeringNodesProgrammed: an agent could not program its node.
	ReasonProgrammingFailed = "ProgrammingFailed"
	// Of PeeringAgentsRunning: a pod cannot be scheduled, its image cannot be had, or it ends again and again.
	ReasonAgentsFailing = "AgentsFailing"
	// Of PeeringGatewaysReady, besides ReasonNoGateway: a labelled gateway is not, or none is.
	ReasonGatewaysNotReady = "GatewaysNotReady"
	// Of PeeringGatewaysReady, of gateways that are well: other nodes are labelled and cannot be gateways, or the label
	// has another value.
	ReasonGatewayLabelIgnored = "GatewayLabelIgnored"
	// Of PeeringGatewaysReady, of gateways that are well: other clusters are to be reached by ipsec, and no container of
	// theirs runs it.
	ReasonNoIPsecContainer = "NoIPsecContainer"
	// Of PeeringNetworksAccepted: nodes left something out, and the message says what and why.
	ReasonNetworksRefused = "NetworksRefused"
	// Of PeeringPodsRouted: pods are outside the cluster's networks, or on a node with more networks than a NodeNetwork
	// has room for. The message has their number, rounded down, and the oldest two of each.
	ReasonPodsNotRouted = "PodsNotRouted"
	// Of PeeringUnderlayRouted: the API server refuses to have the plugin's settings changed; and, where it is Unknown,
	// there are none that Sealane knows.
	ReasonPublishRefused = "PublishRefused"
	ReasonNotPublished   = "NotPublished"
	// Of PeeringNodesPublished: the cluster has more nodes than a mesh may have, and publishes none.
	ReasonTooManyNodes = "TooManyNodes"
	// Of PeeringExportsAccepted: the conditions of some ServiceExports say what is wrong with them.
	ReasonExportsRefused = "ExportsRefused"
	// Of PeeringImportsApplied, and of an ImportProblem: a ServiceImport of that name, or the Service or EndpointSlice
	// that Sealane would derive from it, is somebody else's; the namespace is missing; the API server refused to make
	// what an import needs; it is not made yet; the namespace is there, but the broker does not know yet, so that the
	// import is withheld.
	ReasonNameTaken        = "NameTaken"
	ReasonNamespaceMissing = "NamespaceMissing"
	ReasonImportRefused    = "Refused"
	ReasonImportPending    = "Pending"
	ReasonImportWithheld   = "Withheld"
	// Of MemberMCSAPI: the cluster serves only v1alpha1 of the MCS API.
	ReasonMCSAPILimited = "Limited"
)

// Peering is one member's place in the fabric: down, what it is to connect to; up, what it is.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=sealane
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'sealane'",message="there is one Peering in a cluster and it is named sealane"
// +kubebuilder:printcolumn:name="ClusterSet",type=string,JSONPath=`.spec.clusterSet`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.spec.phase`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.spec.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.spec.revision`,priority=1
// +kubebuilder:printcolumn:name="Observed",type=integer,JSONPath=`.status.observedRevision`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Peering struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PeeringSpec   `json:"spec"`
	Status PeeringStatus `json:"status,omitempty"`
}

// PeeringList is a list of Peerings.
// +kubebuilder:object:root=true
type PeeringList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Peering `json:"items"`
}
