// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// profilesAt is where an agent tells of itself.
const profilesAt = "127.0.0.1:6399"

func join(text []string) string { return strings.Join(text, ", ") }

func kind(group, version, kind string) *metav1.PartialObjectMetadataList {
	out := &metav1.PartialObjectMetadataList{}
	out.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return out
}

// poll until a check is true.
func poll(ctx context.Context, every, patience time.Duration, check func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := check(ctx)
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("it takes too long")
		case <-time.After(every):
		}
	}
}

// fill brings all imports, and waits until the agent has made them.
func (s *session) fill(bundles []*v1alpha1.Bundle) func(context.Context) error {
	return func(ctx context.Context) error {
		begun := time.Now()
		stop := make(chan error, 1)
		go func() { stop <- s.profile(ctx, "fill", "profile?seconds=40") }()
		err := s.measured(ctx, "all imports are made", 1, func() error {
			for _, b := range bundles {
				if err := s.Create(ctx, b); err != nil {
					return fmt.Errorf("create Bundle %s: %w", b.Name, err)
				}
			}
			made := func(ctx context.Context) (bool, error) {
				now, err := s.counts(ctx)
				services := int64(s.size.Services)
				return now.imports >= services && now.services-s.before.services >= services &&
					now.slices-s.before.slices >= services*int64(s.size.Exporters), err
			}
			if err := poll(ctx, time.Second, s.patience, made); err != nil {
				return err
			}
			fmt.Printf("<!-- all objects are there after %s -->\n", time.Since(begun).Round(time.Second))
			if err := s.quiet(ctx); err != nil {
				return err
			}
			return s.answered(ctx)
		})
		return errors.Join(err, <-stop)
	}
}

// answered is an error unless the agent has answered all Bundles, and has no problem with any.
func (s *session) answered(ctx context.Context) error {
	var list v1alpha1.BundleList
	if err := s.List(ctx, &list); err != nil {
		return fmt.Errorf("list Bundles: %w", err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if b.Status.ObservedRevision != b.Spec.Revision || len(b.Status.Imports) > 0 {
			return fmt.Errorf("of Bundle %s: it has revision %d and problems %v, expected %d and none", b.Name,
				b.Status.ObservedRevision, b.Status.Imports, b.Spec.Revision)
		}
	}
	return nil
}

// change changes one endpoint after the other, and waits until each has come.
func (s *session) change(bundles []*v1alpha1.Bundle) func(context.Context) error {
	return func(ctx context.Context) error {
		r := rand.New(rand.NewPCG(1, 1))
		stop := make(chan error, 1)
		go func() { stop <- s.profile(ctx, "change", "profile?seconds=15") }()
		err := s.measured(ctx, fmt.Sprintf("each of %d changed endpoints", s.changes), s.changes, func() error {
			for n := range s.changes {
				b := bundles[r.IntN(len(bundles))]
				for len(b.Spec.Imports) == 0 {
					b = bundles[r.IntN(len(bundles))]
				}
				i := &b.Spec.Imports[r.IntN(len(b.Spec.Imports))]
				if err := s.changeOne(ctx, b, i, n); err != nil {
					return fmt.Errorf("%s/%s: %w", i.Namespace, i.Name, err)
				}
			}
			return nil
		})
		return errors.Join(err, <-stop)
	}
}

func (s *session) changeOne(ctx context.Context, b *v1alpha1.Bundle, i *v1alpha1.Import, n int) error {
	have := &v1alpha1.Bundle{}
	if err := s.Get(ctx, client.ObjectKeyFromObject(b), have); err != nil {
		return fmt.Errorf("get the Bundle: %w", err)
	}
	c := &i.Clusters[n%len(i.Clusters)]
	backend := &c.Backends[0].Addresses[n%len(c.Backends[0].Addresses)]
	at := strings.LastIndexByte(backend.IP, '.')
	at = strings.LastIndexByte(backend.IP[:at], '.')
	// No pod of the fleet has an address from 250 on.
	backend.IP = fmt.Sprintf("%s.%d.%d", backend.IP[:at], 250+n/200%5, 1+n%200)
	have.Spec.Imports = b.Spec.Imports
	have.Spec.Revision++
	if err := s.Update(ctx, have); err != nil {
		return fmt.Errorf("change the Bundle: %w", err)
	}
	return poll(ctx, 10*time.Millisecond, time.Minute, func(ctx context.Context) (bool, error) {
		var list discoveryv1.EndpointSliceList
		if err := s.List(ctx, &list, client.InNamespace(i.Namespace),
			client.MatchingLabels{v1alpha1.LabelImport: i.Name}); err != nil {
			return false, fmt.Errorf("list EndpointSlices: %w", err)
		}
		arrived := false
		for k := range list.Items {
			for _, e := range list.Items[k].Endpoints {
				arrived = arrived || e.Addresses[0] == backend.IP
			}
		}
		if !arrived {
			return false, nil
		}
		if err := s.Get(ctx, client.ObjectKeyFromObject(b), have); err != nil {
			return false, fmt.Errorf("get the Bundle: %w", err)
		}
		return have.Status.ObservedRevision == have.Spec.Revision, nil
	})
}
