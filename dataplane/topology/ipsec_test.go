// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"slices"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// TestIPsecAlgorithms of a Peering: what is not known has nothing reached by ipsec, and a key that is no point is none.
func TestIPsecAlgorithms(t *testing.T) {
	const base = "BGsX0fLhLEJH+Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT+NC4v4af5uO5+tKfA+eFivOM1drMV7Oy7ZAaDe/UfU="
	for name, c := range map[string]struct {
		algorithms v1alpha1.IPsecAlgorithms
		key        string
		fips, port bool
		has        bool // a key
		problems   []string
	}{
		"not set":  {"", base, false, true, true, nil},
		"usual":    {v1alpha1.IPsecDefault, "", false, true, false, nil},
		"fips":     {v1alpha1.IPsecFIPS, base, true, true, true, nil},
		"no key":   {v1alpha1.IPsecFIPS, "", true, true, false, nil},
		"no point": {v1alpha1.IPsecFIPS, base[:44], true, true, false, []string{topology.ReasonInvalidPublicKey}},
		"of a later": {"PostQuantum", base, false, false, true, []string{
			topology.ReasonUnknownAlgorithm, topology.ReasonInvalidPort}},
	} {
		t.Run(name, func(t *testing.T) {
			top := topology.Build(topology.Input{Peering: &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{
				Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: "c1",
				Cable: v1alpha1.CableSpec{Port: 4500, VXLANPort: 4800, IPsecAlgorithms: c.algorithms},
				RemoteClusters: []v1alpha1.RemoteCluster{{Name: "c2", Cable: v1alpha1.CableIPsec,
					Endpoints: []v1alpha1.Endpoint{{Gateway: "g", PublicKey: topology.Key{1}.String(), IPsecPublicKey: c.key}}}},
			}}})
			var problems []string
			for _, p := range top.Problems {
				problems = append(problems, p.Reason)
			}
			slices.Sort(problems)
			slices.Sort(c.problems)
			g := top.Remotes[0].Gateways[0]
			if top.Cable.FIPS != c.fips || (top.Cable.IPsecPort != 0) != c.port || len(g.VTEPs) > 0 != c.port ||
				(g.IPsecKey != topology.IPsecKey{}) != c.has || !slices.Equal(problems, c.problems) {
				t.Errorf("found %+v, gateway %+v, problems %v", top.Cable, g, top.Problems)
			}
		})
	}
}
