// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// forgetful is an API server with one object, which an earlier deletion left there.
type forgetful struct {
	client.Client
	labels     map[string]string
	finalizers []string
	deletions  int
}

func (f *forgetful) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if f.deletions > 0 {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	o.SetLabels(f.labels)
	o.SetFinalizers(f.finalizers)
	return nil
}

func (f *forgetful) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	f.deletions++
	return nil
}

func TestWhatNothingHoldsIsDeletedAgain(t *testing.T) {
	ours := map[string]string{labelManagedBy: v1alpha1.ManagedBy}
	for name, c := range map[string]struct {
		server forgetful
		gone   bool
	}{
		"ours":                  {forgetful{labels: ours}, true},
		"ours, with finalizers": {forgetful{labels: ours, finalizers: []string{"example.org/held"}}, false},
		"somebody else's":       {forgetful{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*pollInterval+100*time.Millisecond)
			defer cancel()
			a := &api{Client: &c.server}
			set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			if err := a.waitGone(ctx, set); (err == nil) != c.gone || (c.server.deletions > 0) != c.gone {
				t.Errorf("deleted %d times: %v", c.server.deletions, err)
			}
		})
	}
}

// TestAHeldDefinitionIsTouched: the API server's own finalizer may have forgotten a CustomResourceDefinition, and
// looks at it again when it changes. Here it is one that forgets all but the touched ones.
func TestAHeldDefinitionIsTouched(t *testing.T) {
	server := &forgettingFinalizer{}
	definition := &unstructured.Unstructured{Object: map[string]any{"kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gateways.sealane.io"}}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := (&api{Client: server}).waitGone(ctx, definition)
	const want = "wait until CustomResourceDefinition gateways.sealane.io is gone: context deadline exceeded; " +
		"finalizers customresourcecleanup.apiextensions.k8s.io hold it; " +
		"the API server says InstanceDeletionFailed: could not list instances"
	if err == nil || err.Error() != want {
		t.Errorf("expected %q, found %v", want, err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 3*nudgeEvery)
	defer cancel()
	if err := (&api{Client: server}).waitGone(ctx, definition); err != nil || server.touched != 1 {
		t.Errorf("touched %d times: %v", server.touched, err)
	}
}

// forgettingFinalizer is an API server with one CustomResourceDefinition, which goes when it is touched.
type forgettingFinalizer struct {
	client.Client
	touched int
}

func (f *forgettingFinalizer) Get(_ context.Context, key client.ObjectKey, o client.Object,
	_ ...client.GetOption) error {
	if f.touched > 0 {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	o.SetLabels(map[string]string{labelManagedBy: v1alpha1.ManagedBy})
	o.SetFinalizers([]string{apiextensionsv1.CustomResourceCleanupFinalizer})
	return unstructured.SetNestedSlice(o.(*unstructured.Unstructured).Object, []any{map[string]any{
		"type": "Terminating", "reason": "InstanceDeletionFailed", "message": "could not list instances",
	}}, "status", "conditions")
}

func (f *forgettingFinalizer) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	f.touched++
	return nil
}
