// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// admit returns the affinity that also selects the cluster. Karmada combines all parts of an affinity:
// names, labels and fields must each match, and exclusion wins. Where labels or fields stand in the way,
// the error says what to set on the cluster instead.
func admit(a policyv1alpha1.ClusterAffinity, name string,
	clusterLabels map[string]string) (policyv1alpha1.ClusterAffinity, error) {
	matches, err := selects(a.LabelSelector, clusterLabels)
	if err != nil {
		return a, err
	}
	if !matches {
		return a, &finding{
			expected: fmt.Sprintf("cluster %s to match the label selector of the ClusterSet", name),
			found: fmt.Sprintf("it selects %q, and the cluster has %q", metav1.FormatLabelSelector(a.LabelSelector),
				labels.Set(clusterLabels).String()),
			remedy: fmt.Sprintf("label it on the Karmada API: kubectl label cluster %s %s", name,
				labelsToSet(a.LabelSelector)),
		}
	}
	a = *a.DeepCopy()
	a.ExcludeClusters = without(a.ExcludeClusters, name)
	if len(a.ClusterNames) > 0 && !slices.Contains(a.ClusterNames, name) {
		a.ClusterNames = append(a.ClusterNames, name)
		sort.Strings(a.ClusterNames)
	}
	return a, nil
}

// dismiss returns the affinity that no longer selects the cluster. A cluster is taken from the names
// where there are any; the last name stays, excluded, because no names at all would mean every cluster.
func dismiss(a policyv1alpha1.ClusterAffinity, name string,
	clusterLabels map[string]string) (policyv1alpha1.ClusterAffinity, error) {
	named := slices.Contains(a.ClusterNames, name)
	if slices.Contains(a.ExcludeClusters, name) || len(a.ClusterNames) > 0 && !named {
		return a, nil
	}
	if !named && !emptySelector(a.LabelSelector) {
		matches, err := selects(a.LabelSelector, clusterLabels)
		if err != nil || !matches {
			return a, err
		}
		return a, &finding{
			expected: "the ClusterSet to select clusters by name, or all",
			found: fmt.Sprintf("it selects by label, %q, which cluster %s has",
				metav1.FormatLabelSelector(a.LabelSelector), name),
			remedy: fmt.Sprintf("take the label from it on the Karmada API: kubectl label cluster %s %s", name,
				labelsToClear(a.LabelSelector)),
		}
	}
	a = *a.DeepCopy()
	if rest := without(a.ClusterNames, name); len(rest) > 0 {
		a.ClusterNames = rest
		return a, nil
	}
	a.ExcludeClusters = append(a.ExcludeClusters, name)
	sort.Strings(a.ExcludeClusters)
	return a, nil
}

func emptySelector(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

func selects(s *metav1.LabelSelector, clusterLabels map[string]string) (bool, error) {
	if emptySelector(s) {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false, fmt.Errorf("label selector of the ClusterSet: %w", err)
	}
	return selector.Matches(labels.Set(clusterLabels)), nil
}

// labelsToSet are the arguments of kubectl label that make a cluster match.
func labelsToSet(s *metav1.LabelSelector) string {
	var args []string
	for key, value := range s.MatchLabels {
		args = append(args, key+"="+value)
	}
	for _, e := range s.MatchExpressions {
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			args = append(args, e.Key+"="+e.Values[0])
		case metav1.LabelSelectorOpExists:
			args = append(args, e.Key+"=true")
		case metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpDoesNotExist:
			args = append(args, e.Key+"-")
		}
	}
	sort.Strings(args)
	return strings.Join(args, " ") + " --overwrite"
}

// labelsToClear are the arguments of kubectl label that end a match.
func labelsToClear(s *metav1.LabelSelector) string {
	keys := make([]string, 0, len(s.MatchLabels))
	for key := range s.MatchLabels {
		keys = append(keys, key+"-")
	}
	for _, e := range s.MatchExpressions {
		if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpExists {
			keys = append(keys, e.Key+"-")
		}
	}
	sort.Strings(keys)
	return strings.Join(slices.Compact(keys), " ")
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
