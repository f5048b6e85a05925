// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaxNodePodCIDRs is how many networks a NodeNetwork has room for.
const MaxNodePodCIDRs = 4096

// NodeNetworkSpec is written by the cluster agent.
type NodeNetworkSpec struct {
	// PodCIDRs are where the pods of the node are beyond what its spec.podCIDRs says, sorted. Of two nodes whose
	// networks overlap, the narrower network counts.
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=49
	// +listType=atomic
	// +optional
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// LeftOut is how many networks there was no room for: pods in them are not reached from other clusters.
	// +optional
	LeftOut int32 `json:"leftOut,omitempty"`
}

// NodeNetwork says which addresses the pods of a node have that its spec.podCIDRs does not hold: a CNI plugin took them
// from elsewhere. It is in a member, has the name of its node, and goes with it. A node whose spec.podCIDRs say it all
// has none.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=sealane
// +kubebuilder:printcolumn:name="First",type=string,JSONPath=`.spec.podCIDRs[0]`
// +kubebuilder:printcolumn:name="LeftOut",type=integer,JSONPath=`.spec.leftOut`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodeNetworkSpec `json:"spec"`
}

// NodeNetworkList is a list of NodeNetworks.
// +kubebuilder:object:root=true
type NodeNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeNetwork `json:"items"`
}
