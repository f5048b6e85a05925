// SPDX-License-Identifier: Apache-2.0

package propagation

import (
	"slices"

	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/util/names"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// kindCRD is the kind of the templates that a member needs before anything travels.
const kindCRD = "CustomResourceDefinition"

// WireBindings are the names of the ClusterResourceBindings of the CRDs that the wire needs.
func WireBindings() []string {
	return []string{
		names.GenerateBindingName(kindCRD, "peerings."+v1alpha1.GroupName),
		names.GenerateBindingName(kindCRD, "bundles."+v1alpha1.GroupName),
	}
}

// Applied says whether a cluster has applied what a binding carries.
func Applied(binding *workv1alpha2.ClusterResourceBinding, cluster string) bool {
	for _, item := range binding.Status.AggregatedStatus {
		if item.ClusterName == cluster {
			return item.Applied
		}
	}
	return false
}

// AppliedBy names the clusters that have applied what a binding carries, sorted.
func AppliedBy(binding *workv1alpha2.ClusterResourceBinding) []string {
	var clusters []string
	for _, item := range binding.Status.AggregatedStatus {
		if item.Applied {
			clusters = append(clusters, item.ClusterName)
		}
	}
	slices.Sort(clusters)
	return clusters
}
