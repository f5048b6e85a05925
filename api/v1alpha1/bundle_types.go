// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceType is the MCS type of an exported or imported service.
// +kubebuilder:validation:Enum=ClusterSetIP;Headless
type ServiceType string

// The MCS service types.
const (
	ClusterSetIP ServiceType = "ClusterSetIP"
	Headless     ServiceType = "Headless"
)

// ServicePort is one port of a service. TargetPort is absent on purpose: backends carry their own.
type ServicePort struct {
	// +optional
	Name        string          `json:"name,omitempty"`
	Protocol    corev1.Protocol `json:"protocol"`
	Port        int32           `json:"port"`
	AppProtocol *string         `json:"appProtocol,omitempty"`
}

// BackendPort is a port that backends listen on, matched to a ServicePort by name. In JSON it is text, such as
// "http 8080/TCP" (MarshalJSON).
type BackendPort struct {
	// +optional
	Name     string          `json:"name,omitempty"`
	Protocol corev1.Protocol `json:"protocol"`
	Port     int32           `json:"port"`
}

// Backend is one address behind an exported service. In JSON it is text, such as "10.1.0.7 node=worker-1 zone=a"
// (MarshalJSON).
type Backend struct {
	// IP of the pod or external host.
	IP string `json:"ip"`
	// GlobalIP is the pod's own address in its cluster's block of global addresses, if it is behind a headless Service.
	// It is of the family of IP. Exports have it. In imports it stands in IP.
	// +kubebuilder:validation:MaxLength=45
	// +optional
	GlobalIP string `json:"globalIP,omitempty"`
	// Hostname of the endpoint, for headless names.
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// Zone of the endpoint.
	// +optional
	Zone string `json:"zone,omitempty"`
	// Node that the backend runs on.
	// +optional
	Node string `json:"node,omitempty"`
	// Ready as in EndpointSlice (publishNotReadyAddresses makes it true throughout).
	Ready bool `json:"ready"`
	// Serving and Terminating as in EndpointSlice.
	Serving     bool `json:"serving"`
	Terminating bool `json:"terminating"`
}

// Backends are addresses that share one list of ports.
type Backends struct {
	// Ports as "http 8080/TCP", or "8080/TCP" if it has no name.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Ports []BackendPort `json:"ports"`
	// Addresses, each with what is known of it: "10.1.0.7 node=worker-1 zone=a hostname=db-0 globalIP=242.0.0.7 notReady
	// notServing terminating". What is not said is that it is ready and serves.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Addresses []Backend `json:"addresses"`
}

// ServiceSettings are the parts of a Service that an export carries and that merge by the MCS rules.
type ServiceSettings struct {
	Type ServiceType `json:"type"`
	// Ports in the Service's order.
	// +listType=atomic
	Ports                 []ServicePort                        `json:"ports"`
	SessionAffinity       corev1.ServiceAffinity               `json:"sessionAffinity"`
	SessionAffinityConfig *corev1.SessionAffinityConfig        `json:"sessionAffinityConfig,omitempty"`
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
	TrafficDistribution   *string                              `json:"trafficDistribution,omitempty"`
	// IPFamilies, primary first.
	// +listType=atomic
	IPFamilies []corev1.IPFamily `json:"ipFamilies"`
	// Labels and Annotations exported with the service.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Export is one ServiceExport as its cluster sees it. Only valid exports (a Service exists and can be
// exported) are on the wire.
type Export struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// CreatedAt is the ServiceExport's creationTimestamp: the oldest export wins conflicts.
	CreatedAt metav1.Time `json:"createdAt"`
	// Settings of the exported Service.
	Settings ServiceSettings `json:"settings"`
	// Mode that the export asks for; empty leaves it to the ClusterSet.
	// +optional
	Mode ServiceMode `json:"mode,omitempty"`
	// Scope of the export: who imports it; nil is everybody.
	// +optional
	Scope *ImportScope `json:"scope,omitempty"`
	// Remarks of the exporting cluster for people: what of the ServiceExport or behind its Service it left out, and why.
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=320
	// +listType=atomic
	// +optional
	Remarks []string `json:"remarks,omitempty"`
	// ClusterIPs of the Service, primary first; empty for headless.
	// +listType=atomic
	// +optional
	ClusterIPs []string `json:"clusterIPs,omitempty"`
	// GlobalIP is the address of the Service in the cluster's block of global addresses.
	// +kubebuilder:validation:MaxLength=15
	// +optional
	GlobalIP string `json:"globalIP,omitempty"`
	// GlobalIPv6 is its address of IPv6 there.
	// +kubebuilder:validation:MaxLength=45
	// +optional
	GlobalIPv6 string `json:"globalIPv6,omitempty"`
	// Backends of the Service.
	// +listType=atomic
	// +optional
	Backends []Backends `json:"backends,omitempty"`
}

// ImportCluster is one exporting cluster of an import.
type ImportCluster struct {
	// Cluster that exports.
	Cluster string `json:"cluster"`
	// CreatedAt is since when its export counts: the creationTimestamp of its ServiceExport, or when the
	// broker first saw it if that is later.
	CreatedAt metav1.Time `json:"createdAt"`
	// Settings, Mode and Scope are not written any more; earlier brokers restored exports from them.
	// +optional
	Settings *ServiceSettings `json:"settings,omitempty"`
	// +optional
	Mode ServiceMode `json:"mode,omitempty"`
	// +optional
	Scope *ImportScope `json:"scope,omitempty"`
	// Ports of the merged service that this cluster serves, by name.
	// +listType=atomic
	Ports []string `json:"ports"`
	// ClusterIPs of the service in that cluster, primary first; empty for headless. Of a cluster that is known here by its
	// block of global addresses it is the service's global address.
	// +listType=atomic
	ClusterIPs []string `json:"clusterIPs"`
	// ReadyBackends behind the ClusterIP where that stands in Backends for the pods, at most 101. It is
	// absent where the import's Choice does not depend on it.
	// +optional
	ReadyBackends *int32 `json:"readyBackends,omitempty"`
	// Backends in that cluster. Empty for the importing cluster itself, which reads its own
	// EndpointSlices, and for a cluster that contributes none.
	// +listType=atomic
	Backends []Backends `json:"backends"`
}

// Import is one merged service as a member should import it.
type Import struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Settings merged by the MCS rules.
	Settings ServiceSettings `json:"settings"`
	// Mode of the service; empty is ClusterSetIP. It means nothing for a headless one.
	// +optional
	Mode ServiceMode `json:"mode,omitempty"`
	// Choice of clusters, from the service's ServicePolicy; nil is the default.
	// +optional
	Choice *ClusterChoice `json:"choice,omitempty"`
	// Withheld says that the member reports to have no such namespace, so that no more of the import is here than its
	// settings and the names of the clusters. An agent that finds the namespace lets be what there is of the import, and
	// reports that it waits: that brings the rest.
	// +optional
	Withheld bool `json:"withheld,omitempty"`
	// Clusters that export it, sorted by name. There are none while a name is kept for an export that moves.
	// +listType=map
	// +listMapKey=cluster
	Clusters []ImportCluster `json:"clusters"`
}

// ExportCondition is a verdict of the broker on one of this member's exports: Ready or Conflict.
type ExportCondition struct {
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	Type      string                 `json:"type"`
	Status    metav1.ConditionStatus `json:"status"`
	Reason    string                 `json:"reason"`
	Message   string                 `json:"message"`
}

// BundleSpec is written by the broker. Every field is always filled.
type BundleSpec struct {
	// Revision as in PeeringSpec.
	Revision int64 `json:"revision"`
	// Shard of this Bundle, from 0.
	Shard int32 `json:"shard"`
	// Imports of this member in this shard, sorted by namespace and name.
	// +listType=atomic
	Imports []Import `json:"imports"`
	// Halves of this shard that have its imports instead, in Bundles of their own: prefixes of a service's hash, as bits,
	// none of which begins with another. A Bundle that is not listed by its shard's means nothing.
	// +kubebuilder:validation:MaxItems=2048
	// +kubebuilder:validation:items:Pattern=`^[01]{1,16}$`
	// +listType=set
	// +optional
	Halves []string `json:"halves,omitempty"`
	// Deltas is how many Bundles of deltas the member has, from "sealane-delta-0" on: the own Bundle of shard 0 says so
	// for all shards. Any others mean nothing.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	Deltas int32 `json:"deltas,omitempty"`
	// Sequence orders the Bundles of one member. Where Bundles of deltas have an import that is in the Bundle of its shard
	// or half, too, the one with the highest sequence has it as it is now (CurrentImport). A shard's Bundle without a
	// sequence is newer than any deltas.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Sequence int64 `json:"sequence,omitempty"`
	// AnswerApart says that the member answers this Bundle of deltas in the status of the Bundle "sealane-answers" if
	// there is one, so that an answer is no write of what it answers. An agent that does not know of it answers here.
	// +optional
	AnswerApart bool `json:"answerApart,omitempty"`
	// ExportConditions for this member's own exports, sorted by namespace, name and type.
	// +listType=atomic
	ExportConditions []ExportCondition `json:"exportConditions"`
}

// ImportProblem says why imports of one namespace do not exist in a member, or cannot be used there.
type ImportProblem struct {
	Namespace string `json:"namespace"`
	// Names of the imports, sorted.
	// +listType=atomic
	Names []string `json:"names"`
	// Reason in CamelCase: NamespaceMissing, Withheld, NameTaken, Refused, Pending, or that of the ServiceImport's Ready
	// condition.
	Reason string `json:"reason"`
	// Message is for people, in the words of the member's API server where that refused something. It may be left out
	// for want of room.
	// +optional
	Message string `json:"message,omitempty"`
}

// BundleStatus is written by the member's agent.
type BundleStatus struct {
	// ObservedRevision as in PeeringStatus.
	// +optional
	ObservedRevision int64 `json:"observedRevision,omitempty"`
	// Exports of this member in this shard, sorted by namespace and name.
	// +listType=atomic
	// +optional
	Exports []Export `json:"exports,omitempty"`
	// LeftOut counts the exports that the report has no room for: older ones come first.
	// +optional
	LeftOut int32 `json:"leftOut,omitempty"`
	// Imports of spec.imports, as of observedRevision, that do not exist or cannot be used: all others do. Sorted by
	// namespace, reason and message.
	// +listType=atomic
	// +optional
	Imports []ImportProblem `json:"imports,omitempty"`
	// ImportsLeftOut counts the imports that have a problem and no room in the list.
	// +optional
	ImportsLeftOut int32 `json:"importsLeftOut,omitempty"`
	// Deltas are the revisions of the Bundles of deltas that the member has and that are to be answered apart, by their
	// numbers; 0 is one that is not. The Bundle "sealane-answers" alone has them.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	Deltas []int64 `json:"deltas,omitempty"`
}

// Bundle carries one shard of a member's services: down, what it imports; up, what it exports.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=sealane
// +kubebuilder:printcolumn:name="Sequence",type=integer,JSONPath=`.spec.sequence`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name="Observed",type=integer,JSONPath=`.status.observedRevision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Bundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BundleSpec   `json:"spec"`
	Status BundleStatus `json:"status,omitempty"`
}

// BundleList is a list of Bundles.
// +kubebuilder:object:root=true
type BundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Bundle `json:"items"`
}
