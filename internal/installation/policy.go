// SPDX-License-Identifier: Apache-2.0

package installation

import (
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// PolicyName is the ClusterPropagationPolicy of the workloads.
	PolicyName = "sealane"
	// CRDPolicyName is that of the CRDs, which stay in a member that leaves: an informer of Karmada
	// whose CRD was removed backs off, and a cluster that joins again would wait for it.
	CRDPolicyName = "sealane-crds"

	labelManagedBy = "app.kubernetes.io/managed-by"
)

// NoCluster stands first in the clusterNames of the policies, as an empty list selects every cluster. No Karmada
// Cluster can have this name: theirs are labels of DNS (RFC 1123).
const NoCluster = "no.cluster"

// Policies returns the policies that propagate the templates to the clusters named.
func Policies(templates []*unstructured.Unstructured, clusters []string) []*policyv1alpha1.ClusterPropagationPolicy {
	var crds, workloads []policyv1alpha1.ResourceSelector
	for _, t := range templates {
		s := policyv1alpha1.ResourceSelector{
			APIVersion: t.GetAPIVersion(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName(),
		}
		if t.GetKind() == KindCRD {
			crds = append(crds, s)
		} else {
			workloads = append(workloads, s)
		}
	}
	return []*policyv1alpha1.ClusterPropagationPolicy{
		policy(CRDPolicyName, crds, clusters, true),
		policy(PolicyName, workloads, clusters, false),
	}
}

func policy(name string, selectors []policyv1alpha1.ResourceSelector, clusters []string,
	preserve bool) *policyv1alpha1.ClusterPropagationPolicy {
	return &policyv1alpha1.ClusterPropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{labelManagedBy: v1alpha1.ManagedBy},
		},
		Spec: policyv1alpha1.PropagationSpec{
			ResourceSelectors: selectors,
			// A template that was taken over from elsewhere, or is there already, is ours now.
			ConflictResolution:          policyv1alpha1.ConflictOverwrite,
			PreserveResourcesOnDeletion: ptr.To(preserve),
			Placement: policyv1alpha1.Placement{
				ClusterAffinity: &policyv1alpha1.ClusterAffinity{ClusterNames: append([]string{NoCluster}, clusters...)},
				// A cluster that is not ready or tainted keeps its network.
				ClusterTolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			},
		},
	}
}
