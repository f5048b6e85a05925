// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of GlobalIngressIP.
const (
	// GlobalIPAllocated: the service has a global address or, if it is headless, each of its pods has.
	GlobalIPAllocated = "Allocated"
)

// Reasons of GlobalIPAllocated.
const (
	ReasonAllocated = "Allocated"
	// ReasonReleased: the service is exported no more. It gets the same address if it is exported again in time.
	ReasonReleased = "Released"
	// ReasonBlockExhausted: no address of the cluster's block is left.
	ReasonBlockExhausted = "GlobalCIDRExhausted"
	// ReasonNoBlock: the cluster has no block of global addresses.
	ReasonNoBlock = "NoGlobalCIDR"
	// ReasonHostRefused: a host outside the cluster, behind a headless service, may not be exported.
	ReasonHostRefused = "ExternalHostRefused"
)

// GlobalIngressIPSpec says what the address is for.
type GlobalIngressIPSpec struct {
	// Service of the same namespace that other clusters reach by the address, or whose pods they reach by theirs.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Service string `json:"service"`
}

// GlobalBackend is where connections go.
type GlobalBackend struct {
	// IP of a pod or, for pods on the host network, of a node.
	// +kubebuilder:validation:MaxLength=45
	IP string `json:"ip"`
	// Port that it listens on.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// GlobalPort is a port of a service that has a global address.
type GlobalPort struct {
	// Protocol TCP, UDP or SCTP.
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol"`
	// Port of the service.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Backends that are ready, sorted. Connections are spread over them by a hash of the client's address and port,
	// which is the same on every gateway.
	// +kubebuilder:validation:MaxItems=2000
	// +listType=atomic
	// +optional
	Backends []GlobalBackend `json:"backends,omitempty"`
}

// GlobalPod is a pod behind a headless service, or a host outside the cluster, which has a global address of its own.
type GlobalPod struct {
	// Name of the pod. Who comes back by the name within an hour has the same address.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// IP of the pod; empty once it is gone, and where it has none of IPv4.
	// +kubebuilder:validation:MaxLength=15
	// +optional
	IP string `json:"ip,omitempty"`
	// IPv6 address of the pod; empty once it is gone, and where it has none.
	// +kubebuilder:validation:MaxLength=45
	// +optional
	IPv6 string `json:"ipv6,omitempty"`
	// GlobalIP is the address by which others reach the pod; empty while none is left.
	// +kubebuilder:validation:MaxLength=15
	// +optional
	GlobalIP string `json:"globalIP,omitempty"`
	// GlobalIPv6 is the one of IPv6, which is determined by GlobalIP.
	// +kubebuilder:validation:MaxLength=45
	// +optional
	GlobalIPv6 string `json:"globalIPv6,omitempty"`
	// ReleasedAt is when the pod was ready no more, or its service not exported any more.
	// +optional
	ReleasedAt *metav1.Time `json:"releasedAt,omitempty"`
}

// GlobalIngressIPStatus is written by the cluster agent. It tells, and decides nothing: that is in the
// GlobalAllocation.
type GlobalIngressIPStatus struct {
	// IP is the address of a service with a ClusterIP; empty while there is none.
	// +kubebuilder:validation:MaxLength=15
	// +optional
	IP string `json:"ip,omitempty"`
	// IPv6 is its address of IPv6, which is determined by IP.
	// +kubebuilder:validation:MaxLength=45
	// +optional
	IPv6 string `json:"ipv6,omitempty"`
	// Ports of the service and their backends, sorted by protocol and port.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +optional
	Ports []GlobalPort `json:"ports,omitempty"`
	// Pods behind a headless service, sorted by name, with those that went less than an hour ago.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	// +optional
	Pods []GlobalPod `json:"pods,omitempty"`
	// ReleasedAt is when the service was exported no more.
	// +optional
	ReleasedAt *metav1.Time `json:"releasedAt,omitempty"`
	// Conditions: Allocated.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GlobalIngressIP is the global address of an exported service, or are those of the pods behind a headless one, by
// which clusters reach them that know this one by its block of global addresses. The cluster agent makes it and
// removes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=sealane
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.ip`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Allocated")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Allocated")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GlobalIngressIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GlobalIngressIPSpec   `json:"spec"`
	Status GlobalIngressIPStatus `json:"status,omitempty"`
}

// GlobalIngressIPList is a list of GlobalIngressIPs.
// +kubebuilder:object:root=true
type GlobalIngressIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GlobalIngressIP `json:"items"`
}
