// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/sealane"
)

// site is a namespace that a test has to itself. What it exports is called web unless it says otherwise.
type site struct {
	*testing.T
	namespace string
}

// patience is how long what should happen at once may take on a machine that has much else to do.
const patience = time.Minute

// newSite makes the namespace in some clusters, by default in all.
func newSite(t *testing.T, clusters ...string) site {
	t.Helper()
	s := site{T: t, namespace: "site-" + rand.String(6)}
	if len(clusters) == 0 {
		clusters = members()
	}
	for _, cluster := range clusters {
		s.found(cluster)
	}
	return s
}

// members are the names of the lab's clusters.
func members() []string {
	var names []string
	for _, c := range shared.Lab.Topology.Clusters {
		names = append(names, c.Name)
	}
	return names
}

// found makes the namespace in a cluster until the end of the test.
func (s site) found(cluster string) {
	s.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if err := s.api(cluster).Create(s.Context(), namespace); err != nil {
		s.Fatal(err)
	}
	a := s.api(cluster)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := client.IgnoreNotFound(a.Delete(ctx, namespace)); err != nil {
			s.Error(err)
		}
	})
}

func (s site) api(cluster string) *sealane.API {
	s.Helper()
	a, err := shared.API(cluster)
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// name of a service in the clusterset, with labels before it.
func (s site) name(labels ...string) string {
	return strings.Join(append(labels, "web", s.namespace, "svc.clusterset.local"), ".")
}

// create makes objects in a cluster.
func (s site) create(cluster string, objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		o.SetNamespace(s.namespace)
		if err := s.api(cluster).Create(s.Context(), o); err != nil {
			s.Fatalf("%s: %v", cluster, err)
		}
	}
}

// delete removes an object that is there.
func (s site) delete(cluster string, o client.Object) {
	s.Helper()
	o.SetNamespace(s.namespace)
	if err := s.api(cluster).Delete(s.Context(), o); err != nil {
		s.Fatalf("%s: %v", cluster, err)
	}
}

// change reads an object, which has a name, and writes it changed.
func change[T client.Object](s site, cluster string, o T, edit func(T)) {
	s.Helper()
	a := s.api(cluster)
	eventually(s.T, patience, func(ctx context.Context) error {
		if err := a.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: o.GetName()}, o); err != nil {
			return err
		}
		edit(o)
		return a.Update(ctx, o)
	})
}

// settled repeats a look at an object until it is as it should be.
func settled[T client.Object](s site, cluster string, o T, check func(T) error) {
	s.Helper()
	a := s.api(cluster)
	eventually(s.T, patience, func(ctx context.Context) error {
		if err := a.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: o.GetName()}, o); err != nil {
			return fmt.Errorf("%s: %w", cluster, err)
		}
		if err := check(o); err != nil {
			return fmt.Errorf("%s: %s: %w", cluster, o.GetName(), err)
		}
		return nil
	})
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// port of a Service; behind each the server pods listen on 8080.
func port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number, TargetPort: intstr.FromInt32(8080)}
}

// service is web: http on port 80, without a selector.
func service(edits ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{port("http", 80)}}}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// headless is IPv4 as all else here: by itself a headless Service without selector has both families.
func headless(s *corev1.Service) {
	single := corev1.IPFamilyPolicySingleStack
	s.Spec.ClusterIP, s.Spec.IPFamilyPolicy = corev1.ClusterIPNone, &single
}

// ports replaces those of a Service.
func ports(list ...corev1.ServicePort) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports = list }
}

// endpoints is an EndpointSlice that somebody made by hand for web.
func endpoints(of *corev1.Service, list ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{ObjectMeta: named(of.Name), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: list}
	out.Labels = map[string]string{discoveryv1.LabelServiceName: of.Name}
	for _, p := range of.Spec.Ports {
		number := int32(8080)
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &number})
	}
	return out
}

// server is the endpoint of the server pod on a node.
func (s site) server(node string) discoveryv1.Endpoint {
	s.Helper()
	cluster := node[:2]
	return discoveryv1.Endpoint{Addresses: []string{podIP(s.T, cluster, "server-"+node)}, NodeName: &node}
}

// serve makes a Service in a cluster, with the server on the gateway node behind it.
func (s site) serve(cluster string, edits ...func(*corev1.Service)) {
	s.Helper()
	web := service(edits...)
	s.create(cluster, web, endpoints(web, s.server(cluster+"-gw")))
}

// export makes web's ServiceExport in a cluster.
func (s site) export(cluster string, edits ...func(*mcs.ServiceExport)) *mcs.ServiceExport {
	s.Helper()
	e := &mcs.ServiceExport{ObjectMeta: named("web")}
	for _, edit := range edits {
		edit(e)
	}
	s.create(cluster, e)
	return e
}

// exportAfter makes an export that is younger: creation times count in seconds.
func (s site) exportAfter(older *mcs.ServiceExport, cluster string) *mcs.ServiceExport {
	s.Helper()
	eventually(s.T, 3*time.Second, func(context.Context) error {
		if time.Since(older.CreationTimestamp.Time) < time.Second {
			return errors.New("still the same second")
		}
		return nil
	})
	return s.export(cluster)
}

func (s site) unexport(cluster string) {
	s.Helper()
	s.delete(cluster, &mcs.ServiceExport{ObjectMeta: named("web")})
}

// condition waits for a condition of the export in some clusters.
func (s site) condition(kind mcs.ServiceExportConditionType, status metav1.ConditionStatus, reason mcs.ServiceExportConditionReason, clusters ...string) {
	s.Helper()
	for _, cluster := range clusters {
		settled(s, cluster, &mcs.ServiceExport{ObjectMeta: named("web")}, func(e *mcs.ServiceExport) error {
			c := meta.FindStatusCondition(e.Status.Conditions, string(kind))
			if c == nil || c.Status != status || c.Reason != string(reason) || c.ObservedGeneration != e.Generation {
				return fmt.Errorf("expected %s %s %s, found %+v", kind, status, reason, e.Status.Conditions)
			}
			return nil
		})
	}
}

// imported waits until web is imported in some clusters as it should be, and returns the last import.
func (s site) imported(check func(*mcs.ServiceImport) error, clusters ...string) *mcs.ServiceImport {
	s.Helper()
	var last *mcs.ServiceImport
	for _, cluster := range clusters {
		last = &mcs.ServiceImport{ObjectMeta: named("web")}
		settled(s, cluster, last, check)
	}
	return last
}

// from expects an import that these clusters export.
func from(clusters ...string) func(*mcs.ServiceImport) error {
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

// slices lists the EndpointSlices of web's import in a cluster.
func (s site) slices(ctx context.Context, cluster string) ([]discoveryv1.EndpointSlice, error) {
	list := &discoveryv1.EndpointSliceList{}
	a, err := shared.API(cluster)
	if err != nil {
		return nil, err
	}
	err = a.List(ctx, list, client.InNamespace(s.namespace), client.MatchingLabels{mcs.LabelServiceName: "web"})
	return list.Items, err
}

// sources waits until the endpoints of web's import come from these clusters, each with so many.
func (s site) sources(cluster string, want map[string]int) {
	s.Helper()
	eventually(s.T, patience, func(ctx context.Context) error {
		list, err := s.slices(ctx, cluster)
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

// gone waits until nothing of web's import is left but what outlives it.
func (s site) gone(clusters ...string) {
	s.Helper()
	for _, cluster := range clusters {
		a := s.api(cluster)
		eventually(s.T, patience, func(ctx context.Context) error {
			err := a.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "web"}, &mcs.ServiceImport{})
			switch {
			case err == nil:
				return fmt.Errorf("%s: the ServiceImport is still there", cluster)
			case !apierrors.IsNotFound(err):
				return err
			}
			list, err := s.slices(ctx, cluster)
			if err == nil && len(list) > 0 {
				err = fmt.Errorf("%s: %d EndpointSlices left", cluster, len(list))
			}
			return err
		})
	}
}
