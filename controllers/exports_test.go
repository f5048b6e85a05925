// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1alpha1 "github.com/karmada-io/karmada/pkg/apis/networking/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// template is a ServiceExport sample/web on the Karmada API.
type template struct{ *fleet }

func (f *fleet) template() template {
	f.t.Helper()
	f.namespace("sample")
	f.create(&mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web"}})
	return template{f}
}

// create creates an object for the time of the test.
func (f *fleet) create(o client.Object) {
	f.t.Helper()
	f.must(f.client.Create(f.t.Context(), o))
	f.t.Cleanup(func() { f.must(client.IgnoreNotFound(f.client.Delete(context.Background(), o))) })
}

// place has Karmada schedule sample/web, the ServiceExport or the Service, to clusters.
func (x template) place(kind string, clusters ...string) {
	x.t.Helper()
	b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web-" +
		strings.ToLower(kind)}}
	b.Spec.Resource = workv1alpha2.ObjectReference{APIVersion: "x/v1", Kind: kind, Namespace: "sample", Name: "web"}
	targets := make([]workv1alpha2.TargetCluster, 0, len(clusters))
	for _, c := range clusters {
		targets = append(targets, workv1alpha2.TargetCluster{Name: c})
	}
	if x.client.Get(x.t.Context(), client.ObjectKeyFromObject(b), b) != nil {
		b.Spec.Clusters = targets
		x.create(b)
		return
	}
	b.Spec.Clusters = targets
	x.must(x.client.Update(x.t.Context(), b))
}

// says has a member say of its ServiceExport whether it is valid, by way of Karmada.
func (x template) says(cluster, status, reason, message string) {
	x.t.Helper()
	x.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var b workv1alpha2.ResourceBinding
		if err := x.client.Get(x.t.Context(), client.ObjectKey{Namespace: "sample", Name: "web-serviceexport"},
			&b); err != nil {
			return err
		}
		b.Status.AggregatedStatus = append(b.Status.AggregatedStatus, workv1alpha2.AggregatedStatusItem{ClusterName: cluster,
			Applied: true, Status: &runtime.RawExtension{
				Raw: fmt.Appendf(nil,
					`{"conditions":[{"type":"Valid","status":%q,"reason":%q,"message":%q,`+
						`"lastTransitionTime":"2025-01-01T00:00:00Z"}]}`,
					status, reason, message),
			}})
		return x.client.Status().Update(x.t.Context(), &b)
	}))
}

// is waits for "<Valid> <Ready> <Conflict>", and for texts in the messages of Ready or Conflict.
func (x template) is(want string, texts ...string) {
	x.t.Helper()
	x.eventually("the ServiceExport says "+want+" "+strings.Join(texts, ", "), func() bool {
		var e mcsv1alpha1.ServiceExport
		x.must(x.client.Get(x.t.Context(), client.ObjectKey{Namespace: "sample", Name: "web"}, &e))
		c := e.Status.Conditions
		messages := ""
		for _, kind := range []string{"Ready", "Conflict"} {
			if found := meta.FindStatusCondition(c, kind); found != nil {
				messages += found.Message + "\n"
			}
		}
		for _, text := range texts {
			if !strings.Contains(messages, text) {
				return false
			}
		}
		return want == strings.Join([]string{condition(c, "Valid"), condition(c, "Ready"), condition(c, "Conflict")}, " ")
	})
}

func TestServiceExportOnTheKarmadaAPISumsUpItsClusters(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	x := f.template()
	x.is("False/Pending False/Pending Unknown/Pending", "no cluster is scheduled: does a PropagationPolicy")
	x.place("ServiceExport", "c1", "c2")
	x.says("c1", "False", "NoService", "no Service web")
	f.export("c2", export("sample", "web", "10.102.0.7", "10.2.0.7"))
	x.is("False/NoService False/Pending Unknown/Pending", "c2: exported", "c1: pending")

	other := export("sample", "web", "10.101.0.7", "10.1.0.7")
	other.Settings.Ports[0].Port = 81
	f.export("c1", other)
	x.is("True/Valid True/Exported True/PortConflict", "c1: exported; c2: exported")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	x.is("True/Valid True/Exported False/NoConflicts")
}

func TestServiceExportSaysWhyAClusterDoesNotExport(t *testing.T) {
	f := newFleet(t)
	f.connect(1)
	f.ready("c1")
	f.karmadaJoin("c9")
	x := f.template()
	x.place("ServiceExport", "c1", "c9")
	x.is("False/Pending False/Failed Unknown/Pending", "c9: failed: the cluster belongs to no ClusterSet",
		"c1: pending: the cluster does not serve ServiceExport")
	f.serves("c1")
	x.is("False/Pending False/Failed Unknown/Pending", "c1: pending: nothing is reported yet")
	x.place("ServiceExport", "c1")
	x.says("c1", "False", "NoService", "no Service web")
	x.is("False/NoService False/Pending Unknown/Pending", "c1: pending: no Service web")
	x.place("Service", "c9")
	x.is("False/NoService False/Failed Unknown/Pending", "c1: failed: the Service is not placed there, but in c9")
	x.place("Service", "c1", "c9")
	x.is("False/NoService False/Pending Unknown/Pending", "c1: pending: no Service web")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	x.is("True/Valid True/Exported False/NoConflicts", "c1: exported")
	f.choose("blue", "c8")
	x.is("False/NoService False/Failed Unknown/Pending", "c1: failed: the cluster is leaving ClusterSet blue")
}

// What an importer's API server refuses is said to the exporter and on the Karmada API, for as long as it is so.
func TestAnImportThatIsRefusedIsToldToItsExporter(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	x := f.template()
	x.place("ServiceExport", "c1")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"), export("sample", "api", "10.101.0.8", "10.1.0.8"))
	x.is("True/Valid True/Exported False/NoConflicts", "c1: exported")
	// ready is the message of c1's export while that is Ready.
	ready := func(name string) string {
		all := f.bundle("c1", "sample", name).ExportConditions
		at := slices.IndexFunc(all, func(c v1alpha1.ExportCondition) bool {
			return c.Name == name && c.Type == "Ready" && c.Status == metav1.ConditionTrue
		})
		if at < 0 {
			return ""
		}
		return all[at].Message
	}
	const fine = "exported to the ClusterSet"
	const refused = `not usable in c2 (Refused: "exceeded quota: \"small\"")`
	f.cannotUse("c2", v1alpha1.ImportProblem{
		Namespace: "sample", Names: []string{"web"}, Reason: v1alpha1.ReasonImportRefused, Message: `exceeded quota: "small"`,
	})
	f.eventually("c1 is told", func() bool { return ready("web") == fine+"; "+refused })
	x.is("True/Valid True/Exported False/NoConflicts", refused)
	f.eventually("the other export is fine", func() bool { return ready("api") == fine })

	f.cannotUse("c2")
	f.eventually("c1 is told that it is over", func() bool { return ready("web") == fine })
	f.eventually("so is the Karmada API", func() bool {
		var e mcsv1alpha1.ServiceExport
		f.must(f.client.Get(t.Context(), client.ObjectKey{Namespace: "sample", Name: "web"}, &e))
		c := meta.FindStatusCondition(e.Status.Conditions, "Ready")
		return c != nil && c.Status == metav1.ConditionTrue && !strings.Contains(c.Message, "not usable")
	})
}

func TestServiceExportSaysThatKarmadaDrivesTheServiceToo(t *testing.T) {
	f := newFleet(t)
	f.connect(1)
	x := f.template()
	x.place("ServiceExport", "c1")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	x.is("True/Valid True/Exported False/NoConflicts")
	imported := &mcsv1alpha1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web"}}
	imported.Spec.Type = mcsv1alpha1.ClusterSetIP
	imported.Spec.Ports = []mcsv1alpha1.ServicePort{}
	f.create(imported)
	x.is("True/Valid True/Exported True/DerivedServiceConflict", "delete serviceimport web")
	f.eventually("the member is told, too", func() bool {
		return slices.ContainsFunc(f.bundle("c1", "sample", "web").ExportConditions, func(c v1alpha1.ExportCondition) bool {
			return c.Type == "Conflict" && c.Status == metav1.ConditionTrue && c.Reason == "DerivedServiceConflict"
		})
	})
	service := &networkingv1alpha1.MultiClusterService{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web"}}
	service.Spec.Types = []networkingv1alpha1.ExposureType{networkingv1alpha1.ExposureTypeCrossCluster}
	f.create(service)
	x.is("True/Valid True/Exported True/DerivedServiceConflict,MultiClusterServiceConflict",
		"delete multiclusterservice web")
	f.must(f.client.Delete(t.Context(), imported))
	x.is("True/Valid True/Exported True/MultiClusterServiceConflict")
	f.must(f.client.Delete(t.Context(), service))
	x.is("True/Valid True/Exported False/NoConflicts")
}
