// SPDX-License-Identifier: Apache-2.0

package discovery

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
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/suite"
)

// importing is what every member has of an exported service.
func importing() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"in every member that has the namespace":                     importedEverywhere,
		"as soon as a member has the namespace":                      namespaceLater,
		"and restored when somebody edits or deletes it":             importRestored,
		"and keeps its address while exporters come and go":          addressStays,
		"with EndpointSlices that say whose they are":                slicesAreLabelled,
		"with session affinity":                                      affinityHonoured,
		"with the internal traffic policy":                           trafficPolicyHonoured,
		"until it is unexported, then it is gone everywhere":         unexportedEverywhere,
		"also without a backend, and then its endpoints go":          lastBackendGone,
		"and its derived Service outlives it by a minute, then goes": derivedServiceOutlives,
	}
}

func importedEverywhere(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c2")
	s.Export("c2")
	for _, cluster := range suite.Members() {
		i := s.WaitImported(func(i *mcs.ServiceImport) error {
			if !meta.IsStatusConditionTrue(i.Status.Conditions, string(mcs.ServiceImportConditionReady)) ||
				len(i.Spec.IPs) == 0 {
				return fmt.Errorf("expected it to be Ready with an address, found %+v %+v", i.Spec, i.Status)
			}
			return suite.ExportedBy("c2")(i)
		}, cluster)
		if i.Spec.Type != mcs.ClusterSetIP || len(i.Spec.IPs) != 1 || !slices.Equal(i.Spec.IPFamilies,
			[]corev1.IPFamily{corev1.IPv4Protocol}) {
			t.Errorf("%s: expected a ClusterSetIP of one IPv4 address, found %+v", cluster, i.Spec)
		}
		suite.Resolves(t, cluster, s.DNSName(), "A", i.Spec.IPs[0])
		old := &mcsv1alpha1.ServiceImport{}
		if err := s.API(cluster).Get(t.Context(), client.ObjectKeyFromObject(i), old); err != nil {
			t.Errorf("%s: as v1alpha1: %v", cluster, err)
		} else if !slices.Equal(old.Spec.IPs, i.Spec.IPs) || string(old.Spec.Type) != string(i.Spec.Type) ||
			len(old.Spec.Ports) != 1 {
			t.Errorf("%s: expected the same as v1alpha1, found %+v", cluster, old.Spec)
		}
	}
}

func namespaceLater(t *testing.T) {
	s := suite.NewNamespace(t, "c2")
	s.Serve("c2")
	s.Export("c2")
	s.WaitImported(suite.ExportedBy("c2"), "c2")
	for _, cluster := range []string{"c1", "c3"} {
		suite.NoSuchName(t, cluster, s.DNSName())
		suite.NoSuchName(t, cluster, s.DNSName("c2"))
	}
	s.CreateIn("c1")
	s.WaitImported(suite.ExportedBy("c2"), "c1")
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), s.DNSName(), "c2")
}

func importRestored(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	s.Serve("c2")
	s.Export("c2")
	before := s.WaitImported(withAddress, "c1")
	s.WaitEndpoints("c1", map[string]int{"c2": 1})
	restored := func(what string) {
		t.Helper()
		s.WaitImported(func(i *mcs.ServiceImport) error {
			if len(i.Spec.Ports) != 1 || i.Spec.Ports[0].Port != 80 || !slices.Equal(i.Spec.IPs, before.Spec.IPs) {
				return fmt.Errorf("after %s: expected port 80 at %v, found %+v", what, before.Spec.IPs, i.Spec)
			}
			return suite.ExportedBy("c2")(i)
		}, "c1")
		s.WaitEndpoints("c1", map[string]int{"c2": 1})
		suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), s.DNSName(), "c2")
	}
	suite.Update(s, "c1", &mcs.ServiceImport{ObjectMeta: suite.Named("web")},
		func(i *mcs.ServiceImport) { i.Spec.Ports[0].Port = 8888 })
	restored("an edit")
	s.Delete("c1", &mcs.ServiceImport{ObjectMeta: suite.Named("web")})
	restored("the import was deleted")
	s.Delete("c1", &corev1.Service{ObjectMeta: suite.Named(derived(s, "c1").Name)})
	restored("the derived Service was deleted")
	list, err := s.Slices(t.Context(), "c1")
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	s.Delete("c1", &list[0])
	restored("an EndpointSlice was deleted")
}

func withAddress(i *mcs.ServiceImport) error {
	if len(i.Spec.IPs) == 0 {
		return fmt.Errorf("it has no address yet: %+v", i.Spec)
	}
	return nil
}

// derived is the Service whose address web's import has.
func derived(s suite.Namespace, cluster string) *corev1.Service {
	s.Helper()
	list := &corev1.ServiceList{}
	if err := s.API(cluster).List(s.Context(), list, client.InNamespace(s.Name)); err != nil {
		s.Fatal(err)
	}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "sl-") {
			return &list.Items[i]
		}
	}
	return nil
}

func addressStays(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c1")
	s.Serve("c2")
	s.Export("c2")
	before := map[string]string{}
	for _, cluster := range suite.Members() {
		before[cluster] = s.WaitImported(withAddress, cluster).Spec.IPs[0]
	}
	same := func(exporters ...string) {
		t.Helper()
		for _, cluster := range suite.Members() {
			s.WaitImported(suite.ExportedBy(exporters...), cluster)
			if i := s.WaitImported(withAddress, cluster); i.Spec.IPs[0] != before[cluster] {
				t.Errorf("%s: exported by %v: expected %s, found %v", cluster, exporters, before[cluster], i.Spec.IPs)
			}
		}
	}
	s.Export("c1")
	same("c1", "c2")
	s.Unexport("c2")
	same("c1")
	s.Unexport("c1")
	s.WaitGone(suite.Members()...)
	s.Export("c2")
	same("c2")
}

func slicesAreLabelled(t *testing.T) {
	s := suite.NewNamespace(t)
	web := suite.Service()
	s.Create("c2", web, suite.EndpointSlice(web, s.Server("c2-gw"), s.Server("c2-worker")))
	s.Serve("c3")
	s.Export("c2")
	s.Export("c3")
	s.WaitEndpoints("c1", map[string]int{"c2": 2, "c3": 1})
	list, err := s.Slices(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	for _, slice := range list {
		labels := slice.Labels
		if labels[discoveryv1.LabelManagedBy] != "sealane.io" || labels[discoveryv1.LabelServiceName] == "web" {
			t.Errorf("expected slices managed by sealane.io and not of the exported Service, found %v", labels)
		}
		for _, e := range slice.Endpoints {
			if e.NodeName != nil || e.Conditions.Ready == nil || !*e.Conditions.Ready {
				t.Errorf("expected ready endpoints without a node that is not here, found %+v", e)
			}
		}
	}
	s.WaitEndpoints("c2", map[string]int{"c2": 2})
	list, err = s.Slices(t.Context(), "c2")
	if err != nil {
		t.Fatal(err)
	}
	for _, slice := range list {
		for _, e := range slice.Endpoints {
			if e.NodeName == nil {
				t.Errorf("expected local endpoints to name their node, found %+v", e)
			}
		}
	}
}

func affinityHonoured(t *testing.T) {
	s := suite.NewNamespace(t)
	web := suite.Service(sticky)
	s.Create("c2", web, suite.EndpointSlice(web, s.Server("c2-gw"), s.Server("c2-worker")))
	s.Serve("c3", sticky)
	s.Export("c2")
	s.Export("c3")
	s.WaitImported(haveAffinity(corev1.ServiceAffinityClientIP), "c1")
	s.WaitEndpoints("c1", map[string]int{"c2": 2, "c3": 1})
	for _, pod := range []string{"client-c1-worker", "client-c1-gw"} {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			answers, err := suite.Requests(ctx, "c1", pod, "http://"+s.DNSName(), 20)
			if err != nil {
				return err
			}
			for _, a := range answers {
				if a.Pod != answers[0].Pod {
					return fmt.Errorf("expected one server for 20 requests, found %s and %s", answers[0].Pod, a.Pod)
				}
			}
			return nil
		})
	}
}

func trafficPolicyHonoured(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	s.Serve("c2", func(web *corev1.Service) {
		local := corev1.ServiceInternalTrafficPolicyLocal
		web.Spec.InternalTrafficPolicy = &local
	})
	s.Export("c2")
	i := s.WaitImported(withAddress, "c2")
	if p := i.Spec.InternalTrafficPolicy; p == nil || *p != corev1.ServiceInternalTrafficPolicyLocal {
		t.Errorf("expected the import to say Local, found %v", p)
	}
	s.WaitEndpoints("c2", map[string]int{"c2": 1})
	// The only server runs on the gateway node.
	suite.AnsweredBy(t, "c2", "client-c2-gw", s.DNSName(), "c2")
	if out, err := suite.InPod(t.Context(), "c2", "client-c2-worker", "http", "-timeout=1s", "http://"+
		s.DNSName()); err == nil {
		t.Errorf("expected no answer on a node without a server, found %s", out)
	}
}

func unexportedEverywhere(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c1")
	s.Serve("c2")
	s.Export("c1")
	s.Export("c2")
	s.WaitImported(suite.ExportedBy("c1", "c2"), suite.Members()...)
	s.Unexport("c1")
	s.WaitImported(suite.ExportedBy("c2"), suite.Members()...)
	s.WaitEndpoints("c3", map[string]int{"c2": 1})
	s.Unexport("c2")
	s.WaitGone(suite.Members()...)
	for _, cluster := range suite.Members() {
		suite.NoSuchName(t, cluster, s.DNSName())
		suite.NoSuchName(t, cluster, s.DNSName("c2"))
	}
}

func lastBackendGone(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	s.Serve("c2")
	s.Export("c2")
	address := s.WaitImported(withAddress, "c1").Spec.IPs[0]
	s.WaitEndpoints("c1", map[string]int{"c2": 1})
	scale := func(list ...discoveryv1.Endpoint) {
		t.Helper()
		suite.Update(s, "c2", &discoveryv1.EndpointSlice{ObjectMeta: suite.Named("web")},
			func(slice *discoveryv1.EndpointSlice) { slice.Endpoints = list })
	}
	scale()
	s.WaitEndpoints("c1", map[string]int{})
	suite.Resolves(t, "c1", s.DNSName(), "A", address)
	scale(s.Server("c2-worker"))
	s.WaitEndpoints("c1", map[string]int{"c2": 1})
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), s.DNSName(), "c2")
	s.WaitImported(func(i *mcs.ServiceImport) error {
		if i.Spec.IPs[0] != address {
			return fmt.Errorf("expected %s, found %v", address, i.Spec.IPs)
		}
		return nil
	}, "c1")
}

// derivedServiceOutlives: a client that still has the address is told at once that nobody is there.
func derivedServiceOutlives(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	s.Serve("c2")
	s.Export("c2")
	address := s.WaitImported(withAddress, "c1").Spec.IPs[0]
	s.Unexport("c2")
	s.WaitGone("c1")
	begin := time.Now()
	if service := derived(s, "c1"); service == nil || service.Spec.ClusterIP != address {
		t.Fatalf("expected the derived Service to keep %s, found %+v", address, service)
	}
	suite.Eventually(t, 90*time.Second, func(ctx context.Context) error {
		list := &corev1.ServiceList{}
		if err := s.API("c1").List(ctx, list, client.InNamespace(s.Name)); err != nil || len(list.Items) == 0 {
			return err
		}
		return fmt.Errorf("it is still there after %s", time.Since(begin))
	})
	if lived := time.Since(begin); lived < 50*time.Second {
		t.Errorf("expected it to live for a minute, found %s", lived)
	}
	err := s.API("c1").Get(t.Context(), client.ObjectKey{Namespace: s.Name, Name: "web"}, &mcs.ServiceImport{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("expected no ServiceImport, found %v", err)
	}
}
