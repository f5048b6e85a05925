// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// TopologyMode says how two clusters reach each other.
// +kubebuilder:validation:Enum=Mesh
type TopologyMode string

// TopologyMesh is that every node of one cluster connects to every node of the other, for what its own pods send to the
// other's pods. What a pair of nodes cannot carry goes by the gateways, as all else does.
const TopologyMesh TopologyMode = "Mesh"

// TopologyPair is two clusters whose nodes can reach each other, as in one VPC or flat network.
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
	// goes on by gateways, and status.problems says so.
	Mode TopologyMode `json:"mode"`
}

// TopologySpec says which pairs of clusters need no gateways.
type TopologySpec struct {
	// Pairs of clusters that do not talk by gateways alone. All others do.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Pairs []TopologyPair `json:"pairs,omitempty"`
}

// Limits of a mesh: how many nodes of a cluster are published, and how many of other clusters a member is told of.
const (
	MaxMeshNodes       = 64
	MaxMeshRemoteNodes = 512
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
