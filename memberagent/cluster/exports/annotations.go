// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/exportmeta"
	"github.com/sealane-io/sealane/internal/importscope"
)

// maxShown is how much a message shows of an annotation, and of why it cannot be understood.
const maxShown = 100

// options are what the spec and the annotations of a ServiceExport set. What is malformed is left out, alone.
type options struct {
	mode v1alpha1.ServiceMode
	// scope is nil where nothing narrows who imports. It means nothing where scopeMalformed.
	scope *v1alpha1.ImportScope
	// scopeMalformed says that an annotation narrows who imports, and cannot be understood.
	scopeMalformed bool
	// labels and annotations to export. Which of them pass is the broker's decision, see package exportmeta.
	labels, annotations map[string]string
	// malformed says what is left out and why.
	malformed []string
}

// read returns the options of a ServiceExport.
func read(export *mcs.ServiceExport) options {
	out := options{labels: export.Spec.ExportedLabels, annotations: export.Spec.ExportedAnnotations}
	var err error
	if out.scope, err = scope(export.Annotations); err != nil {
		out.scopeMalformed = true
		out.malformed = append(out.malformed, err.Error()+". Until then who could import still can, "+
			"and of an export that is new only this cluster")
	}
	if text, ok := export.Annotations[v1alpha1.AnnotationServiceMode]; ok {
		switch mode := v1alpha1.ServiceMode(text); mode {
		case v1alpha1.ServiceModeClusterSetIP, v1alpha1.ServiceModeClusterIP:
			out.mode = mode
		default:
			err := malformed(v1alpha1.AnnotationServiceMode, "ClusterSetIP or ClusterIP", text, nil)
			out.malformed = append(out.malformed, err.Error())
		}
	}
	for _, x := range []struct {
		annotation, what string
		exported         *map[string]string
	}{
		{v1alpha1.AnnotationExportedLabels, "label", &out.labels},
		{v1alpha1.AnnotationExportedAnnotations, "annotation", &out.annotations},
	} {
		text := export.Annotations[x.annotation]
		if len(*x.exported) > 0 || text == "" {
			continue
		}
		var dropped []exportmeta.Dropped
		var err error
		if *x.exported, dropped, err = parseStrings(text); err != nil {
			err = malformed(x.annotation, "a JSON object of strings", text, err)
			out.malformed = append(out.malformed, err.Error())
		} else if len(dropped) > 0 {
			out.malformed = append(out.malformed, "of the annotation "+x.annotation+" the "+exportmeta.Text(x.what, dropped))
		}
	}
	return out
}

// parseStrings reads a JSON object. Members that are no strings are dropped, and cost the others nothing.
func parseStrings(text string) (map[string]string, []exportmeta.Dropped, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return nil, nil, fmt.Errorf("parse JSON: %w", err)
	}
	out := make(map[string]string, len(members))
	var dropped []exportmeta.Dropped
	for _, key := range slices.Sorted(maps.Keys(members)) {
		var value *string
		if err := json.Unmarshal(members[key], &value); err != nil || value == nil {
			dropped = append(dropped, exportmeta.Dropped{Key: key, Why: "is no string"})
			continue
		}
		out[key] = *value
	}
	return out, dropped, nil
}

// importScope returns who may import. Where the annotations do not say it, that is who could by the export's last
// report, which is nil where it was in none: then only the exporting cluster itself. Nobody is shown a service that
// was not meant for it, and nobody who uses it loses it.
func (o *options) importScope(last *v1alpha1.Export) *v1alpha1.ImportScope {
	switch {
	case !o.scopeMalformed:
		return o.scope
	case last != nil:
		return last.Scope.DeepCopy()
	}
	return &v1alpha1.ImportScope{}
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
		if out.ClusterNames, err = importscope.ClusterNames(names); err != nil {
			return nil, malformed(v1alpha1.AnnotationImportClusters, "names of clusters separated by commas", names, err)
		}
	}
	if selects {
		if out.ClusterSelector, err = importscope.Selector(selector); err != nil {
			return nil, malformed(v1alpha1.AnnotationImportSelector, "a label selector as kubectl's -l takes it", selector, err)
		}
	}
	return out, nil
}

// malformed says what was expected, what was found and what to do.
func malformed(annotation, expected, found string, why error) error {
	found = clip.Text(found, maxShown)
	if why != nil {
		return fmt.Errorf("the annotation %s should be %s and is %q: %s; correct or remove it",
			annotation, expected, found, clip.Text(why.Error(), maxShown))
	}
	return fmt.Errorf("the annotation %s should be %s and is %q; correct or remove it", annotation, expected, found)
}
