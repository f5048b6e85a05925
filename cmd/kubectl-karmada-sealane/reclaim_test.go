// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util/names"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/installation"
)

// workOf is the Work by which Karmada has a CRD in a cluster.
func workOf(cluster, crd string) *workv1alpha1.Work {
	w := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: names.GenerateExecutionSpaceName(cluster),
		Name: names.GenerateWorkName(installation.KindCRD, crd, "")}}
	w.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"` + crd + `"}}`)}}}
	return w
}

// propagate plays Karmada for the CRDs of one cluster: a Work for each that the policy selects, by its setting, which
// goes with the CRD.
func (k *karmada) propagate(ctx context.Context, t *testing.T, cluster string) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		var policy policyv1alpha1.ClusterPropagationPolicy
		if k.Get(ctx, client.ObjectKey{Name: installation.CRDPolicyName}, &policy) != nil {
			return
		}
		for _, plural := range installation.MemberCRDs() {
			name := plural + "." + v1alpha1.GroupName
			var crd apiextensionsv1.CustomResourceDefinition
			if err := k.Get(ctx, client.ObjectKey{Name: name}, &crd); gone(err) || err == nil && crd.DeletionTimestamp != nil {
				_ = k.Delete(ctx, workOf(cluster, name))
			}
		}
		for _, s := range policy.Spec.ResourceSelectors {
			var crd apiextensionsv1.CustomResourceDefinition
			if k.Get(ctx, client.ObjectKey{Name: s.Name}, &crd) != nil || crd.DeletionTimestamp != nil {
				continue
			}
			w := workOf(cluster, s.Name)
			_ = k.Create(ctx, w)
			if k.Get(ctx, client.ObjectKeyFromObject(w), w) != nil {
				continue
			}
			w.Spec.PreserveResourcesOnDeletion = policy.Spec.PreserveResourcesOnDeletion
			if err := k.Update(ctx, w); err != nil && ctx.Err() == nil {
				t.Log(err)
			}
			w.Status.Conditions = []metav1.Condition{{Type: workv1alpha1.WorkApplied, Status: metav1.ConditionTrue,
				Reason: "Applied", LastTransitionTime: metav1.Now()}}
			if err := k.Status().Update(ctx, w); err != nil && ctx.Err() == nil {
				t.Log(err)
			}
		}
	}, 100*time.Millisecond)
}

// TestUninstallAfterARollBack: the version that is installed has fewer CRDs than this command knows, and the policy of
// another one, which was rolled back to, does not select all that there are. All of them go nevertheless.
func TestUninstallAfterARollBack(t *testing.T) {
	k := newKarmada(t)
	k.install(t)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.GenerateExecutionSpaceName("c1")}}
	if err := k.Create(t.Context(), space); client.IgnoreAlreadyExists(err) != nil { // as another test may have left it
		t.Fatal(err)
	}
	c1 := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	k.get(t, c1)
	c1.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: metav1.ConditionTrue,
		Reason: "Ready", LastTransitionTime: metav1.Now()}}
	c1.Status.APIEnablements = []clusterv1alpha1.APIEnablement{{GroupVersion: v1alpha1.GroupVersion.String()}}
	if err := k.Status().Update(t.Context(), c1); err != nil {
		t.Fatal(err)
	}
	older := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "nodenetworks.sealane.io"}}
	if err := k.Delete(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	var policy policyv1alpha1.ClusterPropagationPolicy
	if err := k.Get(t.Context(), client.ObjectKey{Name: installation.CRDPolicyName}, &policy); err != nil {
		t.Fatal(err)
	}
	var selected []policyv1alpha1.ResourceSelector
	for _, s := range policy.Spec.ResourceSelectors {
		if s.Name != "nodeslices.sealane.io" {
			selected = append(selected, s)
		}
	}
	if len(selected) != len(policy.Spec.ResourceSelectors)-1 {
		t.Fatalf("the policy selects %v", policy.Spec.ResourceSelectors)
	}
	// What the policy selected before is still propagated by what it said then.
	for _, plural := range installation.MemberCRDs() {
		w := workOf("c1", plural+"."+v1alpha1.GroupName)
		w.Spec.PreserveResourcesOnDeletion = ptr.To(true)
		k.create(t, w)
	}
	policy.Spec.ResourceSelectors = selected
	if err := k.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
	if err := k.dropMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); k.propagate(ctx, t, "c1") }()
	defer func() { stop(); <-ended }()
	k.succeeds(t, "uninstall", "--timeout=2m")
	if left := k.sealanes(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	var works workv1alpha1.WorkList
	if err := k.List(t.Context(), &works, client.InNamespace(space.Name)); err != nil || len(works.Items) > 0 {
		t.Errorf("%d Works are left, %v", len(works.Items), err)
	}
}
