// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// TestTenantClaimsGlobalAddresses: a gateway translates by GlobalAllocations alone, whatever a tenant who may write all
// kinds of a namespace writes there, on an API server that does not know admission policies.
func TestTenantClaimsGlobalAddresses(t *testing.T) {
	run(t, "ip link set lo up")
	crds, err := apiserver.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	config := apiserver.Start(t, crds)
	c := admin(t, config)
	installNode(t, c)
	remove(t, c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sealane-global-addresses"}})
	mallory := tenant(t, c, config, "attacker")
	create(t, c,
		&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}, Spec: v1alpha1.PeeringSpec{
			Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: "c1", Shards: 4, GlobalCIDR: "120.1.0.0/20",
			Networks:    v1alpha1.Networks{PodCIDRs: []string{"10.7.0.0/16"}},
			Cable:       v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
			DNS:         v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}},
			HealthCheck: v1alpha1.HealthCheckSpec{IntervalMilliseconds: 250, FailureThreshold: 4},
			Conditions:  []metav1.Condition{}, RemoteClusters: []v1alpha1.RemoteCluster{}}},
	)
	tellNodes(t, c, "n1")
	// The tenant is first, and so the older.
	claim := &v1alpha1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "attacker", Name: "web"},
		Spec: v1alpha1.GlobalIngressIPSpec{Service: "web"}}
	pool := &v1alpha1.GlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "attacker", Name: "all"},
		Spec: v1alpha1.GlobalEgressIPSpec{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}}
	create(t, mallory, claim, pool)
	claim.Status = v1alpha1.GlobalIngressIPStatus{IP: "120.1.0.10", Ports: portTo("10.7.0.66"),
		Pods: []v1alpha1.GlobalPod{{Name: "p", IP: "10.7.0.5", GlobalIP: "120.1.0.11"}}}
	pool.Status = v1alpha1.GlobalEgressIPStatus{Range: &v1alpha1.EgressRange{First: 9, Last: 10},
		Pods: []string{"10.7.0.5", "10.7.0.66"}}
	for _, o := range []client.Object{claim, pool} {
		eventually(t, 30*time.Second, fmt.Sprintf("the tenant writes %T", o), func() bool {
			err := mallory.Status().Update(t.Context(), o)
			t.Log(err) // the binding's end takes a moment
			return err == nil
		})
	}
	allocation := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "attacker",
		Name: "web"})
	allocation.Spec.Ingress = &v1alpha1.IngressAllocation{IP: "120.1.0.10", Ports: portTo("10.7.0.66")}
	if err := mallory.Create(t.Context(), allocation); err == nil {
		t.Error("the tenant writes the ledger")
	}
	victim := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "shop",
		Name: "web"})
	victim.Spec.Ingress = &v1alpha1.IngressAllocation{IP: "120.1.0.10", Ports: portTo("10.7.0.4")}
	egress := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalEgress, Namespace: "shop",
		Name: "db"})
	egress.Spec.Egress = &v1alpha1.PodEgressAllocation{EgressRange: v1alpha1.EgressRange{First: 9, Last: 9},
		Selected: true, Pods: []string{"10.7.0.5"}}
	create(t, c, victim, egress)

	own := rest.CopyConfig(config)
	own.Impersonate.UserName = "system:serviceaccount:" + v1alpha1.Namespace + ":sealane-node"
	k := start(t, own)
	const want = "services [{120.1.0.10 [{tcp 80 [10.7.0.4:8080]}] false}] pods [] egress [{{9 9} [10.7.0.5] false}] " +
		"problems []"
	got := ""
	eventually(t, 20*time.Second, "what is translated is "+want, func() bool {
		o, ok, err := k.Objects(t.Context())
		top := topology.Build(topology.Input{Peering: o.Peering, Nodes: o.Nodes,
			GlobalAllocations: o.GlobalAllocations, ClusterGlobalEgressIP: o.ClusterGlobalEgressIP})
		problems := slices.DeleteFunc(top.Problems, func(p topology.Problem) bool { return p.Ref == "Node/n1" })
		now := fmt.Sprint("services ", top.Local.Services, " pods ", top.Local.GlobalPods, " egress ", top.Local.Egress,
			" problems ", problems)
		if now != got {
			t.Log(now)
			got = now
		}
		return ok && err == nil && got == want
	})
}

func portTo(pod string) []v1alpha1.GlobalPort {
	return []v1alpha1.GlobalPort{{Protocol: corev1.ProtocolTCP, Port: 80,
		Backends: []v1alpha1.GlobalBackend{{IP: pod, Port: 8080}}}}
}

// tenant is a user who may do anything in a namespace of his own.
func tenant(t *testing.T, c client.Client, config *rest.Config, namespace string) client.Client {
	t.Helper()
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "everything"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "everything"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "everything"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: namespace}}})
	as := rest.CopyConfig(config)
	as.Impersonate.UserName = namespace
	return admin(t, as)
}
