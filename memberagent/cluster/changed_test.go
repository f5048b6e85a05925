// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// madeVersions are the resource versions of all that is made of imports in a namespace.
func (m *member) madeVersions(ctx context.Context, namespace string) (map[string]string, error) {
	out := map[string]string{}
	for _, list := range []client.ObjectList{&mcs.ServiceImportList{}, &corev1.ServiceList{},
		&discoveryv1.EndpointSliceList{}} {
		if err := m.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			o := o.(client.Object)
			out[fmt.Sprintf("%T %s", o, o.GetName())] = o.GetResourceVersion()
		}
	}
	return out, nil
}

// TestOneChangedEndpointIsOneWrite, of the EndpointSlice that has it, however many imports there are beside it; and one
// of the report that answers the Bundle. The Peering's report stays as it is.
func TestOneChangedEndpointIsOneWrite(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	const many = 40
	imports := make([]v1alpha1.Import, many)
	for i := range imports {
		imports[i] = imported("sample", fmt.Sprintf("web-%02d", i), map[string][]string{
			"c2": {fmt.Sprintf("10.9.0.%d", i+1)}, "c3": {fmt.Sprintf("10.7.0.%d", i+1)}})
	}
	m.imports(imports...)
	answered := func(ctx context.Context) error {
		b := &v1alpha1.Bundle{}
		if err := m.Get(ctx, types.NamespacedName{Name: v1alpha1.BundleName(0)}, b); err != nil {
			return err
		}
		return errors.Join(expect("revision", b.Status.ObservedRevision, b.Spec.Revision),
			expect("problems", len(b.Status.Imports), 0))
	}
	m.eventually("all imports are made", answered)
	var before map[string]string
	m.eventually("nothing is written any more", func(ctx context.Context) error {
		last := before
		var err error
		if before, err = m.madeVersions(ctx, "sample"); err != nil {
			return err
		}
		return errors.Join(expect("objects", len(before), 4*many), expect("versions", before, last))
	})
	reported := &v1alpha1.Peering{}
	if err := m.Get(t.Context(), types.NamespacedName{Name: v1alpha1.PeeringName}, reported); err != nil {
		t.Fatal(err)
	}
	reports := m.counted()

	imports[17].Clusters[0].Backends[0].Addresses[0].IP = "10.9.250.1"
	m.imports(imports...)
	m.eventually("the change is answered", answered)
	m.endpoints(key("sample", "web-17"), "c2 10.9.250.1:8080, c3 10.7.0.18:8080")
	after, err := m.madeVersions(t.Context(), "sample")
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	for object, version := range after {
		if before[object] != version {
			changed = append(changed, object)
		}
	}
	if slices.Sort(changed); len(changed) != 1 || len(after) != len(before) {
		t.Errorf("written were %v of %d objects, want one EndpointSlice", changed, len(after))
	}
	again := &v1alpha1.Peering{}
	if err := m.Get(t.Context(), types.NamespacedName{Name: v1alpha1.PeeringName}, again); err != nil {
		t.Fatal(err)
	}
	if again.ResourceVersion != reported.ResourceVersion {
		t.Errorf("the Peering was written, too: %v, before %v", again.Status, reported.Status)
	}
	if n := reports.Load(); n != 1 {
		t.Errorf("%d reports of the Bundle, want one", n)
	}
}
