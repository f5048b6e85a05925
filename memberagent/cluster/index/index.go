// SPDX-License-Identifier: Apache-2.0

// Package index names the look-ups that the cluster agent makes in its caches.
package index

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// The fields. What is not said is looked up by "<namespace>/<name>" of a service.
const (
	// SliceByService finds the EndpointSlices of a local Service, none of them Sealane's.
	SliceByService = "sealane.service"
	// SliceByImport finds the EndpointSlices that Sealane wrote for an import.
	SliceByImport = "sealane.import"
	// PodByAddress finds the pods that say to have an address, which it is looked up by.
	PodByAddress = "sealane.address"
)

// Karmada's controllers that write EndpointSlices of other clusters into a member: those of a
// MultiClusterService under the very name of the local Service, those of an exported one under "derived-".
const (
	karmadaDispatched = "endpointslice-dispatch-controller.karmada.io"
	karmadaCollected  = "endpointslice-controller.karmada.io"
)

// ServiceOfSlice returns the local Service that an EndpointSlice belongs to. One that holds what is in other
// clusters belongs to none: nothing would be more wrong than to export it as this cluster's own.
func ServiceOfSlice(o client.Object) (types.NamespacedName, bool) {
	name := o.GetLabels()[discoveryv1.LabelServiceName]
	by := o.GetLabels()[discoveryv1.LabelManagedBy]
	local := v1alpha1.ImportOfSlice(o) == "" && by != karmadaDispatched && by != karmadaCollected
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: name}, name != "" && local
}

// ImportOfSlice returns the import that one of Sealane's EndpointSlices belongs to.
func ImportOfSlice(o client.Object) (types.NamespacedName, bool) {
	name := v1alpha1.ImportOfSlice(o)
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: name}, name != ""
}

// ImportOfService returns the import that a derived Service belongs to.
func ImportOfService(o client.Object) (types.NamespacedName, bool) {
	name := v1alpha1.ImportOfService(o)
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: name}, name != ""
}

// Register adds the indexes; it must run before the caches start.
func Register(ctx context.Context, f client.FieldIndexer) error {
	keys := func(of func(client.Object) (types.NamespacedName, bool)) client.IndexerFunc {
		return func(o client.Object) []string {
			if key, ok := of(o); ok {
				return []string{key.String()}
			}
			return nil
		}
	}
	for _, x := range []struct {
		kind  client.Object
		field string
		of    client.IndexerFunc
	}{
		{&discoveryv1.EndpointSlice{}, SliceByService, keys(ServiceOfSlice)},
		{&discoveryv1.EndpointSlice{}, SliceByImport, keys(ImportOfSlice)},
		{&corev1.Pod{}, PodByAddress, addresses},
	} {
		if err := f.IndexField(ctx, x.kind, x.field, x.of); err != nil {
			return fmt.Errorf("index %T by %s: %w", x.kind, x.field, err)
		}
	}
	return nil
}

func addresses(o client.Object) []string {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	var out []string
	for _, ip := range pods.Addresses(p) {
		out = append(out, ip.String())
	}
	return out
}

// PodAt returns the pod that has an address, by pods.Compare where several say so; nil if none does. It belongs to the
// cache: do not change it.
func PodAt(ctx context.Context, c client.Reader, ip netip.Addr) (*corev1.Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.MatchingFields{PodByAddress: ip.String()},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Pods at %s: %w", ip, err)
	}
	var first *corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; first == nil || pods.Compare(p, first) < 0 {
			first = p
		}
	}
	return first, nil
}

// SlicesOf lists the EndpointSlices of a local Service. They belong to the cache: do not change them.
func SlicesOf(ctx context.Context, c client.Reader, service types.NamespacedName) ([]discoveryv1.EndpointSlice, error) {
	return slices(ctx, c, SliceByService, service)
}

// SlicesFor lists the EndpointSlices that Sealane wrote for an import. They belong to the cache: do not
// change them.
func SlicesFor(ctx context.Context, c client.Reader,
	imported types.NamespacedName) ([]discoveryv1.EndpointSlice, error) {
	return slices(ctx, c, SliceByImport, imported)
}

func slices(ctx context.Context, c client.Reader, field string,
	key types.NamespacedName) ([]discoveryv1.EndpointSlice, error) {
	list := &discoveryv1.EndpointSliceList{}
	err := c.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{field: key.String()},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the EndpointSlices of %s: %w", key, err)
	}
	return list.Items, nil
}

// APIServers returns the addresses of the cluster's API servers, which they keep in an EndpointSlice themselves.
func APIServers(ctx context.Context, c client.Reader) ([]netip.Addr, error) {
	endpoints, err := SlicesOf(ctx, c, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"})
	var out []netip.Addr
	for i := range endpoints {
		for _, e := range endpoints[i].Endpoints {
			for _, text := range e.Addresses {
				if ip, err := netip.ParseAddr(text); err == nil {
					out = append(out, ip.Unmap())
				}
			}
		}
	}
	return out, err
}

// Service returns nil when there is none.
func Service(ctx context.Context, c client.Reader, key types.NamespacedName) (*corev1.Service, error) {
	s := &corev1.Service{}
	if err := c.Get(ctx, key, s); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get Service %s: %w", key, err)
	}
	return s, nil
}

// Peering returns nil when there is none.
func Peering(ctx context.Context, c client.Reader) (*v1alpha1.Peering, error) {
	p := &v1alpha1.Peering{}
	if err := c.Get(ctx, types.NamespacedName{Name: v1alpha1.PeeringName}, p); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get the Peering: %w", err)
	}
	return p, nil
}

// SharedPeering is Peering without a copy, for what is done for each import: that of a large fleet is large. It belongs
// to the cache: do not change it.
func SharedPeering(ctx context.Context, c client.Reader) (*v1alpha1.Peering, error) {
	p, shared := &v1alpha1.Peering{}, true
	if err := c.Get(ctx, types.NamespacedName{Name: v1alpha1.PeeringName}, p,
		&client.GetOptions{UnsafeDisableDeepCopy: &shared}); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get the Peering: %w", err)
	}
	return p, nil
}

// Bundle returns the Bundle of a service's shard, which carries its export; nil when there is none. It belongs to the
// cache: do not change it.
func Bundle(ctx context.Context, c client.Reader, shards int32,
	service types.NamespacedName) (*v1alpha1.Bundle, error) {
	return BundleNamed(ctx, c, v1alpha1.BundleName(v1alpha1.Shard(service.Namespace, service.Name, shards)))
}

// BundleOfImport returns the Bundle that carries a service's import: its shard's, or one of the halves which that
// lists; nil when there is none. What it says of the import may be outdated (CurrentImport). It belongs to the cache:
// do not change it.
func BundleOfImport(ctx context.Context, c client.Reader, shards int32,
	service types.NamespacedName) (*v1alpha1.Bundle, error) {
	b, err := Bundle(ctx, c, shards, service)
	if err != nil || b == nil || len(b.Spec.Halves) == 0 {
		return b, err
	}
	name := v1alpha1.BundleOf(b, service.Namespace, service.Name)
	if name == "" {
		return nil, nil
	}
	return BundleNamed(ctx, c, name)
}

// CurrentImport returns a service's import as it is now, nil where there is to be none; known is false where a Bundle
// is missing that says so. It belongs to the cache: do not change it.
func CurrentImport(ctx context.Context, c client.Reader, shards int32,
	service types.NamespacedName) (found *v1alpha1.Import, known bool, err error) {
	return v1alpha1.CurrentImport(service.Namespace, service.Name, shards, func(name string) (*v1alpha1.Bundle, error) {
		return BundleNamed(ctx, c, name)
	})
}

// BundleNamed returns a Bundle, nil when there is none. It belongs to the cache: do not change it.
func BundleNamed(ctx context.Context, c client.Reader, name string) (*v1alpha1.Bundle, error) {
	b, shared := &v1alpha1.Bundle{}, true
	if err := c.Get(ctx, types.NamespacedName{Name: name}, b,
		&client.GetOptions{UnsafeDisableDeepCopy: &shared}); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get Bundle %s: %w", name, err)
	}
	return b, nil
}
