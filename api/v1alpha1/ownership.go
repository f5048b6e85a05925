// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What Sealane writes for an import is recognised by name and label together: an object of somebody else's may carry
// any label, and is never taken for Sealane's by that alone.

// Labels that other projects define and by which ownership is told.
const (
	// LabelManagedBy with ManagedBy is on everything that Sealane writes but EndpointSlices, which have
	// endpointslice.kubernetes.io/managed-by.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// labelSliceOf is multicluster.kubernetes.io/service-name of the MCS API, on EndpointSlices of imports.
	labelSliceOf = "multicluster.kubernetes.io/service-name"
	// labelPropagated is on everything that Karmada propagates into a member.
	labelPropagated = "karmada.io/managed"
)

// DerivedName is the name of the derived Service of an import, and with "-" the prefix of the names of its
// EndpointSlices.
func DerivedName(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return "sl-" + hex.EncodeToString(sum[:5])
}

// ImportOfService returns the name of the import whose derived Service this is; "" where it is none.
func ImportOfService(o metav1.Object) string {
	name := o.GetLabels()[LabelImport]
	if name == "" || o.GetName() != DerivedName(o.GetNamespace(), name) {
		return ""
	}
	return name
}

// ImportOfSlice returns the name of the import whose EndpointSlice this is; "" where it is none of Sealane's. Either
// label that names the import is enough beside the slice's name, so that one that somebody removed comes back.
func ImportOfSlice(o metav1.Object) string {
	for _, label := range []string{LabelImport, labelSliceOf} {
		name := o.GetLabels()[label]
		if name != "" && strings.HasPrefix(o.GetName(), DerivedName(o.GetNamespace(), name)+"-") {
			return name
		}
	}
	return ""
}

// OwnsServiceImport says whether Sealane wrote a ServiceImport. One that Karmada propagates is Karmada's, also where
// it took over one of Sealane's.
func OwnsServiceImport(o metav1.Object) bool {
	return o.GetLabels()[LabelManagedBy] == ManagedBy && o.GetLabels()[LabelImport] == o.GetName() && !Propagated(o)
}

// OwnsService says whether a Service is the derived one of some import.
func OwnsService(o metav1.Object) bool { return ImportOfService(o) != "" }

// OwnsSlice says whether Sealane wrote an EndpointSlice.
func OwnsSlice(o metav1.Object) bool {
	return ImportOfSlice(o) != "" && o.GetLabels()[discoveryv1.LabelManagedBy] == ManagedBy
}

// Propagated says whether Karmada keeps an object in a member.
func Propagated(o metav1.Object) bool { return o.GetLabels()[labelPropagated] == "true" }

// OwnsClusterEgress says whether Sealane made a ClusterGlobalEgressIP.
func OwnsClusterEgress(o metav1.Object) bool {
	return o.GetLabels()[LabelManagedBy] == ManagedBy && !Propagated(o)
}
