// SPDX-License-Identifier: Apache-2.0

package sealane_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// applied makes a ConfigMap of Sealane's by server-side apply, as the agent does.
func applied(t *testing.T, name string, annotations, labels, data map[string]string) func(client.Client) error {
	return func(c client.Client) error {
		return c.Patch(t.Context(), &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "kube-system", Name: name, Labels: labels, Annotations: annotations,
			},
			Data: data,
		}, client.Apply, client.FieldOwner("sealane-cluster-agent"))
	}
}

func dnsConfig(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: data}
}

// TestClusterTokenAndOtherClusterDNS: what the agent may have each kind of cluster DNS forward, and nothing more.
func TestClusterTokenAndOtherClusterDNS(t *testing.T) {
	crds, err := apiserver.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	config := apiserver.Start(t, crds)
	admin := connect(t, config)
	installAll(t, admin, "artifacts/deploy/*.yaml")
	as := rest.AnonymousClientConfig(config)
	as.BearerToken = tokenOf(t, config, "sealane-cluster-agent", nil)
	agent := connect(t, as)
	create(t, admin, peeringFor([]string{"clusterset.local", "mesh.example.org"}, serviceNetworks), corefile(stock))
	enforced(t, func() error { return writesCorefile(t, blockOf("example.com:53")+stock)(agent) })
	own := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

	t.Run("an imported file", func(t *testing.T) {
		const name = "coredns-custom"
		file := dnsConfig(name, nil)
		set := func(text string) func(client.Client) error {
			return patchUpdateAs(t, file, func(c *corev1.ConfigMap) { c.Data["sealane.server"] = text })
		}
		expect(t, agent, []write{
			{"one of nobody's", byPolicy, applied(t, name, nil, nil, map[string]string{"sealane.server": ours})},
			{"with another key", byPolicy, applied(t, name, nil, own, map[string]string{"sealane.server": ours,
				"a.server": ""})},
			{"with another domain", byPolicy, applied(t, name, nil, own,
				map[string]string{"sealane.server": blockOf("example.com:53")})},
			{"with more than the block", byPolicy, applied(t, name, nil, own, map[string]string{"sealane.server": ours +
				"a:53 {\n}\n"})},
			{"of another name", noRight, applied(t, "other", nil, own, map[string]string{"sealane.server": ours})},
			{"of a name that is not made", noRight, applied(t, "node-local-dns", nil, own, map[string]string{"Corefile": ours})},
			{"the file", done, applied(t, name, nil, own, map[string]string{"sealane.server": ours})},
			{"another domain", byPolicy, set(blockOf("example.com:53"))},
			{"the cluster's own", byPolicy, set(blockOf("svc.cluster.local:53"))},
			{"another port", done, set(blockOf("clusterset.local:1053 mesh.example.org:1053"))},
			{"an address to bind to", byPolicy, set(strings.Replace(ours, "    errors\n", "    errors\n    bind 10.0.0.1\n",
				1))},
			{"another key", byPolicy, patchUpdateAs(t, file, func(c *corev1.ConfigMap) { c.Data["a.server"] = "" })},
			{"the ConfigMap's end", done, deletes(t, file)},
		})
		create(t, admin, dnsConfig(name, map[string]string{"corp.server": "corp.example:53 {\n}\n"}))
		expect(t, agent, []write{
			{"beside somebody's key", done, set(ours)},
			{"somebody's key", byPolicy, patchUpdateAs(t, file, func(c *corev1.ConfigMap) { delete(c.Data, "corp.server") })},
			{"somebody's ConfigMap's end", byPolicy, deletes(t, file)},
			{"no key", done, patchUpdateAs(t, file, func(c *corev1.ConfigMap) { delete(c.Data, "sealane.server") })},
		})
	})
	t.Run("stub domains", func(t *testing.T) { testStubDomains(t, admin, agent, own) })
	t.Run("NodeLocal DNSCache", func(t *testing.T) {
		cache := "cluster.local:53 {\n    bind 169.254.20.10\n}\n.:53 {\n}\n"
		create(t, admin, dnsConfig("node-local-dns", map[string]string{"Corefile": cache}))
		set := func(text string) func(client.Client) error {
			return patchUpdateAs(t, dnsConfig("node-local-dns", nil), func(c *corev1.ConfigMap) { c.Data["Corefile"] = text })
		}
		bound := strings.Replace(ours, "    errors\n", "    errors\n    bind __PILLAR__LOCAL__DNS__ 169.254.20.10\n", 1)
		expect(t, agent, []write{
			{"the block", done, set(bound + cache)},
			{"another domain", byPolicy, set(strings.Replace(bound, "clusterset.local", "example.com", 1) + cache)},
			{"the rest", byPolicy, set(bound + "a:53 {\n}\n" + cache)},
			{"no block", done, set(cache)},
		})
	})
	t.Run("OpenShift", func(t *testing.T) { testOpenShift(t, admin, agent) })
}

func testStubDomains(t *testing.T, admin, agent client.Client, own map[string]string) {
	const key, mine = "sealane.io/stub-domains", `"clusterset.local": ["10.96.0.7"]`
	cm := dnsConfig("kube-dns", nil)
	set := func(annotation, text string) func(client.Client) error {
		return patchUpdateAs(t, cm, func(c *corev1.ConfigMap) {
			c.Annotations, c.Data["stubDomains"] = map[string]string{key: annotation}, text
			if annotation == "" {
				delete(c.Annotations, key)
			}
		})
	}
	marked := map[string]string{key: mine}
	expect(t, agent, []write{
		{"a ConfigMap with more than is Sealane's", byPolicy, applied(t, "kube-dns", marked, own,
			map[string]string{"stubDomains": "{" + mine + `, "a": ["b"]}`})},
		{"a ConfigMap", done, applied(t, "kube-dns", marked, own, map[string]string{"stubDomains": "{" + mine + "}"})},
		{"its end", done, deletes(t, cm)},
	})
	const corp = "{\n  \"corp.example\": [\"10.0.0.1\"]\n}\n"
	users := dnsConfig("kube-dns", map[string]string{"stubDomains": corp, "upstreamNameservers": "[]"})
	create(t, admin, users)
	rest := ", " + strings.TrimPrefix(corp, "{")
	expect(t, agent, []write{
		{"beside others", done, set(mine, "{"+mine+rest)},
		{"two domains", done, set(mine+`, "mesh.example.org": ["fd00::7"]`, "{"+mine+`, "mesh.example.org": ["fd00::7"]`+
			rest)},
		{"another domain", byPolicy, set(`"example.com": ["10.96.0.7"]`, `{"example.com": ["10.96.0.7"]`+rest)},
		{"one that is not marked", byPolicy, set(mine, "{"+mine+`, "example.com": ["10.96.0.7"]`+rest)},
		{"others' changed", byPolicy, set(mine, "{"+mine+strings.Replace(rest, "10.0.0.1", "192.0.2.1", 1))},
		{"marks of what is not there", byPolicy, set(`"corp.example": ["10.0.0.1"]`, "{"+mine+rest)},
		{"another key", byPolicy, patchUpdateAs(t, cm, func(c *corev1.ConfigMap) { c.Data["upstreamNameservers"] = "[1]" })},
		{"another annotation", byPolicy, patchUpdateAs(t, cm, func(c *corev1.ConfigMap) { c.Annotations["a"] = "b" })},
		{"none", done, set("", corp)},
		{"none, of others' either", byPolicy, set("", "{}")},
		{"somebody's ConfigMap's end", byPolicy, deletes(t, cm)},
	})
}

func testOpenShift(t *testing.T, admin, agent client.Client) {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "dnses.operator.openshift.io"}}
	keep := true
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "operator.openshift.io", Scope: apiextensionsv1.ClusterScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "DNS", ListKind: "DNSList", Plural: "dnses",
			Singular: "dns"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: &keep,
			}}}},
	}
	create(t, admin, crd)
	server := func(name string, to any, zones ...any) any {
		return map[string]any{"name": name, "zones": zones, "forwardPlugin": map[string]any{"upstreams": []any{to}}}
	}
	object := func(name string, servers ...any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"logLevel": "Normal",
			"servers": servers}}}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"})
		o.SetName(name)
		return o
	}
	corp := server("corp", "10.0.0.1", "corp.example")
	eventually(t, "the kind is served", func() error { return admin.Create(t.Context(), object("other", corp)) })
	if err := admin.Create(t.Context(), object("default", corp)); err != nil {
		t.Fatal(err)
	}
	patchSpec := func(name string, change func(o *unstructured.Unstructured)) func(client.Client) error {
		return func(c client.Client) error {
			have := object(name)
			if err := admin.Get(context.Background(), client.ObjectKey{Name: name}, have); err != nil {
				return err
			}
			want := have.DeepCopy()
			change(want)
			return c.Patch(t.Context(), want, client.MergeFrom(have))
		}
	}
	set := func(servers ...any) func(client.Client) error {
		return patchSpec("default", func(o *unstructured.Unstructured) {
			o.Object["spec"].(map[string]any)["servers"] = servers
		})
	}
	enforced(t, func() error { return set(corp, server("sealane", "10.96.0.7", "example.com"))(agent) })
	mine := server("sealane", "10.96.0.7", "clusterset.local", "mesh.example.org")
	expect(t, agent, []write{
		{"its server", done, set(corp, mine)},
		{"another domain", byPolicy, set(corp, server("sealane", "10.96.0.7", "example.com"))},
		{"the cluster's own domain", byPolicy, set(corp, server("sealane", "10.96.0.7", "cluster.local"))},
		{"another server", byPolicy, set(corp, mine, server("b", "10.96.0.7", "clusterset.local"))},
		{"one server less", byPolicy, set(mine)},
		{"another field", byPolicy, patchSpec("default", func(o *unstructured.Unstructured) {
			o.Object["spec"].(map[string]any)["logLevel"] = "Debug"
		})},
		{"a label", byPolicy, patchSpec("default", func(o *unstructured.Unstructured) {
			o.SetLabels(
				map[string]string{"a": "b"})
		})},
		{"no server", done, set(corp)},
		{"another object", noRight, patchSpec("other",
			func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) })},
	})
}
