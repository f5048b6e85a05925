// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"slices"
	"strings"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// checkSelectors says which selectors of clusters cannot be used. Such a one selects nobody without a word: members
// would leave, and a pair that is to be encrypted would be no exception any more.
func checkSelectors(spec v1alpha1.ClusterSetSpec) []error {
	errs := checkSelector("clusterAffinity", spec.ClusterAffinity)
	for i, c := range spec.Cables {
		for _, selector := range c.Clusters {
			errs = append(errs, checkSelector(fmt.Sprintf("cables[%d].clusters", i), selector)...)
		}
	}
	for i, r := range spec.Relays {
		for _, selector := range r.Clusters {
			errs = append(errs, checkSelector(fmt.Sprintf("relays[%d].clusters", i), selector)...)
		}
	}
	return errs
}

// fields of a Cluster that selectors know, and the operators that these take there.
var (
	fields    = []string{"provider", "region", "zone"}
	operators = map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
		corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
)

func checkSelector(path string, selector policyv1alpha1.ClusterAffinity) []error {
	var errs []error
	if _, err := metav1.LabelSelectorAsSelector(selector.LabelSelector); err != nil {
		errs = append(errs, fmt.Errorf("%s: labelSelector: %w", path, err))
	}
	if selector.FieldSelector == nil {
		return errs
	}
	for _, e := range selector.FieldSelector.MatchExpressions {
		operator, known := operators[e.Operator]
		switch {
		case !slices.Contains(fields, e.Key):
			errs = append(errs, fmt.Errorf("%s: fieldSelector: key %s is no field of a cluster: expected %s", path,
				clip.Quote(e.Key), strings.Join(fields, ", ")))
			continue
		case !known:
			errs = append(errs, fmt.Errorf("%s: fieldSelector: operator %s: expected In, NotIn, Exists or DoesNotExist", path,
				clip.Quote(string(e.Operator))))
			continue
		}
		if _, err := labels.NewRequirement(e.Key, operator, e.Values); err != nil {
			errs = append(errs, fmt.Errorf("%s: fieldSelector: %w", path, err))
		}
	}
	return errs
}
