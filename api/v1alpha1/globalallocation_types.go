// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// GlobalKind is a kind of objects that have global addresses.
// +kubebuilder:validation:Enum=GlobalIngressIP;GlobalEgressIP
type GlobalKind string

// The kinds of objects that have global addresses.
const (
	GlobalIngress GlobalKind = "GlobalIngressIP"
	GlobalEgress  GlobalKind = "GlobalEgressIP"
)

// GlobalOwner is the object that has global addresses.
type GlobalOwner struct {
	// Kind of the object.
	Kind GlobalKind `json:"kind"`
	// Namespace of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// IngressAllocation is what connections to global addresses of a service reach.
type IngressAllocation struct {
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
	// SessionAffinity is ClientIP where all connections of a client go to one backend; left out where they do not.
	// +kubebuilder:validation:Enum=ClientIP
	// +optional
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`
	// Pods behind a headless service, sorted by name, with those that went less than an hour ago.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	// +optional
	Pods []GlobalPod `json:"pods,omitempty"`
	// ReleasedAt is when the service was exported no more.
	// +optional
	ReleasedAt *metav1.Time `json:"releasedAt,omitempty"`
}

// PodEgressAllocation is which addresses the connections of which pods come from.
type PodEgressAllocation struct {
	EgressRange `json:",inline"`
	// Selected says that the GlobalEgressIP selects pods, and does not mean all of its namespace.
	// +optional
	Selected bool `json:"selected,omitempty"`
	// Pods are the addresses, sorted, of the pods whose connections have these addresses: of each pod one of each family.
	// +kubebuilder:validation:MaxItems=8000
	// +kubebuilder:validation:items:MaxLength=45
	// +listType=atomic
	// +optional
	Pods []string `json:"pods,omitempty"`
}

// GlobalAllocationSpec is written by the cluster agent.
//
// +kubebuilder:validation:XValidation:rule="has(self.ingress) != has(self.egress)",message="an allocation is of one kind"
type GlobalAllocationSpec struct {
	// Owner of the addresses.
	Owner GlobalOwner `json:"owner"`
	// Ingress is that of a GlobalIngressIP.
	// +optional
	Ingress *IngressAllocation `json:"ingress,omitempty"`
	// Egress is that of a GlobalEgressIP.
	// +optional
	Egress *PodEgressAllocation `json:"egress,omitempty"`
}

// GlobalAllocation is the ledger of one object's global addresses: gateways translate by it, and what the cluster
// agent has allocated it reads here. It is in no namespace, where a tenant's rights do not reach; the status of the
// object tells the tenant the same and decides nothing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=sealane
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.owner.kind`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.owner.namespace`
// +kubebuilder:printcolumn:name="Name",type=string,JSONPath=`.spec.owner.name`,priority=1
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.spec.ingress.ip`
// +kubebuilder:printcolumn:name="First",type=integer,JSONPath=`.spec.egress.first`
// +kubebuilder:printcolumn:name="Last",type=integer,JSONPath=`.spec.egress.last`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GlobalAllocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GlobalAllocationSpec `json:"spec"`
}

// GlobalAllocationList is a list of GlobalAllocations.
// +kubebuilder:object:root=true
type GlobalAllocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GlobalAllocation `json:"items"`
}

// Allocation returns the name of the GlobalAllocation of an object: "ingress.<namespace>.<name>" or
// "egress.<namespace>.<name>". A name that is too long ends with a hash of the whole.
func (o GlobalOwner) Allocation() string {
	prefix := "ingress."
	if o.Kind == GlobalEgress {
		prefix = "egress."
	}
	name := prefix + o.Namespace + "." + o.Name
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:16])
	return strings.TrimRight(name[:validation.DNS1123SubdomainMaxLength-len(hash)-1], "-.") + "." + hash
}

// NewGlobalAllocation returns an allocation of an object that says nothing yet.
func NewGlobalAllocation(owner GlobalOwner) *GlobalAllocation {
	return &GlobalAllocation{ObjectMeta: metav1.ObjectMeta{Name: owner.Allocation(),
		Labels: map[string]string{LabelManagedBy: ManagedBy}}, Spec: GlobalAllocationSpec{Owner: owner}}
}
