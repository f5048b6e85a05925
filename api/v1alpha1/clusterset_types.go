// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a ClusterSet.
const (
	// ClusterSetReady: the settings are valid, there are members, every selected cluster is one, and these reach each
	// other. Unknown where nothing is known to be wrong and some pair of members is not known to be connected.
	ClusterSetReady = "Ready"
	// ClusterSetConnected: the members of every pair reach each other, as both see it. Unknown where no pair is known not
	// to, and some pair is not known to. False where there is no member.
	ClusterSetConnected = "Connected"
)

// Reasons of these conditions and of a ClusterSet's problems.
const (
	// ReasonReady and ReasonProblems of ClusterSetReady.
	ReasonReady    = "Ready"
	ReasonProblems = "Problems"
	// ReasonConnected and ReasonNotConnected of ClusterSetConnected and MemberConnected.
	ReasonConnected    = "Connected"
	ReasonNotConnected = "NotConnected"
	// ReasonConnectionUnknown of ClusterSetReady, ClusterSetConnected and MemberConnected where these are Unknown.
	ReasonConnectionUnknown = "ConnectionUnknown"
	// ReasonInvalidSettings: the ClusterSet cannot be put into force; what was before stays.
	ReasonInvalidSettings = "InvalidSettings"
	// ReasonSelectedElsewhere: an older ClusterSet selects the cluster too.
	ReasonSelectedElsewhere = "SelectedElsewhere"
	// ReasonClusterNotFound: a cluster that spec.clusterAffinity, spec.clusters, spec.cables, spec.relays,
	// spec.services.exporters, spec.topology or spec.rollOut names does not exist.
	ReasonClusterNotFound = "ClusterNotFound"
	// ReasonNoPairMatches: an entry of spec.cables or spec.relays matches no pair of members, or none that an earlier one
	// does not match.
	ReasonNoPairMatches = "NoPairMatches"
	// ReasonRelayNotUsed: what spec.relays says of a pair cannot be, and why: its gateways dial each other.
	ReasonRelayNotUsed = "RelayNotUsed"
	// ReasonCanaryNotMember: the cluster that spec.rollOut.canary names is no member of the ClusterSet.
	ReasonCanaryNotMember = "CanaryNotMember"
	// ReasonNoMembers of ClusterSetReady and ClusterSetConnected: no cluster is selected.
	ReasonNoMembers = "NoMembers"
	// ReasonDeleting of the same: the ClusterSet is being deleted, and its members leave.
	ReasonDeleting = "Deleting"
	// ReasonLeaving: a member has not yet said that its nodes are clean. Of MemberConnected: it leaves.
	ReasonLeaving = "Leaving"
	// ReasonMeshTooLarge: a pair of spec.topology has more nodes than a mesh may; it goes by gateways.
	ReasonMeshTooLarge = "MeshTooLarge"
	// ReasonNodeAddressesShared: an address is that of a node in both clusters of such a pair, so that they are not in one
	// network, and ReasonNodeFamiliesDiffer: nodes of one have IPv4 and those of the other IPv6 addresses alone.
	ReasonNodeAddressesShared = "NodeAddressesShared"
	ReasonNodeFamiliesDiffer  = "NodeFamiliesDiffer"
	// ReasonNodesNotPublished: no node of a cluster of such a pair can be connected to.
	ReasonNodesNotPublished = "NodesNotPublished"
	// ReasonGlobalAddresses: one of such a pair knows the other by a block of global addresses, and gateways translate.
	ReasonGlobalAddresses = "GlobalAddresses"
	// ReasonMeshNotConnected: no two nodes of such a pair reach each other.
	ReasonMeshNotConnected = "MeshNotConnected"
	// ReasonInvalidNodes: a member reports nodes, for a mesh, that are left out; they are reached by gateways.
	ReasonInvalidNodes = "InvalidNodes"
	// ReasonNoClusterID: Karmada does not know the identity of a cluster.
	ReasonNoClusterID = "NoClusterID"
)

// ClusterOverride states facts about one cluster that its agent would otherwise discover.
type ClusterOverride struct {
	// Name of the Karmada Cluster.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Networks replaces what the agent discovers, each list that is not empty on its own. The cluster may claim
	// these networks and no others, whether or not they are in allowedCIDRs.
	// +optional
	Networks Networks `json:"networks,omitempty"`
	// Globalnet states the cluster's global addresses.
	// +optional
	Globalnet GlobalnetOverride `json:"globalnet,omitzero"`
	// ExternalCIDRs hold hosts outside all clusters that the cluster's nodes reach, such as a database on a virtual
	// machine. A headless Service there may export those, by addresses of the cluster's block, and they may connect to
	// what other clusters export. Others are not exported. Default: none.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=18
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c).ip().family() == 4 && cidr(c).masked() == cidr(c))",message="externalCIDRs holds IPv4 networks in CIDR notation without host bits, such as 172.31.5.0/24 or 172.31.5.7/32"
	// +listType=atomic
	// +optional
	ExternalCIDRs []string `json:"externalCIDRs,omitempty"`
}

// PairCable is the cable of some pairs of clusters.
// +kubebuilder:validation:XValidation:rule="self.driver != 'vxlan' || has(self.unencrypted) && self.unencrypted",message="driver vxlan does not encrypt: set unencrypted to true to say that the network between the gateways is trusted, or choose wireguard"
type PairCable struct {
	// Clusters select pairs. With one selector these are the pairs of which both clusters match it, with two those of
	// which one cluster matches the first and the other the second. An empty selector matches all clusters.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	Clusters []policyv1alpha1.ClusterAffinity `json:"clusters"`
	// Driver of the pairs' cables, as in cable.
	Driver CableDriver `json:"driver"`
	// Unencrypted must be true with driver vxlan: what passes between the clusters is not encrypted.
	// +optional
	Unencrypted bool `json:"unencrypted,omitempty"`
}

// PairRelay is by which cluster some pairs of clusters reach each other.
type PairRelay struct {
	// Clusters select pairs, as in cables: with one selector those of which both clusters match it, with two those of
	// which one matches the first and the other the second.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	Clusters []policyv1alpha1.ClusterAffinity `json:"clusters"`
	// Through is the name of the cluster whose gateways pass on what goes between the two. They decrypt and encrypt it
	// anew: whoever has the nodes of that cluster can read and change it, and speak for either of the two to the other.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Through string `json:"through"`
}

// ClusterSetSpec is the whole configuration of one multicluster network.
type ClusterSetSpec struct {
	// ClusterAffinity selects the Karmada clusters that belong. An empty affinity selects all.
	// A cluster that two ClusterSets select belongs to the older one.
	// +optional
	ClusterAffinity policyv1alpha1.ClusterAffinity `json:"clusterAffinity,omitempty"`

	// Cable between gateways.
	// +kubebuilder:default={}
	// +optional
	Cable CableSpec `json:"cable,omitempty"`

	// Cables are by which cable the gateways of some pairs of clusters reach each other: the first that matches a pair
	// decides, and cable.driver where none does.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Cables []PairCable `json:"cables,omitempty"`

	// Relays are for pairs of clusters whose gateways cannot reach each other, such as two behind NAT: by a third cluster,
	// which both reach. The first entry that matches a pair decides, and where none does the two dial each other. Default:
	// none.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Relays []PairRelay `json:"relays,omitempty"`

	// DNS names answered in every member.
	// +kubebuilder:default={}
	// +kubebuilder:validation:XValidation:rule="!has(self.domains) || self.domains.all(d, d.contains('.'))",message="a domain needs two labels or more, as clusterset.local has: one label is a top-level domain"
	// +kubebuilder:validation:XValidation:rule="!has(self.domains) || self.domains.all(d, d != 'cluster.local' && !d.endsWith('.cluster.local'))",message="a domain must not be, or lie within, cluster.local: these are a cluster's own names"
	// +kubebuilder:validation:XValidation:rule="!has(self.domains) || self.domains.all(d, !d.endsWith('.arpa'))",message="a domain must not lie within arpa, which has the names of addresses"
	// +kubebuilder:validation:XValidation:rule="!has(self.domains) || self.domains.all(d, d.split('.').all(l, size(l) <= 63))",message="a label of a domain has at most 63 characters"
	// +optional
	DNS DNSSpec `json:"dns,omitempty"`

	// Services that members import.
	// +kubebuilder:default={}
	// +optional
	Services ServicesSpec `json:"services,omitempty"`

	// Gateways of the members.
	// +kubebuilder:default={}
	// +optional
	Gateways GatewaysSpec `json:"gateways,omitempty"`

	// Topology says which pairs of clusters connect node to node.
	// +optional
	Topology TopologySpec `json:"topology,omitempty"`

	// Keys of the gateways.
	// +kubebuilder:default={}
	// +optional
	Keys KeysSpec `json:"keys,omitempty"`

	// RollOut of node agents.
	// +optional
	RollOut RollOutSpec `json:"rollOut,omitzero"`

	// HealthCheck of the gateways.
	// +kubebuilder:default={}
	// +kubebuilder:validation:XValidation:rule="!has(self.intervalMilliseconds) || !has(self.failureThreshold) || self.intervalMilliseconds * self.failureThreshold <= 10000",message="intervalMilliseconds times failureThreshold is 10000 at most: traffic must leave a gateway that is dead within ten seconds"
	// +optional
	HealthCheck HealthCheckSpec `json:"healthCheck,omitempty"`

	// Globalnet lets clusters reach each other whose networks overlap.
	// +kubebuilder:default={}
	// +optional
	Globalnet GlobalnetSpec `json:"globalnet,omitempty"`

	// Shards is the number of Bundles per member. It cannot be changed.
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="shards is immutable: every service's place on the wire depends on it; delete the ClusterSet and create it anew to change it"
	// +optional
	Shards int32 `json:"shards,omitempty"`

	// AllowedCIDRs hold the pod and service networks that members may claim; one that claims others is refused.
	// Default: the private networks of RFC 1918, RFC 6598 and RFC 4193. State public networks here if all clusters
	// may have them, and in clusters if one has. What is accepted stays in force when the list gets narrower.
	// +kubebuilder:default={"10.0.0.0/8","172.16.0.0/12","192.168.0.0/16","100.64.0.0/10","fc00::/7"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c).masked() == cidr(c))",message="allowedCIDRs holds networks in CIDR notation without host bits, such as 10.0.0.0/8"
	// +listType=atomic
	// +optional
	AllowedCIDRs []string `json:"allowedCIDRs,omitempty"`

	// Clusters states facts about single clusters.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=map
	// +listMapKey=name
	// +optional
	Clusters []ClusterOverride `json:"clusters,omitempty"`
}

// Allowed returns AllowedCIDRs, or the default where an older client has written none.
func (s *ClusterSetSpec) Allowed() []string {
	if len(s.AllowedCIDRs) > 0 {
		return s.AllowedCIDRs
	}
	return []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"}
}

// Problem is something that needs a person, named so that the person can act.
type Problem struct {
	// Cluster concerned.
	Cluster string `json:"cluster"`
	// Reason in CamelCase.
	Reason string `json:"reason"`
	// Message says what was expected, what was found and what to do.
	Message string `json:"message"`
}

// ClusterPair is two members and what is known of the connection between them.
type ClusterPair struct {
	// Cluster is the one whose name comes first, RemoteCluster the other.
	Cluster       string `json:"cluster"`
	RemoteCluster string `json:"remoteCluster"`
	// Status is the worse of what the two report of each other, and of what their relay reports of them: Error, then
	// Connecting, then Unknown, then Connected.
	Status ConnectionStatus `json:"status"`
	// Reason in CamelCase, of the cluster that reports that status.
	Reason string `json:"reason"`
	// Message says what each of them reports.
	Message string `json:"message"`
	// Through is the cluster by which they are to reach each other; empty if directly.
	// +optional
	Through string `json:"through,omitempty"`
}

// MaxPairs is how many pairs a ClusterSet lists that are not connected.
const MaxPairs = 100

// ClusterSetStatus sums up the members.
type ClusterSetStatus struct {
	// ObservedGeneration of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Members is the number of clusters that belong.
	// +optional
	Members int32 `json:"members"`
	// AcceptedMembers is how many of them are accepted.
	// +optional
	AcceptedMembers int32 `json:"acceptedMembers"`
	// ConnectedMembers is how many of them are connected to every other accepted member, as both sides see it.
	// +optional
	ConnectedMembers int32 `json:"connectedMembers"`
	// Pairs is the number of pairs of accepted members, ConnectedPairs how many of them are connected as both sides see
	// it.
	// +optional
	Pairs int32 `json:"pairs"`
	// +optional
	ConnectedPairs int32 `json:"connectedPairs"`
	// UnencryptedPairs is how many pairs are to be reached by a cable that does not encrypt.
	// +optional
	UnencryptedPairs int32 `json:"unencryptedPairs,omitempty"`
	// UnconnectedPairs are those that are not, the worst first and then by name, at most 100.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +optional
	UnconnectedPairs []ClusterPair `json:"unconnectedPairs,omitempty"`
	// UnlistedPairs is how many more are not connected.
	// +optional
	UnlistedPairs int32 `json:"unlistedPairs,omitempty"`
	// Problems, sorted by cluster, at most 50.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	Problems []Problem `json:"problems,omitempty"`
	// GlobalBlocks are the blocks of global addresses that members have, and those kept for clusters that left, sorted by
	// cluster.
	// +listType=atomic
	// +optional
	GlobalBlocks []GlobalBlock `json:"globalBlocks,omitempty"`
	// Conditions: Ready, Connected, RolledOut.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterSet is one multicluster network: which Karmada clusters belong to it and how it works.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=sealane
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.members`
// +kubebuilder:printcolumn:name="Accepted",type=integer,JSONPath=`.status.acceptedMembers`
// +kubebuilder:printcolumn:name="Connected",type=integer,JSONPath=`.status.connectedMembers`
// +kubebuilder:printcolumn:name="Pairs",type=integer,JSONPath=`.status.pairs`
// +kubebuilder:printcolumn:name="Connected-Pairs",type=integer,JSONPath=`.status.connectedPairs`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.spec.cable.driver`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	Spec   ClusterSetSpec   `json:"spec,omitempty"`
	Status ClusterSetStatus `json:"status,omitempty"`
}

// ClusterSetList is a list of ClusterSets.
// +kubebuilder:object:root=true
type ClusterSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSet `json:"items"`
}
