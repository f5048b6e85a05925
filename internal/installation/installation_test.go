// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sealane-io/sealane"
)

func templates(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := Templates(sealane.Artifacts,
		Images{Agent: "example.org/agent:1", DNS: "example.org/dns:1", PullPolicy: "Never"})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestTemplatesOrderAndImages(t *testing.T) {
	images := map[string]string{}
	var kinds []string
	for _, o := range templates(t) {
		kinds = append(kinds, o.GetKind())
		if o.GetAnnotations()[AnnotationApplied] == "" {
			t.Errorf("%s %s carries no hash", o.GetKind(), o.GetName())
		}
		containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range containers {
			c := c.(map[string]any)
			images[o.GetName()] = c["image"].(string)
			if c["imagePullPolicy"] != "Never" {
				t.Errorf("%s pulls %v", o.GetName(), c["imagePullPolicy"])
			}
		}
	}
	const first = "CustomResourceDefinition CustomResourceDefinition CustomResourceDefinition Namespace"
	if got := strings.Join(kinds[:4], " "); got != first {
		t.Errorf("the first kinds are %s", got)
	}
	for name, want := range map[string]string{
		"sealane-cluster-agent": "example.org/agent:1", "sealane-node": "example.org/agent:1",
		"sealane-dns": "example.org/dns:1",
	} {
		if images[name] != want {
			t.Errorf("%s runs %q, want %s", name, images[name], want)
		}
	}
}

func TestTemplatesNamesTheFileThatDoesNotParse(t *testing.T) {
	files := fstest.MapFS{"artifacts/deploy/bad.yaml": {Data: []byte("a: [")}}
	for _, crd := range []string{"peerings", "bundles", "gateways"} {
		files["artifacts/crds/sealane.io_"+crd+".yaml"] = &fstest.MapFile{Data: []byte("kind: CustomResourceDefinition")}
	}
	if _, err := Templates(files, Images{}); err == nil || !strings.Contains(err.Error(), "bad.yaml") {
		t.Errorf("error %v", err)
	}
}

func TestPolicies(t *testing.T) {
	policies, err := Policies(templates(t))
	if err != nil {
		t.Fatal(err)
	}
	selected := 0
	for _, p := range policies {
		affinity, _, err := unstructured.NestedMap(p.Object, "spec", "placement", "clusterAffinity")
		want := "map[labelSelector:map[matchExpressions:[map[key:sealane.io/member operator:Exists]]]]"
		if got := fmt.Sprint(affinity); err != nil || got != want {
			t.Errorf("%s goes to %s, want %s (%v)", p.GetName(), got, want, err)
		}
		keep, _, _ := unstructured.NestedBool(p.Object, "spec", "preserveResourcesOnDeletion")
		if keep != (p.GetName() == CRDPolicyName) {
			t.Errorf("%s keeps what it spread: %v", p.GetName(), keep)
		}
		tolerations, _, _ := unstructured.NestedSlice(p.Object, "spec", "placement", "clusterTolerations")
		if len(tolerations) != 1 || tolerations[0].(map[string]any)["operator"] != "Exists" {
			t.Errorf("%s tolerates %v", p.GetName(), tolerations)
		}
		selectors, _, _ := unstructured.NestedSlice(p.Object, "spec", "resourceSelectors")
		selected += len(selectors)
	}
	if all := len(templates(t)); selected != all {
		t.Errorf("%d of %d templates are selected", selected, all)
	}
}
