// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// counted counts the reports of the only Bundle until the test ends: what the API server says has another status.
func (m *member) counted() *atomic.Int64 {
	m.t.Helper()
	config := rest.CopyConfig(m.config)
	config.Impersonate = rest.ImpersonationConfig{}
	c, err := client.NewWithWatch(config, client.Options{Scheme: m.Scheme()})
	if err != nil {
		m.t.Fatal(err)
	}
	w, err := c.Watch(m.t.Context(), &v1alpha1.BundleList{})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(w.Stop)
	count := &atomic.Int64{}
	go func() {
		var last v1alpha1.Bundle
		for e := range w.ResultChan() {
			if b, ok := e.Object.(*v1alpha1.Bundle); ok {
				if b.ResourceVersion != last.ResourceVersion && b.Generation == last.Generation {
					count.Add(1)
				}
				last = *b
			}
		}
	}()
	return count
}

// TestPodsThatComeAndGoAllTheTime are told of at once at first, and then each second. What the broker waits for is not
// held up by that, and what is so in the end is told.
func TestPodsThatComeAndGoAllTheTime(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.peering(1)
	m.namespace("shop")
	slice := m.service("shop", "web", "10.8.0.1")
	m.export("shop", "web")
	m.exports("shop/web 10.8.0.1;")
	count := m.counted()

	const seconds, perSecond = 6, 20
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	asked, answered, quick := time.Time{}, time.Duration(0), int64(0)
	for k := range seconds * perSecond {
		<-tick.C
		change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = endpointsOf(fmt.Sprintf("10.8.0.%d", 2+k)) })
		b := &v1alpha1.Bundle{}
		switch k {
		case 2 * perSecond:
			quick = count.Load()
		case 4 * perSecond: // by now there is one report a second
			if err := m.Get(t.Context(), client.ObjectKey{Name: v1alpha1.BundleName(0)}, b); err != nil {
				t.Fatal(err)
			}
			change(m, b, func(b *v1alpha1.Bundle) { b.Spec.Revision++ })
			asked = time.Now()
			answered = m.eventually("the answer", func(ctx context.Context) error {
				err := m.Get(ctx, client.ObjectKeyFromObject(b), b)
				if err != nil {
					return err
				}
				return expect("revision", b.Status.ObservedRevision, b.Spec.Revision)
			})
		}
	}
	if asked.IsZero() || answered > 500*time.Millisecond {
		t.Errorf("the broker has its answer after %s, want half a second at most", answered)
	}
	m.eventually("the last pod", func(ctx context.Context) error {
		b := &v1alpha1.Bundle{}
		if err := m.Get(ctx, client.ObjectKey{Name: v1alpha1.BundleName(0)}, b); err != nil {
			return err
		}
		last := fmt.Sprintf("10.8.0.%d", 1+seconds*perSecond)
		if !slices.ContainsFunc(b.Status.Exports, func(e v1alpha1.Export) bool {
			return len(e.Backends) == 1 && len(e.Backends[0].Addresses) == 1 && e.Backends[0].Addresses[0].IP == last
		}) {
			return fmt.Errorf("%s is not among %+v", last, b.Status.Exports)
		}
		return nil
	})
	// Ten at once and one a second, one that answers, and what a slow machine takes longer for.
	n := count.Load()
	t.Logf("%d changes: %d reports in the first two seconds, %d in all, answered after %s", seconds*perSecond, quick, n,
		answered)
	if quick < 8 || n > 24 {
		t.Errorf("%d reports in the first two seconds and %d in all, want 8 or more, and 24 at most", quick, n)
	}
}
