// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// imported exports web from c2, and waits until c1 has its endpoint.
func imported(t *testing.T) suite.Namespace {
	t.Helper()
	s := suite.NewNamespace(t)
	s.Serve("c2")
	s.Export("c2")
	s.WaitEndpoints("c1", map[string]int{"c2": 1})
	return s
}

// stays looks all the time whether c1 has web's import with its endpoint, until what it returns is called: that says
// how often it looked, and fails the test if the import was away or empty. An API server that does not answer does not
// count.
func stays(t *testing.T, s suite.Namespace, what string) (end func()) {
	t.Helper()
	const every = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	looked, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		a := s.API("c1")
		for tick := time.NewTicker(every); ctx.Err() == nil; <-tick.C {
			slices, err := s.Slices(ctx, "c1")
			if err != nil {
				continue
			}
			looked++
			endpoints := 0
			for _, slice := range slices {
				if slice.Labels[mcs.LabelSourceCluster] == "c2" {
					endpoints += len(slice.Endpoints)
				}
			}
			if endpoints != 1 {
				t.Errorf("%s: web's import has %d endpoints at %s", what, endpoints, time.Now().Format(time.StampMilli))
			}
			i := &mcs.ServiceImport{ObjectMeta: suite.Named("web")}
			i.Namespace = s.Name
			switch err := a.Get(ctx, client.ObjectKeyFromObject(i), i); {
			case err == nil && len(i.Status.Clusters) != 1:
				t.Errorf("%s: web's ServiceImport has clusters %v", what, i.Status.Clusters)
			case apierrors.IsNotFound(err):
				t.Errorf("%s: web's ServiceImport is away", what)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		if t.Logf("%s: looked %d times at web's import", what, looked); looked < 100 {
			t.Errorf("%s: looked %d times at web's import, which is too few to see it go", what, looked)
		}
	}
}

// changing are services of c2 whose endpoints change all the time, so often that they are told in deltas.
type changing struct {
	suite.Namespace
	last map[string]string // address, by service
	end  func()
}

// change begins.
func change(t *testing.T) *changing {
	t.Helper()
	const services, every = 8, 200 * time.Millisecond
	c := &changing{Namespace: suite.NewNamespace(t), last: map[string]string{}}
	for n := range services {
		service := suite.Service(func(s *corev1.Service) { s.Name = fmt.Sprintf("changing-%d", n) })
		c.Create("c2", service, suite.EndpointSlice(service), &mcs.ServiceExport{ObjectMeta: suite.Named(service.Name)})
		c.last[service.Name] = ""
	}
	ctx, cancel := context.WithCancel(t.Context())
	a, ended := c.API("c2"), make(chan struct{})
	go func() {
		defer close(ended)
		for step, tick := 0, time.NewTicker(every); ctx.Err() == nil; <-tick.C {
			name, ip := fmt.Sprintf("changing-%d", step%services), fmt.Sprintf("10.9.%d.%d", 200+step/200, 1+step%200)
			slice := &discoveryv1.EndpointSlice{}
			if a.Get(ctx, client.ObjectKey{Namespace: c.Name, Name: name}, slice) != nil {
				continue
			}
			slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{ip}}}
			if err := a.Update(context.WithoutCancel(ctx), slice); err != nil {
				continue
			}
			c.last[name] = ip
			step++
		}
	}()
	c.end = func() { cancel(); <-ended }
	return c
}

// inDeltas waits until c1 is told in deltas.
func (c *changing) inDeltas() {
	c.Helper()
	suite.Eventually(c.T, suite.Patience, func(ctx context.Context) error {
		own := &v1alpha1.Bundle{}
		if err := c.API("c1").Get(ctx, client.ObjectKey{Name: v1alpha1.BundleName(0)}, own); err != nil {
			return err
		}
		if own.Spec.Deltas == 0 {
			return fmt.Errorf("expected Bundles of deltas, none is listed")
		}
		return nil
	})
}

// arrived ends the changes, and waits until c1 has the last ones.
func (c *changing) arrived() {
	c.Helper()
	c.end()
	suite.Eventually(c.T, suite.Patience, func(ctx context.Context) error {
		list := &discoveryv1.EndpointSliceList{}
		if err := c.API("c1").List(ctx, list, client.InNamespace(c.Name)); err != nil {
			return err
		}
		found := map[string]string{}
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				found[s.Labels[mcs.LabelServiceName]] += e.Addresses[0]
			}
		}
		if !maps.Equal(found, c.last) {
			return fmt.Errorf("expected %v, found %v", c.last, found)
		}
		return nil
	})
}
