// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// own remembers the UIDs of ServiceImports and EndpointSlices that were Sealane's when last seen, so that one from
// which somebody removes every label is restored, and not taken for somebody else's.
type own struct {
	mu      sync.Mutex
	imports map[types.NamespacedName]types.UID
	slices  map[types.NamespacedName]types.UID
}

// serviceImport says whether a ServiceImport, which is nil when there is none, is Sealane's.
func (o *own) serviceImport(key types.NamespacedName, imported *mcs.ServiceImport) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case imported == nil:
		delete(o.imports, key)
		return false
	case v1alpha1.OwnsServiceImport(imported):
		if o.imports == nil {
			o.imports = map[types.NamespacedName]types.UID{}
		}
		o.imports[key] = imported.UID
		return true
	}
	return !v1alpha1.Propagated(imported) && o.imports[key] == imported.UID
}

// remember an EndpointSlice of Sealane's.
func (o *own) remember(s *discoveryv1.EndpointSlice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.slices == nil {
		o.slices = map[types.NamespacedName]types.UID{}
	}
	o.slices[client.ObjectKeyFromObject(s)] = s.UID
}

// slice says whether an EndpointSlice was Sealane's when last seen.
func (o *own) slice(s *discoveryv1.EndpointSlice) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.slices[client.ObjectKeyFromObject(s)] == s.UID
}

// forget an EndpointSlice that is deleted.
func (o *own) forget(s client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.slices, client.ObjectKeyFromObject(s))
}
