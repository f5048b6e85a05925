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
	if m := spec.Topology.Mode; m != "" && !known(m) {
		errs = append(errs, fmt.Errorf("topology.mode: mode %q is unknown: expected %s", m, modes))
	}
	if n := spec.Topology.MaxNodes; n != 0 && (n < minAutoNodes || n > maxAutoNodes) {
		errs = append(errs, fmt.Errorf("topology.maxNodes is %d: expected %d to %d", n, minAutoNodes, maxAutoNodes))
	}
	seen := map[[2]string]bool{}
	for i, p := range spec.Topology.Pairs {
		if len(p.Clusters) != 2 || p.Clusters[0] == p.Clusters[1] {
			errs = append(errs, fmt.Errorf("topology.pairs[%d]: clusters is %q: expected two different names", i, p.Clusters))
			continue
		}
		if !known(p.Mode) {
			errs = append(errs, fmt.Errorf("topology.pairs[%d]: mode %q is unknown: expected %s", i, p.Mode, modes))
		}
		names := slices.Sorted(slices.Values(p.Clusters))
		if pair := [2]string(names); seen[pair] {
			errs = append(errs, fmt.Errorf("topology.pairs[%d]: %s and %s are a pair already: state each pair once", i,
				names[0], names[1]))
		} else {
			seen[pair] = true
		}
	}
	if meshes(spec.Topology) {
		if _, err := netfacts.MeshPort(spec.Cable.Port, spec.Cable.VXLANPort); err != nil {
			errs = append(errs, fmt.Errorf("topology: %w", err))
		}
	}
	return errs
}

// The limits of maxNodes are those of the CRD.
const (
	modes        = "Gateways, Mesh or Auto"
	minAutoNodes = 2
	maxAutoNodes = 2 * v1alpha1.MaxMeshNodes
)

func known(m v1alpha1.TopologyMode) bool { return m == v1alpha1.TopologyGateways || connectsNodes(m) }

func connectsNodes(m v1alpha1.TopologyMode) bool {
	return m == v1alpha1.TopologyMesh || m == v1alpha1.TopologyAuto
}

// meshes says that nodes of some clusters are to connect without gateways.
func meshes(t v1alpha1.TopologySpec) bool {
	return connectsNodes(t.Mode) || slices.ContainsFunc(t.Pairs, func(p v1alpha1.TopologyPair) bool {
		return connectsNodes(p.Mode)
	})
}
