// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
	"github.com/sealane-io/sealane/internal/clip"
)

// many exports make shards so large that they are divided.
const many = 200

// crowd exports many services of c2, and waits until c1 has the endpoint of each, in Bundles of halves.
func crowd(t *testing.T) suite.Namespace {
	t.Helper()
	s := suite.NewNamespace(t)
	for n := range many {
		service := suite.Service(func(s *corev1.Service) { s.Name = fmt.Sprintf("one-of-many-%d", n) })
		s.Create("c2", service, suite.EndpointSlice(service, discoveryv1.Endpoint{Addresses: []string{
			fmt.Sprintf("10.9.100.%d", 1+n)}}), &mcs.ServiceExport{ObjectMeta: suite.Named(service.Name)})
	}
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		list, imports, endpoints, divided := &discoveryv1.EndpointSliceList{}, &mcs.ServiceImportList{}, 0, 0
		bundles := &v1alpha1.BundleList{}
		if err := s.API("c1").List(ctx, list, client.InNamespace(s.Name)); err != nil {
			return err
		}
		if err := s.API("c1").List(ctx, imports, client.InNamespace(s.Name)); err != nil {
			return err
		}
		if err := s.API("c1").List(ctx, bundles); err != nil {
			return err
		}
		for _, slice := range list.Items {
			endpoints += len(slice.Endpoints)
		}
		for _, b := range bundles.Items {
			divided += len(b.Spec.Halves)
		}
		if len(imports.Items) != many || endpoints != many || divided == 0 {
			return fmt.Errorf("expected %d imports with an endpoint each, and shards that are divided; found %d, %d "+
				"endpoints and %d halves", many, len(imports.Items), endpoints, divided)
		}
		return nil
	})
	return s
}

// gone are imports that were away, or empty, for however short a time.
type gone struct {
	names []string
	seen  map[string]bool // services of which an object was seen
}

// crowdStays watches the imports of a crowd in c1, each change of each, until what it returns is called: that fails the
// test for those that went, or were empty. A ServiceImport has its cluster in its status.
func crowdStays(t *testing.T, s suite.Namespace, what string) (end func()) {
	t.Helper()
	var watchers []watch.Interface
	var done sync.WaitGroup
	var ended atomic.Bool
	found := []*gone{{seen: map[string]bool{}}, {seen: map[string]bool{}}}
	slices := map[string]map[string]int{} // endpoints by service and EndpointSlice
	for n, of := range []struct {
		list client.ObjectList
		// empty says of which service an object is, and whether there is nothing left of that.
		empty func(o any, deleted bool) (string, bool)
	}{
		{&mcs.ServiceImportList{}, func(o any, deleted bool) (string, bool) {
			i := o.(*mcs.ServiceImport)
			return i.Name, deleted || len(i.Status.Clusters) != 1
		}},
		{&discoveryv1.EndpointSliceList{}, func(o any, deleted bool) (string, bool) {
			slice := o.(*discoveryv1.EndpointSlice)
			service := slice.Labels[mcs.LabelServiceName]
			if slices[service] == nil {
				slices[service] = map[string]int{}
			}
			slices[service][slice.Name] = len(slice.Endpoints)
			if deleted {
				delete(slices[service], slice.Name)
			}
			all := 0
			for _, endpoints := range slices[service] {
				all += endpoints
			}
			return service, all == 0
		}},
	} {
		w, err := s.API("c1").Watch(t.Context(), of.list, client.InNamespace(s.Name))
		if err != nil {
			t.Fatal(err)
		}
		watchers = append(watchers, w)
		done.Go(func() { found[n].follow(w, of.empty, &ended) })
	}
	return func() {
		t.Helper()
		ended.Store(true)
		for _, w := range watchers {
			w.Stop()
		}
		done.Wait()
		for n, kind := range []string{"ServiceImport", "EndpointSlice"} {
			if g := found[n]; len(g.names) > 0 {
				t.Errorf("%s: %d times a %s of these was away or empty: %s", what, len(g.names), kind,
					clip.List(g.names, 10))
			} else if len(g.seen) != many {
				t.Errorf("%s: the %ss of %d services were watched, expected %d", what, kind, len(g.seen), many)
			}
		}
	}
}

// follow what a watch tells, which begins with what there is, until it is ended. One that ends by itself could have
// missed something.
func (g *gone) follow(w watch.Interface, empty func(o any, deleted bool) (string, bool), ended *atomic.Bool) {
	defer func() {
		if !ended.Load() {
			g.names = append(g.names, "(the watch has ended)")
		}
	}()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return // with the connection, by who ends it
		}
		service, nothing := empty(e.Object, e.Type == watch.Deleted)
		g.seen[service] = true
		if nothing {
			g.names = append(g.names, service)
		}
	}
}
