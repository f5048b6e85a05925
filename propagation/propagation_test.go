// SPDX-License-Identifier: Apache-2.0

package propagation

import (
	"strings"
	"testing"
	"testing/fstest"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
)

func templates(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := Templates(sealane.Artifacts, Images{Agent: "example.org/agent:1", DNS: "example.org/dns:1", PullPolicy: "Never"})
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
	if got := strings.Join(kinds[:4], " "); got != "CustomResourceDefinition CustomResourceDefinition CustomResourceDefinition Namespace" {
		t.Errorf("the first kinds are %s", got)
	}
	for name, want := range map[string]string{
		"sealane-cluster-agent": "example.org/agent:1", "sealane-node": "example.org/agent:1", "sealane-dns": "example.org/dns:1",
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
	for _, c := range []struct {
		clusters []string
		want     string
	}{{[]string{"c2", "c1"}, "c1,c2"}, {nil, "sealane-no-cluster"}} {
		policies, err := Policies(templates(t), c.clusters, true)
		if err != nil {
			t.Fatal(err)
		}
		selected := 0
		for _, p := range policies {
			names, _, err := unstructured.NestedStringSlice(p.Object, "spec", "placement", "clusterAffinity", "clusterNames")
			if got := strings.Join(names, ","); err != nil || got != c.want {
				t.Errorf("%s goes to %q, want %q (%v)", p.GetName(), got, c.want, err)
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
}

func TestManifestAndBack(t *testing.T) {
	want := v1alpha1.BundleSpec{Revision: 7, Shard: 2, Imports: []v1alpha1.Import{}, ExportConditions: []v1alpha1.ExportCondition{}}
	m, err := Manifest(KindBundle, v1alpha1.BundleName(2), want)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Object["status"]; ok {
		t.Error("a manifest carries a status, which would wipe the member's")
	}
	raw, err := m.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	work := &workv1alpha1.Work{}
	work.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
	var got v1alpha1.BundleSpec
	if err := Spec(work, &got); err != nil || got.Revision != 7 || got.Imports == nil {
		t.Errorf("%+v, %v", got, err)
	}
	if Spec(&workv1alpha1.Work{}, &got) == nil {
		t.Error("a Work without a manifest has a spec")
	}
	if Status(work) != nil {
		t.Error("a Work without a status has one")
	}
}

func TestClusterOfIsTheNamespace(t *testing.T) {
	work := &workv1alpha1.Work{}
	for namespace, want := range map[string]string{"karmada-es-c1": "c1", "default": "", "karmada-es-": ""} {
		work.Namespace = namespace
		if got := ClusterOf(work); got != want {
			t.Errorf("%s: %q", namespace, got)
		}
	}
}
