// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// steer writes the ServicePolicy of sample/<name>.
func (f *fleet) steer(name string, spec v1alpha1.ServicePolicySpec) {
	f.t.Helper()
	f.namespace("sample")
	p := &v1alpha1.ServicePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: name}}
	f.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := f.client.Get(f.t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			p.Spec = spec
			f.t.Cleanup(func() { f.must(client.IgnoreNotFound(f.client.Delete(context.Background(), p))) })
			return f.client.Create(f.t.Context(), p)
		}
		p.Spec = spec
		return f.client.Update(f.t.Context(), p)
	}))
}

func (f *fleet) namespace(name string) {
	f.t.Helper()
	f.must(client.IgnoreAlreadyExists(f.client.Create(f.t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})))
}

// label sets a label of a Karmada Cluster, or removes it.
func (f *fleet) label(cluster, name, value string) {
	f.t.Helper()
	c := f.cluster(cluster)
	before := c.DeepCopy()
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	if c.Labels[name] = value; value == "" {
		delete(c.Labels, name)
	}
	f.must(f.client.Patch(f.t.Context(), c, client.MergeFrom(before)))
}

// importers names the clusters that import sample/<name>.
func (f *fleet) importers(name string) string {
	var out []string
	for n := 1; n <= 3; n++ {
		cluster := fmt.Sprintf("c%d", n)
		b := f.bundle(cluster, "sample", name)
		if b == nil {
			continue
		}
		for _, i := range b.Imports {
			if i.Name == name {
				out = append(out, cluster)
			}
		}
	}
	return strings.Join(out, ",")
}

// imported returns a member's import of sample/<name>, nil if there is none. What the broker moves from one Bundle to
// another between two looks is looked for again.
func (f *fleet) imported(cluster, name string) *v1alpha1.Import {
	for {
		own := f.bundle(cluster, "sample", name)
		if own == nil || len(own.Halves) == 0 {
			return importOf(own, name)
		}
		half := f.half(cluster, own.Shard, v1alpha1.HalfOf(own.Halves, "sample", name))
		found := importOf(half, name)
		if found != nil {
			return found
		}
		if again := f.bundle(cluster, "sample", name); again != nil && again.Revision == own.Revision {
			return nil
		}
	}
}

// importOf returns the import of a service in a Bundle, nil if there is none.
func importOf(b *v1alpha1.BundleSpec, name string) *v1alpha1.Import {
	if b == nil {
		return nil
	}
	i := slices.IndexFunc(b.Imports, func(i v1alpha1.Import) bool { return i.Name == name })
	if i < 0 {
		return nil
	}
	return &b.Imports[i]
}

func TestAServicePolicyNarrowsItsServiceAlone(t *testing.T) {
	f := newFleet(t)
	f.connect(3)
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"), export("sample", "db", "10.101.0.8", "10.1.0.8"))
	f.eventually("all import both", func() bool {
		return f.importers("web") == "c1,c2,c3" &&
			f.importers("db") == "c1,c2,c3"
	})
	f.settled()

	wrote := func(what, want string, done func() bool) {
		t.Helper()
		f.eventually(what, done)
		f.never("Works are written that nobody needs", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return fmt.Sprint(f.writes) != want
		})
		f.counted()
	}
	f.steer("web", v1alpha1.ServicePolicySpec{Importers: &v1alpha1.ImportScope{ClusterNames: []string{"c2"}}})
	wrote("c3 imports web no more", "map[c3 PUT:1]", func() bool { return f.importers("web") == "c1,c2" })
	f.label("c2", "env", "prod")
	f.label("c3", "env", "test")
	f.never("labels that nobody asks for cost a write", func() bool { return len(f.counted()) > 0 })

	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	f.steer("web", v1alpha1.ServicePolicySpec{Importers: &v1alpha1.ImportScope{ClusterSelector: selector}})
	f.never("a scope that admits the same costs a write", func() bool { return len(f.counted()) > 0 })
	f.label("c3", "env", "prod")
	wrote("c3 imports web again", "map[c3 PUT:1]", func() bool { return f.importers("web") == "c1,c2,c3" })
	f.label("c2", "env", "")
	wrote("c2 imports web no more", "map[c2 PUT:1]", func() bool { return f.importers("web") == "c1,c3" })

	choice := &v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"c1"}}}
	f.steer("web", v1alpha1.ServicePolicySpec{Importers: &v1alpha1.ImportScope{ClusterSelector: selector}, Choice: choice})
	wrote("the choice arrives", "map[c1 PUT:1 c3 PUT:1]", func() bool {
		i := f.imported("c3", "web")
		return i != nil && i.Choice != nil && i.Choice.Failover.MinReadyBackends == 1
	})
	f.must(f.client.Delete(t.Context(), &v1alpha1.ServicePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "sample",
		Name: "web"}}))
	wrote("all import web when the policy is gone", "map[c1 PUT:1 c2 PUT:1 c3 PUT:1]", func() bool {
		return f.importers("web") == "c1,c2,c3" && f.imported("c1", "web").Choice == nil
	})
}

// A scope of an export follows the labels of the members, too.
func TestScopeOfAnExportFollowsLabels(t *testing.T) {
	f := newFleet(t)
	f.connect(3)
	e := export("sample", "web", "10.101.0.7", "10.1.0.7")
	e.Scope = &v1alpha1.ImportScope{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
	f.export("c1", e)
	f.eventually("the exporter alone imports it", func() bool { return f.importers("web") == "c1" })
	f.label("c3", "env", "prod")
	f.eventually("c3 imports it", func() bool { return f.importers("web") == "c1,c3" })
	f.stop()
	f.start()
	f.label("c2", "env", "prod")
	f.eventually("c2 imports it", func() bool { return f.importers("web") == "c1,c2,c3" })
}

func TestServiceSettingsOfTheClusterSetReachEveryImport(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	address := func() string {
		i := f.imported("c2", "web")
		if i == nil || len(i.Clusters[0].Backends) != 1 {
			return ""
		}
		return string(i.Mode) + " " + i.Clusters[0].Backends[0].Addresses[0].IP
	}
	f.eventually("pods", func() bool { return address() == " 10.1.0.7" })
	f.services("blue", v1alpha1.ServicesSpec{Mode: v1alpha1.ServiceModeClusterSetIP,
		Endpoints: v1alpha1.EndpointModeClusterIP})
	f.eventually("the ClusterIP as endpoint", func() bool { return address() == " 10.101.0.7" })
	f.services("blue", v1alpha1.ServicesSpec{Mode: v1alpha1.ServiceModeClusterIP, Endpoints: v1alpha1.EndpointModePods})
	f.eventually("the ClusterIP as answer", func() bool { return address() == "ClusterIP 10.101.0.7" })
}

// services sets what a ClusterSet says of all services.
func (f *fleet) services(set string, spec v1alpha1.ServicesSpec) {
	f.t.Helper()
	f.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var s v1alpha1.ClusterSet
		if err := f.client.Get(f.t.Context(), client.ObjectKey{Name: set}, &s); err != nil {
			return err
		}
		s.Spec.Services = spec
		return f.client.Update(f.t.Context(), &s)
	}))
}

// policyStatus renders the condition of sample/<name>.
func (f *fleet) policyStatus(name string) string {
	var p v1alpha1.ServicePolicy
	f.must(f.client.Get(f.t.Context(), client.ObjectKey{Namespace: "sample", Name: name}, &p))
	return condition(p.Status.Conditions, v1alpha1.ServicePolicyAccepted)
}

func TestServicePolicySaysWhetherItIsInForce(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.steer("web", v1alpha1.ServicePolicySpec{Importers: &v1alpha1.ImportScope{ClusterNames: []string{"c2", "c3"}}})
	is := func(want string) {
		t.Helper()
		f.eventually("the policy is "+want, func() bool { return f.policyStatus("web") == want })
	}
	is("False/UnknownCluster")
	f.report("c3", facts(3))
	f.karmadaJoin("c3")
	f.choose("blue", "c1", "c2", "c3")
	is("False/NoExport")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	is("True/Accepted")
	f.steer("web", v1alpha1.ServicePolicySpec{Importers: &v1alpha1.ImportScope{ClusterSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Near"}},
	}}})
	is("False/Invalid")
	f.eventually("nobody but the exporter imports it", func() bool { return f.importers("web") == "c1" })
	f.steer("web", v1alpha1.ServicePolicySpec{})
	is("True/Accepted")
	f.export("c1")
	is("False/NoExport")
	want := "UnknownCluster NoExport Accepted Invalid Accepted NoExport"
	f.eventually("events tell of each: "+want, func() bool {
		var events corev1.EventList
		f.must(f.client.List(t.Context(), &events, client.InNamespace("sample")))
		told := map[string]int{}
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "ServicePolicy" && e.InvolvedObject.Name == "web" {
				told[e.Reason] += int(max(e.Count, 1))
			}
		}
		return told["UnknownCluster"] == 1 && told["NoExport"] >= 2 && told["Accepted"] >= 2 && told["Invalid"] >= 1
	})
}
