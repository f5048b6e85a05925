// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/sealane"
)

// Backends replaces the endpoints of web in a cluster.
func (s Namespace) Backends(cluster string, list ...discoveryv1.Endpoint) {
	s.Helper()
	Update(s, cluster, &discoveryv1.EndpointSlice{ObjectMeta: Named("web")},
		func(slice *discoveryv1.EndpointSlice) { slice.Endpoints = list })
}

// ClusterIP is the ClusterIP of web in a cluster.
func (s Namespace) ClusterIP(cluster string) string {
	s.Helper()
	web := Service()
	WaitFor(s, cluster, web, func(*corev1.Service) error { return nil })
	return web.Spec.ClusterIP
}

// Namespace is a namespace that a test has to itself. The Service, the ServiceExport and the ServiceImport that its
// methods handle are called web.
type Namespace struct {
	*testing.T
	// Name of the namespace, in every cluster.
	Name string
}

// NewNamespace creates a namespace in some clusters, by default in all members, until the end of the test.
func NewNamespace(t *testing.T, clusters ...string) Namespace {
	t.Helper()
	s := Namespace{T: t, Name: "e2e-" + rand.String(6)}
	if len(clusters) == 0 {
		clusters = Members()
	}
	for _, cluster := range clusters {
		s.CreateIn(cluster)
	}
	return s
}

// Members are the names of the lab's clusters.
func Members() []string {
	var names []string
	for _, c := range Lab().Topology.Clusters {
		names = append(names, c.Name)
	}
	return names
}

// CreateIn creates the namespace in a further cluster until the end of the test.
func (s Namespace) CreateIn(cluster string) {
	s.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	if err := s.API(cluster).Create(s.Context(), namespace); err != nil {
		s.Fatal(err)
	}
	a := s.API(cluster)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := client.IgnoreNotFound(a.Delete(ctx, namespace)); err != nil {
			s.Error(err)
		}
	})
}

// API is an administrator's access to the API of a cluster or, as "karmada", of Karmada.
func (s Namespace) API(cluster string) *sealane.API {
	s.Helper()
	a, err := API(cluster)
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// DNSName is web's name in the clusterset, with labels in front of it.
func (s Namespace) DNSName(labels ...string) string {
	return strings.Join(append(labels, "web", s.Name, "svc.clusterset.local"), ".")
}

// Create creates objects in the namespace of a cluster.
func (s Namespace) Create(cluster string, objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		o.SetNamespace(s.Name)
		if err := s.API(cluster).Create(s.Context(), o); err != nil {
			s.Fatalf("%s: %v", cluster, err)
		}
	}
}

// Delete deletes an object that exists.
func (s Namespace) Delete(cluster string, o client.Object) {
	s.Helper()
	o.SetNamespace(s.Name)
	if err := s.API(cluster).Delete(s.Context(), o); err != nil {
		s.Fatalf("%s: %v", cluster, err)
	}
}

// Server is an endpoint with the address of the server pod on a node.
func (s Namespace) Server(node string) discoveryv1.Endpoint {
	s.Helper()
	cluster := node[:2]
	return discoveryv1.Endpoint{Addresses: []string{PodIP(s.T, cluster, "server-"+node)}, NodeName: &node}
}

// Serve creates web in a cluster, with the server pod on the gateway node as its endpoint.
func (s Namespace) Serve(cluster string, edits ...func(*corev1.Service)) {
	s.Helper()
	web := Service(edits...)
	s.Create(cluster, web, EndpointSlice(web, s.Server(cluster+"-gw")))
}

// Export creates web's ServiceExport in a cluster.
func (s Namespace) Export(cluster string, edits ...func(*mcs.ServiceExport)) *mcs.ServiceExport {
	s.Helper()
	e := &mcs.ServiceExport{ObjectMeta: Named("web")}
	for _, edit := range edits {
		edit(e)
	}
	s.Create(cluster, e)
	return e
}

// ExportAfter creates web's ServiceExport in a cluster when the broker has seen that of an older one: an export's age
// is at most since then, however early its cluster created it.
func (s Namespace) ExportAfter(older, cluster string) {
	s.Helper()
	s.WaitCondition(mcs.ServiceExportConditionReady, metav1.ConditionTrue, mcs.ServiceExportReasonExported, older)
	s.Export(cluster)
}

// Unexport deletes web's ServiceExport in a cluster.
func (s Namespace) Unexport(cluster string) {
	s.Helper()
	s.Delete(cluster, &mcs.ServiceExport{ObjectMeta: Named("web")})
}

// WaitCondition waits for a condition of web's ServiceExport in some clusters.
func (s Namespace) WaitCondition(kind mcs.ServiceExportConditionType, status metav1.ConditionStatus,
	reason mcs.ServiceExportConditionReason, clusters ...string) {
	s.Helper()
	for _, cluster := range clusters {
		WaitFor(s, cluster, &mcs.ServiceExport{ObjectMeta: Named("web")}, func(e *mcs.ServiceExport) error {
			c := meta.FindStatusCondition(e.Status.Conditions, string(kind))
			if c == nil || c.Status != status || c.Reason != string(reason) || c.ObservedGeneration != e.Generation {
				return fmt.Errorf("expected %s %s %s, found %+v", kind, status, reason, e.Status.Conditions)
			}
			return nil
		})
	}
}

// WaitImported waits until check accepts web's ServiceImport in each of the clusters, and returns the last one's.
func (s Namespace) WaitImported(check func(*mcs.ServiceImport) error, clusters ...string) *mcs.ServiceImport {
	s.Helper()
	var last *mcs.ServiceImport
	for _, cluster := range clusters {
		last = &mcs.ServiceImport{ObjectMeta: Named("web")}
		WaitFor(s, cluster, last, check)
	}
	return last
}

// ExportedBy checks that the status of a ServiceImport lists exactly these clusters, sorted.
func ExportedBy(clusters ...string) func(*mcs.ServiceImport) error {
	return func(i *mcs.ServiceImport) error {
		var found []string
		for _, c := range i.Status.Clusters {
			found = append(found, c.Cluster)
		}
		if slices.Sort(found); !slices.Equal(found, clusters) {
			return fmt.Errorf("expected exporters %v, found %v", clusters, found)
		}
		return nil
	}
}

// Slices lists the EndpointSlices of web's import in a cluster.
func (s Namespace) Slices(ctx context.Context, cluster string) ([]discoveryv1.EndpointSlice, error) {
	list := &discoveryv1.EndpointSliceList{}
	a, err := API(cluster)
	if err != nil {
		return nil, err
	}
	err = a.List(ctx, list, client.InNamespace(s.Name), client.MatchingLabels{mcs.LabelServiceName: "web"})
	return list.Items, err
}

// WaitEndpoints waits until web's import in a cluster has this number of endpoints from each source cluster.
func (s Namespace) WaitEndpoints(cluster string, want map[string]int) {
	s.Helper()
	Eventually(s.T, Patience, func(ctx context.Context) error {
		list, err := s.Slices(ctx, cluster)
		if err != nil {
			return err
		}
		found := map[string]int{}
		for _, slice := range list {
			found[slice.Labels[mcs.LabelSourceCluster]] += len(slice.Endpoints)
		}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			return fmt.Errorf("%s: expected endpoints of %v, found %v", cluster, want, found)
		}
		return nil
	})
}

// WaitGone waits until web's ServiceImport and its EndpointSlices are gone. The derived Service outlives them.
func (s Namespace) WaitGone(clusters ...string) {
	s.Helper()
	for _, cluster := range clusters {
		a := s.API(cluster)
		Eventually(s.T, Patience, func(ctx context.Context) error {
			err := a.Get(ctx, client.ObjectKey{Namespace: s.Name, Name: "web"}, &mcs.ServiceImport{})
			switch {
			case err == nil:
				return fmt.Errorf("%s: the ServiceImport is still there", cluster)
			case !apierrors.IsNotFound(err):
				return err
			}
			list, err := s.Slices(ctx, cluster)
			if err == nil && len(list) > 0 {
				err = fmt.Errorf("%s: %d EndpointSlices left", cluster, len(list))
			}
			return err
		})
	}
}

// Exported exports a service of the namespace sample from a cluster until the end of the test, which does not end
// before every member has heard of it.
func Exported(t *testing.T, cluster, service string, flags ...string) {
	t.Helper()
	Plugin(t, append([]string{"export", service, "-n", "sample", "--context", cluster}, flags...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if _, err := TryPlugin(ctx, "unexport", service, "-n", "sample", "--context", cluster); err != nil {
			t.Error(err)
			return
		}
		if err := waitFor(ctx, func(ctx context.Context) error { return unexported(ctx, cluster, service) }); err != nil {
			t.Error(err)
		}
	})
}

// unexported tells whether any member still imports a service of the namespace sample from a cluster.
func unexported(ctx context.Context, cluster, service string) error {
	for _, importer := range Members() {
		a, err := API(importer)
		if err != nil {
			return err
		}
		i := &mcs.ServiceImport{}
		switch err := a.Get(ctx, client.ObjectKey{Namespace: "sample", Name: service}, i); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return err
		}
		for _, status := range i.Status.Clusters {
			if status.Cluster == cluster {
				return fmt.Errorf("%s still imports %s from %s", importer, service, cluster)
			}
		}
	}
	return nil
}
