// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const labelManagedBy = "app.kubernetes.io/managed-by"

// crds are Sealane's own, labelled as such.
func crds() ([]*unstructured.Unstructured, error) {
	objects, err := manifests("artifacts/crds/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelManagedBy] = v1alpha1.ManagedBy
		object.SetLabels(labels)
	}
	return objects, nil
}

// installCRDs applies the CRDs and waits until they are served.
func (a *api) installCRDs(ctx context.Context, p *progress) error {
	objects, err := crds()
	if err != nil {
		return err
	}
	if err := a.apply(ctx, objects...); err != nil {
		return err
	}
	for _, object := range objects {
		established := func(ctx context.Context) (bool, error) { return a.established(ctx, object.GetName()) }
		if err := until(ctx, established); err != nil {
			return fmt.Errorf("wait until %s is established: %w", object.GetName(), err)
		}
	}
	// Discovery follows a moment later.
	err = until(ctx, func(ctx context.Context) (bool, error) {
		err := a.List(ctx, &v1alpha1.ClusterSetList{}, client.Limit(1))
		if gone(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait until clustersets are served: %w", err)
	}
	p.say("%d CRDs of %s are served", len(objects), v1alpha1.GroupVersion)
	return nil
}

func (a *api) established(ctx context.Context, name string) (bool, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := a.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
		return false, err
	}
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse {
			return false, fmt.Errorf("names not accepted: %s", c.Message)
		}
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			return true, nil
		}
	}
	return false, nil
}
