// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/coarse"
)

// Unmeasured passes Members but for updates in which nothing is new but what was measured of connections: no decision
// depends on that.
func Unmeasured() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.Member)
		after, also := e.ObjectNew.(*v1alpha1.Member)
		return !ok || !also || !onlyMeasured(*before, *after)
	}}
}

func onlyMeasured(before, after v1alpha1.Member) bool {
	if reflect.DeepEqual(before.Status.Connections, after.Status.Connections) {
		return false
	}
	before.ResourceVersion, before.ManagedFields = after.ResourceVersion, after.ManagedFields
	before.Status.Connections = coarse.Without(before.Status.Connections)
	after.Status.Connections = coarse.Without(after.Status.Connections)
	return equality.Semantic.DeepEqual(before, after)
}
