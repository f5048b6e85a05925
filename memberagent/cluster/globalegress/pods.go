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

// podsFor returns the pods among which objects select: all, as one in whatever namespace may say to have the address of
// another. Without objects there are none.
func podsFor(ctx context.Context, cached client.Reader, objects []v1alpha1.GlobalEgressIP) ([]corev1.Pod, error) {
	if len(objects) == 0 {
		return nil, nil
	}
	var list corev1.PodList
	if err := cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	return list.Items, nil
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
		return was != is || had != has || pods.Ending(before) != pods.Ending(after) ||
			!maps.Equal(before.Labels, after.Labels)
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
