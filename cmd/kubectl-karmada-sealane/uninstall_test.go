// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/installation"
)

// sealanes lists what of Sealane's own is left.
func (k *karmada) sealanes(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, list := range []string{
		"CustomResourceDefinitionList.apiextensions.k8s.io", "NamespaceList.",
		"ClusterRoleList.rbac.authorization.k8s.io", "ClusterRoleBindingList.rbac.authorization.k8s.io",
		"ValidatingAdmissionPolicyList.admissionregistration.k8s.io",
		"ValidatingAdmissionPolicyBindingList.admissionregistration.k8s.io",
	} {
		kind, group, _ := strings.Cut(list, ".")
		objects := &unstructured.UnstructuredList{}
		objects.SetAPIVersion(strings.TrimPrefix(group+"/v1", "/"))
		objects.SetKind(kind)
		if err := k.List(t.Context(), objects); err != nil {
			t.Fatal(err)
		}
		for i := range objects.Items {
			if strings.Contains(objects.Items[i].GetName(), "sealane") {
				left = append(left, describe(&objects.Items[i]))
			}
		}
	}
	return left
}

func TestUninstallLeavesNothing(t *testing.T) {
	k := newKarmada(t)
	k.install(t)
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	k.get(t, set)
	set.Finalizers = []string{"sealane.io/members"}
	if err := k.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	var policies policyv1alpha1.ClusterPropagationPolicyList
	if err := k.List(t.Context(), &policies); err != nil || len(policies.Items) != 2 {
		t.Fatalf("policies of the bundle: %d, %v; want 2", len(policies.Items), err)
	}
	for i := range policies.Items {
		names := policies.Items[i].Spec.Placement.ClusterAffinity.ClusterNames
		if !slices.Equal(names, []string{installation.NoCluster}) {
			t.Errorf("%s goes to %q before the controller says so", policies.Items[i].Name, names)
		}
	}
	k.fails(t, []string{"sealane-controller runs", "uninstall --force"}, "uninstall", "--timeout=3s")
	if err := k.dropMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		k.succeeds(t, "uninstall")
	}
	if left := k.sealanes(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if err := k.List(t.Context(), &policies); err != nil || len(policies.Items) > 0 {
		t.Errorf("policies left over: %v, %v", policies.Items, err)
	}
	k.fails(t, []string{"install"}, "show", "all")
}

func TestUninstallCleansALostMember(t *testing.T) {
	k := newKarmada(t)
	bundle, err := manifests("artifacts/deploy/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crds, err := memberCRDs()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.apply(t.Context(), append(crds, bundle...)...); err != nil {
		t.Fatal(err)
	}
	ours := map[string]string{labelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: "whereami"}
	derived := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
		Name: v1alpha1.DerivedName("default", "whereami"), Labels: ours},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	users := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "whereami", Labels: ours},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: derived.Name + "-c2", Labels: map[string]string{
			discoveryv1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: "whereami",
		}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "whereami"}}
	corefile := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Data: map[string]string{"Corefile": "# BEGIN sealane\nclusterset.local:53 {\n    forward . 10.96.0.20\n}\n# " +
			"END sealane\n.:53 {\n    errors\n}\n"},
	}
	k.create(t, derived, users, slice, export, corefile)
	t.Cleanup(func() {
		for _, object := range []client.Object{users, export, corefile} {
			_ = k.Delete(context.WithoutCancel(t.Context()), object)
		}
	})

	k.succeeds(t, "uninstall", "--context", "lost-member")
	if left := k.sealanes(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	for _, object := range []client.Object{derived, slice} {
		if err := k.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%T is left: %v", object, err)
		}
	}
	k.get(t, users)
	k.get(t, export)
	k.get(t, corefile)
	if got := corefile.Data["Corefile"]; got != ".:53 {\n    errors\n}\n" {
		t.Errorf("Corefile:\n%s", got)
	}
}

func TestUninstallRefusesToCleanAMember(t *testing.T) {
	k := newKarmada(t)
	k.install(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := until(ctx, func(ctx context.Context) (bool, error) {
		return k.Get(ctx, client.ObjectKeyFromObject(ns), ns) == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	k.create(t, &v1alpha1.Member{
		ObjectMeta: metav1.ObjectMeta{Name: "c1"},
		Spec:       v1alpha1.MemberSpec{ClusterSet: "default", ClusterUID: string(ns.UID), Phase: v1alpha1.MemberActive},
	})
	k.fails(t, []string{"it is member c1", "leave c1"}, "uninstall", "--context", "lost-member")
}

// TestMemberCRDsAreThoseOfTheBundle: uninstall waits until each that install has brought to members is gone.
func TestMemberCRDsAreThoseOfTheBundle(t *testing.T) {
	found, err := memberCRDs()
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != len(installation.MemberCRDs()) {
		t.Errorf("uninstall waits for %d CRDs of members, install brings %v", len(found), installation.MemberCRDs())
	}
}
