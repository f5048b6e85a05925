// SPDX-License-Identifier: Apache-2.0

package globalegress

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

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
		return !slices.Equal(addressesOf(before), addressesOf(after)) || pods.Ending(before) != pods.Ending(after) ||
			!maps.Equal(before.Labels, after.Labels)
	}}
}

// addressesOf returns the addresses of a pod that has some of its own and may connect: one of each family at most.
func addressesOf(p *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, ip := range pods.Addresses(p) {
		if !slices.ContainsFunc(out, func(a netip.Addr) bool { return a.Is4() == ip.Is4() }) {
			out = append(out, ip)
		}
	}
	return out
}
