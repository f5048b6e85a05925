// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// checkRelays says what of spec.relays cannot be put into force.
func checkRelays(spec v1alpha1.ClusterSetSpec) []error {
	var errs []error
	for i, r := range spec.Relays {
		if n := len(r.Clusters); n < 1 || n > 2 {
			errs = append(errs, fmt.Errorf("relays[%d]: clusters has %d selectors: expected 1, that both clusters of a pair "+
				"match, or 2, one for each", i, n))
		}
		if r.Through == "" {
			errs = append(errs, fmt.Errorf("relays[%d]: through is empty: expected the name of the cluster that passes on what "+
				"goes between the pairs", i))
		}
	}
	return errs
}
