// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceMode is what the name of an imported service answers.
// +kubebuilder:validation:Enum=ClusterSetIP;ClusterIP
type ServiceMode string

// The modes of a service. A headless service has none.
const (
	// ServiceModeClusterSetIP: one address per importing cluster, behind which kube-proxy balances.
	ServiceModeClusterSetIP ServiceMode = "ClusterSetIP"
	// ServiceModeClusterIP: the ClusterIP of one exporting cluster, chosen anew for each DNS query.
	ServiceModeClusterIP ServiceMode = "ClusterIP"
)

// EndpointMode is what stands for a remote cluster behind a ClusterSetIP.
// +kubebuilder:validation:Enum=Pods;ClusterIP
type EndpointMode string

// The modes of endpoints.
const (
	// EndpointModePods: up to 100 pods per cluster and service, above that the ClusterIP.
	EndpointModePods EndpointMode = "Pods"
	// EndpointModeClusterIP: always the ClusterIP in the exporting cluster.
	EndpointModeClusterIP EndpointMode = "ClusterIP"
)

// Annotations of a ServiceExport, on the Karmada API or in a member.
const (
	// AnnotationServiceMode is a ServiceMode for this service. Where exports differ the oldest wins.
	AnnotationServiceMode = "sealane.io/service-mode"
	// AnnotationImportClusters names the clusters that import this export, separated by commas.
	AnnotationImportClusters = "sealane.io/import-clusters"
	// AnnotationImportSelector selects them by the labels of their Karmada Cluster, in the syntax of
	// kubectl's -l. A cluster that either annotation admits imports the export.
	AnnotationImportSelector = "sealane.io/import-cluster-selector"
)

// ServicesSpec says how imported services work.
type ServicesSpec struct {
	// Mode of services whose export does not state one.
	// +kubebuilder:default=ClusterSetIP
	// +optional
	Mode ServiceMode `json:"mode,omitempty"`

	// Endpoints of ClusterSetIPs.
	// +kubebuilder:default=Pods
	// +optional
	Endpoints EndpointMode `json:"endpoints,omitempty"`

	// Exporters says which clusters may export which services. A service that no rule names may be exported
	// by every cluster, any other by those that one of its rules admits. Its ServicePolicy can narrow that.
	// +kubebuilder:validation:MaxItems=200
	// +listType=atomic
	// +optional
	Exporters []ExporterRule `json:"exporters,omitempty"`
}

// ExporterScope says which clusters may export. A cluster may that is named or selected; an empty scope admits
// none. A pull member can write the labels of its own Karmada Cluster: name those that you do not trust.
type ExporterScope struct {
	// ClusterNames are names of Karmada Clusters.
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	ClusterNames []string `json:"clusterNames,omitempty"`
	// ClusterSelector selects by the labels of Karmada Clusters.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
}

// ExporterRule says which clusters may export the services that it names.
type ExporterRule struct {
	// Namespaces of the services; none stands for all.
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +listType=set
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// Names of the services in these namespaces; none stands for all.
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +listType=set
	// +optional
	Names []string `json:"names,omitempty"`

	ExporterScope `json:",inline"`
}

// ImportScope says which clusters import. A cluster belongs to it that is named or selected; an empty
// scope admits none. An exporting cluster always imports its own export.
type ImportScope struct {
	// ClusterNames are names of Karmada Clusters.
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	ClusterNames []string `json:"clusterNames,omitempty"`
	// ClusterSelector selects by the labels of Karmada Clusters.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
}

// LocalCluster in a FailoverPolicy stands for the cluster that imports.
const LocalCluster = "Local"

// FailoverPolicy prefers clusters in an order.
type FailoverPolicy struct {
	// Clusters, the most preferred first. "Local" stands for the importing cluster itself. Exporting
	// clusters that are not listed come last, all at once.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Clusters []string `json:"clusters"`

	// MinReadyBackends is the threshold: while the clusters in use have fewer ready backends than that
	// between them, the next one in order is used, too.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=1
	// +optional
	MinReadyBackends int32 `json:"minReadyBackends,omitempty"`
}

// ClusterWeight is one cluster's share of the traffic.
type ClusterWeight struct {
	// Cluster is the name of a Karmada Cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster"`
	// Weight relative to the others. With 0 the cluster gets nothing.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Weight int32 `json:"weight"`
}

// ClusterChoice says which of the clusters that can serve do. Without either field the importing cluster
// itself comes first, and otherwise all others share evenly.
// +kubebuilder:validation:XValidation:rule="!(has(self.failover) && has(self.weights) && size(self.weights) > 0)",message="failover and weights exclude each other: give one of them"
type ClusterChoice struct {
	// Failover prefers clusters in an order.
	// +optional
	Failover *FailoverPolicy `json:"failover,omitempty"`
	// Weights spread traffic over clusters. Those not listed serve only while none that is listed with a
	// weight above 0 can. In ClusterSetIP mode weights are honoured by the number of pods listed, and so
	// only as finely as there are pods.
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=cluster
	// +optional
	Weights []ClusterWeight `json:"weights,omitempty"`
}

// Condition types and reasons of a ServicePolicy.
const (
	// ServicePolicyAccepted: the policy is in force.
	ServicePolicyAccepted = "Accepted"

	// ServicePolicyReasonAccepted: it is.
	ServicePolicyReasonAccepted = "Accepted"
	// ServicePolicyReasonNoExport: no cluster exports a service of this name.
	ServicePolicyReasonNoExport = "NoExport"
	// ServicePolicyReasonUnknownCluster: a cluster that is named belongs to no ClusterSet.
	ServicePolicyReasonUnknownCluster = "UnknownCluster"
	// ServicePolicyReasonInvalid: a selector cannot be used.
	ServicePolicyReasonInvalid = "Invalid"
)

// ServicePolicySpec says who exports and who imports a service, and which exporting clusters serve it.
type ServicePolicySpec struct {
	// Choice of clusters, the same in every importing cluster.
	// +optional
	Choice *ClusterChoice `json:"choice,omitempty"`
	// Importers narrows which clusters import the service, further than its exports do.
	// +optional
	Importers *ImportScope `json:"importers,omitempty"`
	// Exporters narrows which clusters may export the service, further than the ClusterSet does. nil is
	// whoever may there.
	// +optional
	Exporters *ExporterScope `json:"exporters,omitempty"`
}

// ServicePolicyStatus says whether the policy is in force.
type ServicePolicyStatus struct {
	// Choice and Importers of the spec in words, for kubectl, which shows a list as JSON.
	// +optional
	Choice string `json:"choice,omitempty"`
	// +optional
	Importers string `json:"importers,omitempty"`
	// Conditions: Accepted.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ServicePolicy steers the exported service of its own namespace and name. It lives on the Karmada API
// and is not propagated.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=sealane,shortName=svcpol
// +kubebuilder:printcolumn:name="Choice",type=string,JSONPath=`.status.choice`
// +kubebuilder:printcolumn:name="Importers",type=string,JSONPath=`.status.importers`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ServicePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ServicePolicySpec   `json:"spec,omitempty"`
	Status ServicePolicyStatus `json:"status,omitempty"`
}

// ServicePolicyList is a list of ServicePolicies.
// +kubebuilder:object:root=true
type ServicePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServicePolicy `json:"items"`
}
