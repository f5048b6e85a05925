// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane"
)

// manifests decodes every object in the embedded files that match a pattern: namespaces first, the rest
// in the files' order.
func manifests(pattern string) ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(sealane.Artifacts, pattern)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", pattern, err)
	}
	sort.Strings(names)
	var objects []*unstructured.Unstructured
	for _, name := range names {
		content, err := fs.ReadFile(sealane.Artifacts, name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		decoded, err := decode(content)
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", name, err)
		}
		objects = append(objects, decoded...)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("no manifest matches %s", pattern)
	}
	// What the others live in comes first.
	sort.SliceStable(objects, func(i, j int) bool {
		return objects[i].GetKind() == "Namespace" && objects[j].GetKind() != "Namespace"
	})
	return objects, nil
}

func decode(content []byte) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// apply writes objects with server-side apply, in order.
func (a *api) apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		err := a.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldManager),
			client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply %s: %w", describe(object), err)
		}
	}
	return nil
}

// remove deletes objects, last first; one that is gone, or whose kind is, is success.
func (a *api) remove(ctx context.Context, objects ...*unstructured.Unstructured) error {
	for i := len(objects) - 1; i >= 0; i-- {
		if err := a.removeOne(ctx, objects[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *api) removeOne(ctx context.Context, object client.Object) error {
	err := a.Delete(ctx, object, client.PropagationPolicy("Background"))
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", describe(object), err)
	}
	return nil
}

// gone says that an object, or its kind, is not there.
func gone(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// describe names an object in a text: "DaemonSet sealane-system/sealane-node".
func describe(object client.Object) string {
	name := client.ObjectKeyFromObject(object).String()
	if object.GetNamespace() == "" {
		name = object.GetName()
	}
	return object.GetObjectKind().GroupVersionKind().Kind + " " + name
}
