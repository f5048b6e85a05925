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

// refusal says why the Service, which is nil when there is none, cannot be exported; the reason is empty where it can.
func refusal(export *mcs.ServiceExport, service *corev1.Service) (mcs.ServiceExportConditionReason, string) {
	switch {
	case service == nil:
		return mcs.ServiceExportReasonNoService, fmt.Sprintf(
			"there is no Service %s in namespace %s; create it, or delete this ServiceExport", export.Name, export.Namespace)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return mcs.ServiceExportReasonInvalidServiceType,
			"the Service is of type ExternalName and has no addresses to export; export a Service of type ClusterIP or a " +
				"headless one"
	case v1alpha1.OwnsService(service):
		return mcs.ServiceExportReasonInvalidServiceType,
			"the Service is derived from an import; export the Service in the cluster it comes from"
	}
	return "", ""
}

// Exportable says whether the Service, which is nil when there is none, can be exported.
func Exportable(export *mcs.ServiceExport, service *corev1.Service) bool {
	reason, _ := refusal(export, service)
	return reason == ""
}

// valid is the Valid condition. Of a Service that can be exported it says what is left out.
func valid(export *mcs.ServiceExport, service *corev1.Service) metav1.Condition {
	out := metav1.Condition{Type: string(mcs.ServiceExportConditionValid), Status: metav1.ConditionFalse}
	reason, message := refusal(export, service)
	if reason != "" {
		out.Reason, out.Message = string(reason), message
		return out
	}
	out.Status, out.Reason = metav1.ConditionTrue, string(mcs.ServiceExportReasonValid)
	out.Message = "the Service can be exported"
	if leftOut := read(export).malformed; len(leftOut) > 0 {
		out.Message += "; left out: " + strings.Join(leftOut, "; ")
	}
	return out
}

// conditions returns what the ServiceExport's conditions should be: those that are not ours stay. Ready and
// Conflict are the broker's verdict; until it has spoken Ready is pending and Conflict absent. When the
// cluster leaves, ours go.
func conditions(export *mcs.ServiceExport, service *corev1.Service, broker []v1alpha1.ExportCondition,
	leaving bool) []metav1.Condition {
	out := append([]metav1.Condition{}, export.Status.Conditions...)
	if leaving {
		for _, t := range []mcs.ServiceExportConditionType{mcs.ServiceExportConditionValid, mcs.ServiceExportConditionReady,
			mcs.ServiceExportConditionConflict} {
			meta.RemoveStatusCondition(&out, string(t))
		}
		return out
	}
	valid := valid(export, service)
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

// noRoom is the verdict on an export that the cluster's own report has no room for.
func noRoom(export *mcs.ServiceExport) v1alpha1.ExportCondition {
	return v1alpha1.ExportCondition{
		Namespace: export.Namespace, Name: export.Name,
		Type: string(mcs.ServiceExportConditionReady), Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonBundleFull,
		Message: "no room in this cluster's report on its exports: older ones come first; export fewer services, or use a " +
			"ClusterSet with more shards",
	}
}
