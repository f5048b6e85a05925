// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"fmt"
	"strings"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// good are the facts of a cluster that serves the MCS API and is a member in good standing.
func good() Facts {
	c := &clusterv1alpha1.Cluster{}
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: metav1.ConditionTrue}}
	c.Status.APIEnablements = []clusterv1alpha1.APIEnablement{{
		GroupVersion: "multicluster.x-k8s.io/v1alpha1", Resources: []clusterv1alpha1.APIResource{{Kind: "ServiceExport"}},
	}}
	m := &v1alpha1.Member{Spec: v1alpha1.MemberSpec{ClusterSet: "blue", Phase: v1alpha1.MemberActive}}
	m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.MemberAccepted, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonAccepted}}
	return Facts{Cluster: c, Member: m}
}

// delivered is what Karmada gathers from a member whose ServiceExport has this Valid condition.
func delivered(status, reason, message string) *workv1alpha2.AggregatedStatusItem {
	return &workv1alpha2.AggregatedStatusItem{Applied: true, Status: &runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"conditions":[{"type":"Valid","status":%q,"reason":%q,"message":%q}]}`, status, reason, message)}}
}

func TestEveryClusterSaysWhyItHasNotExported(t *testing.T) {
	ready := []metav1.Condition{{Type: Ready, Status: metav1.ConditionTrue, Reason: "Exported"},
		{Type: Conflict, Status: metav1.ConditionFalse, Reason: "NoConflicts"}}
	for name, c := range map[string]struct {
		change func(*Facts)
		want   string // Valid, Ready
		says   string
	}{
		"exported":     {func(f *Facts) { f.Said = ready }, "True/Valid True/Exported", ""},
		"unjoined":     {func(f *Facts) { f.Cluster = nil }, " False/Failed", "no such cluster"},
		"not a member": {func(f *Facts) { f.Member = nil }, " False/Failed", "belongs to no ClusterSet"},
		"leaving": {func(f *Facts) { f.Member.Spec.Phase = v1alpha1.MemberLeaving }, " False/Failed",
			"leaving ClusterSet blue"},
		"leaving with an export": {func(f *Facts) { f.Said, f.Member.Spec.Phase = ready, v1alpha1.MemberLeaving },
			" False/Failed", "leaving ClusterSet blue"},
		"refused": {accepted("False", v1alpha1.ReasonCIDROverlap, "10.1.0.0/16 is c1's"), " False/Failed",
			"not accepted in its ClusterSet: 10.1.0.0/16 is c1's"},
		"member not reporting": {accepted("False", v1alpha1.ReasonWaitingForFacts, "wait"), " False/Pending",
			"agent has not reported"},
		"member about to be accepted": {accepted("False", v1alpha1.ReasonGlobalCIDRRecorded, "wait"), " False/Pending",
			"agent has not reported"},
		"not reachable": {func(f *Facts) { f.Cluster.Status.Conditions = nil }, " False/Pending",
			"cannot reach the cluster"},
		"no CRDs": {func(f *Facts) { f.Cluster.Status.APIEnablements = nil }, " False/Pending",
			"does not serve ServiceExport"},
		"silent": {func(*Facts) {}, " False/Pending", "nothing is reported yet"},
		"not applied": {func(
			f *Facts) {
			f.Delivery = &workv1alpha2.AggregatedStatusItem{AppliedMessage: "denied"}
		}, " False/Failed", "could not apply the ServiceExport: denied"},
		"no Service anywhere": {func(f *Facts) { f.Delivery = delivered("False", "NoService", "no Service web") },
			"False/NoService False/Pending", "no Service web"},
		"Service placed elsewhere": {placedIn("c1", "c3"), "False/NoService False/Failed",
			"not placed there, but in c1, c3"},
		"Service placed nowhere": {placedIn(), "False/NoService False/Failed", "in no cluster"},
		"Service on its way":     {placedIn("c2"), "False/NoService False/Pending", "no Service web"},
		"not exportable": {func(f *Facts) {
			f.Delivery = delivered("False", "InvalidServiceType",
				"ExternalName")
		}, "False/InvalidServiceType False/Failed", "ExternalName"},
		"valid and on its way": {func(f *Facts) { f.Delivery = delivered("True", "Valid", "") },
			"True/Valid False/Pending", "not reported yet"},
		"hostile reason": {func(f *Facts) { f.Delivery = delivered("False", "a b", "x") }, " False/Pending",
			"nothing is reported yet"},
		"hostile status": {func(f *Facts) { f.Delivery = delivered("Maybe", "Valid", "x") }, " False/Pending",
			"nothing is reported yet"},
		"a status that is too large": {func(f *Facts) {
			f.Delivery = delivered("False", "NoService",
				strings.Repeat("x", maxStatus))
		}, " False/Pending", "nothing is reported yet"},
		"a report beats what is slow": {func(f *Facts) { f.Delivery, f.Said = delivered("False", "NoService", "x"), ready },
			"True/Valid True/Exported", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := good()
			c.change(&f)
			conditions := f.Conditions("c2")
			is := func(kind string) string {
				c := meta.FindStatusCondition(conditions, kind)
				if c == nil {
					return ""
				}
				return string(c.Status) + "/" + c.Reason
			}
			if got := is(Valid) + " " + is(Ready); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if m := meta.FindStatusCondition(conditions, Ready).Message; !strings.Contains(m, c.says) {
				t.Errorf("%q does not say %q", m, c.says)
			}
		})
	}
}

func accepted(status, reason, message string) func(*Facts) {
	return func(f *Facts) {
		f.Member.Status.Conditions = []metav1.Condition{{Type: v1alpha1.MemberAccepted,
			Status: metav1.ConditionStatus(status), Reason: reason, Message: message}}
	}
}

func placedIn(clusters ...string) func(*Facts) {
	return func(f *Facts) {
		f.Delivery = delivered("False", "NoService", "no Service web")
		f.ServiceIn = append([]string{}, clusters...)
	}
}

func TestStripKeepsWhatIsRead(t *testing.T) {
	binding := func(kind string) *workv1alpha2.ResourceBinding {
		b := &workv1alpha2.ResourceBinding{}
		b.Spec.Resource = workv1alpha2.ObjectReference{Kind: kind, Namespace: "sample", Name: "web", UID: "1"}
		b.Spec.Clusters = []workv1alpha2.TargetCluster{{Name: "c1"}}
		b.Status.AggregatedStatus = []workv1alpha2.AggregatedStatusItem{{ClusterName: "c1"}}
		Strip(b)
		return b
	}
	for kind, want := range map[string][2]int{"ServiceExport": {1, 1}, "Service": {1, 0}, "Deployment": {0, 0}} {
		b := binding(kind)
		if got := [2]int{len(b.Spec.Clusters), len(b.Status.AggregatedStatus)}; got != want ||
			len(exportOfBinding(t.Context(), b)) != want[0] {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}
