// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// What a NodeSlice has room for. Text of a node that is longer is cut.
const (
	MaxSliceNodes         = 4096
	MaxSliceNodeAddresses = 16
	MaxSliceNodeText      = 64
	MaxSliceNodePublicIP  = 1024
)

// NodeSliceSpec is written by the cluster agent.
type NodeSliceSpec struct {
	// Nodes of this slice, sorted by name.
	// +kubebuilder:validation:MaxItems=4096
	// +listType=map
	// +listMapKey=name
	// +optional
	Nodes []SliceNode `json:"nodes,omitempty"`
}

// SliceNode is what nodes read of a Node.
type SliceNode struct {
	// Name of the Node.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Addresses are the InternalIPs of its status, in their order and as they are written there.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=atomic
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// PodCIDRs are its spec.podCIDRs.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=atomic
	// +optional
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// PublicIP is its annotation gateway.sealane.io/public-ip.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	PublicIP string `json:"publicIP,omitempty"`
}

// NodeSlice says of some of a member's nodes where they are, in place of the Nodes themselves: of these, which are
// written all the time, a thousand node agents would each read a thousand. Which slice has a node is decided by its
// name, and all slices are always there: while one is missing, the nodes are not known.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="First",type=string,JSONPath=`.spec.nodes[0].name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodeSliceSpec `json:"spec"`
}

// NodeSliceList is a list of NodeSlices.
// +kubebuilder:object:root=true
type NodeSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeSlice `json:"items"`
}
