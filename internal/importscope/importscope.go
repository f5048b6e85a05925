// SPDX-License-Identifier: Apache-2.0

// Package importscope reads who may import a service from the annotations of its ServiceExport. The plugin checks what
// it writes with it, and the cluster agent what it finds. It is pure.
package importscope

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/internal/clip"
)

// MaxClusters is the most that a scope can name; it is the limit of the CRD.
const MaxClusters = 1000

// ClusterNames parses names separated by commas. No name at all is nobody but the exporting cluster itself.
func ClusterNames(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var names []string
	for name := range strings.SplitSeq(text, ",") {
		names = append(names, strings.TrimSpace(name))
	}
	return Names(names)
}

// Names returns names of clusters sorted, each once.
func Names(names []string) ([]string, error) {
	out := slices.Clone(names)
	for _, name := range out {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("%s is no name of a cluster", clip.Quote(name))
		}
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) > MaxClusters {
		return nil, fmt.Errorf("%d names are more than %d; select by labels instead", len(out), MaxClusters)
	}
	return out, nil
}

// Selector parses the syntax of kubectl's -l. metav1.ParseToLabelSelector does not: it knows no !=, and of a=1,a=2,
// which selects nothing, it keeps a=2. Refused are an empty selector, which would select every cluster, and
// comparisons of numbers, which a LabelSelector lacks.
func Selector(text string) (*metav1.LabelSelector, error) {
	requirements, err := labels.ParseToRequirements(text)
	if err != nil {
		return nil, fmt.Errorf("parse the selector: %w", err)
	}
	if len(requirements) == 0 {
		return nil, errors.New("it is empty and would select every cluster; leave it out to mean that")
	}
	out := &metav1.LabelSelector{}
	for _, r := range requirements {
		e := metav1.LabelSelectorRequirement{Key: r.Key(), Values: r.ValuesUnsorted()}
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			e.Operator = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			e.Operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			e.Operator = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			e.Operator = metav1.LabelSelectorOpDoesNotExist
		case selection.GreaterThan, selection.LessThan:
			return nil, fmt.Errorf("%s does not work for clusters", r.Operator())
		}
		slices.Sort(e.Values)
		out.MatchExpressions = append(out.MatchExpressions, e)
	}
	return out, nil
}
