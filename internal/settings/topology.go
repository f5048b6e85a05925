// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// checkTopology says what of spec.topology cannot be put into force.
func checkTopology(spec v1alpha1.ClusterSetSpec) []error {
	var errs []error
	seen := map[[2]string]bool{}
	for i, p := range spec.Topology.Pairs {
		if len(p.Clusters) != 2 || p.Clusters[0] == p.Clusters[1] {
			errs = append(errs, fmt.Errorf("topology.pairs[%d]: clusters is %q: expected two different names", i, p.Clusters))
			continue
		}
		if p.Mode != v1alpha1.TopologyMesh {
			errs = append(errs, fmt.Errorf("topology.pairs[%d]: mode %q is unknown: expected Mesh", i, p.Mode))
		}
		names := slices.Sorted(slices.Values(p.Clusters))
		if pair := [2]string(names); seen[pair] {
			errs = append(errs, fmt.Errorf("topology.pairs[%d]: %s and %s are a pair already: state each pair once", i,
				names[0], names[1]))
		} else {
			seen[pair] = true
		}
	}
	if len(spec.Topology.Pairs) > 0 {
		if _, err := netfacts.MeshPort(spec.Cable.Port, spec.Cable.VXLANPort); err != nil {
			errs = append(errs, fmt.Errorf("topology.pairs: %w", err))
		}
	}
	return errs
}
