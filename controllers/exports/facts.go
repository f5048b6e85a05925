// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
)

// maxStatus is the largest status of a member's ServiceExport that is read, in bytes.
const maxStatus = 64 << 10

// Facts are what is known of an export in one cluster that it is scheduled to.
type Facts struct {
	// Cluster is Karmada's, and Member ours; nil where there is none.
	Cluster *clusterv1alpha1.Cluster
	Member  *v1alpha1.Member
	// Delivery is how far Karmada got with the ServiceExport; nil while it says nothing.
	Delivery *workv1alpha2.AggregatedStatusItem
	// ServiceIn are the clusters that Karmada places the Service in; nil where it does not place it.
	ServiceIn []string
	// Said by the broker of the cluster's export; empty while the cluster reports none.
	Said []metav1.Condition
}

// Conditions of the export in that cluster. Ready is always among them, and says in words why it is not true.
func (f *Facts) Conditions(name string) []metav1.Condition {
	excluded, valid := f.excluded(), f.valid()
	if excluded == "" && meta.FindStatusCondition(f.Said, Ready) != nil {
		// Only a valid export is reported, and the report is faster than Karmada.
		return append(slices.Clone(f.Said), metav1.Condition{Type: Valid, Status: metav1.ConditionTrue,
			Reason: string(mcsv1beta1.ServiceExportReasonValid)})
	}
	var out []metav1.Condition
	if valid != nil {
		out = append(out, *valid)
	}
	ready := metav1.Condition{Type: Ready, Status: metav1.ConditionFalse,
		Reason: string(mcsv1beta1.ServiceExportReasonFailed)}
	if ready.Message = cmp.Or(excluded, f.failed(name, valid)); ready.Message == "" {
		ready.Reason, ready.Message = reasonPending, f.pending(valid)
	}
	return append(out, ready)
}

// excluded says why nothing that the cluster exports counts, or nothing.
func (f *Facts) excluded() string {
	switch {
	case f.Cluster == nil:
		return "Karmada has no such cluster any more"
	case f.Member == nil:
		return "the cluster belongs to no ClusterSet: let one select it, or take it out of the PropagationPolicy"
	case f.Member.Spec.Phase != v1alpha1.MemberActive:
		return fmt.Sprintf("the cluster is leaving ClusterSet %s", f.Member.Spec.ClusterSet)
	}
	c := meta.FindStatusCondition(f.Member.Status.Conditions, v1alpha1.MemberAccepted)
	if v1alpha1.MemberRefused(c) {
		return "the cluster is not accepted in its ClusterSet: " + c.Message
	}
	return ""
}

// failed says what nobody but a person will change, or nothing.
func (f *Facts) failed(name string, valid *metav1.Condition) string {
	if f.Delivery != nil && !f.Delivery.Applied && f.Delivery.AppliedMessage != "" {
		return "Karmada could not apply the ServiceExport: " + f.Delivery.AppliedMessage
	}
	if valid == nil || valid.Status == metav1.ConditionTrue {
		return ""
	}
	if valid.Reason != string(mcsv1beta1.ServiceExportReasonNoService) {
		return valid.Message
	}
	if f.ServiceIn != nil && !slices.Contains(f.ServiceIn, name) {
		return fmt.Sprintf("the Service is not placed there, but in %s: let its PropagationPolicy place it where that of "+
			"the ServiceExport does",
			cmp.Or(strings.Join(firstOf(f.ServiceIn, maxShown), ", "), "no cluster"))
	}
	return ""
}

// pending says what is waited for.
func (f *Facts) pending(valid *metav1.Condition) string {
	accepted := meta.FindStatusCondition(f.Member.Status.Conditions, v1alpha1.MemberAccepted)
	switch {
	case !meta.IsStatusConditionTrue(f.Cluster.Status.Conditions, clusterv1alpha1.ClusterConditionReady):
		return "Karmada cannot reach the cluster: its Cluster is not Ready"
	case accepted == nil || accepted.Status != metav1.ConditionTrue:
		return "the cluster's agent has not reported its networks yet"
	case !fleet.ServesExports(f.Cluster):
		return "the cluster does not serve ServiceExport yet: its agent installs the CRDs of the MCS API, and Karmada " +
			"finds them within a minute or so"
	case valid == nil:
		return "nothing is reported yet"
	case valid.Status != metav1.ConditionTrue:
		return valid.Message
	}
	return "it is valid there and not reported yet"
}

// valid is what the member itself says in its ServiceExport, nil if that is nothing to go by.
func (f *Facts) valid() *metav1.Condition {
	if f.Delivery == nil || f.Delivery.Status == nil || len(f.Delivery.Status.Raw) > maxStatus {
		return nil
	}
	var status mcsv1alpha1.ServiceExportStatus
	if json.Unmarshal(f.Delivery.Status.Raw, &status) != nil {
		return nil
	}
	c := meta.FindStatusCondition(status.Conditions, Valid)
	if c == nil || !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,99}$`).MatchString(c.Reason) {
		return nil
	}
	if c.Status != metav1.ConditionTrue && c.Status != metav1.ConditionFalse {
		return nil
	}
	return &metav1.Condition{Type: Valid, Status: c.Status, Reason: c.Reason, Message: strings.ToValidUTF8(c.Message, "?")}
}

func firstOf(names []string, count int) []string { return names[:min(len(names), count)] }
