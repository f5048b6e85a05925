// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"fmt"

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

	labelManagedBy = "app.kubernetes.io/managed-by"
)

// Policies returns the policies that propagate the templates to the clusters that carry the label
// v1alpha1.LabelMember. They are the same whoever the members are, so that an administrator applies them once
// and the controller, which sets the label, needs no right to write them.
func Policies(templates []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
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
		policy(CRDPolicyName, crds, true),
		policy(PolicyName, workloads, false),
	} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			return nil, fmt.Errorf("encode policy %s: %w", p.Name, err)
		}
		u := &unstructured.Unstructured{Object: fields}
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		policies = append(policies, u)
	}
	return policies, nil
}

func policy(name string, selectors []policyv1alpha1.ResourceSelector,
	preserve bool) *policyv1alpha1.ClusterPropagationPolicy {
	return &policyv1alpha1.ClusterPropagationPolicy{
		TypeMeta: metav1.TypeMeta{
			APIVersion: policyv1alpha1.GroupVersion.String(),
			Kind:       policyv1alpha1.ResourceKindClusterPropagationPolicy,
		},
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
				ClusterAffinity: &policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{
						{Key: v1alpha1.LabelMember, Operator: metav1.LabelSelectorOpExists},
					},
				}},
				// A cluster that is not ready or tainted keeps its network.
				ClusterTolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			},
		},
	}
}
