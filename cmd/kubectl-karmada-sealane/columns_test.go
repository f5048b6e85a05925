// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestColumnsOfKubectlAreNotLists: of a list a printer column shows the JSON, and of [*] the first item alone.
func TestColumnsOfKubectlAreNotLists(t *testing.T) {
	objects, err := crds()
	if err != nil {
		t.Fatal(err)
	}
	columns := 0
	for _, object := range objects {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &crd); err != nil {
			t.Fatal(err)
		}
		for _, version := range crd.Spec.Versions {
			for _, column := range version.AdditionalPrinterColumns {
				columns++
				if strings.HasPrefix(column.JSONPath, ".metadata.") {
					continue
				}
				if kind := kindAt(version.Schema.OpenAPIV3Schema, column.JSONPath); kind == "" || kind == "array" ||
					kind == "object" {
					t.Errorf("%s: column %s at %s is of type %q", crd.Name, column.Name, column.JSONPath, kind)
				}
			}
		}
	}
	if columns < 20 {
		t.Errorf("found %d columns only", columns)
	}
}

// item is an index of a list, or a filter that selects one item of a map list.
var item = regexp.MustCompile(`\[(\d+|\?\(@\.type=="\w+"\))\]`)

// kindAt is the type of the field that a JSON path leads to, "" if it leads nowhere or to several.
func kindAt(schema *apiextensionsv1.JSONSchemaProps, path string) string {
	for _, field := range strings.Split(strings.TrimPrefix(item.ReplaceAllString(path, ".#"), "."), ".") {
		switch {
		case schema == nil:
			return ""
		case field == "#" && schema.Items != nil:
			schema = schema.Items.Schema
		default:
			property, ok := schema.Properties[field]
			if !ok {
				return ""
			}
			schema = &property
		}
	}
	return schema.Type
}
