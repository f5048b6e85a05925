// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sort"
	"strings"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util/names"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/installation"
)

// reclaimCRDs makes Karmada own the CRDs again in every cluster that still serves them, so that deleting
// the templates deletes them there: a cluster that left kept them. What was installed may be older than this
// command and have fewer templates, and after a roll-back there may be one that the policy of the older version
// does not select.
func (u *uninstall) reclaimCRDs(ctx context.Context, karmada *api, templates []*unstructured.Unstructured,
	p *progress) error {
	clusters, err := u.karmadaClusters(ctx, karmada)
	if err != nil {
		return err
	}
	serving := servingClusters(clusters, p)
	if len(serving) == 0 {
		return nil
	}
	var policy policyv1alpha1.ClusterPropagationPolicy
	err = karmada.Get(ctx, client.ObjectKey{Name: installation.CRDPolicyName}, &policy)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get clusterpropagationpolicy %s: %w", installation.CRDPolicyName, err)
	}
	if templates, err = karmada.existing(ctx, templates); err != nil {
		return err
	}
	base := policy.DeepCopy()
	policy.Spec.ResourceSelectors = installation.Policies(templates, nil)[0].Spec.ResourceSelectors
	policy.Spec.PreserveResourcesOnDeletion = ptr.To(false)
	policy.Spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: serving}
	if err := karmada.Patch(ctx, &policy, client.MergeFrom(base), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("update clusterpropagationpolicy %s: %w", installation.CRDPolicyName, err)
	}
	var waiting []string
	err = until(ctx, func(ctx context.Context) (bool, error) {
		waiting = waiting[:0]
		for _, cluster := range serving {
			owned, err := karmada.ownsCRDs(ctx, cluster, templates)
			if err != nil {
				return false, err
			}
			if !owned {
				waiting = append(waiting, cluster)
			}
		}
		return len(waiting) == 0, nil
	})
	if err != nil {
		return &finding{
			expected: "Karmada to take over the CRDs that earlier members kept",
			found:    fmt.Sprintf("not yet in %s (%v)", strings.Join(waiting, ", "), err),
			remedy:   "see that Karmada reaches these clusters, and run uninstall again",
		}
	}
	return nil
}

// existing returns the objects that there are.
func (a *api) existing(ctx context.Context,
	objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, o := range objects {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(o.GroupVersionKind())
		err := a.Get(ctx, client.ObjectKeyFromObject(o), found)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		out = append(out, o)
	}
	return out, nil
}

// servingClusters are those that Karmada reaches and that serve our kinds, as it last saw.
func servingClusters(clusters []clusterv1alpha1.Cluster, p *progress) []string {
	var serving []string
	for i := range clusters {
		c := &clusters[i]
		for _, enablement := range c.Status.APIEnablements {
			if enablement.GroupVersion != v1alpha1.GroupVersion.String() {
				continue
			}
			if clusterReady(c) {
				serving = append(serving, c.Name)
			} else {
				p.warn("%s is not ready: its CRDs stay; clean it later with uninstall --context", c.Name)
			}
		}
	}
	sort.Strings(serving)
	return serving
}

// ownsCRDs says whether Karmada applied every CRD to a cluster and will delete it there with its Work.
func (a *api) ownsCRDs(ctx context.Context, cluster string, templates []*unstructured.Unstructured) (bool, error) {
	for _, template := range templates {
		var work workv1alpha1.Work
		key := client.ObjectKey{
			Namespace: names.GenerateExecutionSpaceName(cluster),
			Name:      names.GenerateWorkName(template.GetKind(), template.GetName(), ""),
		}
		err := a.Get(ctx, key, &work)
		if gone(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("get work %s: %w", key, err)
		}
		if ptr.Deref(work.Spec.PreserveResourcesOnDeletion, false) ||
			!meta.IsStatusConditionTrue(work.Status.Conditions, workv1alpha1.WorkApplied) {
			return false, nil
		}
	}
	return true, nil
}
