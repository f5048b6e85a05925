// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// global adds whose the global addresses are. It reads what is in no namespace alone, which the cluster agent writes:
// the GlobalIngressIPs and GlobalEgressIPs themselves are in the hands of tenants.
func (k *Kube) global(ctx context.Context, o *Objects) error {
	cluster := &v1alpha1.ClusterGlobalEgressIP{}
	switch err := k.cache.Get(ctx, client.ObjectKey{Name: v1alpha1.ClusterEgressName}, cluster); {
	case err == nil:
		o.ClusterGlobalEgressIP = cluster
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read the cluster's global addresses: %w", err)
	}
	var list v1alpha1.GlobalAllocationList
	if err := k.cache.List(ctx, &list); err != nil {
		return fmt.Errorf("list GlobalAllocations: %w", err)
	}
	for _, a := range list.Items {
		owner := metav1.ObjectMeta{Namespace: a.Spec.Owner.Namespace, Name: a.Spec.Owner.Name,
			CreationTimestamp: a.CreationTimestamp}
		if i := a.Spec.Ingress; i != nil {
			o.GlobalIngressIPs = append(o.GlobalIngressIPs, v1alpha1.GlobalIngressIP{ObjectMeta: owner,
				Status: v1alpha1.GlobalIngressIPStatus{IP: i.IP, Ports: i.Ports, Pods: i.Pods, ReleasedAt: i.ReleasedAt}})
		}
		if e := a.Spec.Egress; e != nil {
			o.GlobalEgressIPs = append(o.GlobalEgressIPs, egressOf(owner, e))
		}
	}
	return nil
}

// egressOf returns a GlobalEgressIP that has what an allocation says. What its selector is does not matter here.
func egressOf(owner metav1.ObjectMeta, a *v1alpha1.PodEgressAllocation) v1alpha1.GlobalEgressIP {
	out := v1alpha1.GlobalEgressIP{ObjectMeta: owner,
		Status: v1alpha1.GlobalEgressIPStatus{Range: &a.EgressRange, Pods: a.Pods}}
	if a.Selected {
		out.Spec.PodSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{}}}
	}
	return out
}
