// SPDX-License-Identifier: Apache-2.0

// Package pods tells which addresses pods have, and gathers what happens to many of them.
package pods

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// batch is for how long changes are gathered: a workload that is scaled up is written a few times, not once for each of
// its pods.
const batch = 50 * time.Millisecond

// Soon asks for the one pass over everything, shortly.
func Soon() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue) { q.AddAfter(reconcile.Request{}, batch) }
	return handler.Funcs{
		CreateFunc:  func(_ context.Context, _ event.CreateEvent, q queue) { add(q) },
		UpdateFunc:  func(_ context.Context, _ event.UpdateEvent, q queue) { add(q) },
		DeleteFunc:  func(_ context.Context, _ event.DeleteEvent, q queue) { add(q) },
		GenericFunc: func(_ context.Context, _ event.GenericEvent, q queue) { add(q) },
	}
}

// Essential is what is read of a pod that is not Sealane's own: whose it is, where, and its addresses.
func Essential(p *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Labels: p.Labels,
			ResourceVersion: p.ResourceVersion, CreationTimestamp: p.CreationTimestamp,
			DeletionTimestamp: p.DeletionTimestamp},
		Spec:   corev1.PodSpec{HostNetwork: p.Spec.HostNetwork, NodeName: p.Spec.NodeName},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs},
	}
}

// Addresses returns those of a pod that has its own and may connect; none of one of the host's network, or that has
// ended: its addresses may be another's by now.
func Addresses(p *corev1.Pod) []netip.Addr {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	var out []netip.Addr
	for _, text := range append([]corev1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		if ip, err := netip.ParseAddr(text.IP); err == nil && ip.Zone() == "" && !slices.Contains(out, ip.Unmap()) {
			out = append(out, ip.Unmap())
		}
	}
	return out
}

// Compare sorts, of pods that say to have one address, the one first that has it: one that stays before one that is
// about to go, and then the older. The annotations of some CNI plugins let whoever makes a pod choose its address, and
// so what a running pod has must not go to another that comes later.
func Compare(x, y *corev1.Pod) int {
	stays := 0
	switch {
	case Ending(x) && !Ending(y):
		stays = 1
	case Ending(y) && !Ending(x):
		stays = -1
	}
	return cmp.Or(stays, x.CreationTimestamp.Compare(y.CreationTimestamp.Time),
		cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
}

// Ending says that a pod is about to go.
func Ending(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }

// Own passes those of Sealane's namespace, of which more is cached.
func Own() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == v1alpha1.Namespace })
}

// Moved passes pods that come and go or are about to, and those whose addresses or node change.
func Moved() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Pod)
		after, also := e.ObjectNew.(*corev1.Pod)
		return !ok || !also || before.Spec.NodeName != after.Spec.NodeName || Ending(before) != Ending(after) ||
			!slices.Equal(Addresses(before), Addresses(after))
	}}
}
