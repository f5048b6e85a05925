// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"sync"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// encoder encodes the Bundles of one decision. Members share imports, each of which is encoded once: it is known again
// by its list of clusters, as in a comparison.
type encoder struct {
	mu      sync.Mutex
	imports map[encodedImport][]byte
}

// encodedImport is an import by its list of clusters.
type encodedImport struct {
	clusters *v1alpha1.ImportCluster
	withheld bool
}

func newEncoder() *encoder { return &encoder{imports: map[encodedImport][]byte{}} }

// bundle returns a spec in the form that propagation.Encode has.
func (e *encoder) bundle(spec *v1alpha1.BundleSpec) ([]byte, error) {
	conditions, err := propagation.Encode(spec.ExportConditions)
	if err != nil {
		return nil, err
	}
	// Put together here, as encoding/json would look at each byte of the imports anew for each member.
	out := append([]byte(`{"exportConditions":`), conditions...)
	if len(spec.Halves) > 0 {
		halves, err := propagation.Encode(spec.Halves)
		if err != nil {
			return nil, err
		}
		out = append(append(out, `,"halves":`...), halves...)
	}
	out = append(out, `,"imports":[`...)
	for i := range spec.Imports {
		raw, err := e.imported(&spec.Imports[i])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, raw...)
	}
	return fmt.Appendf(out, `],"revision":%d,"shard":%d}`, spec.Revision, spec.Shard), nil
}

func (e *encoder) imported(i *v1alpha1.Import) ([]byte, error) {
	if len(i.Clusters) == 0 {
		return propagation.Encode(onWire(i))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := encodedImport{&i.Clusters[0], i.Withheld}
	raw, ok := e.imports[key]
	if !ok {
		var err error
		if raw, err = propagation.Encode(onWire(i)); err != nil {
			return nil, err
		}
		e.imports[key] = raw
	}
	return raw, nil
}
