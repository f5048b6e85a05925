// SPDX-License-Identifier: Apache-2.0

// Package hijack has Spiderpool route the networks of other clusters from pods of an underlay to their nodes.
package hijack

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
)

// Annotation of the SpiderCoordinator lists, with commas between, which networks in spec.hijackCIDR are Sealane's. What
// was there before is somebody else's and stays.
const Annotation = "sealane.io/hijack-cidrs"

// Name of the SpiderCoordinator in messages. Spiderpool makes it, and reads it for each pod that is made.
const Name = "SpiderCoordinator default"

var kind = schema.GroupVersionKind{Group: "spiderpool.spidernet.io", Version: "v2beta1", Kind: "SpiderCoordinator"}

// Coordinator returns Spiderpool's settings; nil where it is not installed, or they may not be read.
func Coordinator(ctx context.Context, live client.Reader) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	err := live.Get(ctx, types.NamespacedName{Name: "default"}, o)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", Name, err)
	}
	return o, nil
}

// Left says whether something of Sealane's is in the settings.
func Left(ctx context.Context, live client.Reader) (bool, error) {
	o, err := Coordinator(ctx, live)
	if err != nil || o == nil {
		return false, err
	}
	_, ours := o.GetAnnotations()[Annotation]
	return ours, nil
}

// Networks of the other clusters, which pods have to route by their nodes: the fewest prefixes, sorted. A cluster that
// is leaving has none. What no node would route is left out.
func Networks(p *v1alpha1.Peering) []string {
	if p.Spec.Phase == v1alpha1.MemberLeaving {
		return nil
	}
	var all []netip.Prefix
	for _, r := range p.Spec.RemoteClusters {
		if block, err := netfacts.ParseGlobal(r.GlobalCIDR); err == nil {
			all = append(all, block)
			if ipv6, err := globalnet.ParseIPv6(r.GlobalIPv6CIDR, block); err == nil {
				all = append(all, ipv6)
			}
		}
		for _, cidr := range slices.Concat(r.Networks.PodCIDRs, r.Networks.ServiceCIDRs) {
			if prefix, err := netfacts.ParsePrefix(cidr); err == nil {
				all = append(all, prefix)
			}
		}
	}
	out := make([]string, 0, len(all))
	for _, prefix := range discovery.Aggregate(all) {
		out = append(out, prefix.String())
	}
	return out
}

// Want returns the settings with these networks, or with none of Sealane's; nil where they are so already. What
// somebody else has put there stays, in its order, also where it is one of the networks.
func Want(have *unstructured.Unstructured, networks []string) (*unstructured.Unstructured, error) {
	list, _, err := unstructured.NestedStringSlice(have.Object, "spec", "hijackCIDR")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", Name, err)
	}
	text, marked := have.GetAnnotations()[Annotation]
	former := strings.Split(text, ",")
	others := slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(former, s) })
	ours := slices.DeleteFunc(slices.Clone(networks), func(s string) bool { return slices.Contains(others, s) })
	wanted := slices.Concat(others, ours)
	if slices.Equal(list, wanted) && marked == (len(ours) > 0) && text == strings.Join(ours, ",") {
		return nil, nil
	}
	out := have.DeepCopy()
	if len(wanted) == 0 {
		unstructured.RemoveNestedField(out.Object, "spec", "hijackCIDR")
	} else if err := unstructured.SetNestedStringSlice(out.Object, wanted, "spec", "hijackCIDR"); err != nil {
		return nil, fmt.Errorf("change %s: %w", Name, err)
	}
	annotations := out.GetAnnotations()
	if len(ours) > 0 {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[Annotation] = strings.Join(ours, ",")
	} else {
		delete(annotations, Annotation)
	}
	out.SetAnnotations(annotations)
	return out, nil
}

// Write brings the settings to what is wanted, unless somebody else has changed them since they were read.
func Write(ctx context.Context, c client.Writer, have, want *unstructured.Unstructured,
	opts ...client.PatchOption) error {
	return c.Patch(ctx, want, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}), opts...)
}
