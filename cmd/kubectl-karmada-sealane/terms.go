// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/importscope"
)

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
				expected: "--mode ClusterSetIP (one address per importing cluster) or ClusterIP (DNS answers the ClusterIP of " +
					"one exporting cluster)",
				found: fmt.Sprintf("%q", t.mode), remedy: "give one of them, or leave it to the ClusterSet",
			}
		}
		out[v1alpha1.AnnotationServiceMode] = t.mode
	}
	if t.given(flagImporters) {
		names, err := importscope.Names(t.importers)
		if err != nil {
			return nil, &finding{
				expected: "--import-clusters to list names of clusters, separated by commas",
				found:    err.Error(), remedy: "check the names",
			}
		}
		out[v1alpha1.AnnotationImportClusters] = list(names)
	}
	if t.given(flagSelector) {
		if _, err := importscope.Selector(t.selector); err != nil {
			return nil, &finding{
				expected: "--import-selector to be a label selector as kubectl's -l takes it, such as env=prod,region!=eu",
				found:    fmt.Sprintf("%q: %v", t.selector, err), remedy: "correct it, or leave it out to have every member import",
			}
		}
		out[v1alpha1.AnnotationImportSelector] = t.selector
	}
	return out, nil
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
