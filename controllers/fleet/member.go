// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Released says that a leaving member needs to be told nothing any more: it has answered that its nodes are
// clean, or is not waited for. From then on its Works go, and none is written again.
func Released(m *v1alpha1.Member) bool {
	return m.Spec.Phase == v1alpha1.MemberLeaving &&
		(meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.MemberCleaned) ||
			m.Annotations[v1alpha1.AnnotationForceLeave] == "true")
}

// Lost says whether Karmada has found that it does not reach a cluster, or has none of that name.
func Lost(c *clusterv1alpha1.Cluster) bool {
	if c == nil {
		return true
	}
	ready := meta.FindStatusCondition(c.Status.Conditions, clusterv1alpha1.ClusterConditionReady)
	return ready != nil && ready.Status != "True"
}

// ServesExports says whether a cluster serves ServiceExport, as far as Karmada knows.
func ServesExports(c *clusterv1alpha1.Cluster) bool {
	for _, e := range c.Status.APIEnablements {
		if e.GroupVersion != "multicluster.x-k8s.io/v1alpha1" && e.GroupVersion != "multicluster.x-k8s.io/v1beta1" {
			continue
		}
		for _, r := range e.Resources {
			if r.Kind == "ServiceExport" {
				return true
			}
		}
	}
	return false
}
