// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// TopologyMode says how two clusters reach each other.
// +kubebuilder:validation:Enum=Gateways;Mesh;Auto
type TopologyMode string

// The modes of a pair of clusters.
const (
	// TopologyGateways is by gateways alone.
	TopologyGateways TopologyMode = "Gateways"
	// TopologyMesh is that every node of one cluster connects to every node of the other, for what its own pods send to
	// the other's pods. What a pair of nodes cannot carry goes by the gateways, as all else does.
	TopologyMesh TopologyMode = "Mesh"
	// TopologyAuto is Mesh for a pair of clusters that is small enough. Where that fails nobody is bothered.
	TopologyAuto TopologyMode = "Auto"
)

// TopologyPair is two clusters, and how they reach each other.
type TopologyPair struct {
	// Clusters are the names of the two Karmada Clusters.
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Clusters []string `json:"clusters"`
	// Mode Mesh connects node to node. Each node needs UDP port cable.port+32 open to the other cluster's nodes, at its
	// InternalIP. A cluster with more than 64 nodes, or with more than 512 nodes in the clusters that it is paired with,
	// goes on by gateways; that, or that no two nodes reach each other, is one of status.problems.
	// Mode Auto does the same in silence, for a pair of clusters that have at most maxNodes nodes together.
	// Mode Gateways exempts a pair from spec.topology.mode.
	Mode TopologyMode `json:"mode"`
}

// TopologySpec says which pairs of clusters need no gateways.
type TopologySpec struct {
	// Mode of every pair that pairs does not name.
	// +kubebuilder:default=Gateways
	// +optional
	Mode TopologyMode `json:"mode,omitempty"`
	// MaxNodes is how many nodes two clusters with mode Auto may have together. A pair that is connected by it stays so
	// until it has a quarter more.
	// +kubebuilder:default=32
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=128
	// +optional
	MaxNodes int32 `json:"maxNodes,omitempty"`
	// Pairs of clusters, each with a mode of its own.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Pairs []TopologyPair `json:"pairs,omitempty"`
}

// Limits of a mesh: how many nodes of a cluster are published, and how many of other clusters a member is told of; how
// many nodes a pair with mode Auto has unless the ClusterSet says otherwise.
const (
	MaxMeshNodes        = 64
	MaxMeshRemoteNodes  = 512
	DefaultAutoMaxNodes = 32
)

// MeshNode is a node of a cluster as the nodes of another reach it without gateways.
type MeshNode struct {
	// Name of the node, unique in its cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// PublicKey is the node's WireGuard (X25519) public key, base64, 44 characters. A gateway's Endpoint has the same.
	// +kubebuilder:validation:MaxLength=44
	PublicKey string `json:"publicKey"`
	// Addresses of the node, its InternalIP of each family.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +listType=atomic
	Addresses []string `json:"addresses"`
	// PodCIDRs are the networks of the node's own pods. No other node has pods in them.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=49
	// +listType=atomic
	PodCIDRs []string `json:"podCIDRs"`
	// MTU is the largest inner packet that the node's cables carry, in bytes.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MTU int32 `json:"mtu,omitempty"`
}
