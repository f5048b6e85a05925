// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// pageSize of lists that may be long.
const pageSize = 500

// exportTemplate is a ServiceExport on the Karmada API, and where Karmada puts it: nil while no policy
// selects it.
type exportTemplate struct {
	mcsv1alpha1.ServiceExport
	binding *workv1alpha2.ResourceBinding
}

// memberServices are the objects of the MCS API in a member.
type memberServices struct {
	exports []mcsv1beta1.ServiceExport
	imports []mcsv1beta1.ServiceImport
	// slices of imports.
	slices []discoveryv1.EndpointSlice
	// namespaces by name; true for one that does not terminate.
	namespaces map[string]bool
}

// readExports reads what the Karmada API says of exports: the ServiceExports with their bindings, and the
// ServicePolicies.
func (a *api) readExports(ctx context.Context, f *fleet, namespace string) error {
	var exports mcsv1alpha1.ServiceExportList
	if err := a.List(ctx, &exports, client.InNamespace(namespace)); err != nil && !gone(err) {
		return fmt.Errorf("list serviceexports on the Karmada API: %w", err)
	}
	var policies v1alpha1.ServicePolicyList
	if err := a.List(ctx, &policies, client.InNamespace(namespace)); err != nil && !gone(err) {
		return fmt.Errorf("list servicepolicies: %w", err)
	}
	f.policies = policies.Items
	if len(exports.Items) == 0 {
		return nil
	}
	bindings, err := a.exportBindings(ctx, namespace)
	if err != nil {
		return err
	}
	for i := range exports.Items {
		e := &exports.Items[i]
		f.templates = append(f.templates, exportTemplate{ServiceExport: *e, binding: bindings[e.Namespace+"/"+e.Name]})
	}
	return nil
}

// exportBindings are the ResourceBindings of ServiceExports by "<namespace>/<name>".
func (a *api) exportBindings(ctx context.Context, namespace string) (map[string]*workv1alpha2.ResourceBinding, error) {
	out := map[string]*workv1alpha2.ResourceBinding{}
	for next := ""; ; {
		var list workv1alpha2.ResourceBindingList
		err := a.List(ctx, &list, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next))
		if err != nil {
			if gone(err) {
				return out, nil
			}
			return nil, fmt.Errorf("list resourcebindings: %w", err)
		}
		for i := range list.Items {
			if r := list.Items[i].Spec.Resource; r.Kind == "ServiceExport" {
				out[r.Namespace+"/"+r.Name] = &list.Items[i]
			}
		}
		if next = list.Continue; next == "" {
			return out, nil
		}
	}
}

// memberServices reads the MCS API of a member, in whatever version it serves.
func (a *api) memberServices(ctx context.Context, namespace string) (*memberServices, error) {
	s := &memberServices{namespaces: map[string]bool{}}
	var err error
	if s.exports, err = listMCS[mcsv1beta1.ServiceExport](ctx, a, "ServiceExport", namespace); err != nil {
		return nil, err
	}
	if s.imports, err = listMCS[mcsv1beta1.ServiceImport](ctx, a, "ServiceImport", namespace); err != nil {
		return nil, err
	}
	var endpoints discoveryv1.EndpointSliceList
	err = a.List(ctx, &endpoints, client.InNamespace(namespace), client.HasLabels{mcsv1beta1.LabelServiceName})
	if err != nil {
		return nil, fmt.Errorf("list endpointslices: %w", err)
	}
	s.slices = endpoints.Items
	var namespaces corev1.NamespaceList
	if err := a.List(ctx, &namespaces); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	for i := range namespaces.Items {
		s.namespaces[namespaces.Items[i].Name] = namespaces.Items[i].DeletionTimestamp == nil
	}
	return s, nil
}

// listMCS lists a kind of the MCS API in the version that the API server prefers. v1alpha1 has the fields
// of v1beta1, or fewer.
func listMCS[T any](ctx context.Context, a *api, kind, namespace string) ([]T, error) {
	mapping, err := a.RESTMapper().RESTMapping(schema.GroupKind{Group: mcsv1beta1.GroupName, Kind: kind})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", kind, err)
	}
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := a.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list %s: %w", mapping.Resource.Resource, err)
	}
	out := make([]T, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &out[i]); err != nil {
			return nil, fmt.Errorf("decode %s %s/%s: %w", kind, list.Items[i].GetNamespace(), list.Items[i].GetName(), err)
		}
	}
	return out, nil
}
