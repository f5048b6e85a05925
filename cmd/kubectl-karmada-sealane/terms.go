// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// maxImporters is the most that an ImportScope can name.
const maxImporters = 1000

// terms of an export: its mode, and who imports it. They travel as annotations of the ServiceExport.
type terms struct {
	mode      string
	importers []string
	selector  string
	// given are the flags on the command line: what is not given stays as it is.
	given func(flag string) bool
}

// Flags of export that are terms.
const (
	flagMode      = "mode"
	flagImporters = "import-clusters"
	flagSelector  = "import-selector"
)

// annotations are those given, checked as far as that can be done without asking anybody.
func (t *terms) annotations() (map[string]string, error) {
	out := map[string]string{}
	if t.given(flagMode) {
		mode := v1alpha1.ServiceMode(t.mode)
		if mode != v1alpha1.ServiceModeClusterSetIP && mode != v1alpha1.ServiceModeClusterIP {
			return nil, &finding{
				expected: "--mode ClusterSetIP (one address per importing cluster) or ClusterIP (DNS answers the ClusterIP of one exporting cluster)",
				found:    fmt.Sprintf("%q", t.mode), remedy: "give one of them, or leave it to the ClusterSet",
			}
		}
		out[v1alpha1.AnnotationServiceMode] = t.mode
	}
	if t.given(flagImporters) {
		names, err := importers(t.importers)
		if err != nil {
			return nil, err
		}
		out[v1alpha1.AnnotationImportClusters] = list(names)
	}
	if t.given(flagSelector) {
		if _, err := importSelector(t.selector); err != nil {
			return nil, &finding{
				expected: "--import-selector to be a label selector as kubectl's -l takes it, such as env=prod,region!=eu",
				found:    fmt.Sprintf("%q: %v", t.selector, err), remedy: "correct it, or leave it out to have every member import",
			}
		}
		out[v1alpha1.AnnotationImportSelector] = t.selector
	}
	return out, nil
}

// importers are sorted, each once. No name means nobody but the exporting clusters themselves.
func importers(names []string) ([]string, error) {
	out := []string{}
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return nil, &finding{
				expected: "--import-clusters to list names of clusters, separated by commas",
				found:    fmt.Sprintf("%q: %s", name, problems[0]), remedy: "check the name",
			}
		}
		out = append(out, name)
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) > maxImporters {
		return nil, &finding{
			expected: fmt.Sprintf("--import-clusters to list at most %d clusters", maxImporters),
			found:    fmt.Sprintf("%d", len(out)), remedy: "select them by their labels: --import-selector",
		}
	}
	return out, nil
}

// importSelector parses the syntax of kubectl's -l. An empty one, which would select every cluster, and
// comparisons of numbers, which a LabelSelector lacks, are refused.
func importSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, err
	}
	requirements, _ := selector.Requirements()
	if len(requirements) == 0 {
		return nil, errors.New("it is empty")
	}
	for _, r := range requirements {
		if op := r.Operator(); op == selection.GreaterThan || op == selection.LessThan {
			return nil, fmt.Errorf("%s does not work for clusters", op)
		}
	}
	return selector, nil
}

func (e *export) note(format string, args ...any) {
	fmt.Fprintf(e.ErrOut, "note: "+format+"\n", args...)
}

// told says in words what was asked for. The verb is "exported", or "to be exported" of what was not waited for.
func (e *export) told(verb string, annotations map[string]string) string {
	who := "every member that has the Service"
	switch {
	case e.member != "":
		who = "the cluster of context " + e.member
	case len(e.clusters) > 0:
		who = strings.Join(e.clusters, ", ")
	}
	text := fmt.Sprintf("%s in %s is %s by %s", e.service, e.namespace, verb, who)
	if mode := annotations[v1alpha1.AnnotationServiceMode]; mode != "" {
		text += ", in mode " + mode
	}
	names, named := annotations[v1alpha1.AnnotationImportClusters]
	selector, selects := annotations[v1alpha1.AnnotationImportSelector]
	var by []string
	if names != "" {
		by = append(by, strings.ReplaceAll(names, ",", ", "))
	}
	if selects {
		by = append(by, "clusters with "+selector)
	}
	switch {
	case len(by) > 0:
		text += ", and imported by " + strings.Join(by, " and ") + " besides"
	case named:
		text += ", and imported by nobody else"
	default:
		text += ", and imported by every member"
	}
	return text + ".\nHow far it has come, and what is in its way: " + e.invocation + " show services -n " + e.namespace
}
