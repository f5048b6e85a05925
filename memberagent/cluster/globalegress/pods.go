// SPDX-License-Identifier: Apache-2.0

package globalegress

import (
	"context"
	"fmt"
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// podsOf returns the pods of the namespaces of objects.
func podsOf(ctx context.Context, cached client.Reader, objects []v1alpha1.GlobalEgressIP) ([]corev1.Pod, error) {
	namespaces := map[string]bool{}
	var out []corev1.Pod
	for _, o := range objects {
		if namespaces[o.Namespace] {
			continue
		}
		namespaces[o.Namespace] = true
		var list corev1.PodList
		if err := cached.List(ctx, &list, client.InNamespace(o.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list Pods: %w", err)
		}
		out = append(out, list.Items...)
	}
	return out, nil
}

// matters passes updates that may change what a pod's connections come from.
func matters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Pod)
		after, also := e.ObjectNew.(*corev1.Pod)
		if !ok || !also {
			return true
		}
		was, had := addressOf(before)
		is, has := addressOf(after)
		return was != is || had != has || !maps.Equal(before.Labels, after.Labels)
	}}
}

// addressOf returns the IPv4 address of a pod that has one of its own and may connect.
func addressOf(p *corev1.Pod) (netip.Addr, bool) {
	for _, ip := range pods.Addresses(p) {
		if ip.Is4() {
			return ip, true
		}
	}
	return netip.Addr{}, false
}
