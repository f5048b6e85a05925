// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/propagation"
)

// Silence has Karmada lose clusters: nothing comes to them, and nothing from them, though their pods go on to change.
func (f *Fleet) Silence(ctx context.Context, clusters ...int) error {
	for _, n := range clusters {
		f.members[f.Size.cluster(n)].silence(true)
		if err := f.ready(ctx, n, metav1.ConditionFalse, "ClusterNotReachable", time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// Hear has Karmada reach them again.
func (f *Fleet) Hear(ctx context.Context, clusters ...int) error {
	for _, n := range clusters {
		f.members[f.Size.cluster(n)].silence(false)
		if err := f.ready(ctx, n, metav1.ConditionTrue, "ClusterReady", time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// ready says whether Karmada reaches a cluster, and since when.
func (f *Fleet) ready(ctx context.Context, n int, status metav1.ConditionStatus, reason string, since time.Time) error {
	var c clusterv1alpha1.Cluster
	if err := f.client.Get(ctx, client.ObjectKey{Name: f.Size.cluster(n)}, &c); err != nil {
		return fmt.Errorf("read a cluster: %w", err)
	}
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: status, Reason: reason,
		LastTransitionTime: metav1.NewTime(since)}}
	if err := f.client.Status().Update(ctx, &c); err != nil {
		return fmt.Errorf("write the status of cluster %s: %w", c.Name, err)
	}
	return nil
}

// Works counts those of clusters, but for deltas: a cluster that has just joined has none.
func (f *Fleet) Works(ctx context.Context, clusters ...int) (count int64, err error) {
	for _, n := range clusters {
		var list workv1alpha1.WorkList
		if err := f.works.List(ctx, &list, client.InNamespace("karmada-es-"+f.Size.cluster(n)),
			client.UnsafeDisableDeepCopy); err != nil {
			return 0, fmt.Errorf("list the Works: %w", err)
		}
		for i := range list.Items {
			if list.Items[i].Labels[propagation.LabelDelta] == "" {
				count++
			}
		}
	}
	return count, nil
}

// Written waits until there were so many writes since they were counted last.
func (f *Fleet) Written(ctx context.Context, writes int64) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for f.Tally.writes() < writes {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d writes: %w", writes, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// ChurnCompacted replaces pods at a rate, as Churn does. Halfway etcd forgets all but what is, and is defragmented.
func (f *Fleet) ChurnCompacted(ctx context.Context, perSecond int, length time.Duration) func() ([]*Arrival, error) {
	return func() ([]*Arrival, error) {
		compacted := make(chan error, 1)
		go func() {
			select {
			case <-ctx.Done():
				compacted <- ctx.Err()
				return
			case <-time.After(length / 2):
			}
			_, err := f.api.Compact(ctx)
			if err == nil {
				err = f.api.Defragment(ctx)
			}
			compacted <- err
		}()
		out, err := f.Churn(ctx, perSecond, length)()
		if err != nil {
			return nil, err
		}
		return out, <-compacted
	}
}
