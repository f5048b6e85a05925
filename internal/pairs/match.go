// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"slices"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Matches says whether a selector that settings.Validate has nothing to say against selects a cluster, as it does in
// Karmada's policies (util.ClusterMatches, which brings 50 packages with it). Another selects nobody.
func Matches(cluster *clusterv1alpha1.Cluster, selector policyv1alpha1.ClusterAffinity) bool {
	if slices.Contains(selector.ExcludeClusters, cluster.Name) ||
		len(selector.ClusterNames) > 0 && !slices.Contains(selector.ClusterNames, cluster.Name) {
		return false
	}
	if selector.LabelSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(selector.LabelSelector)
		if err != nil || !s.Matches(labels.Set(cluster.Labels)) {
			return false
		}
	}
	if selector.FieldSelector == nil {
		return true
	}
	return !slices.ContainsFunc(selector.FieldSelector.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
		return !matchesField(cluster, e)
	})
}

// matchesField judges one requirement of the fields provider, region and zone; the last has several values, all of
// which have to be among those that are asked for.
func matchesField(cluster *clusterv1alpha1.Cluster, e corev1.NodeSelectorRequirement) bool {
	var values []string
	switch e.Key {
	case "zone":
		values = cluster.Spec.Zones
	case "provider":
		values = nonEmpty(cluster.Spec.Provider)
	case "region":
		values = nonEmpty(cluster.Spec.Region)
	default:
		return false
	}
	asked := func(value string) bool { return slices.Contains(e.Values, value) }
	switch e.Operator {
	case corev1.NodeSelectorOpIn:
		return len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return !asked(v) })
	case corev1.NodeSelectorOpNotIn:
		return !slices.ContainsFunc(values, asked)
	case corev1.NodeSelectorOpExists:
		return len(values) > 0
	case corev1.NodeSelectorOpDoesNotExist:
		return len(values) == 0
	}
	return false
}

func nonEmpty(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}
