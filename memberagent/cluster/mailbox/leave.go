// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
	"github.com/sealane-io/sealane/memberagent/cluster/hijack"
)

// NodesCleaned says whether every node agent reports a clean node.
func NodesCleaned(ctx context.Context, cached, live client.Reader) (bool, error) {
	dirty, err := dirtyNodes(ctx, cached, live)
	return len(dirty) == 0, err
}

// dirtyNodes names the pods of the DaemonSet that have not reported a clean node. A pod that is yet to come
// counts as well: its node may hold what an earlier one left.
func dirtyNodes(ctx context.Context, cached, live client.Reader) ([]string, error) {
	agents, desired, _, err := nodeAgents(ctx, cached, live)
	if err != nil {
		return nil, err
	}
	var dirty []string
	agents = speaking(agents)
	for _, a := range agents {
		if a.programmed != v1alpha1.ReasonNodeCleaned {
			dirty = append(dirty, "pod "+a.pod)
		}
	}
	if missing := desired - len(agents); missing > 0 {
		dirty = append(dirty, fmt.Sprintf("%d nodes without a pod of %s", missing, nodeDaemonSet))
	}
	return dirty, nil
}

// remaining names what a leaving cluster still has to remove, up to a handful of each kind.
func (r *Peering) remaining(ctx context.Context, dns metav1.Condition) ([]string, error) {
	var out []string
	imported, services, endpoints, gateways := &mcs.ServiceImportList{}, &corev1.ServiceList{},
		&discoveryv1.EndpointSliceList{}, &v1alpha1.GatewayList{}
	global, egress := &v1alpha1.GlobalAllocationList{}, &v1alpha1.ClusterGlobalEgressIPList{}
	networks, nodes := &v1alpha1.NodeNetworkList{}, &v1alpha1.NodeSliceList{}
	for _, x := range []struct {
		kind string
		list client.ObjectList
		opts []client.ListOption
	}{
		{"ServiceImport", imported, []client.ListOption{client.HasLabels{v1alpha1.LabelImport}}},
		{"Service", services, []client.ListOption{client.HasLabels{v1alpha1.LabelImport}}},
		{"EndpointSlice", endpoints, []client.ListOption{client.HasLabels{v1alpha1.LabelImport}}},
		{"Gateway", gateways, nil},
		{"GlobalAllocation", global, nil},
		{"ClusterGlobalEgressIP", egress, nil},
		{"NodeNetwork", networks, nil},
		{"NodeSlice", nodes, nil},
	} {
		if err := r.List(ctx, x.list, append(x.opts, client.UnsafeDisableDeepCopy)...); err != nil {
			return nil, fmt.Errorf("list %ss: %w", x.kind, err)
		}
	}
	for i := range imported.Items {
		if o := &imported.Items[i]; v1alpha1.OwnsServiceImport(o) {
			out = append(out, "ServiceImport "+client.ObjectKeyFromObject(o).String())
		}
	}
	for i := range services.Items {
		if o := &services.Items[i]; v1alpha1.OwnsService(o) {
			out = append(out, "Service "+client.ObjectKeyFromObject(o).String())
		}
	}
	for i := range endpoints.Items {
		if o := &endpoints.Items[i]; v1alpha1.ImportOfSlice(o) != "" {
			out = append(out, "EndpointSlice "+client.ObjectKeyFromObject(o).String())
		}
	}
	for i := range global.Items {
		out = append(out, "GlobalAllocation "+global.Items[i].Name)
	}
	for i := range egress.Items {
		if o := &egress.Items[i]; v1alpha1.OwnsClusterEgress(o) {
			out = append(out, "ClusterGlobalEgressIP "+o.Name)
		}
	}
	for i := range networks.Items {
		out = append(out, "NodeNetwork "+networks.Items[i].Name)
	}
	slices.Sort(out)
	if dns.Reason == clusterdns.ReasonPending {
		out = append(out, "what the cluster's DNS forwards")
	}
	if left, err := hijack.Left(ctx, r.Live); err != nil {
		return nil, err
	} else if left {
		out = append(out, "networks of other clusters in "+hijack.Name)
	}
	dirty, err := dirtyNodes(ctx, r, r.Live)
	if err != nil {
		return nil, err
	}
	for i := range gateways.Items {
		dirty = append(dirty, "Gateway "+gateways.Items[i].Name)
	}
	if n := len(nodes.Items); n > 0 {
		dirty = append(dirty, fmt.Sprintf("%d NodeSlices", n))
	}
	return append(out, dirty...), nil
}
