// SPDX-License-Identifier: Apache-2.0

package sealane_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func ingressAllocation(service string) *v1alpha1.GlobalAllocation {
	o := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "default",
		Name: service})
	o.Spec.Ingress = &v1alpha1.IngressAllocation{IP: "120.1.0.10"}
	return o
}

// TestOnlyTheClusterAgentWritesGlobalAddresses: neither a tenant with all rights in a namespace nor an administrator
// writes what the cluster agent allocates; it does.
func TestOnlyTheClusterAgentWritesGlobalAddresses(t *testing.T) {
	admin := connect(t, server)
	installAll(t, admin, "artifacts/deploy/*.yaml")
	pod := podOn(t, admin, "n1", "sealane-cluster-agent-1", "sealane-cluster-agent")
	agent := with(t, token(t, "sealane-cluster-agent", pod), "sealane-cluster-agent/test")
	create(t, admin,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "everything"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "everything"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "everything"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}}})
	as := rest.CopyConfig(server)
	as.Impersonate.UserName = "tenant"
	tenant := connect(t, as)

	service := &v1alpha1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: v1alpha1.GlobalIngressIPSpec{Service: "web"}}
	pool := &v1alpha1.GlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "all"}}
	ours := &v1alpha1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterEgressName}}
	create(t, admin, service, pool, ours)
	claimsService := patchStatus(t, service, `{"status":{"ip":"120.1.0.10"}}`)
	claimsRange := patchStatus(t, pool, `{"status":{"range":{"first":9,"last":9}}}`)
	ledger := patchStatus(t, ours, `{"status":{"allocations":[{"first":9,"last":9,"owner":"default/all"}]}}`)
	enforced(t, func() error { return claimsService(tenant) })
	const want = "global addresses are allocated by the cluster agent: nobody else writes the status of globalingressips"
	if err := claimsService(tenant); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the tenant is told %v", err)
	}
	expect(t, tenant, []write{
		{"a service's address", byPolicy, claimsService},
		{"a range", byPolicy, claimsRange},
		{"all of another's status at once", byPolicy, func(c client.Client) error {
			o := pool.DeepCopy()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(pool), o); err != nil {
				return err
			}
			o.Status.Pods = []string{"10.7.0.5"}
			return c.Status().Update(t.Context(), o)
		}},
		{"a GlobalEgressIP of its own", done, patch(t, pool, `{"spec":{"numberOfIPs":2}}`)},
		{"the cluster's ranges", noRight, ledger},
		{"an allocation", noRight, creates(t, ingressAllocation("mine"))},
	})
	expect(t, agent, []write{
		{"a service's address, told", done, claimsService},
		{"a range, told", done, claimsRange},
		{"the cluster's ranges", done, ledger},
		{"an allocation", done, creates(t, ingressAllocation("web"))},
		{"an allocation, again", done, patch(t, ingressAllocation("web"), `{"spec":{"ingress":{"ip":"120.1.0.11"}}}`)},
		{"another allocation", done, creates(t, ingressAllocation("foreground"))},
		{"the spec of a tenant's GlobalEgressIP", noRight, patch(t, pool, `{"spec":{"numberOfIPs":3}}`)},
	})
	expect(t, admin, []write{
		{"the cluster's ranges", byPolicy, ledger},
		{"an allocation", byPolicy, creates(t, ingressAllocation("other"))},
		{"an allocation, again", byPolicy, patch(t, ingressAllocation("web"), `{"spec":{"ingress":{"ip":"120.1.0.12"}}}`)},
		{"how many addresses the cluster has", done, patch(t, ours, `{"spec":{"numberOfIPs":4}}`)},
		{"an allocation's end", done, deletes(t, ingressAllocation("web"))},
		{"an allocation's end in the foreground", done, func(c client.Client) error {
			return c.Delete(t.Context(), ingressAllocation("foreground"),
				client.PropagationPolicy(metav1.DeletePropagationForeground))
		}},
		{"what the garbage collector does then", done, patch(t, ingressAllocation("foreground"),
			`{"metadata":{"finalizers":null}}`)},
	})
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(ingressAllocation("foreground")),
		&v1alpha1.GlobalAllocation{}); !apierrors.IsNotFound(err) {
		t.Errorf("expected the allocation to be gone, found %v", err)
	}
	expect(t, agent, []write{{"an allocation's end", done, func(c client.Client) error {
		if err := creates(t, ingressAllocation("web"))(c); err != nil {
			return err
		}
		return deletes(t, ingressAllocation("web"))(c)
	}}})
}
