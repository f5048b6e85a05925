// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// egress waits until a GlobalEgressIP of the namespace sample has these numbers, reason and pods.
func (m *member) egress(name, want string) {
	m.t.Helper()
	o := &v1alpha1.GlobalEgressIP{}
	m.eventually("the addresses of "+name, func(ctx context.Context) error {
		if err := m.Get(ctx, types.NamespacedName{Namespace: "sample", Name: name}, o); err != nil {
			return err
		}
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.GlobalIPAllocated)
		if c == nil {
			return errors.New("no condition yet")
		}
		numbers := "-"
		if r := o.Status.Range; r != nil {
			numbers = fmt.Sprintf("%d-%d", r.First, r.Last)
		}
		return expect("addresses", fmt.Sprint(numbers, " ", c.Reason, " ", o.Status.Pods), want)
	})
}

// running makes a pod that runs, in the namespace sample.
func (m *member) running(name, app, ip string) *corev1.Pod {
	m.t.Helper()
	return m.runningIn("sample", name, app, ip)
}

func (m *member) runningIn(namespace, name, app, ip string) *corev1.Pod {
	m.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	m.create(p)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
	if err := m.Status().Update(m.t.Context(), p); err != nil {
		m.t.Fatal(err)
	}
	return p
}

// TestGlobalEgress: the cluster, namespaces and selected pods have addresses that their connections come from, and keep
// them over a restart of the agent, whatever of it was written.
func TestGlobalEgress(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	peering := m.peering(1)
	all := &v1alpha1.GlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "all"}}
	m.create(all)
	m.egress("all", "- NoGlobalCIDR []")
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.GlobalCIDR = "120.1.0.0/20" })
	m.egress("all", "9-9 Allocated []")
	m.running("a", "web", "10.7.0.4")
	m.running("b", "db", "10.7.0.5")
	m.egress("all", "9-9 Allocated [10.7.0.4 10.7.0.5]")
	m.namespace("other")
	m.runningIn("other", "first", "", "10.7.0.6")
	m.running("second", "web", "10.7.0.6") // as annotations of some CNI plugins have it
	m.running("third", "web", "10.7.0.7")
	m.egress("all", "9-9 Allocated [10.7.0.4 10.7.0.5 10.7.0.7]")
	db := &v1alpha1.GlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "db"}}
	db.Spec.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	db.Spec.NumberOfIPs = 2
	m.create(db)
	m.egress("db", "10-11 Allocated [10.7.0.5]")
	m.egress("all", "9-9 Allocated [10.7.0.4 10.7.0.7]")
	cluster := &v1alpha1.ClusterGlobalEgressIP{}
	clusterHas := func(want string) {
		t.Helper()
		m.eventually("the cluster's addresses", func(ctx context.Context) error {
			if err := m.Get(ctx, types.NamespacedName{Name: v1alpha1.ClusterEgressName}, cluster); err != nil {
				return err
			}
			text := cluster.Status.CIDR
			for _, a := range cluster.Status.Allocations {
				text += fmt.Sprintf(" %d-%d %q %v", a.First, a.Last, a.Owner, a.ReleasedAt != nil)
			}
			return expect("allocations", text, want)
		})
	}
	clusterHas(`120.1.0.0/20 1-8 "" false 9-9 "sample/all" false 10-11 "sample/db" false`)

	t.Log("bad objects are refused")
	for _, n := range []int32{-1, 65} {
		bad := &v1alpha1.GlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "bad"},
			Spec: v1alpha1.GlobalEgressIPSpec{NumberOfIPs: n}}
		if err := m.Create(t.Context(), bad); !apierrors.IsInvalid(err) {
			t.Errorf("%d addresses: %v", n, err)
		}
	}
	other := &v1alpha1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if err := m.Create(t.Context(), other); !apierrors.IsInvalid(err) {
		t.Errorf("a second one: %v", err)
	}

	t.Log("a restart, with one removed and one that says to have others' addresses meanwhile")
	m.stop()
	if err := m.Delete(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	m.eventually("the status another", func(ctx context.Context) error {
		if err := m.Get(ctx, types.NamespacedName{Namespace: "sample", Name: "db"}, db); err != nil {
			return err
		}
		db.Status = v1alpha1.GlobalEgressIPStatus{Range: &v1alpha1.EgressRange{First: 1, Last: 8}}
		return m.asAgent().Status().Update(ctx, db)
	})
	m.start(m.config)
	m.egress("db", "10-11 Allocated [10.7.0.5]")
	clusterHas(`120.1.0.0/20 1-8 "" false 9-9 "sample/all" true 10-11 "sample/db" false`)

	t.Log("the cluster leaves")
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.Phase = v1alpha1.MemberLeaving })
	m.egress("db", "- NoGlobalCIDR []")
	m.eventually("the cluster's addresses gone", func(ctx context.Context) error {
		err := m.Get(ctx, types.NamespacedName{Name: v1alpha1.ClusterEgressName}, cluster)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("they are there"), err)
	})
}
