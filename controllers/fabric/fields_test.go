// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"reflect"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestSameKnowsEveryField fails when a field is added that same does not compare.
func TestSameKnowsEveryField(t *testing.T) {
	for kind, want := range map[reflect.Type]int{
		reflect.TypeFor[v1alpha1.RemoteCluster](): 12,
		reflect.TypeFor[v1alpha1.MeshNode]():      5,
		reflect.TypeFor[v1alpha1.Networks]():      2,
		reflect.TypeFor[v1alpha1.Endpoint]():      9,
	} {
		if got := kind.NumField(); got != want {
			t.Errorf("%s has %d fields, same compares %d", kind, got, want)
		}
	}
}
