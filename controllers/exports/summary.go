// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Types of the conditions, as in the MCS API.
const (
	Valid    = string(mcsv1beta1.ServiceExportConditionValid)
	Ready    = string(mcsv1beta1.ServiceExportConditionReady)
	Conflict = string(mcsv1beta1.ServiceExportConditionConflict)
)

// reasonPending stands where a cluster has not said anything.
const reasonPending = string(mcsv1beta1.ServiceExportReasonPending)

const (
	// maxShown is how many clusters a message speaks of.
	maxShown = 20
	// maxText is how much of one cluster's message is repeated.
	maxText = 300
)

// Cluster is what is known of an export in one cluster that it is scheduled to.
type Cluster struct {
	Name string
	// Conditions in that cluster; one that is missing is pending.
	Conditions []metav1.Condition
}

// Summarise makes the conditions of the template: Valid and Ready are true if they are in every
// cluster, Conflict is true if it is in any. Messages tell cluster by cluster what is not as it should
// be. It is pure; without clusters everything is pending.
func Summarise(clusters []Cluster) []metav1.Condition {
	clusters = slices.SortedFunc(slices.Values(clusters), func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return []metav1.Condition{
		summary(clusters, Valid, metav1.ConditionTrue, string(mcsv1beta1.ServiceExportReasonValid), "valid in every cluster"),
		summary(clusters, Ready, metav1.ConditionTrue, string(mcsv1beta1.ServiceExportReasonExported), "exported from every cluster"),
		summary(clusters, Conflict, metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonNoConflicts), "the exports of all clusters agree"),
	}
}

// summary of one condition that should have the status want everywhere.
func summary(clusters []Cluster, kind string, want metav1.ConditionStatus, reason, message string) metav1.Condition {
	all := metav1.Condition{Type: kind, Status: want, Reason: reason, Message: message}
	if len(clusters) == 0 {
		all.Status, all.Reason, all.Message = pending(kind), reasonPending, "no cluster is scheduled: does a PropagationPolicy select this ServiceExport?"
		return all
	}
	var texts []string
	worst := 0
	for _, c := range clusters {
		is := meta.FindStatusCondition(c.Conditions, kind)
		if is != nil && is.Status == want {
			continue
		}
		if is == nil {
			is = &metav1.Condition{Status: pending(kind), Reason: reasonPending, Message: "nothing is reported yet"}
		}
		// What is wrong says more than what is not known yet.
		if rank := severity(is); rank > worst {
			worst, all.Status, all.Reason = rank, is.Status, is.Reason
		}
		texts = append(texts, c.Name+": "+cut(is.Message))
	}
	if len(texts) > maxShown {
		texts = append(texts[:maxShown], fmt.Sprintf("and %d more clusters", len(texts)-maxShown))
	}
	if len(texts) > 0 {
		all.Message = strings.Join(texts, "; ")
	}
	return all
}

// pending is the status of a condition before a cluster says anything: a conflict is not known, the
// others are not given.
func pending(kind string) metav1.ConditionStatus {
	if kind == Conflict {
		return metav1.ConditionUnknown
	}
	return metav1.ConditionFalse
}

func severity(c *metav1.Condition) int {
	if c.Reason == reasonPending || c.Status == metav1.ConditionUnknown {
		return 1
	}
	return 2
}

func cut(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return s
}
