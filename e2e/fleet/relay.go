// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// relay is what Karmada does with one Work of a site: its execution controller writes to the member what the Work
// carries, and its status controller writes the member's status into the Work. Each takes its time.
type relay struct {
	site       *site
	key        client.ObjectKey
	kind, name string
	// down is poked when the Work has changed, up when the member's object has; gone is closed with the Work.
	down, up, gone chan struct{}

	// said is what was last written into the Work.
	said []byte

	mu sync.Mutex
	// raw is what the Work carries.
	raw []byte
}

// notice takes note of a Work of the site. It is called for one after the other.
func (s *site) notice(ctx context.Context, work *workv1alpha1.Work) {
	raw, err := propagation.Manifest(work)
	if err != nil {
		s.f.Tally.fail(fmt.Errorf("read the Work %s: %w", work.Name, err))
		return
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &o); err != nil {
		s.f.Tally.fail(fmt.Errorf("read what the Work %s carries: %w", work.Name, err))
		return
	}
	s.mu.Lock()
	r := s.relays[o.Kind+"/"+o.Name]
	if r == nil {
		r = &relay{site: s, key: client.ObjectKeyFromObject(work), kind: o.Kind, name: o.Name,
			down: make(chan struct{}, 1), up: make(chan struct{}, 1), gone: make(chan struct{})}
		s.relays[o.Kind+"/"+o.Name] = r
		s.f.running.Go(func() { r.repeat(ctx, r.down, r.apply) })
		s.f.running.Go(func() { r.repeat(ctx, r.up, r.reflect) })
	}
	s.mu.Unlock()
	r.mu.Lock()
	changed := !bytes.Equal(r.raw, raw)
	r.raw = raw
	r.mu.Unlock()
	if changed {
		poke(r.down)
	}
}

// forget a Work that is gone.
func (s *site) forget(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, r := range s.relays {
		if r.key == key {
			close(r.gone)
			delete(s.relays, id)
		}
	}
}

// changedObject has what an object of the member says written into its Work.
func (s *site) changedObject(kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.relays[kind+"/"+name]; r != nil {
		poke(r.up)
	}
}

// repeat does something after each poke and the time that Karmada takes, in which there may be more pokes.
func (r *relay) repeat(ctx context.Context, poked chan struct{}, do func(context.Context) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.gone:
			return
		case <-poked:
		}
		select {
		case <-ctx.Done():
			return
		case <-r.gone:
			return
		case <-time.After(oneWay()):
		}
		if !r.site.reached(ctx) {
			return
		}
		if err := do(ctx); err != nil && ctx.Err() == nil {
			r.site.f.Tally.fail(fmt.Errorf("%s: %w", r.site.name, err))
			poke(poked) // once more
		}
	}
}

// apply writes to the member what the Work carries.
func (r *relay) apply(ctx context.Context) error {
	r.mu.Lock()
	raw := r.raw
	r.mu.Unlock()
	o := new(unstructured.Unstructured)
	if err := json.Unmarshal(raw, &o.Object); err != nil {
		return fmt.Errorf("read what %s carries: %w", r.key, err)
	}
	have := new(metav1.PartialObjectMetadata)
	have.SetGroupVersionKind(o.GroupVersionKind())
	for {
		err := r.site.client.Get(ctx, client.ObjectKey{Name: r.name}, have)
		switch {
		case apierrors.IsNotFound(err):
			err = r.site.client.Create(ctx, o)
		case err == nil:
			o.SetResourceVersion(have.ResourceVersion)
			err = r.site.client.Update(ctx, o)
		}
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue // the agent has reported
		}
		if err != nil {
			return fmt.Errorf("write %s %s: %w", r.kind, r.name, err)
		}
		return nil
	}
}

// reflect writes into the Work what the member says.
func (r *relay) reflect(ctx context.Context) (err error) {
	id := workv1alpha1.ResourceIdentifier{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version,
		Kind: r.kind, Name: r.name}
	r.said, err = r.site.f.reporter.report(ctx, r.key, id, r.said, r.status)
	return err
}

// status is what the member's object says, nil where the agent has not reported yet.
func (r *relay) status(ctx context.Context) ([]byte, error) {
	var status any
	var err error
	if r.kind == propagation.KindPeering {
		o := &v1alpha1.Peering{}
		err = r.site.objects.Get(ctx, client.ObjectKey{Name: r.name}, o)
		status = o.Status
	} else {
		o := &v1alpha1.Bundle{}
		err = r.site.objects.Get(ctx, client.ObjectKey{Name: r.name}, o)
		status = o.Status
	}
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	raw, err := json.Marshal(status)
	if err != nil || bytes.Equal(raw, []byte("{}")) {
		return nil, err
	}
	return raw, nil
}

// takeBack deletes from the member what a Work carries that is being deleted.
func (s *site) takeBack(ctx context.Context, work *workv1alpha1.Work) error {
	s.forget(client.ObjectKeyFromObject(work)) // nothing of it is written any more
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(oneWay()):
	}
	if !s.reached(ctx) {
		return nil
	}
	raw, err := propagation.Manifest(work)
	if err != nil {
		return fmt.Errorf("read the Work %s: %w", work.Name, err)
	}
	o := new(unstructured.Unstructured)
	if err := json.Unmarshal(raw, &o.Object); err != nil {
		return fmt.Errorf("read what the Work %s carries: %w", work.Name, err)
	}
	if err := s.client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// run plays whoever else writes to the site, and watches what the agent does, until the context ends.
func (s *site) run(ctx context.Context) error {
	s.f.running.Go(func() { _ = s.objects.Start(ctx) })
	for _, p := range []*process{s.agent, s.dns} {
		s.f.running.Go(func() {
			select {
			case <-ctx.Done():
			case <-p.done:
				s.f.Tally.fail(fmt.Errorf("%s: %w", s.name, p.ended()))
			}
		})
	}
	follow := func(o client.Object, changed func(o any, deleted bool)) error {
		informer, err := s.objects.GetInformer(ctx, o)
		if err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { changed(o, false) },
			UpdateFunc: func(_, o any) { changed(o, false) },
			DeleteFunc: func(o any) {
				if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = unknown.Obj
				}
				changed(o, true)
			},
		})
		return err
	}
	err := errors.Join(
		follow(&v1alpha1.Peering{}, func(any, bool) {
			s.changedObject(propagation.KindPeering, v1alpha1.PeeringName)
			poke(s.gateway)
		}),
		follow(&v1alpha1.Bundle{}, func(o any, _ bool) {
			if b, ok := o.(*v1alpha1.Bundle); ok {
				s.changedObject(propagation.KindBundle, b.Name)
			}
		}),
		follow(&v1alpha1.Gateway{}, func(any, bool) { poke(s.gateway) }),
		follow(&discoveryv1.EndpointSlice{}, func(o any, deleted bool) {
			if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
				s.f.landed(s, slice, deleted, time.Now())
			}
		}),
	)
	if err != nil {
		return err
	}
	s.f.running.Go(func() { s.writeSlices(ctx) })
	s.f.running.Go(func() { s.reportGateway(ctx) })
	if !s.objects.WaitForCacheSync(ctx) {
		return errors.New("watch the member: ended before the first objects were seen")
	}
	return nil
}
