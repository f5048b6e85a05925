// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

type join struct {
	*options
	clusters   []string
	clusterSet string
	wait       bool
}

func newJoin(o *options) *cobra.Command {
	j := &join{options: o}
	cmd := &cobra.Command{
		Use:   "join " + clusterArguments,
		Short: "Make clusters of Karmada members of a ClusterSet",
		Long: `Make clusters of Karmada members of a ClusterSet by editing its cluster names, and wait until they are
connected and resolve the clusterset's names through their own cluster DNS. Where the ClusterSet selects
by label, say which label to set instead.`,
		Example: "  " + o.invocation + " join c3",
		RunE: func(cmd *cobra.Command, args []string) error {
			j.clusters = append(j.clusters, args...)
			return j.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&j.clusters, "clusters", "C", nil, "clusters, besides those given as arguments")
	f.StringVar(&j.clusterSet, "clusterset", defaultClusterSet, "name of the ClusterSet")
	f.BoolVar(&j.wait, "wait", true, "wait until they are connected")
	return cmd
}

func (j *join) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	p := newProgress(j.ErrOut)
	karmada, err := j.karmada()
	if err != nil {
		return err
	}
	if err := j.installed(ctx, karmada); err != nil {
		return err
	}
	clusters, err := j.karmadaClusters(ctx, karmada)
	if err != nil {
		return err
	}
	if err := named(j.clusters); err != nil {
		return err
	}
	if err := chosen(j.clusters, clusters); err != nil {
		return err
	}
	changed, err := karmada.editAffinity(ctx, j.clusterSet, j.clusters, labelsOf(clusters), admit)
	if err != nil {
		return err
	}
	if changed {
		p.say("ClusterSet %s: added %s", j.clusterSet, strings.Join(j.clusters, ", "))
	} else {
		p.say("ClusterSet %s already has %s", j.clusterSet, strings.Join(j.clusters, ", "))
	}
	if !j.wait {
		return nil
	}
	return j.waitConnected(ctx, karmada, p, j.clusterSet, j.clusters)
}

func named(clusters []string) error {
	if len(clusters) > 0 {
		return nil
	}
	return &finding{expected: "the name of a cluster", found: "none", remedy: "give names as arguments, or with -C c1,c2"}
}

func labelsOf(clusters []clusterv1alpha1.Cluster) map[string]map[string]string {
	all := map[string]map[string]string{}
	for i := range clusters {
		all[clusters[i].Name] = clusters[i].Labels
	}
	return all
}

// edit is admit or dismiss.
type edit func(a policyv1alpha1.ClusterAffinity, cluster string,
	labels map[string]string) (policyv1alpha1.ClusterAffinity, error)

// editAffinity changes which clusters a ClusterSet selects; it reports whether anything changed.
func (a *api) editAffinity(ctx context.Context, set string, clusters []string, labels map[string]map[string]string,
	change edit) (bool, error) {
	changed := false
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var cs v1alpha1.ClusterSet
		if err := a.Get(ctx, client.ObjectKey{Name: set}, &cs); err != nil {
			return a.explainClusterSet(ctx, set, err)
		}
		affinity := cs.Spec.ClusterAffinity
		for _, cluster := range clusters {
			var err error
			if affinity, err = change(affinity, cluster, labels[cluster]); err != nil {
				return err
			}
		}
		changed = !equality.Semantic.DeepEqual(affinity, cs.Spec.ClusterAffinity)
		if !changed {
			return nil
		}
		cs.Spec.ClusterAffinity = affinity
		return a.Update(ctx, &cs, client.FieldOwner(fieldManager))
	})
	return changed, err
}

// explainClusterSet names the ClusterSets that exist when the one asked for does not.
func (a *api) explainClusterSet(ctx context.Context, set string, err error) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get ClusterSet %s: %w", set, err)
	}
	var list v1alpha1.ClusterSetList
	if err := a.List(ctx, &list); err != nil {
		return fmt.Errorf("list clustersets: %w", err)
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return &finding{
		expected: fmt.Sprintf("a ClusterSet %q", set),
		found:    "ClusterSets: [" + strings.Join(names, ", ") + "]",
		remedy:   "name one with --clusterset, or create it with install",
	}
}
