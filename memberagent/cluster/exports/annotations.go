// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"encoding/json"
	"fmt"

	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/importscope"
)

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
	if why != nil {
		return fmt.Errorf("the annotation %s should be %s and is %q: %s; correct or remove it", annotation, expected, clip.Text(found, maxShown), clip.Text(why.Error(), maxShown))
	}
	return fmt.Errorf("the annotation %s should be %s and is %q; correct or remove it", annotation, expected, clip.Text(found, maxShown))
}
