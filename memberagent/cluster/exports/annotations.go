// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// maxImportClusters is the most that an ImportScope can name.
const maxImportClusters = 1000

// maxShown is how much a message shows of an annotation, and of why it cannot be understood.
const maxShown = 100

// wishes are what the annotations of a ServiceExport ask for.
type wishes struct {
	mode                v1alpha1.ServiceMode
	scope               *v1alpha1.ImportScope
	labels, annotations map[string]string
	// ignored names the annotations that say nothing usable and without which the service is exported.
	ignored []error
}

// read returns the wishes of a ServiceExport. It is an error if they do not say who may import: to guess would
// be to show the service to clusters that were not meant.
func read(export *mcs.ServiceExport) (wishes, error) {
	out := wishes{labels: export.Spec.ExportedLabels, annotations: export.Spec.ExportedAnnotations}
	var err error
	if out.scope, err = scope(export.Annotations); err != nil {
		return wishes{}, err
	}
	if text, ok := export.Annotations[v1alpha1.AnnotationServiceMode]; ok {
		switch mode := v1alpha1.ServiceMode(text); mode {
		case v1alpha1.ServiceModeClusterSetIP, v1alpha1.ServiceModeClusterIP:
			out.mode = mode
		default:
			out.ignored = append(out.ignored, malformed(v1alpha1.AnnotationServiceMode, "ClusterSetIP or ClusterIP", text, nil))
		}
	}
	for _, x := range []struct {
		annotation string
		exported   *map[string]string
	}{
		{v1alpha1.AnnotationExportedLabels, &out.labels},
		{v1alpha1.AnnotationExportedAnnotations, &out.annotations},
	} {
		text := export.Annotations[x.annotation]
		if len(*x.exported) > 0 || text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), x.exported); err != nil {
			*x.exported = nil
			out.ignored = append(out.ignored, malformed(x.annotation, "a JSON object of strings", text, nil))
		}
	}
	return out, nil
}

// scope is nil where no annotation narrows who imports.
func scope(annotations map[string]string) (*v1alpha1.ImportScope, error) {
	names, named := annotations[v1alpha1.AnnotationImportClusters]
	selector, selects := annotations[v1alpha1.AnnotationImportSelector]
	if !named && !selects {
		return nil, nil
	}
	out := &v1alpha1.ImportScope{}
	var err error
	if named {
		if out.ClusterNames, err = clusterNames(names); err != nil {
			return nil, malformed(v1alpha1.AnnotationImportClusters, "names of clusters separated by commas", names, err)
		}
	}
	if selects {
		if out.ClusterSelector, err = clusterSelector(selector); err != nil {
			return nil, malformed(v1alpha1.AnnotationImportSelector, "a label selector as kubectl's -l takes it", selector, err)
		}
	}
	return out, nil
}

// clusterNames are sorted, each once. No name at all is nobody but the exporting cluster itself.
func clusterNames(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var out []string
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("%q is no name of a cluster", cut(name))
		}
		out = append(out, name)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > maxImportClusters {
		return nil, fmt.Errorf("%d names are more than %d; select by labels instead", len(out), maxImportClusters)
	}
	return out, nil
}

// clusterSelector reads kubectl's syntax. metav1.ParseToLabelSelector does not: it knows no !=, and of a=1,a=2,
// which selects nothing, it keeps a=2.
func clusterSelector(text string) (*metav1.LabelSelector, error) {
	requirements, err := labels.ParseToRequirements(text)
	if err != nil {
		return nil, err
	}
	if len(requirements) == 0 {
		return nil, errors.New("it is empty and would select every cluster; remove the annotation to mean that")
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

// malformed says what was expected, what was found and what to do.
func malformed(annotation, expected, found string, why error) error {
	if why != nil {
		return fmt.Errorf("the annotation %s should be %s and is %q: %s; correct or remove it", annotation, expected, cut(found), cut(why.Error()))
	}
	return fmt.Errorf("the annotation %s should be %s and is %q; correct or remove it", annotation, expected, cut(found))
}

func cut(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return text[:maxShown] + "…"
}
