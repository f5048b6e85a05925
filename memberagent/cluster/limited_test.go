// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/memberagent/cluster/mcscrds"
)

// TestOnlyV1Alpha1IsServed uses Karmada's own definitions, which somebody installed in the member.
func TestOnlyV1Alpha1IsServed(t *testing.T) {
	m := newMember(t)
	dir, err := apiserver.KarmadaCRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"serviceexports", "serviceimports"} {
		text, err := os.ReadFile(filepath.Join(dir, "multicluster", "multicluster.x-k8s.io_"+kind+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			t.Fatal(err)
		}
		m.create(crd)
	}
	scheme, err := baseScheme()
	if err != nil {
		t.Fatal(err)
	}
	mcscrds.AddToScheme(scheme, mcscrds.V1Alpha1)
	admin := m.admin(scheme)
	m.Client = admin
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	m.peeringCondition("MCSAPI", metav1.ConditionFalse, "Limited", "v0.5.2")

	m.service("sample", "db", "10.8.0.5")
	m.export("sample", "db")
	m.exports("sample/db 10.8.0.5;")
	m.eventually("the export is valid", func(ctx context.Context) error {
		e := &mcs.ServiceExport{}
		if err := m.Get(ctx, key("sample", "db"), e); err != nil {
			return err
		}
		return expect("valid", meta.IsStatusConditionTrue(e.Status.Conditions, "Valid"), true)
	})
	m.run("what v1alpha1 lacks comes from annotations", func(t *testing.T) {
		m.service("sample", "annotated", "10.8.0.6")
		m.create(&mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "annotated",
			Annotations: map[string]string{
				v1alpha1.AnnotationServiceMode: "ClusterIP", v1alpha1.AnnotationImportClusters: "c2,c1",
				v1alpha1.AnnotationExportedLabels: `{"a":"b"}`,
			}}})
		m.exports("sample/annotated ClusterIP [c1 c2] 10.8.0.6;sample/db 10.8.0.5;")
		b := bundle(0)
		if err := m.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil ||
			b.Status.Exports[0].Settings.Labels["a"] != "b" {
			t.Errorf("labels %v, %v", b.Status.Exports[0].Settings.Labels, err)
		}
	})
	m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
	m.endpoints(key("sample", "web"), "c2 10.9.0.4:8080")
	i := &mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web"}}
	m.eventually("the import", func(ctx context.Context) error {
		if err := m.Get(ctx, client.ObjectKeyFromObject(i), i); err != nil {
			return err
		}
		return expect("addresses and clusters", []int{len(i.Spec.IPs), len(i.Status.Clusters)}, []int{1, 1})
	})

	t.Log("what the old version drops is not written again and again")
	version := m.settled(i)
	change(m, bundle(0), func(b *v1alpha1.Bundle) {
		b.Spec.Imports = sorted(append(b.Spec.Imports, imported("sample", "other", nil)))
	})
	m.eventually("the next import", func(ctx context.Context) error {
		return m.Get(ctx, key("sample", "other"),
			&mcs.ServiceImport{})
	})
	if after := m.settled(i); after != version {
		t.Errorf("the ServiceImport was written without a change: %s, was %s", after, version)
	}
}

// settled returns the resource version of an object.
func (m *member) settled(o client.Object) string {
	m.t.Helper()
	if err := m.Get(m.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		m.t.Fatal(err)
	}
	return o.GetResourceVersion()
}
