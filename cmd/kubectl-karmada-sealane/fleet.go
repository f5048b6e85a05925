// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"sync"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util/names"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// fleet is everything that show tells from, read once.
type fleet struct {
	now         time.Time
	clusterSets []v1alpha1.ClusterSet
	members     []fleetMember
}

// fleetMember is one member: the broker's record, and what the member itself shows.
type fleetMember struct {
	v1alpha1.Member
	// gateways in the member; nil and an error where it could not be asked.
	gateways []v1alpha1.Gateway
	err      error
	// bundles as the Karmada API holds them, with the status that the member reported.
	bundles []v1alpha1.Bundle
}

// subjects say which parts of a fleet are needed.
type subjects struct {
	gateways, bundles bool
}

// gather reads the Karmada API and, in parallel and each within memberTimeout, the members.
func (o *options) gather(ctx context.Context, karmada *api, only []string, want subjects, memberTimeout time.Duration) (*fleet, error) {
	f := &fleet{now: time.Now()}
	var sets v1alpha1.ClusterSetList
	if err := karmada.List(ctx, &sets); err != nil {
		return nil, fmt.Errorf("list clustersets: %w", err)
	}
	f.clusterSets = sets.Items
	sort.Slice(f.clusterSets, func(i, j int) bool { return f.clusterSets[i].Name < f.clusterSets[j].Name })
	members, err := karmada.members(ctx)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, name := range only {
		wanted[name] = true
	}
	for i := range members {
		if len(only) == 0 || wanted[members[i].Name] {
			f.members = append(f.members, fleetMember{Member: members[i]})
		}
	}
	var wg sync.WaitGroup
	errs := make([]error, len(f.members))
	for i := range f.members {
		m := &f.members[i]
		if want.gateways {
			wg.Go(func() { m.gateways, m.err = o.gatewaysOf(ctx, karmada, &m.Member, memberTimeout) })
		}
		if want.bundles {
			wg.Go(func() { m.bundles, errs[i] = karmada.bundlesOf(ctx, m.Name, f.shards(m.Spec.ClusterSet)) })
		}
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fleet) shards(set string) int32 {
	for i := range f.clusterSets {
		if f.clusterSets[i].Name == set {
			return f.clusterSets[i].Spec.Shards
		}
	}
	return 0
}

func (o *options) gatewaysOf(ctx context.Context, karmada *api, m *v1alpha1.Member, timeout time.Duration) ([]v1alpha1.Gateway, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := o.member(ctx, karmada, m)
	if err != nil {
		return nil, err
	}
	var list v1alpha1.GatewayList
	if err := c.List(ctx, &list); err != nil {
		return nil, err
	}
	sort.Slice(list.Items, func(i, j int) bool { return list.Items[i].Name < list.Items[j].Name })
	return list.Items, nil
}

// bundlesOf reads a member's Bundles from their Works.
func (a *api) bundlesOf(ctx context.Context, cluster string, shards int32) ([]v1alpha1.Bundle, error) {
	var bundles []v1alpha1.Bundle
	for shard := range shards {
		var work workv1alpha1.Work
		key := client.ObjectKey{
			Namespace: names.GenerateExecutionSpaceName(cluster),
			Name:      names.GenerateWorkName("Bundle", v1alpha1.BundleName(shard), ""),
		}
		if err := a.Get(ctx, key, &work); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("get work %s: %w", key, err)
		}
		bundle, err := bundleOf(&work)
		if err != nil {
			return nil, fmt.Errorf("work %s: %w", key, err)
		}
		bundles = append(bundles, bundle)
	}
	return bundles, nil
}

// bundleOf decodes a Bundle and its reflected status. A status that does not decode is the member's
// doing, and shown as none.
func bundleOf(work *workv1alpha1.Work) (v1alpha1.Bundle, error) {
	var bundle v1alpha1.Bundle
	if n := len(work.Spec.Workload.Manifests); n != 1 {
		return bundle, fmt.Errorf("has %d manifests, expected 1", n)
	}
	if err := json.Unmarshal(work.Spec.Workload.Manifests[0].Raw, &bundle); err != nil {
		return bundle, fmt.Errorf("decode bundle: %w", err)
	}
	bundle.Status = v1alpha1.BundleStatus{}
	if len(work.Status.ManifestStatuses) == 1 && work.Status.ManifestStatuses[0].Status != nil {
		var status v1alpha1.BundleStatus
		if json.Unmarshal(work.Status.ManifestStatuses[0].Status.Raw, &status) == nil {
			bundle.Status = status
		}
	}
	return bundle, nil
}
