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

// encodedImport is an import by its list of clusters, and how it is written.
type encodedImport struct {
	clusters       *v1alpha1.ImportCluster
	withheld, text bool
}

func newEncoder() *encoder { return &encoder{imports: map[encodedImport][]byte{}} }

// bundle returns a spec in the form that propagation.Encode has, for an agent that reads backends that are text or for
// one that does not.
func (e *encoder) bundle(spec *Bundle, text bool) ([]byte, error) {
	conditions, err := propagation.Encode(spec.ExportConditions)
	if err != nil {
		return nil, err
	}
	// Put together here, as encoding/json would look at each byte of the imports anew for each member.
	out := []byte{'{'}
	if spec.AnswerApart {
		out = append(out, `"answerApart":true,`...)
	}
	if spec.Deltas > 0 {
		out = fmt.Appendf(out, `"deltas":%d,`, spec.Deltas)
	}
	out = append(append(out, `"exportConditions":`...), conditions...)
	if len(spec.Halves) > 0 {
		halves, err := propagation.Encode(spec.Halves)
		if err != nil {
			return nil, err
		}
		out = append(append(out, `,"halves":`...), halves...)
	}
	out = append(out, `,"imports":[`...)
	for i, imported := range spec.Imports {
		raw, err := e.imported(imported, text)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, raw...)
	}
	out = fmt.Appendf(out, `],"revision":%d`, spec.Revision)
	if spec.Sequence > 0 {
		out = fmt.Appendf(out, `,"sequence":%d`, spec.Sequence)
	}
	return fmt.Appendf(out, `,"shard":%d}`, spec.Shard), nil
}

func (e *encoder) imported(i *v1alpha1.Import, text bool) ([]byte, error) {
	encode := func() ([]byte, error) {
		if text {
			return propagation.Encode(onWire(i))
		}
		return propagation.Encode(inObjects(onWire(i)))
	}
	if len(i.Clusters) == 0 {
		return encode()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := encodedImport{&i.Clusters[0], i.Withheld, text}
	raw, ok := e.imports[key]
	if !ok {
		var err error
		if raw, err = encode(); err != nil {
			return nil, err
		}
		e.imports[key] = raw
	}
	return raw, nil
}

// The types of an import in JSON without any text, which older agents read: the same but for the methods.
type (
	objectImport struct {
		*v1alpha1.Import
		Clusters []objectCluster `json:"clusters"`
	}
	objectCluster struct {
		*v1alpha1.ImportCluster
		Backends []objectBackends `json:"backends"`
	}
	objectBackends struct {
		Ports     []objectPort    `json:"ports"`
		Addresses []objectBackend `json:"addresses"`
	}
	objectPort    v1alpha1.BackendPort
	objectBackend v1alpha1.Backend
)

func inObjects(i *v1alpha1.Import) objectImport {
	out := objectImport{Import: i, Clusters: make([]objectCluster, len(i.Clusters))}
	for n := range i.Clusters {
		c := objectCluster{ImportCluster: &i.Clusters[n], Backends: make([]objectBackends, len(i.Clusters[n].Backends))}
		for k, from := range i.Clusters[n].Backends {
			to := objectBackends{make([]objectPort, len(from.Ports)), make([]objectBackend, len(from.Addresses))}
			for j, p := range from.Ports {
				to.Ports[j] = objectPort(p)
			}
			for j, b := range from.Addresses {
				to.Addresses[j] = objectBackend(b)
			}
			c.Backends[k] = to
		}
		out.Clusters[n] = c
	}
	return out
}
