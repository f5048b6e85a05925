// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util/names"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// fleet is everything that show tells from, read once.
type fleet struct {
	now time.Time
	// leaderSeen is when the controller last showed that it runs; zero if unknown.
	leaderSeen time.Time
	// only are the clusters, and namespace that of the services, that were asked for; empty for all.
	only        []string
	namespace   string
	clusterSets []v1alpha1.ClusterSet
	// all are the names of every member, members those that were asked for.
	all     []string
	members []fleetMember
	// templates are the ServiceExports on the Karmada API, policies the ServicePolicies there.
	templates []exportTemplate
	policies  []v1alpha1.ServicePolicy
}

// fleetMember is one member: the broker's record, and what the member itself shows.
type fleetMember struct {
	v1alpha1.Member
	// gateways in the member; nil and an error where it could not be asked.
	gateways []v1alpha1.Gateway
	// services of the MCS API in the member; nil as gateways.
	services *memberServices
	// globals are the member's global addresses; nil as gateways.
	globals *memberGlobals
	err     error
	// bundles as the Karmada API holds them, with the status that the member reported.
	bundles []v1alpha1.Bundle
}

// unavailable says why the member could not be asked.
func (m *fleetMember) unavailable() string { return refusal(m.err) + ": " + m.err.Error() }

// within says what services were narrowed to, for a text.
func (f *fleet) within() string {
	if f.namespace == "" {
		return ""
	}
	return " in namespace " + f.namespace
}

// subjects say which parts of a fleet are needed.
type subjects struct {
	gateways, bundles bool
	// exports are the ServiceExports and ServicePolicies on the Karmada API, services the MCS objects in
	// the members.
	exports, services bool
	// globals are the global addresses of the members.
	globals bool
}

// or needs what either does.
func (s subjects) or(o subjects) subjects {
	return subjects{
		gateways: s.gateways || o.gateways, bundles: s.bundles || o.bundles,
		exports: s.exports || o.exports, services: s.services || o.services,
		globals: s.globals || o.globals,
	}
}

// inMember says whether a member has to be asked.
func (s subjects) inMember() bool { return s.gateways || s.services || s.globals }

// scope narrows what is read.
type scope struct {
	// clusters to read; all if empty.
	clusters []string
	// namespace of services; all if empty.
	namespace string
	// service whose Bundles are read; those of all shards if empty.
	service string
	// memberTimeout is how long to wait for each member.
	memberTimeout time.Duration
	// at is an API server that was opened already, by the name of its member.
	at map[string]*api
	// silent are members that are not asked, with why, by name.
	silent map[string]string
}

// aim narrows to the one member that a kubeconfig context leads to.
func (s *scope) aim(ctx context.Context, o *options, contextName string) error {
	if len(s.clusters) > 0 {
		return &finding{expected: "--context or --clusters", found: "both", remedy: "give one of them"}
	}
	ctx, cancel := context.WithTimeout(ctx, s.memberTimeout)
	defer cancel()
	member, cluster, err := o.memberAt(ctx, contextName)
	if err != nil {
		return err
	}
	s.clusters, s.at = []string{cluster}, map[string]*api{cluster: member}
	return nil
}

// known checks that every cluster named is a member.
func (f *fleet) known(clusters []string, invocation string) error {
	for _, name := range clusters {
		if f.member(name) == nil {
			found := "no Member of that name on the Karmada API"
			if len(f.all) > 0 {
				found += "; members: " + strings.Join(f.all, ", ")
			}
			return &finding{
				expected: fmt.Sprintf("%q to be a member", name),
				found:    found,
				remedy:   didYouMean(name, f.all) + "make it one: " + invocation + " join " + name,
			}
		}
	}
	return nil
}

// gather reads the Karmada API and, in parallel and each within its time, the members.
func (o *options) gather(ctx context.Context, karmada *api, want subjects, within scope) (*fleet, error) {
	seen, err := karmada.leaderSeen(ctx)
	if err != nil {
		return nil, err
	}
	f := &fleet{now: time.Now(), leaderSeen: seen, only: within.clusters, namespace: within.namespace}
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
	for i := range members {
		f.all = append(f.all, members[i].Name)
		if len(within.clusters) == 0 || slices.Contains(within.clusters, members[i].Name) {
			f.members = append(f.members, fleetMember{Member: members[i]})
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	if want.exports {
		g.Go(func() error { return karmada.readExports(ctx, f, within.namespace) })
	}
	for i := range f.members {
		m := &f.members[i]
		if want.inMember() {
			g.Go(func() error { m.err = o.askMember(ctx, karmada, m, want, within); return nil })
		}
		if want.bundles {
			g.Go(func() (err error) {
				m.bundles, err = karmada.bundlesOf(ctx, m.Name, &within, f.shards(m.Spec.ClusterSet))
				return err
			})
		}
	}
	return f, g.Wait()
}

func (f *fleet) shards(set string) int32 {
	for i := range f.clusterSets {
		if f.clusterSets[i].Name == set {
			return f.clusterSets[i].Spec.Shards
		}
	}
	return 0
}

// askMember reads what only the member itself shows.
func (o *options) askMember(ctx context.Context, karmada *api, m *fleetMember, want subjects, within scope) error {
	ctx, cancel := context.WithTimeout(ctx, within.memberTimeout)
	defer cancel()
	c := within.at[m.Name]
	if c == nil {
		var err error
		if c, err = o.member(ctx, karmada, &m.Member); err != nil {
			return err
		}
	}
	if want.gateways {
		var err error
		if m.gateways, err = c.gateways(ctx); err != nil {
			return err
		}
	}
	if want.globals {
		var err error
		if m.globals, err = c.memberGlobals(ctx, within.namespace); err != nil {
			return err
		}
	}
	if want.services {
		var err error
		if m.services, err = c.memberServices(ctx, within.namespace); err != nil {
			return err
		}
	}
	return nil
}

func (a *api) gateways(ctx context.Context) ([]v1alpha1.Gateway, error) {
	var list v1alpha1.GatewayList
	if err := a.List(ctx, &list); err != nil {
		return nil, err
	}
	sort.Slice(list.Items, func(i, j int) bool { return list.Items[i].Name < list.Items[j].Name })
	return list.Items, nil
}

// shards are the numbers of those to read, out of a number of them.
func (s *scope) shards(n int32) []int32 {
	if s.service != "" {
		return []int32{v1alpha1.Shard(s.namespace, s.service, n)}
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// halves are the names of those to read, of a shard's own Bundle that lists some.
func (s *scope) halves(own *v1alpha1.Bundle) []string {
	if len(own.Spec.Halves) == 0 {
		return nil
	}
	if s.service != "" {
		if name := v1alpha1.BundleOf(own, s.namespace, s.service); name != "" {
			return []string{name}
		}
		return nil
	}
	out := make([]string, 0, len(own.Spec.Halves))
	for _, half := range own.Spec.Halves {
		out = append(out, v1alpha1.HalfName(own.Name, half))
	}
	return out
}

// deltas are the names of the Bundles of deltas that a Bundle lists.
func deltas(own *v1alpha1.Bundle) []string {
	if own.Name != v1alpha1.BundleName(0) {
		return nil
	}
	var out []string
	for n := range min(own.Spec.Deltas, v1alpha1.MaxDeltas) {
		out = append(out, v1alpha1.DeltaName(n))
	}
	return out
}

// bundlesOf reads a member's Bundles from their Works: those of shards, and the halves that they list; of a shard, one
// half or none when a service is named. Their imports are as they are now.
func (a *api) bundlesOf(ctx context.Context, cluster string, within *scope, shards int32) ([]v1alpha1.Bundle, error) {
	var bundles []v1alpha1.Bundle
	for _, shard := range within.shards(shards) {
		own, err := a.bundleNamed(ctx, cluster, v1alpha1.BundleName(shard))
		if err != nil {
			return nil, err
		}
		if own == nil {
			continue
		}
		bundles = append(bundles, *own)
		for _, name := range within.halves(own) {
			half, err := a.bundleNamed(ctx, cluster, name)
			if err != nil {
				return nil, err
			}
			if half != nil {
				bundles = append(bundles, *half)
			}
		}
	}
	return asNow(bundles, func(name string) (*v1alpha1.Bundle, error) { return a.bundleNamed(ctx, cluster, name) })
}

// asNow returns some Bundles of a member, none of deltas, with their imports as they are now; named reads any of its
// Bundles.
func asNow(bundles []v1alpha1.Bundle, named func(name string) (*v1alpha1.Bundle, error)) ([]v1alpha1.Bundle, error) {
	all, own := slices.Clone(bundles), v1alpha1.BundleName(0)
	at := slices.IndexFunc(all, func(b v1alpha1.Bundle) bool { return b.Name == own })
	if at < 0 {
		listing, err := named(own)
		if err != nil || listing == nil {
			return bundles, err
		}
		all, at = append(all, *listing), len(all)
	}
	for _, name := range deltas(&all[at]) {
		delta, err := named(name)
		if err != nil {
			return nil, err
		}
		if delta != nil {
			all = append(all, *delta)
		}
	}
	return v1alpha1.Current(all)[:len(bundles)], nil
}

// bundleNamed reads one Bundle of a member from its Work, nil where there is none.
func (a *api) bundleNamed(ctx context.Context, cluster, name string) (*v1alpha1.Bundle, error) {
	var work workv1alpha1.Work
	key := bundleWork(cluster, name)
	if err := a.Get(ctx, key, &work); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get work %s: %w", key, err)
	}
	bundle, err := bundleOf(&work)
	if err != nil {
		return nil, fmt.Errorf("work %s: %w", key, err)
	}
	return &bundle, nil
}

// bundleWork is the Work of a member's Bundle.
func bundleWork(cluster, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: names.GenerateExecutionSpaceName(cluster),
		Name: names.GenerateWorkName("Bundle", name, "")}
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
