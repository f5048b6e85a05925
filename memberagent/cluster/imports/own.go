// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// own remembers which ServiceImports were Sealane's when last seen, so that one from which somebody removes
// every label is restored, and not taken for somebody else's.
type own struct {
	mu   sync.Mutex
	uids map[types.NamespacedName]types.UID
}

// is says whether a ServiceImport, which is nil when there is none, is Sealane's.
func (o *own) is(key types.NamespacedName, imported *mcs.ServiceImport) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case imported == nil:
		delete(o.uids, key)
		return false
	case index.OwnImport(imported):
		if o.uids == nil {
			o.uids = map[types.NamespacedName]types.UID{}
		}
		o.uids[key] = imported.UID
		return true
	}
	return !index.Propagated(imported) && o.uids[key] == imported.UID
}
