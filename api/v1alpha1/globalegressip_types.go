// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterEgressName is the name of the only ClusterGlobalEgressIP.
const ClusterEgressName = "default"

// Bounds of GlobalEgressIPs.
const (
	// MaxEgressIPs bounds numberOfIPs.
	MaxEgressIPs = 64
	// MaxEgressPods is how many pods one GlobalEgressIP translates.
	MaxEgressPods = 4000
)

// Reasons of GlobalIPAllocated of GlobalEgressIPs and of the ClusterGlobalEgressIP, beside those of GlobalIngressIP.
const (
	// ReasonEgressExhausted: no range of as many addresses is left in the gateways' shares of the block.
	ReasonEgressExhausted = "GlobalEgressExhausted"
	// ReasonTooManyPods: there are more pods than one GlobalEgressIP translates.
	ReasonTooManyPods = "TooManyPods"
	// ReasonInvalidSelector: the selector of pods cannot be read.
	ReasonInvalidSelector = "InvalidPodSelector"
)

// EgressRange is a range of addresses, by their numbers in the share that each gateway has of the cluster's block:
// every gateway sends from those of its own share. Number 0 is the gateway's own address.
type EgressRange struct {
	// First number.
	// +kubebuilder:validation:Minimum=1
	First int32 `json:"first"`
	// Last number.
	// +kubebuilder:validation:Minimum=1
	Last int32 `json:"last"`
}

// GatewayAddresses are the addresses of a range that one gateway sends from.
type GatewayAddresses struct {
	// Gateway by the name of its node.
	Gateway string `json:"gateway"`
	// First address.
	First string `json:"first"`
	// Last address.
	Last string `json:"last"`
	// FirstIPv6 and LastIPv6 are those of IPv6 of the same numbers.
	// +optional
	FirstIPv6 string `json:"firstIPv6,omitempty"`
	// +optional
	LastIPv6 string `json:"lastIPv6,omitempty"`
}

// GlobalEgressIPSpec says whose connections are to have addresses of their own.
type GlobalEgressIPSpec struct {
	// PodSelector selects pods of the namespace. Without it, or where it is empty, all are meant that no other
	// GlobalEgressIP selects.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// NumberOfIPs is how many addresses each gateway has for them. It may change at any time: connections that there are
	// keep their address.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	NumberOfIPs int32 `json:"numberOfIPs,omitempty"`
}

// Selects says whether some pods of the namespace are meant, and not all.
func (s GlobalEgressIPSpec) Selects() bool {
	return s.PodSelector != nil && len(s.PodSelector.MatchLabels)+len(s.PodSelector.MatchExpressions) > 0
}

// GlobalEgressIPStatus is written by the cluster agent. It tells, and decides nothing: that is in the GlobalAllocation.
type GlobalEgressIPStatus struct {
	// Range of the addresses; not set while there is none.
	// +optional
	Range *EgressRange `json:"range,omitempty"`
	// Addresses are those of the range, gateway by gateway, in the order of their slots.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Addresses []GatewayAddresses `json:"addresses,omitempty"`
	// Pods are the addresses, sorted, of the pods whose connections have these addresses: of each pod one of each family.
	// Pods of the host network are not among them.
	// +kubebuilder:validation:MaxItems=8000
	// +kubebuilder:validation:items:MaxLength=45
	// +listType=atomic
	// +optional
	Pods []string `json:"pods,omitempty"`
	// Conditions: Allocated.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GlobalEgressIP gives the pods of a namespace, or selected ones of them, global addresses of their own, which servers
// see in clusters that know this one by its block. What a pod is known by: the GlobalEgressIP that selects it, of
// several the oldest; its own global address, if it is behind an exported headless service and there is one gateway;
// the oldest GlobalEgressIP of the namespace without selector; the ClusterGlobalEgressIP.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=sealane
// +kubebuilder:printcolumn:name="IPs",type=integer,JSONPath=`.spec.numberOfIPs`
// +kubebuilder:printcolumn:name="First",type=string,JSONPath=`.status.addresses[0].first`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Allocated")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Allocated")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GlobalEgressIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	// +optional
	Spec   GlobalEgressIPSpec   `json:"spec,omitempty"`
	Status GlobalEgressIPStatus `json:"status,omitempty"`
}

// GlobalEgressIPList is a list of GlobalEgressIPs.
// +kubebuilder:object:root=true
type GlobalEgressIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GlobalEgressIP `json:"items"`
}

// ClusterGlobalEgressIPSpec says how many addresses the cluster's connections have.
type ClusterGlobalEgressIPSpec struct {
	// NumberOfIPs is how many addresses each gateway has for all that has no other. Where it is not stated there are 8, or
	// half of a share that has fewer than 16. It may change at any time: connections that there are keep their address.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	NumberOfIPs int32 `json:"numberOfIPs,omitempty"`
}

// EgressAllocation is whose a range is, or whose it was.
type EgressAllocation struct {
	EgressRange `json:",inline"`
	// Owner is the GlobalEgressIP as <namespace>/<name>; empty for the cluster itself.
	// +kubebuilder:validation:MaxLength=317
	// +optional
	Owner string `json:"owner,omitempty"`
	// ReleasedAt is when the owner had it no more. For an hour it goes to nobody else, as long as there are others.
	// +optional
	ReleasedAt *metav1.Time `json:"releasedAt,omitempty"`
}

// ClusterGlobalEgressIPStatus is written by the cluster agent.
type ClusterGlobalEgressIPStatus struct {
	// CIDR is the block whose addresses are allocated.
	// +kubebuilder:validation:MaxLength=18
	// +optional
	CIDR string `json:"cidr,omitempty"`
	// Range of the cluster's own addresses; not set while there is none.
	// +optional
	Range *EgressRange `json:"range,omitempty"`
	// Addresses are those of the range, gateway by gateway, in the order of their slots.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Addresses []GatewayAddresses `json:"addresses,omitempty"`
	// Allocations are all ranges of the cluster, sorted, with those that are kept for a while for whoever had them. They
	// are here before a GlobalEgressIP says that it has one.
	// +kubebuilder:validation:MaxItems=5000
	// +listType=atomic
	// +optional
	Allocations []EgressAllocation `json:"allocations,omitempty"`
	// Conditions: Allocated.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterGlobalEgressIP has the global addresses of all connections of the cluster to others that no GlobalEgressIP
// says anything of, those of nodes and of pods on the host network among them. The cluster agent makes the one named
// default, and removes it when the cluster leaves.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=sealane
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="a cluster has one ClusterGlobalEgressIP, named default"
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.status.cidr`
// +kubebuilder:printcolumn:name="First",type=string,JSONPath=`.status.addresses[0].first`
// +kubebuilder:printcolumn:name="Last",type=string,JSONPath=`.status.addresses[0].last`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Allocated")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Allocated")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterGlobalEgressIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec   ClusterGlobalEgressIPSpec   `json:"spec,omitempty"`
	Status ClusterGlobalEgressIPStatus `json:"status,omitempty"`
}

// ClusterGlobalEgressIPList is a list of ClusterGlobalEgressIPs.
// +kubebuilder:object:root=true
type ClusterGlobalEgressIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterGlobalEgressIP `json:"items"`
}
