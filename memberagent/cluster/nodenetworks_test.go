// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// nodeNetwork waits until a node's pods are where this says beyond its spec.podCIDRs, "" for no object, and returns how
// long that took.
func (m *member) nodeNetwork(node, want string) time.Duration {
	m.t.Helper()
	return m.eventually("the networks of "+node, func(ctx context.Context) error {
		o := &v1alpha1.NodeNetwork{}
		err := m.Get(ctx, types.NamespacedName{Name: node}, o)
		if apierrors.IsNotFound(err) && want == "" {
			return nil
		}
		if err != nil {
			return err
		}
		return expect("networks", strings.Join(o.Spec.PodCIDRs, " "), want)
	})
}

// podOn makes a pod that runs on a node.
func (m *member) podOn(node, name string, ips ...string) *corev1.Pod {
	m.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	m.create(p)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ips[0]}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if err := m.Status().Update(m.t.Context(), p); err != nil {
		m.t.Fatal(err)
	}
	return p
}

// TestNodeNetworks: wherever a CNI plugin takes the pods' addresses from, it is written down which node they are on,
// and shortly after a pod has its address.
func TestNodeNetworks(t *testing.T) {
	m := newMember(t)
	m.namespace("sample")
	m.node("node-b", "10.8.1.0/24", "192.0.2.2")
	peering := m.peering(1)
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.Networks.PodCIDRs = []string{"10.8.0.0/16", "10.6.0.0/24"} })
	m.podOn("node-a", "before", "10.8.0.4")
	lent := m.podOn("node-b", "lent", "10.8.0.5")
	stale := &v1alpha1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "node-x"}}
	stale.Spec.PodCIDRs = []string{"10.8.7.0/24"}
	m.create(stale)
	m.start(m.config)
	m.nodeNetwork("node-b", "10.8.0.5/32")
	m.nodeNetwork("node-a", "")
	m.nodeNetwork("node-x", "")

	m.run("soon", func(t *testing.T) {
		const aim = 200 * time.Millisecond
		best := time.Hour
		for i := range 5 {
			m.podOn("node-a", fmt.Sprintf("p%d", i), fmt.Sprintf("10.6.0.%d", 4*i+1))
			best = min(best, m.nodeNetwork("node-a", strings.Join([]string{"10.6.0.1/32", "10.6.0.5/32", "10.6.0.9/32",
				"10.6.0.13/32", "10.6.0.17/32"}[:i+1], " ")))
		}
		if best > aim {
			t.Errorf("a pod was written down after %v at best, aim %v", best, aim)
		}
	})
	m.run("a pod goes, and another has its address", func(t *testing.T) {
		if err := m.Delete(t.Context(), lent, client.GracePeriodSeconds(0)); err != nil { // there is no kubelet
			t.Fatal(err)
		}
		m.nodeNetwork("node-b", "")
		m.podOn("node-a", "again", "10.8.1.5")
		m.nodeNetwork("node-a", "10.6.0.1/32 10.6.0.5/32 10.6.0.9/32 10.6.0.13/32 10.6.0.17/32 10.8.1.5/32")
	})
	m.run("somebody changes it", func(*testing.T) {
		o := &v1alpha1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
		change(m, o, func(o *v1alpha1.NodeNetwork) { o.Spec.PodCIDRs = []string{"10.8.0.0/16"} })
		m.nodeNetwork("node-a", "10.6.0.1/32 10.6.0.5/32 10.6.0.9/32 10.6.0.13/32 10.6.0.17/32 10.8.1.5/32")
		m.delete(o)
		m.nodeNetwork("node-a", "10.6.0.1/32 10.6.0.5/32 10.6.0.9/32 10.6.0.13/32 10.6.0.17/32 10.8.1.5/32")
	})
	m.run("what is not reached is said", func(*testing.T) {
		m.peeringCondition("PodsRouted", metav1.ConditionTrue, "Routed", "")
		foreign := m.podOn("node-a", "foreign", "198.51.100.7")
		m.peeringCondition("PodsRouted", metav1.ConditionFalse, v1alpha1.ReasonPodsNotRouted, "1 pod with addresses "+
			"outside the cluster's pod networks: sample/foreign (198.51.100.7 on node node-a)")
		change(m, peering, func(p *v1alpha1.Peering) {
			p.Spec.Networks.PodCIDRs = append(p.Spec.Networks.PodCIDRs, "198.51.100.0/24")
		})
		m.peeringCondition("PodsRouted", metav1.ConditionTrue, "Routed", "")
		if err := m.Delete(t.Context(), foreign, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	})
	m.run("a pod is exported once it is written down", func(t *testing.T) {
		slice := m.service("sample", "web", "10.8.0.4")
		m.export("sample", "web")
		m.exports("sample/web 10.8.0.4;")
		change(m, slice, func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(endpointsOf("10.8.0.4"), endpointsOf("10.8.0.77")...)
			s.Endpoints[1].NodeName = ptr.To("node-b")
			s.Endpoints[1].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "sample", Name: "borrowing"}
			s.Endpoints = append(s.Endpoints, endpointsOf("10.8.0.5")...) // that this is reported says that the slice was read
		})
		m.exports("sample/web 10.8.0.4 10.8.0.5;")
		borrowing := m.podOn("node-b", "borrowing", "10.8.0.77")
		m.nodeNetwork("node-b", "10.8.0.77/32")
		m.exports("sample/web 10.8.0.4 10.8.0.5 10.8.0.77;")
		if err := m.Delete(t.Context(), borrowing, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		m.exports("sample/web 10.8.0.4 10.8.0.5;")
	})
	m.run("not of the cluster any more", func(*testing.T) {
		change(m, peering, func(p *v1alpha1.Peering) { p.Spec.Networks.PodCIDRs = []string{"10.8.0.0/16"} })
		m.nodeNetwork("node-a", "10.8.1.5/32")
	})
	m.run("a node goes", func(*testing.T) {
		m.podOn("node-b", "left", "10.8.9.9")
		m.nodeNetwork("node-b", "10.8.9.9/32")
		m.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}})
		m.nodeNetwork("node-b", "")
	})
	m.run("the cluster leaves", func(*testing.T) {
		change(m, peering, func(p *v1alpha1.Peering) { p.Spec.Phase = v1alpha1.MemberLeaving })
		m.nodeNetwork("node-a", "")
	})
}
