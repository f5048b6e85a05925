// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/explain"
)

// TestExplainAsksForNamedPodsAlone: one API server plays Karmada and c1, and c2 cannot be asked. Where a pod is, and
// what addresses it has, c1 says; of a pod that is not there, or on no node yet, explain says so.
func TestExplainAsksForNamedPodsAlone(t *testing.T) {
	k := newKarmada(t)
	k.kubeconfig = writeKubeconfig(t, server, "karmada", "lost-member", "c1")
	k.install(t, "-C", "c1,c2")
	k.report(t, []string{"c1", "c2"}, connected()...)
	k.namespace(t, "explained")
	pod := func(name, node, ip string, host bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "explained", Name: name},
			Spec: corev1.PodSpec{NodeName: node, HostNetwork: host,
				Containers: []corev1.Container{{Name: "c", Image: "web"}}}}
		k.create(t, p)
		k.goes(t, p)
		if ip == "" {
			return p
		}
		p.Status.PodIPs, p.Status.PodIP = []corev1.PodIP{{IP: ip}}, ip
		if err := k.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "explained-w1"},
		Spec: corev1.NodeSpec{PodCIDR: "10.8.1.0/24", PodCIDRs: []string{"10.8.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
			Address: "172.30.1.10"}}}}
	k.temporary(t, node, &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
		Spec: v1alpha1.PeeringSpec{Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: "c1", Shards: 1,
			Cable:          v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
			HealthCheck:    v1alpha1.HealthCheckSpec{IntervalMilliseconds: 250, FailureThreshold: 4},
			DNS:            v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}},
			Networks:       v1alpha1.Networks{PodCIDRs: []string{"10.8.0.0/16"}, ServiceCIDRs: []string{"10.88.0.0/16"}},
			RemoteClusters: []v1alpha1.RemoteCluster{}, Conditions: []metav1.Condition{}}})
	k.get(t, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.30.1.10"}}
	if err := k.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	pod("web-0", node.Name, "10.8.1.5", false)
	pod("web-1", node.Name, "10.8.1.6", false)
	pod("host", node.Name, "172.30.1.10", true)
	pod("waits", "", "", false)

	text := k.succeeds(t, "explain", "c1/explained/web-0", "c1/explained/web-1:80", "--member-timeout=2s")
	for _, want := range []string{"pod explained/web-0 of c1", "10.8.1.6:80, which sees 10.8.1.5", "arrives: yes"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	text = k.succeeds(t, "explain", "c1/explained/host", "c1/explained/web-1")
	if !strings.Contains(text, "host network") {
		t.Error("it does not say that the source is on the host network")
	}
	k.fails(t, []string{"no node yet", "get pods -o wide"}, "explain", "c1/explained/waits", "10.8.1.6")
	k.fails(t, []string{"there is none"}, "explain", "c1/explained/web-9", "10.8.1.6")
	k.fails(t, []string{"c2", "name the pod by its address"}, "explain", "c1/explained/web-0", "c2/explained/web-0",
		"--member-timeout=2s")
	dual := pod("dual", node.Name, "10.8.1.7", false)
	dual.Status.PodIPs = append(dual.Status.PodIPs, corev1.PodIP{IP: "fd00:8:1::7"})
	dual.Status.Phase = corev1.PodRunning
	if err := k.Status().Update(t.Context(), dual); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"10.8.1.7", "fd00:8:1::7"} {
		place := explain.Place{Cluster: "c1", Addr: netip.MustParseAddr(address)}
		if got, err := podAt(t.Context(), k.api, place, node.Name); err != nil || got.Name != "dual" {
			t.Errorf("the pod with %s: %v, %v", address, got, err)
		}
		if got, err := podAt(t.Context(), k.api, place, "another"); err == nil {
			t.Errorf("on another node %s is %v", address, got)
		}
	}
	out, code := k.plugin(t, "explain", "c1/10.8.9.9", "10.8.1.6")
	if code != 1 || !strings.Contains(out, "a node of c1 that 10.8.9.9 is on") || !strings.Contains(out, "arrives: no") {
		t.Errorf("an address of no node: exit code %d", code)
	}
}
