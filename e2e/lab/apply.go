// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// applier applies manifests server-side.
type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func (l *Lab) applier(name string) (*applier, error) {
	config, err := l.RESTConfig(name)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	return &applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))},
		nil
}

// ApplyFile applies a file's objects after edit, if any, changed its text.
func (a *applier) ApplyFile(ctx context.Context, path string, edit func(string) string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if edit != nil {
		data = []byte(edit(string(data)))
	}
	if err := a.Apply(ctx, data); err != nil {
		return fmt.Errorf("apply %s: %w", path, err)
	}
	return nil
}

// Apply applies the objects of a YAML stream in order.
func (a *applier) Apply(ctx context.Context, stream []byte) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		var u unstructured.Unstructured
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("parse manifest: %w", err)
		}
		if len(u.Object) == 0 {
			continue
		}
		if err := a.apply(ctx, &u); err != nil {
			return err
		}
	}
}

// WaitServed waits until the API server's discovery lists all of the kinds.
func (a *applier) WaitServed(ctx context.Context, kinds []schema.GroupKind) error {
	return poll(ctx, 200*time.Millisecond, func(context.Context) error {
		a.mapper.Reset()
		for _, kind := range kinds {
			if _, err := a.mapper.RESTMapping(kind); err != nil {
				return fmt.Errorf("find %s on the API server: %w", kind, err)
			}
		}
		return nil
	})
}

func (a *applier) apply(ctx context.Context, u *unstructured.Unstructured) error {
	gvk := u.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return fmt.Errorf("find %s on the API server: %w", gvk, err)
	}
	resource := dynamic.ResourceInterface(a.client.Resource(mapping.Resource))
	if mapping.Scope.Name() == apimeta.RESTScopeNameNamespace {
		resource = a.client.Resource(mapping.Resource).Namespace(u.GetNamespace())
	}
	// A young API server may still be creating what admission looks up.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return poll(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		_, err := resource.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "sealane-lab", Force: true})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", gvk.Kind, u.GetName(), err)
		}
		return nil
	})
}
