// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// quietFor is how long nothing is written once a fleet is at rest: longer than a change takes there and back.
const quietFor = 2 * time.Second

// Converged waits until every member has been told of all others and of all services, the agents of sites have made of
// it what they should, and nothing is written any more. It returns when the last write was.
func (f *Fleet) Converged(ctx context.Context, b *Broker) (time.Time, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	why := error(nil)
	for {
		if err := f.Tally.Err(); err != nil {
			return time.Time{}, err
		}
		if quiet := f.Tally.Quiet(); quiet > quietFor {
			last := time.Now().Add(-quiet)
			if why = f.complete(ctx); why == nil {
				why = f.followed(ctx)
			}
			if why == nil {
				return last, f.Tally.Err()
			}
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for the fleet: %w", errors.Join(ctx.Err(), why))
		case <-b.done:
			return time.Time{}, b.ended()
		case <-tick.C:
		}
	}
}

// Complete waits until every member has been told of all others and of all services, be there still something written
// or not. It looks at one cluster until that is complete, then at the next, and at all of them at the end: to look at
// all of a large fleet all the time would take more than what is measured.
func (f *Fleet) Complete(ctx context.Context, b *Broker) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	next := 0
	look := func() error {
		for ; next < f.Size.Clusters; next++ {
			if err := f.told(ctx, next); err != nil {
				return err
			}
		}
		next = 0
		return f.complete(ctx)
	}
	for {
		why := look()
		if why == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the fleet: %w", errors.Join(ctx.Err(), why))
		case <-b.done:
			return b.ended()
		case <-tick.C:
		}
	}
}

// complete compares what every member is told with what the fleet is.
func (f *Fleet) complete(ctx context.Context) error {
	for n := range f.Size.Clusters {
		if err := f.told(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// followed compares what the agents of sites have made of it with what the fleet is.
func (f *Fleet) followed(ctx context.Context) error {
	for _, s := range f.sites {
		if err := s.complete(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// told compares what a member is told with what the fleet is.
func (f *Fleet) told(ctx context.Context, n int) error {
	if f.members[f.Size.cluster(n)].silent() {
		return nil
	}
	check := f.completeFor
	if !f.joined(n) {
		check = f.released
	}
	if err := check(ctx, n); err != nil {
		return fmt.Errorf("%s: %w", f.Size.cluster(n), err)
	}
	return nil
}

// released says whether a cluster that has left has no Work any more.
func (f *Fleet) released(ctx context.Context, n int) error {
	var list workv1alpha1.WorkList
	if err := f.works.List(ctx, &list, client.InNamespace("karmada-es-"+f.Size.cluster(n)),
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the Works: %w", err)
	}
	if len(list.Items) > 0 {
		return fmt.Errorf("it has left, and has %d Works", len(list.Items))
	}
	return nil
}

func (f *Fleet) completeFor(ctx context.Context, n int) error {
	var list workv1alpha1.WorkList
	if err := f.works.List(ctx, &list, client.InNamespace("karmada-es-"+f.Size.cluster(n)),
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the Works: %w", err)
	}
	remotes, bundles := 0, map[string]*v1alpha1.Bundle{}
	for i := range list.Items {
		if list.Items[i].Labels[propagation.LabelKind] == propagation.KindPeering {
			var spec v1alpha1.PeeringSpec
			if err := propagation.Spec(&list.Items[i], &spec); err != nil {
				return err
			}
			remotes = len(spec.RemoteClusters)
			continue
		}
		raw, err := propagation.Manifest(&list.Items[i])
		if err != nil {
			return fmt.Errorf("read the Work %s: %w", list.Items[i].Name, err)
		}
		bundle := &v1alpha1.Bundle{}
		if err := json.Unmarshal(raw, bundle); err != nil {
			return fmt.Errorf("read what the Work %s carries: %w", list.Items[i].Name, err)
		}
		bundles[bundle.Name] = bundle
	}
	if want := len(f.others(n)); remotes != want {
		return fmt.Errorf("told of %d clusters, not of %d", remotes, want)
	}
	return f.completeImports(n, bundles)
}

// completeImports compares what a member's Bundles have, by their names, with what the fleet is. Deltas add no imports,
// but may have them as they are now.
func (f *Fleet) completeImports(n int, bundles map[string]*v1alpha1.Bundle) error {
	imports := 0
	named := func(name string) (*v1alpha1.Bundle, error) { return bundles[name], nil }
	for name, bundle := range bundles {
		if v1alpha1.IsDelta(name) {
			continue
		}
		imports += len(bundle.Spec.Imports)
		for k := range bundle.Spec.Imports {
			i := &bundle.Spec.Imports[k]
			now, known, err := v1alpha1.CurrentImport(i.Namespace, i.Name, shards, named)
			if err != nil {
				return err
			}
			if !known || now == nil {
				return fmt.Errorf("%s/%s is in %s, and what of it is in force is not known", i.Namespace, i.Name, name)
			}
			if err := f.completeImport(n, now); err != nil {
				return err
			}
		}
	}
	if want := f.exported(); imports != want {
		return fmt.Errorf("told of %d services, not of %d", imports, want)
	}
	return nil
}

// completeImport says whether an import has all its exporters, and all the pods of those that are elsewhere.
func (f *Fleet) completeImport(n int, i *v1alpha1.Import) error {
	has := f.members[f.Size.cluster(n)].has[i.Namespace]
	if i.Withheld && has {
		return fmt.Errorf("%s/%s is withheld from a cluster that has the namespace", i.Namespace, i.Name)
	}
	if want := f.exportersOf(i.Namespace, i.Name); len(i.Clusters) != want {
		return fmt.Errorf("%s/%s comes from %d clusters, not from %d", i.Namespace, i.Name, len(i.Clusters), want)
	}
	service, _ := f.Size.index(i.Namespace, i.Name)
	for k := range i.Clusters {
		from := &i.Clusters[k]
		if i.Withheld {
			break
		}
		m := f.members[from.Cluster]
		if from.Cluster == f.Size.cluster(n) || m.silent() {
			continue
		}
		got := addressesOf(from)
		if want := m.addresses(service); !slices.Equal(got, want) {
			return fmt.Errorf("%s/%s has the pods %v in %s, not %v", i.Namespace, i.Name, got, from.Cluster, want)
		}
	}
	return nil
}

// addressesOf are those of one cluster's backends in an import.
func addressesOf(c *v1alpha1.ImportCluster) []string {
	var out []string
	for _, g := range c.Backends {
		for _, a := range g.Addresses {
			out = append(out, a.IP)
		}
	}
	slices.Sort(out)
	return out
}
