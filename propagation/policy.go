// SPDX-License-Identifier: Apache-2.0

package propagation

import (
	"fmt"
	"slices"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// PolicyName is the ClusterPropagationPolicy of the workloads.
	PolicyName = "sealane"
	// CRDPolicyName is that of the CRDs, which stay in a member that leaves: an informer of Karmada
	// whose CRD was removed backs off, and a cluster that joins again would wait for it.
	CRDPolicyName = "sealane-crds"
	// noCluster stands in an affinity that is to match nothing: an empty one matches everything.
	noCluster = "sealane-no-cluster"
)

// Policies returns the policies that spread the templates to exactly these clusters. keepCRDs says
// whether a cluster that is taken out keeps the CRDs.
func Policies(templates []*unstructured.Unstructured, clusters []string, keepCRDs bool) ([]*unstructured.Unstructured, error) {
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
	var policies []*unstructured.Unstructured
	for _, p := range []*policyv1alpha1.ClusterPropagationPolicy{
		policy(CRDPolicyName, crds, clusters, keepCRDs),
		policy(PolicyName, workloads, clusters, false),
	} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			return nil, fmt.Errorf("encode policy %s: %w", p.Name, err)
		}
		u := &unstructured.Unstructured{Object: fields}
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		if err := setHash(u); err != nil {
			return nil, err
		}
		policies = append(policies, u)
	}
	return policies, nil
}

func policy(name string, selectors []policyv1alpha1.ResourceSelector, clusters []string, preserve bool) *policyv1alpha1.ClusterPropagationPolicy {
	clusters = slices.Sorted(slices.Values(clusters))
	if len(clusters) == 0 {
		clusters = []string{noCluster}
	}
	return &policyv1alpha1.ClusterPropagationPolicy{
		TypeMeta: metav1.TypeMeta{
			APIVersion: policyv1alpha1.GroupVersion.String(),
			Kind:       policyv1alpha1.ResourceKindClusterPropagationPolicy,
		},
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{LabelManagedBy: v1alpha1.ManagedBy},
		},
		Spec: policyv1alpha1.PropagationSpec{
			ResourceSelectors: selectors,
			// A template that was taken over from elsewhere, or is there already, is ours now.
			ConflictResolution:          policyv1alpha1.ConflictOverwrite,
			PreserveResourcesOnDeletion: ptr.To(preserve),
			Placement: policyv1alpha1.Placement{
				ClusterAffinity: &policyv1alpha1.ClusterAffinity{ClusterNames: clusters},
				// A cluster that is not ready or tainted keeps its network.
				ClusterTolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			},
		},
	}
}
