// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SeenExport is what the broker itself knows of one name that a member exports.
type SeenExport struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// CreatedAt as the member reports it. With another one it is another export.
	CreatedAt metav1.Time `json:"createdAt"`
	// FirstSeen is when the broker first saw it, to the microsecond: an export that claims any age cannot tie with
	// one seen in the same second. An export counts from the later of the two on.
	FirstSeen metav1.MicroTime `json:"firstSeen"`
	// WithdrawnAt is when the member ceased to report it, where it is kept for its name or its backends.
	// +optional
	WithdrawnAt *metav1.Time `json:"withdrawnAt,omitempty"`
	// ClusterIPFamilies are those in which the export has so many ready pods that importers get its
	// ClusterIP instead.
	// +listType=atomic
	// +optional
	ClusterIPFamilies []corev1.IPFamily `json:"clusterIPFamilies,omitempty"`
}

// ExportRecordSpec is written by the broker.
type ExportRecordSpec struct {
	// Cluster that exports.
	Cluster string `json:"cluster"`
	// MemberUID is that of the cluster's Member; the record of another Member says nothing.
	MemberUID types.UID `json:"memberUID"`
	// Shard, from 0.
	Shard int32 `json:"shard"`
	// Seen are the names that the cluster reports in this shard, sorted by namespace and name.
	// +listType=atomic
	// +optional
	Seen []SeenExport `json:"seen,omitempty"`
	// Exports in force, sorted by namespace and name.
	// +listType=atomic
	// +optional
	Exports []Export `json:"exports,omitempty"`
}

// ExportRecord is the broker's record of what one member exports in one shard, and since when. What a
// restarted controller goes by is read from here and not from Works, which a pull member can rewrite. It lives
// on the Karmada API, is named "<cluster>-<shard>", is not propagated and belongs to the cluster's Member.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=sealane
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Shard",type=integer,JSONPath=`.spec.shard`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExportRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ExportRecordSpec `json:"spec"`
}

// ExportRecordList is a list of ExportRecords.
// +kubebuilder:object:root=true
type ExportRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExportRecord `json:"items"`
}

// ExportRecordName returns the name of the record of a cluster's shard.
func ExportRecordName(cluster string, shard int32) string {
	return cluster + "-" + strconv.Itoa(int(shard))
}
