// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

// Names by which the node agents are found, and the annotation on each of their pods.
const (
	nodeDaemonSet       = "sealane-node"
	annotationNodeState = "sealane.io/node-state"
	stateCleaned        = "cleaned"
)

// NodesCleaned says whether every node agent reports a clean node.
func NodesCleaned(ctx context.Context, cached, live client.Reader) (bool, error) {
	dirty, err := dirtyNodes(ctx, cached, live)
	return len(dirty) == 0, err
}

// dirtyNodes names the pods of the DaemonSet that have not reported a clean node. A pod that is yet to come
// counts as well: its node may hold what an earlier one left.
func dirtyNodes(ctx context.Context, cached, live client.Reader) ([]string, error) {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := cached.List(ctx, pods, client.InNamespace(v1alpha1.Namespace)); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var dirty []string
	var reported int32
	for i := range pods.Items {
		p := &pods.Items[i]
		if !slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" && o.Name == nodeDaemonSet }) {
			continue
		}
		if p.Annotations[annotationNodeState] == stateCleaned {
			reported++
		} else {
			dirty = append(dirty, "pod "+p.Name)
		}
	}
	slices.Sort(dirty)
	if len(dirty) > 0 {
		return dirty, nil
	}
	set := &appsv1.DaemonSet{}
	err := live.Get(ctx, types.NamespacedName{Namespace: v1alpha1.Namespace, Name: nodeDaemonSet}, set)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get DaemonSet %s: %w", nodeDaemonSet, err)
	}
	if missing := set.Status.DesiredNumberScheduled - reported; err == nil && missing > 0 {
		dirty = append(dirty, fmt.Sprintf("%d nodes without a pod of %s", missing, nodeDaemonSet))
	}
	return dirty, nil
}

// remaining names what a leaving cluster still has to remove, up to a handful of each kind.
func (r *Peering) remaining(ctx context.Context, dns metav1.Condition) ([]string, error) {
	var out []string
	imported, services, endpoints, gateways := &mcs.ServiceImportList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, &v1alpha1.GatewayList{}
	for _, x := range []struct {
		kind string
		list client.ObjectList
		opts []client.ListOption
	}{
		{"ServiceImport", imported, []client.ListOption{client.HasLabels{v1alpha1.LabelImport}}},
		{"Service", services, []client.ListOption{client.HasLabels{v1alpha1.LabelImport}}},
		{"EndpointSlice", endpoints, []client.ListOption{client.HasLabels{v1alpha1.LabelImport}}},
		{"Gateway", gateways, nil},
	} {
		if err := r.List(ctx, x.list, append(x.opts, client.UnsafeDisableDeepCopy)...); err != nil {
			return nil, fmt.Errorf("list %ss: %w", x.kind, err)
		}
	}
	for i := range imported.Items {
		out = append(out, "ServiceImport "+client.ObjectKeyFromObject(&imported.Items[i]).String())
	}
	for i := range services.Items {
		out = append(out, "Service "+client.ObjectKeyFromObject(&services.Items[i]).String())
	}
	for i := range endpoints.Items {
		out = append(out, "EndpointSlice "+client.ObjectKeyFromObject(&endpoints.Items[i]).String())
	}
	slices.Sort(out)
	if dns.Reason == clusterdns.ReasonPending {
		out = append(out, "the block in the Corefile")
	}
	dirty, err := dirtyNodes(ctx, r, r.Live)
	if err != nil {
		return nil, err
	}
	for i := range gateways.Items {
		dirty = append(dirty, "Gateway "+gateways.Items[i].Name)
	}
	return append(out, dirty...), nil
}
