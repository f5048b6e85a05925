// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Connect makes one ClusterSet of all clusters.
func (f *Fleet) Connect(ctx context.Context) error {
	set := &v1alpha1.ClusterSet{}
	set.Name = setName
	for n := range f.Size.Clusters {
		set.Spec.ClusterAffinity.ClusterNames = append(set.Spec.ClusterAffinity.ClusterNames, f.Size.cluster(n))
	}
	if err := f.client.Create(ctx, set); err != nil {
		return fmt.Errorf("create the ClusterSet: %w", err)
	}
	return nil
}

// Reach says of all clusters that Karmada has reached them for an hour. Only then does the broker call them, and send
// anew what they do not answer.
func (f *Fleet) Reach(ctx context.Context) error {
	for n := range f.Size.Clusters {
		if err := f.ready(ctx, n, metav1.ConditionTrue, "ClusterReady", time.Now().Add(-time.Hour)); err != nil {
			return err
		}
	}
	return nil
}

// Leave takes clusters out of the ClusterSet, and Join puts them back.
func (f *Fleet) Leave(ctx context.Context, clusters ...int) func() ([]*Arrival, error) {
	return f.choose(ctx, clusters, true)
}

// Join is the way back from Leave.
func (f *Fleet) Join(ctx context.Context, clusters ...int) func() ([]*Arrival, error) {
	return f.choose(ctx, clusters, false)
}

func (f *Fleet) choose(ctx context.Context, clusters []int, away bool) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		f.mu.Lock()
		for _, n := range clusters {
			f.away[n] = away
		}
		f.mu.Unlock()
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			var set v1alpha1.ClusterSet
			if err := f.client.Get(ctx, client.ObjectKey{Name: setName}, &set); err != nil {
				return err
			}
			set.Spec.ClusterAffinity.ClusterNames = nil
			for k := range f.Size.Clusters {
				if f.joined(k) {
					set.Spec.ClusterAffinity.ClusterNames = append(set.Spec.ClusterAffinity.ClusterNames, f.Size.cluster(k))
				}
			}
			return f.client.Update(ctx, &set)
		})
		if err != nil {
			return nil, fmt.Errorf("change the clusters of the ClusterSet: %w", err)
		}
		return nil, nil
	}
}

// joined says whether a cluster is selected.
func (f *Fleet) joined(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.away[n]
}

// others are the clusters that are selected beside one.
func (f *Fleet) others(than int) (out []string) {
	for n := range f.Size.Clusters {
		if n != than && f.joined(n) {
			out = append(out, f.Size.cluster(n))
		}
	}
	return out
}

// importersOf are the clusters that are selected, and that Karmada reaches, with the namespace of service i, but for
// its first exporter; and of these the sites without pods of their own behind it, which they would prefer.
func (f *Fleet) importersOf(i int) (importers, sites []string) {
	namespace, _ := f.Size.service(i)
	first := f.Size.exporters(i)[0]
	for n := range f.Size.Clusters {
		cluster := f.Size.cluster(n)
		if m := f.members[cluster]; n == first || !f.joined(n) || !m.has[namespace] || m.silent() {
			continue
		}
		importers = append(importers, cluster)
		if f.site(cluster) != nil && !f.Size.exports(n, i) {
			sites = append(sites, cluster)
		}
	}
	return importers, sites
}

// exported is how many services some cluster that is selected exports.
func (f *Fleet) exported() int {
	count := 0
	for i := range f.Size.Services {
		if f.exporting(i) > 0 {
			count++
		}
	}
	return count
}

// exporting is how many clusters that are selected export service i.
func (f *Fleet) exporting(i int) int {
	count := 0
	if f.unpublished.has(i) {
		return 0
	}
	for _, n := range f.Size.exporters(i) {
		if f.joined(n) {
			count++
		}
	}
	return count
}

// exportersOf is the same by the name of the service.
func (f *Fleet) exportersOf(namespace, name string) int {
	i, ok := f.Size.index(namespace, name)
	if !ok {
		return 0
	}
	return f.exporting(i)
}
