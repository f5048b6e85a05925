// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// ReasonInvalidAnnotation is the Valid condition's reason where an annotation that narrows who imports the
// service cannot be understood. Such an export is not made at all.
const ReasonInvalidAnnotation mcs.ServiceExportConditionReason = "InvalidAnnotation"

// Verdict says whether the Service, which is nil when there is none, can be exported: the Valid condition.
func Verdict(export *mcs.ServiceExport, service *corev1.Service) metav1.Condition {
	valid := func(status metav1.ConditionStatus, reason mcs.ServiceExportConditionReason, format string, args ...any) metav1.Condition {
		return metav1.Condition{Type: string(mcs.ServiceExportConditionValid), Status: status, Reason: string(reason), Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case service == nil:
		return valid(metav1.ConditionFalse, mcs.ServiceExportReasonNoService,
			"there is no Service %s in namespace %s; create it, or delete this ServiceExport", export.Name, export.Namespace)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return valid(metav1.ConditionFalse, mcs.ServiceExportReasonInvalidServiceType,
			"the Service is of type ExternalName and has no addresses to export; export a Service of type ClusterIP or a headless one")
	case v1alpha1.OwnsService(service):
		return valid(metav1.ConditionFalse, mcs.ServiceExportReasonInvalidServiceType,
			"the Service is derived from an import; export the Service in the cluster it comes from")
	}
	wishes, err := read(export)
	switch {
	case err != nil:
		return valid(metav1.ConditionFalse, ReasonInvalidAnnotation, "%v", err)
	case len(wishes.ignored) > 0:
		return valid(metav1.ConditionTrue, mcs.ServiceExportReasonValid, "the Service can be exported; left out: %s", joined(wishes.ignored))
	}
	return valid(metav1.ConditionTrue, mcs.ServiceExportReasonValid, "the Service can be exported")
}

func joined(all []error) string {
	texts := make([]string, 0, len(all))
	for _, err := range all {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// conditions returns what the ServiceExport's conditions should be: those that are not ours stay. Ready and
// Conflict are the broker's verdict; until it has spoken Ready is pending and Conflict absent. When the
// cluster leaves, ours go.
func conditions(export *mcs.ServiceExport, service *corev1.Service, broker []v1alpha1.ExportCondition, leaving bool) []metav1.Condition {
	out := append([]metav1.Condition{}, export.Status.Conditions...)
	if leaving {
		for _, t := range []mcs.ServiceExportConditionType{mcs.ServiceExportConditionValid, mcs.ServiceExportConditionReady, mcs.ServiceExportConditionConflict} {
			meta.RemoveStatusCondition(&out, string(t))
		}
		return out
	}
	valid := Verdict(export, service)
	ready := metav1.Condition{
		Type: string(mcs.ServiceExportConditionReady), Status: metav1.ConditionFalse,
		Reason: string(mcs.ServiceExportReasonPending), Message: "waiting for the broker",
	}
	conflict := metav1.Condition{}
	if valid.Status == metav1.ConditionTrue {
		for _, c := range broker {
			said := metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}
			switch mcs.ServiceExportConditionType(c.Type) {
			case mcs.ServiceExportConditionReady:
				ready = said
			case mcs.ServiceExportConditionConflict:
				conflict = said
			}
		}
	} else {
		ready.Message = "not exported: " + valid.Message
		if valid.Reason == string(ReasonInvalidAnnotation) {
			ready.Reason = string(mcs.ServiceExportReasonFailed)
		}
	}
	for _, c := range []metav1.Condition{valid, ready, conflict} {
		if c.Type == "" {
			meta.RemoveStatusCondition(&out, string(mcs.ServiceExportConditionConflict))
			continue
		}
		c.ObservedGeneration = export.Generation
		meta.SetStatusCondition(&out, c)
	}
	return out
}

// ReasonBundleFull is the Ready condition's reason where an export has no room on its way to the others.
const ReasonBundleFull = "BundleFull"

// noRoom is the verdict on an export that the cluster's own report has no room for.
func noRoom(export *mcs.ServiceExport) v1alpha1.ExportCondition {
	return v1alpha1.ExportCondition{
		Namespace: export.Namespace, Name: export.Name,
		Type: string(mcs.ServiceExportConditionReady), Status: metav1.ConditionFalse, Reason: ReasonBundleFull,
		Message: "no room in this cluster's report on its exports: older ones come first; export fewer services, or use a ClusterSet with more shards",
	}
}
