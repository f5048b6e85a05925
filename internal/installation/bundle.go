// SPDX-License-Identifier: Apache-2.0

// Package installation renders what an administrator installs on the Karmada API for the members: their CRDs and
// workloads as resource templates, and the policies that propagate them.
package installation

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// KindCRD is the kind of the templates that outlive a leave.
const KindCRD = "CustomResourceDefinition"

// Images of a member's workloads.
type Images struct {
	Agent, DNS string
	// IPsec is that of the container for cables by IPsec; empty for none.
	IPsec string
	// PullPolicy of all; empty leaves the API server's default.
	PullPolicy string
	// PullSecret is a Secret of the workloads' namespace by which they are pulled; empty where none is needed.
	PullSecret string
}

// MemberCRDs are the plural names of Sealane's kinds that members have.
func MemberCRDs() []string {
	return []string{"peerings", "bundles", "gateways", "globalingressips", "globalegressips", "clusterglobalegressips",
		"globalallocations", "nodenetworks", "nodeslices"}
}

// Templates returns the install bundle in the order to apply it: the CRDs that members need, then the
// manifests in artifacts/deploy, the Namespace first.
func Templates(artifacts fs.FS, images Images) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, plural := range MemberCRDs() {
		crd, err := readObjects(artifacts, "artifacts/crds/"+v1alpha1.GroupName+"_"+plural+".yaml")
		if err != nil {
			return nil, err
		}
		objects = append(objects, crd...)
	}
	files, err := fs.Glob(artifacts, "artifacts/deploy/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the install bundle: %w", err)
	}
	var namespaces, others []*unstructured.Unstructured
	for _, file := range files {
		found, err := readObjects(artifacts, file)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			if o.GetKind() == "Namespace" {
				namespaces = append(namespaces, o)
			} else {
				others = append(others, o)
			}
		}
	}
	objects = append(append(objects, namespaces...), others...)
	for _, o := range objects {
		unstructured.RemoveNestedField(o.Object, "status")
		unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
		if err := setImages(o, images); err != nil {
			return nil, fmt.Errorf("set the images of %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		// As the CRDs that Karmada needs for itself carry it: their templates are the same objects.
		o.SetLabels(labels.Merge(o.GetLabels(), labels.Set{labelManagedBy: v1alpha1.ManagedBy}))
	}
	return objects, nil
}

func readObjects(artifacts fs.FS, file string) ([]*unstructured.Unstructured, error) {
	data, err := fs.ReadFile(artifacts, file)
	if err != nil {
		return nil, fmt.Errorf("read the install bundle: %w", err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var objects []*unstructured.Unstructured
	for {
		o := new(unstructured.Unstructured)
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", path.Base(file), err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// ofIPsec says whether an argument of the node agent tells it that there is a container for cables by IPsec.
func ofIPsec(arg any) bool {
	text, ok := arg.(string)
	return ok && strings.HasPrefix(text, "--ipsec-dir=")
}

// setImages replaces the placeholders "agent", "dns" and "ipsec" in a pod template, takes the last away where it is not
// wanted, so that the node agent knows it, and says how to pull them.
func setImages(o *unstructured.Unstructured, images Images) error {
	containers, found, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || !found {
		return err
	}
	if images.IPsec == "" {
		containers = slices.DeleteFunc(containers, func(c any) bool {
			fields, ok := c.(map[string]any)
			return ok && fields["image"] == "ipsec"
		})
	}
	for i := range containers {
		c, ok := containers[i].(map[string]any)
		if !ok {
			return fmt.Errorf("container %d is not an object", i)
		}
		switch c["image"] {
		case "agent":
			c["image"] = images.Agent
			if args, ok := c["args"].([]any); ok && images.IPsec == "" {
				c["args"] = slices.DeleteFunc(args, ofIPsec)
			}
		case "dns":
			c["image"] = images.DNS
		case "ipsec":
			c["image"] = images.IPsec
		}
		if images.PullPolicy != "" {
			c["imagePullPolicy"] = images.PullPolicy
		}
	}
	if images.PullSecret != "" {
		secrets := []any{map[string]any{"name": images.PullSecret}}
		if err := unstructured.SetNestedSlice(o.Object, secrets, "spec", "template", "spec", "imagePullSecrets"); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
}
