// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// backend is the one address behind a member's import of sample/<name>: "" is none.
func (f *fleet) backend(cluster, name string) string {
	i := f.imported(cluster, name)
	if i == nil || len(i.Clusters) == 0 || len(i.Clusters[0].Backends) == 0 {
		return ""
	}
	return i.Clusters[0].Backends[0].Addresses[0].IP
}

// A pull member rewrites its own Work while the controller is down and another member is silent: nothing of what it
// wrote is restored.
func TestARewrittenWorkRestoresNothing(t *testing.T) {
	f := newFleet(t)
	f.connect(3)
	f.export("c2", export("sample", "web", "10.102.0.7", "10.2.0.7"))
	f.eventually("all import it", func() bool { return f.importers("web") == "c1,c2,c3" })
	f.settled()
	f.stop()
	f.silence("c2")
	shard := v1alpha1.Shard("sample", "web", 4)
	forged := *f.bundle("c1", "sample", "web")
	forged.Revision += 1000
	forged.Imports[0].Clusters[0].Backends[0].Addresses[0].IP = "10.2.0.66"
	invented := *forged.Imports[0].DeepCopy()
	for i := 0; ; i++ {
		if invented.Name = fmt.Sprintf("bank-%d", i); v1alpha1.Shard("sample", invented.Name, 4) == shard {
			break
		}
	}
	forged.Imports = append(forged.Imports, invented)
	var work workv1alpha1.Work
	f.must(f.client.Get(t.Context(), propagation.BundleKey("c1", shard), &work))
	var manifest map[string]any
	f.must(json.Unmarshal(work.Spec.Workload.Manifests[0].Raw, &manifest))
	manifest["spec"] = forged
	raw, err := json.Marshal(manifest)
	f.must(err)
	work.Spec.Workload.Manifests[0].Raw = raw
	f.must(f.client.Update(t.Context(), &work))
	lost := &workv1alpha1.Work{}
	f.must(f.client.Get(t.Context(), propagation.BundleKey("c2", shard), lost))
	f.must(f.client.Delete(t.Context(), lost))
	f.eventually("the Work of c2 is gone", func() bool { return f.bundle("c2", "sample", "web") == nil })
	f.start()
	f.eventually("the Work of c1 says what the broker decided", func() bool {
		return f.backend("c1", "web") == "10.2.0.7" && f.imported("c1", invented.Name) == nil
	})
	f.never("something forged is restored", func() bool {
		return f.backend("c3", "web") != "10.2.0.7" || f.imported("c3", invented.Name) != nil
	})
}

// An export that claims to be of 1970 takes nothing of an existing service, now or after a restart.
func TestABackdatedExportTakesNothing(t *testing.T) {
	f := newFleet(t)
	f.connect(3)
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	f.eventually("all import it", func() bool { return f.importers("web") == "c1,c2,c3" })
	f.settled()
	forged := export("sample", "web", "", "10.2.0.7")
	forged.CreatedAt, forged.Settings.Type, forged.ClusterIPs = metav1.Unix(0, 0), v1alpha1.Headless, nil
	f.export("c2", forged)
	conflict := func(cluster string) bool {
		return slices.ContainsFunc(f.bundle(cluster, "sample", "web").ExportConditions,
			func(c v1alpha1.ExportCondition) bool {
				return c.Type == "Conflict" && c.Status == metav1.ConditionTrue && c.Reason == "TypeConflict"
			})
	}
	f.eventually("both are told", func() bool { return conflict("c1") && conflict("c2") })
	taken := func() bool {
		i := f.imported("c3", "web")
		return i == nil || i.Settings.Type != v1alpha1.ClusterSetIP || f.backend("c3", "web") != "10.1.0.7"
	}
	f.never("the service is taken", taken)
	f.stop()
	f.start()
	f.never("the service is taken after a restart", taken)
}

func TestWhoMayNotExportIsToldSo(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	x := f.template()
	x.place("ServiceExport", "c1")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	x.is("True/Valid True/Exported False/NoConflicts")
	f.steer("web", v1alpha1.ServicePolicySpec{Exporters: &v1alpha1.ExporterScope{ClusterNames: []string{"c2"}}})
	x.is("True/Valid False/NotPermitted Unknown/Pending", "spec.exporters of ServicePolicy sample/web")
	f.eventually("nobody imports it", func() bool { return f.importers("web") == "" })
	f.eventually("the policy waits for an export", func() bool { return f.policyStatus("web") == "False/NoExport" })
	f.steer("web", v1alpha1.ServicePolicySpec{})
	x.is("True/Valid True/Exported False/NoConflicts")
	f.services("blue", v1alpha1.ServicesSpec{Exporters: []v1alpha1.ExporterRule{{
		Namespaces: []string{"sample"},
		ExporterScope: v1alpha1.ExporterScope{
			ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}},
		},
	}}})
	x.is("True/Valid False/NotPermitted Unknown/Pending", "spec.services.exporters of the ClusterSet")
	f.label("c1", "env", "prod")
	x.is("True/Valid True/Exported False/NoConflicts")
	rule := func(clusters ...string) v1alpha1.ServicesSpec {
		return v1alpha1.ServicesSpec{Exporters: []v1alpha1.ExporterRule{{
			ExporterScope: v1alpha1.ExporterScope{ClusterNames: clusters},
		}}}
	}
	f.services("blue", rule("cl"))
	f.eventually("the ClusterSet names the cluster that does not exist", func() bool {
		return strings.Contains(f.problems(), " ClusterNotFound spec.services.exporters of ClusterSet blue") &&
			strings.Contains(f.problems(), "cl (exporters[0])")
	})
	x.is("True/Valid False/NotPermitted Unknown/Pending", "spec.services.exporters of the ClusterSet")
	f.services("blue", rule("c1"))
	f.eventually("the ClusterSet has no problem", func() bool {
		return !strings.Contains(f.problems(), "ClusterNotFound")
	})
	x.is("True/Valid True/Exported False/NoConflicts")

	var set v1alpha1.ClusterSet
	f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set))
	set.Spec.Services.Exporters[0].Namespaces = []string{"Not a namespace"}
	if err := f.client.Update(t.Context(), &set); err == nil || !strings.Contains(err.Error(), "namespaces") {
		t.Errorf("a rule for no namespace is accepted: %v", err)
	}
}

// What has its node's address is reached by its ClusterIP; a headless service has none, and a host outside is nobody's.
// The exporter is told, also on the Karmada API.
func TestAnExportThatNobodyCanReachIsNotReady(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	x := f.template()
	x.place("ServiceExport", "c1")
	onNode := export("sample", "web", "10.101.0.7", "192.168.1.1")
	f.export("c1", onNode)
	f.eventually("c2 has the ClusterIP", func() bool { return f.backend("c2", "web") == "10.101.0.7" })
	x.is("True/Valid True/Exported False/NoConflicts")
	onNode.Settings.Type, onNode.ClusterIPs = v1alpha1.Headless, nil
	f.export("c1", onNode)
	x.is("True/Valid False/BackendsNotRouted False/NoConflicts", "do not use hostNetwork")
	f.export("c1", export("sample", "web", "10.101.0.7", "203.0.113.7"))
	x.is("True/Valid False/BackendsNotRouted False/NoConflicts", "1 outside the cluster's accepted pod CIDRs")
	f.eventually("c2 has nothing", func() bool { return f.backend("c2", "web") == "" })
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	x.is("True/Valid True/Exported False/NoConflicts")
}

// One member asks for more than its share of the Bundles: the ClusterSet names it, and the others' exports stay.
func TestTheClusterSetNamesWhoAsksForTooMuch(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	shard := v1alpha1.Shard("sample", "web", 4)
	f.export("c2", export("sample", "web", "10.102.0.7", "10.2.0.7"))
	var padded []v1alpha1.Export
	for i := 0; len(padded) < 45; i++ {
		e := export("sample", fmt.Sprintf("bulk-%d", i), "10.101.0.7", "10.1.0.7")
		if v1alpha1.Shard(e.Namespace, e.Name, 4) != shard {
			continue
		}
		e.CreatedAt, e.Settings.Ports, e.Backends[0].Ports = metav1.Unix(0, 0), nil, nil
		for p := range int32(100) {
			name := fmt.Sprintf("%s-%d", strings.Repeat("p", 55), p)
			e.Settings.Ports = append(e.Settings.Ports, v1alpha1.ServicePort{Name: name, Protocol: "TCP", Port: 1 + p})
			e.Backends[0].Ports = append(e.Backends[0].Ports, v1alpha1.BackendPort{Name: name, Protocol: "TCP", Port: 1 + p})
		}
		padded = append(padded, e)
	}
	f.export("c1", padded...)
	f.eventually("the ClusterSet names c1", func() bool {
		var set v1alpha1.ClusterSet
		f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set))
		return slices.ContainsFunc(set.Status.Problems, func(p v1alpha1.Problem) bool {
			return p.Cluster == "c1" &&
				p.Reason == "BundleFull"
		})
	})
	f.eventually("the export of c2 is imported all the same", func() bool { return f.importers("web") == "c1,c2" })
}

// Karmada moves an export from c1 to c2: the name is there all the time, and goes with its last export.
func TestAMoveKeepsTheName(t *testing.T) {
	f := newFleet(t)
	f.connect(3)
	x := f.template()
	x.place("ServiceExport", "c1")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	f.eventually("c3 imports it from c1", func() bool { return f.backend("c3", "web") == "10.1.0.7" })
	x.place("ServiceExport", "c2")
	f.export("c1")
	f.never("c3 loses it, or its servers", func() bool { return f.backend("c3", "web") != "10.1.0.7" })
	f.export("c2", export("sample", "web", "10.102.0.7", "10.2.0.7"))
	f.eventually("c3 imports it from c2", func() bool { return f.backend("c3", "web") == "10.2.0.7" })
	f.must(f.client.Delete(t.Context(), &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "sample",
		Name: "web-serviceexport"}}))
	f.export("c2")
	f.eventually("the name goes", func() bool { return f.imported("c3", "web") == nil })
}
