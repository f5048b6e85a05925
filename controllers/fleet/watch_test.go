// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sealane-io/sealane/propagation"
)

func TestWhichUpdatesOfClustersAreLookedAt(t *testing.T) {
	then := metav1.NewTime(time.Unix(1e9, 0))
	c := clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"zone": "a"},
		ResourceVersion: "1"}}
	c.Spec.ID = "id"
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: metav1.ConditionTrue,
		LastTransitionTime: then}}
	for name, x := range map[string]struct {
		change func(*clusterv1alpha1.Cluster)
		want   bool
	}{
		"what there is room for": {func(c *clusterv1alpha1.Cluster) {
			c.Status.ResourceSummary = &clusterv1alpha1.ResourceSummary{}
		}, false},
		"its nodes": {func(c *clusterv1alpha1.Cluster) {
			c.Status.NodeSummary = &clusterv1alpha1.NodeSummary{}
		}, false},
		"its version":     {func(c *clusterv1alpha1.Cluster) { c.Status.KubernetesVersion = "v1.35.0" }, false},
		"another message": {func(c *clusterv1alpha1.Cluster) { c.Status.Conditions[0].Message = "healthy" }, false},
		"another condition": {func(c *clusterv1alpha1.Cluster) {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: "Other"})
		}, false},
		"a label":  {func(c *clusterv1alpha1.Cluster) { c.Labels["zone"] = "b" }, true},
		"its zone": {func(c *clusterv1alpha1.Cluster) { c.Spec.Zones = []string{"b"} }, true},
		"its ID":   {func(c *clusterv1alpha1.Cluster) { c.Spec.ID = "other" }, true},
		"a taint": {func(c *clusterv1alpha1.Cluster) {
			c.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
		}, true},
		"it is not reached": {func(c *clusterv1alpha1.Cluster) {
			c.Status.Conditions[0].Status = metav1.ConditionFalse
		}, true},
		"it was not, in between": {func(c *clusterv1alpha1.Cluster) {
			c.Status.Conditions[0].LastTransitionTime = metav1.NewTime(then.Add(time.Minute))
		}, true},
		"nothing is known of it": {func(c *clusterv1alpha1.Cluster) { c.Status.Conditions = nil }, true},
		"it is being deleted":    {func(c *clusterv1alpha1.Cluster) { c.DeletionTimestamp = &then }, true},
		"it serves ServiceExport": {func(c *clusterv1alpha1.Cluster) {
			c.Status.APIEnablements = []clusterv1alpha1.APIEnablement{{GroupVersion: "multicluster.x-k8s.io/v1alpha1",
				Resources: []clusterv1alpha1.APIResource{{Kind: "ServiceExport"}}}}
		}, true},
	} {
		after := c.DeepCopy()
		after.ResourceVersion = "2"
		x.change(after)
		if got := Decisive().Update(event.UpdateEvent{ObjectOld: c.DeepCopy(), ObjectNew: after}); got != x.want {
			t.Errorf("%s: looked at: %t, want %t", name, got, x.want)
		}
	}
	if !Decisive().Create(event.CreateEvent{Object: &c}) || !Decisive().Delete(event.DeleteEvent{Object: &c}) {
		t.Error("a cluster that comes or goes is not looked at")
	}
}

func TestWhichUpdatesOfBindingsAreLookedAt(t *testing.T) {
	binding := func(name string, items ...workv1alpha2.AggregatedStatusItem) *workv1alpha2.ClusterResourceBinding {
		return &workv1alpha2.ClusterResourceBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: workv1alpha2.ResourceBindingStatus{AggregatedStatus: items}}
	}
	item := func(cluster string, applied bool, health workv1alpha2.ResourceHealth) workv1alpha2.AggregatedStatusItem {
		return workv1alpha2.AggregatedStatusItem{ClusterName: cluster, Applied: applied, Health: health}
	}
	wire := propagation.WireBindings()[0]
	before := binding(wire, item("c1", true, ""), item("c2", false, ""))
	for name, x := range map[string]struct {
		after *workv1alpha2.ClusterResourceBinding
		want  bool
	}{
		"their health":      {binding(wire, item("c1", true, workv1alpha2.ResourceHealthy), item("c2", false, "")), false},
		"their order":       {binding(wire, item("c2", false, ""), item("c1", true, "")), false},
		"one that has not":  {binding(wire, item("c1", true, "")), false},
		"one that has now":  {binding(wire, item("c1", true, ""), item("c2", true, "")), true},
		"one that had once": {binding(wire, item("c1", false, ""), item("c2", false, "")), true},
		"another one":       {binding(wire, item("c2", true, ""), item("c1", false, "")), true},
	} {
		if got := Wire().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: x.after}); got != x.want {
			t.Errorf("%s: looked at: %t, want %t", name, got, x.want)
		}
	}
	other := binding("ingressclass-customresourcedefinition")
	applied := binding(other.Name, item("c1", true, ""))
	if Wire().Update(event.UpdateEvent{ObjectOld: other, ObjectNew: applied}) ||
		Wire().Create(event.CreateEvent{Object: other}) || Wire().Delete(event.DeleteEvent{Object: other}) {
		t.Error("somebody else's binding is looked at")
	}
	if !Wire().Create(event.CreateEvent{Object: before}) || !Wire().Delete(event.DeleteEvent{Object: before}) {
		t.Error("a binding of the wire that comes or goes is not looked at")
	}
}
