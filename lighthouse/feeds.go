// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// sealaneVersion is the one version of Sealane's own kinds.
func sealaneVersion(context.Context) (schema.GroupVersion, error) { return v1alpha1.GroupVersion, nil }

// bundles feeds the Bundles. One that is gone stays: a missing mailbox changes nothing in a member.
func (w *watcher) bundles() *feed {
	set := func(obj any) {
		if b, ok := obj.(*v1alpha1.Bundle); ok {
			w.reject("Bundle", w.index.setBundle(b))
		}
	}
	return &feed{
		resource: "bundles",
		version:  sealaneVersion,
		set:      set,
		remove: func(obj any) {
			if b, ok := obj.(*v1alpha1.Bundle); ok {
				w.index.forgetPart(b.Name)
			}
		},
		replace: func(objs []any) { each(set)(inOrder(objs)) },
	}
}

// inOrder puts the halves of shards before the Bundles that list them, as Snapshots are made in between; and deltas
// last: what is in them no more is in one that comes before. Until one that is listed is read, all stays what it was.
func inOrder(bundles []any) []any {
	rank := func(b *v1alpha1.Bundle) int {
		_, half := ownBundle(b.Name)
		switch {
		case half != "":
			return 0
		case v1alpha1.IsDelta(b.Name):
			return 3
		case b.Name == v1alpha1.BundleName(0): // which says what deltas there are
			return 2
		}
		return 1
	}
	out := slices.DeleteFunc(slices.Clone(bundles), func(obj any) bool {
		_, ok := obj.(*v1alpha1.Bundle)
		return !ok
	})
	slices.SortStableFunc(out, func(a, b any) int {
		return rank(a.(*v1alpha1.Bundle)) - rank(b.(*v1alpha1.Bundle))
	})
	return out
}

// peerings feeds the one Peering. Gone, it stays, as Bundles do.
func (w *watcher) peerings() *feed {
	set := func(obj any) {
		if p, ok := obj.(*v1alpha1.Peering); ok && p.Name == v1alpha1.PeeringName {
			w.index.setPeering(p)
		}
	}
	return &feed{
		resource: "peerings",
		version:  sealaneVersion,
		set:      set,
		remove:   func(any) {},
		replace:  each(set),
	}
}

// gateways feeds the Gateways.
func (w *watcher) gateways() *feed {
	set := func(obj any) {
		if g, ok := obj.(*v1alpha1.Gateway); ok {
			w.index.setGateway(g)
		}
	}
	return &feed{
		resource: "gateways",
		version:  sealaneVersion,
		set:      set,
		remove: func(obj any) {
			if g, ok := obj.(*v1alpha1.Gateway); ok {
				w.index.deleteGateway(g.Name)
			}
		},
		replace: func(objs []any) {
			names := make([]string, 0, len(objs))
			for _, obj := range objs {
				if g, ok := obj.(*v1alpha1.Gateway); ok {
					names = append(names, g.Name)
				}
			}
			w.index.retainGateways(names)
			each(set)(objs)
		},
	}
}

// services feeds the one Service whose addresses ns.dns.<zone> has.
func (w *watcher) services() *feed {
	set := func(obj any) {
		if s, ok := obj.(*corev1.Service); ok {
			w.index.setServer(s.Spec.ClusterIPs)
		}
	}
	remove := func(any) { w.index.setServer(nil) }
	return &feed{
		resource: "services",
		one:      w.service,
		optional: true,
		version:  func(context.Context) (schema.GroupVersion, error) { return corev1.SchemeGroupVersion, nil },
		set:      set,
		remove:   remove,
		replace: func(objs []any) {
			if len(objs) == 0 {
				remove(nil)
			}
			each(set)(objs)
		},
	}
}

// serviceImport is a ServiceImport of either version.
type serviceImport struct {
	name, namespace string
	headless        bool
	ips             []string
	// own says that Sealane wrote it: another gives no name.
	own bool
}

// serviceImports feeds the ServiceImports, in the newest version that is served.
func (w *watcher) serviceImports() *feed {
	return &feed{
		resource: mcsv1beta1.ServiceImportPluralName,
		version:  w.servedMCS,
		set: func(obj any) {
			switch s := parseServiceImport(obj); {
			case s == nil:
			case s.own:
				w.reject("ServiceImport", w.index.setServiceImport(s))
			default:
				w.index.deleteServiceImport(s.name, s.namespace)
			}
		},
		remove: func(obj any) {
			if s := parseServiceImport(obj); s != nil {
				w.index.deleteServiceImport(s.name, s.namespace)
			}
		},
		replace: func(objs []any) {
			all := make([]*serviceImport, 0, len(objs))
			for _, obj := range objs {
				if s := parseServiceImport(obj); s != nil && s.own {
					all = append(all, s)
				}
			}
			w.reject("ServiceImport", w.index.replaceServiceImports(all))
		},
	}
}

// parseServiceImport reads a ServiceImport of either version, or returns nil.
func parseServiceImport(obj any) *serviceImport {
	switch s := obj.(type) {
	case *mcsv1beta1.ServiceImport:
		return &serviceImport{
			name: s.Name, namespace: s.Namespace,
			headless: s.Spec.Type == mcsv1beta1.Headless, ips: s.Spec.IPs, own: v1alpha1.OwnsServiceImport(s),
		}
	case *mcsv1alpha1.ServiceImport:
		return &serviceImport{
			name: s.Name, namespace: s.Namespace,
			headless: s.Spec.Type == mcsv1alpha1.Headless, ips: s.Spec.IPs, own: v1alpha1.OwnsServiceImport(s),
		}
	}
	return nil
}

// servedMCS returns the newest version of the MCS API that this cluster serves and this plugin reads.
func (w *watcher) servedMCS(ctx context.Context) (schema.GroupVersion, error) {
	beta := schema.GroupVersion{Group: mcsv1beta1.GroupName, Version: "v1beta1"}
	alpha := schema.GroupVersion{Group: mcsv1beta1.GroupName, Version: "v1alpha1"}
	client, err := w.client(beta)
	if err != nil {
		return schema.GroupVersion{}, err
	}
	raw, err := client.Get().AbsPath("/apis/" + mcsv1beta1.GroupName).DoRaw(ctx)
	if err != nil {
		return schema.GroupVersion{}, fmt.Errorf("discover the MCS API: %w", err)
	}
	var group metav1.APIGroup
	if err := json.Unmarshal(raw, &group); err != nil {
		return schema.GroupVersion{}, fmt.Errorf("discover the MCS API: %w", err)
	}
	for _, want := range []schema.GroupVersion{beta, alpha} {
		for _, served := range group.Versions {
			if served.Version == want.Version {
				return want, nil
			}
		}
	}
	return schema.GroupVersion{}, apierrors.NewNotFound(
		schema.GroupResource{Group: mcsv1beta1.GroupName, Resource: mcsv1beta1.ServiceImportPluralName}, "")
}

// reject counts entries that were left out.
func (w *watcher) reject(kind string, n int) {
	if n > 0 {
		w.measures.rejected.WithLabelValues(kind).Add(float64(n))
	}
}

// each applies f to every object.
func each(f func(any)) func([]any) {
	return func(objs []any) {
		for _, obj := range objs {
			f(obj)
		}
	}
}
