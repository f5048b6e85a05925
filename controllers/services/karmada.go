// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a conflict with what Karmada itself offers for the same service, beside those of the MCS API.
const (
	// ReasonDerivedService says that a ServiceImport on the Karmada API makes Karmada import the service, too.
	ReasonDerivedService = "DerivedServiceConflict"
	// ReasonMultiClusterService says that a MultiClusterService makes Karmada write other clusters' endpoints
	// behind the Service itself.
	ReasonMultiClusterService = "MultiClusterServiceConflict"
)

// KarmadaServices are what Karmada's own controllers act on for the same service.
type KarmadaServices struct {
	ServiceImport, MultiClusterService bool
}

// Conflict returns a Conflict condition that says so, too, and what to do. A condition that says it already
// stays as it is.
func (r KarmadaServices) Conflict(conflict metav1.Condition, namespace, name string) metav1.Condition {
	var reasons, texts []string
	if r.ServiceImport && !strings.Contains(conflict.Reason, ReasonDerivedService) {
		reasons = append(reasons, ReasonDerivedService)
		texts = append(texts, fmt.Sprintf("a ServiceImport on the Karmada API has Karmada import the service as "+
			"derived-%s, beside the ServiceImport of every member: delete it there with kubectl -n %s delete serviceimport %s",
			name, namespace, name))
	}
	if r.MultiClusterService && !strings.Contains(conflict.Reason, ReasonMultiClusterService) {
		reasons = append(reasons, ReasonMultiClusterService)
		texts = append(texts, fmt.Sprintf("a MultiClusterService on the Karmada API has Karmada put pods of other clusters "+
			"behind the Service itself: delete it there with kubectl -n %s delete multiclusterservice %s, or stop exporting "+
			"the service",
			namespace, name))
	}
	if len(reasons) == 0 {
		return conflict
	}
	if conflict.Status == metav1.ConditionTrue {
		reasons, texts = append([]string{conflict.Reason}, reasons...), append([]string{conflict.Message}, texts...)
	}
	conflict.Status, conflict.Reason, conflict.Message = metav1.ConditionTrue, strings.Join(reasons, ","),
		strings.Join(texts, ". ")
	return conflict
}
