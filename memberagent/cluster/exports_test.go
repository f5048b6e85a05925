// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func (m *member) export(namespace, name string) {
	m.t.Helper()
	m.create(&mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// exports waits until the only Bundle reports these.
func (m *member) exports(want string) {
	m.t.Helper()
	took := m.eventually("the exports reported", func(ctx context.Context) error {
		b := &v1alpha1.Bundle{}
		if err := m.Get(ctx, types.NamespacedName{Name: v1alpha1.BundleName(0)}, b); err != nil {
			return err
		}
		got := ""
		for _, e := range b.Status.Exports {
			got += e.Namespace + "/" + e.Name
			if e.Mode != "" {
				got += " " + string(e.Mode)
			}
			if e.Scope != nil {
				got += fmt.Sprint(" ", e.Scope.ClusterNames)
			}
			for _, g := range e.Backends {
				for _, a := range g.Addresses {
					got += " " + a.IP
				}
			}
			got += ";"
		}
		return errors.Join(expect("exports", got, want), expect("revision", b.Status.ObservedRevision, b.Spec.Revision))
	})
	m.t.Logf("reported after %s: %s", took, want)
}

func (m *member) condition(namespace, name, kind string, status metav1.ConditionStatus, reason string) {
	m.t.Helper()
	m.eventually("condition "+kind, func(ctx context.Context) error {
		e := &mcs.ServiceExport{}
		if err := m.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, e); err != nil {
			return err
		}
		c := meta.FindStatusCondition(e.Status.Conditions, kind)
		if c == nil {
			return errors.New("not there")
		}
		return errors.Join(expect("status", c.Status, status), expect("reason", c.Reason, reason),
			expect("generation", c.ObservedGeneration, e.Generation))
	})
}

// says waits until the message of a condition that is true has a part.
func (m *member) says(namespace, name, kind, part string) {
	m.t.Helper()
	m.eventually(kind+" of "+namespace+"/"+name+" says "+part, func(ctx context.Context) error {
		e := &mcs.ServiceExport{}
		if err := m.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, e); err != nil {
			return err
		}
		c := meta.FindStatusCondition(e.Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionTrue {
			return errors.New("not true")
		}
		return contains(c.Message, part)
	})
}

func TestExports(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	m.exports("")

	slice := m.service("sample", "web", "10.8.0.5", "10.8.0.4")
	m.export("sample", "web")
	m.exports("sample/web 10.8.0.4 10.8.0.5;")
	m.condition("sample", "web", "Valid", metav1.ConditionTrue, "Valid")
	m.condition("sample", "web", "Ready", metav1.ConditionFalse, "Pending")

	change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = endpointsOf("10.8.0.6") })
	m.exports("sample/web 10.8.0.6;")

	m.export("sample", "early")
	m.condition("sample", "early", "Valid", metav1.ConditionFalse, "NoService")
	m.service("sample", "early")
	m.condition("sample", "early", "Valid", metav1.ConditionTrue, "Valid")
	m.exports("sample/early;sample/web 10.8.0.6;")

	name := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "name"}}
	name.Spec.Type, name.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
	m.create(name)
	m.export("sample", "name")
	m.condition("sample", "name", "Valid", metav1.ConditionFalse, "InvalidServiceType")

	m.run("annotations narrow an export, and a malformed one changes nobody's import", func(t *testing.T) {
		m.service("sample", "scoped")
		scoped := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "scoped",
			Annotations: map[string]string{
				v1alpha1.AnnotationImportClusters: "c2", v1alpha1.AnnotationServiceMode: "ClusterIP",
			}}}
		m.create(scoped)
		m.exports("sample/early;sample/scoped ClusterIP [c2];sample/web 10.8.0.6;")
		change(m, scoped, func(e *mcs.ServiceExport) {
			e.Annotations[v1alpha1.AnnotationImportClusters], e.Annotations[v1alpha1.AnnotationServiceMode] = "c2;c3",
				"ClusterSetIP"
		})
		m.exports("sample/early;sample/scoped ClusterSetIP [c2];sample/web 10.8.0.6;")
		m.condition("sample", "scoped", "Valid", metav1.ConditionTrue, "Valid")
		m.delete(scoped)
		m.exports("sample/early;sample/web 10.8.0.6;")

		t.Log("of an export that is new it admits nobody else")
		m.service("sample", "unscoped")
		unscoped := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "unscoped",
			Annotations: map[string]string{
				v1alpha1.AnnotationImportClusters: "c2;c3", v1alpha1.AnnotationServiceMode: "clusterip",
				v1alpha1.AnnotationExportedLabels: "{",
			}}}
		m.create(unscoped)
		m.exports("sample/early;sample/unscoped [];sample/web 10.8.0.6;")
		for _, annotation := range []string{
			v1alpha1.AnnotationImportClusters, v1alpha1.AnnotationServiceMode, v1alpha1.AnnotationExportedLabels,
		} {
			m.says("sample", "unscoped", "Valid", "the annotation "+annotation+" should be ")
		}
		m.eventually("the report has remarks on it", func(ctx context.Context) error {
			b := bundle(0)
			if err := m.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
				return err
			}
			i := slices.IndexFunc(b.Status.Exports, func(e v1alpha1.Export) bool { return e.Name == "unscoped" })
			return expect("remarks", i >= 0 && len(b.Status.Exports[i].Remarks) == 3, true)
		})
		m.delete(unscoped)
		m.exports("sample/early;sample/web 10.8.0.6;")
	})

	m.run("what Karmada collects from other clusters is not this cluster's", func(t *testing.T) {
		for _, by := range []string{"endpointslice-dispatch-controller.karmada.io", "endpointslice-controller.karmada.io"} {
			remote := slice.DeepCopy()
			remote.ObjectMeta = metav1.ObjectMeta{Namespace: "sample", GenerateName: "imported-", Labels: map[string]string{
				discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: by,
			}}
			remote.Endpoints = endpointsOf("10.9.0.77")
			m.create(remote)
		}
		change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = endpointsOf("10.8.0.61") })
		m.exports("sample/early;sample/web 10.8.0.61;")
		change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = endpointsOf("10.8.0.6") })
		m.exports("sample/early;sample/web 10.8.0.6;")
	})

	b := bundle(0)
	change(m, b, func(b *v1alpha1.Bundle) {
		b.Spec.Revision = 2
		b.Spec.ExportConditions = []v1alpha1.ExportCondition{
			{Namespace: "sample", Name: "web", Type: "Ready", Status: metav1.ConditionTrue, Reason: "Exported",
				Message: "exported"},
			{Namespace: "sample", Name: "web", Type: "Conflict", Status: metav1.ConditionTrue,
				Reason: "PortConflict,TypeConflict", Message: "c2 differs"},
		}
	})
	m.condition("sample", "web", "Ready", metav1.ConditionTrue, "Exported")
	m.condition("sample", "web", "Conflict", metav1.ConditionTrue, "PortConflict,TypeConflict")
	m.exports("sample/early;sample/web 10.8.0.6;")

	t.Log("a Bundle that comes back without status gets it anew; the verdicts stay meanwhile")
	if err := m.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	m.condition("sample", "web", "Ready", metav1.ConditionTrue, "Exported")
	m.create(bundle(0))
	m.exports("sample/early;sample/web 10.8.0.6;")

	if err := m.Delete(t.Context(), &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample",
		Name: "web"}}); err != nil {
		t.Fatal(err)
	}
	m.exports("sample/early;")
}
