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

	"github.com/sealane-io/sealane/controllers/services"
	"github.com/sealane-io/sealane/internal/clip"
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
	maxText = 600
)

// Cluster is what is known of an export in one cluster that it is scheduled to.
type Cluster struct {
	Name string
	// Conditions in that cluster; one that is missing is pending.
	Conditions []metav1.Condition
}

// Summarise makes the conditions of the template: Valid and Ready are true if they are in every
// cluster, Conflict is true if it is in any. Messages tell cluster by cluster what is not as it should
// be, and that of Ready tells of all. It is pure; without clusters everything is pending, and scheduling
// says why.
func Summarise(clusters []Cluster, scheduling string) []metav1.Condition {
	clusters = slices.SortedFunc(slices.Values(clusters), func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	if len(clusters) == 0 {
		out := make([]metav1.Condition, 0, 3)
		for _, kind := range []string{Valid, Ready, Conflict} {
			out = append(out, metav1.Condition{Type: kind, Status: pending(kind), Reason: reasonPending, Message: scheduling})
		}
		return out
	}
	return []metav1.Condition{
		summary(clusters, Valid, metav1.ConditionTrue, string(mcsv1beta1.ServiceExportReasonValid), "valid in every cluster"),
		readiness(clusters),
		summary(clusters, Conflict, metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonNoConflicts),
			"the exports of all clusters agree"),
	}
}

// summary of one condition that should have the status want everywhere.
func summary(clusters []Cluster, kind string, want metav1.ConditionStatus, reason, message string) metav1.Condition {
	all := metav1.Condition{Type: kind, Status: want, Reason: reason, Message: message}
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
		texts = append(texts, c.Name+": "+clip.Text(is.Message, maxText))
	}
	if len(texts) > 0 {
		all.Message = join(texts)
	}
	return all
}

// readiness says of every cluster whether it has exported the service, is about to or cannot, and why; what
// is wrong comes first.
func readiness(clusters []Cluster) metav1.Condition {
	all := metav1.Condition{Type: Ready, Status: metav1.ConditionTrue,
		Reason: string(mcsv1beta1.ServiceExportReasonExported)}
	texts := map[int][]string{}
	worst := 0
	for _, c := range clusters {
		is := meta.FindStatusCondition(c.Conditions, Ready)
		switch {
		case is != nil && is.Status == metav1.ConditionTrue:
			text := c.Name + ": exported"
			if _, but, found := strings.Cut(is.Message, services.Exported+"; "); found {
				text += ", " + clip.Text(but, maxText)
			}
			texts[0] = append(texts[0], text)
			continue
		case is == nil:
			is = &metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonPending, Message: "nothing is reported yet"}
		}
		rank, state := severity(is), "pending"
		if rank > 1 {
			state = "failed"
		}
		if rank > worst {
			worst, all.Status, all.Reason = rank, is.Status, is.Reason
		}
		texts[rank] = append(texts[rank], c.Name+": "+state+": "+clip.Text(is.Message, maxText))
	}
	all.Message = join(slices.Concat(texts[2], texts[1], texts[0]))
	return all
}

func join(texts []string) string {
	if more := len(texts) - maxShown; more > 0 {
		texts = append(texts[:maxShown:maxShown], fmt.Sprintf("and %d more clusters", more))
	}
	return strings.Join(texts, "; ")
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
