// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestTopology(t *testing.T) {
	pair := func(mode v1alpha1.TopologyMode, clusters ...string) v1alpha1.TopologyPair {
		return v1alpha1.TopologyPair{Clusters: clusters, Mode: mode}
	}
	const mesh = v1alpha1.TopologyMesh
	for _, c := range []struct {
		name      string
		pairs     []v1alpha1.TopologyPair
		vxlanPort int32
		want      string
	}{
		{"none, with the port that none needs", nil, 4532, ""},
		{"two", []v1alpha1.TopologyPair{pair(mesh, "c1", "c2"), pair(mesh, "c3", "c1")}, 4800, ""},
		{"with itself", []v1alpha1.TopologyPair{pair(mesh, "c1", "c1")}, 4800, "two different names"},
		{"one cluster", []v1alpha1.TopologyPair{pair(mesh, "c1")}, 4800, "two different names"},
		{"twice", []v1alpha1.TopologyPair{pair(mesh, "c1", "c2"), pair(mesh, "c2", "c1")}, 4800, "each pair once"},
		{"no mode", []v1alpha1.TopologyPair{pair("", "c1", "c2")}, 4800, "expected Gateways, Mesh or Auto"},
		{"each mode", []v1alpha1.TopologyPair{pair(v1alpha1.TopologyAuto, "c1", "c2"),
			pair(v1alpha1.TopologyGateways, "c1", "c3")}, 4800, ""},
		{"by gateways alone, with the port that none needs", []v1alpha1.TopologyPair{pair(v1alpha1.TopologyGateways, "c1",
			"c2")}, 4532, ""},
		{"no port", []v1alpha1.TopologyPair{pair(mesh, "c1", "c2")}, 4532, "port that a mesh needs"},
	} {
		var s v1alpha1.ClusterSet
		s.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: c.vxlanPort}
		s.Spec.Shards, s.Spec.DNS.Domains = 4, []string{"clusterset.local"}
		s.Spec.Topology.Pairs = c.pairs
		err := Validate(&s)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestTopologyOfAllPairs(t *testing.T) {
	for _, c := range []struct {
		spec      v1alpha1.TopologySpec
		vxlanPort int32
		want      string
	}{
		{v1alpha1.TopologySpec{Mode: v1alpha1.TopologyAuto, MaxNodes: 128}, 4800, ""},
		{v1alpha1.TopologySpec{Mode: v1alpha1.TopologyGateways}, 4532, ""},
		{v1alpha1.TopologySpec{Mode: v1alpha1.TopologyAuto}, 4532, "port that a mesh needs"},
		{v1alpha1.TopologySpec{Mode: "Straight"}, 4800, "expected Gateways, Mesh or Auto"},
		{v1alpha1.TopologySpec{MaxNodes: 1}, 4800, "topology.maxNodes is 1: expected 2 to 128"},
		{v1alpha1.TopologySpec{MaxNodes: 129}, 4800, "topology.maxNodes is 129: expected 2 to 128"},
	} {
		var s v1alpha1.ClusterSet
		s.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: c.vxlanPort}
		s.Spec.Shards, s.Spec.DNS.Domains, s.Spec.Topology = 4, []string{"clusterset.local"}, c.spec
		err := Validate(&s)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.spec, err, c.want)
		}
	}
}
