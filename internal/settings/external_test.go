// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestExternalCIDRs: hosts outside have no addresses that clusters have, or may get.
func TestExternalCIDRs(t *testing.T) {
	for text, want := range map[string]string{
		"172.31.5.0/24":      "",
		"172.31.5.7/32":      "",
		"0.0.0.0/0":          "default route",
		"127.0.0.1/32":       "loopback",
		"169.254.169.254/32": "link-local",
		"224.0.0.0/24":       "multicast",
		"100.100.100.200/32": "metadata",
		"172.31.5.7/24":      "host bits",
		"fd00:9::/64":        "hosts outside are reached by IPv4 alone",
		"the database":       "is not a CIDR",
		"120.7.0.0/16":       "overlaps 120.0.0.0/8, of the pool of global addresses",
		"10.7.3.0/24":        "overlaps 10.7.0.0/16, of cluster c1",
		"10.77.0.1/32":       "overlaps 10.77.0.0/16, of cluster c1",
		"10.9.0.0/16":        "overlaps 10.9.0.0/16, of cluster c2",
		"121.2.0.9/32":       "overlaps 121.2.0.0/24, of cluster c2",
	} {
		var s v1alpha1.ClusterSet
		s.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800}
		s.Spec.Shards, s.Spec.DNS.Domains = 4, []string{"clusterset.local"}
		s.Spec.Globalnet = v1alpha1.GlobalnetSpec{Mode: v1alpha1.GlobalnetAuto, CIDRs: []string{"120.0.0.0/8"},
			BlockPrefixLength: 16}
		s.Spec.Clusters = []v1alpha1.ClusterOverride{
			{Name: "c1", ExternalCIDRs: []string{text},
				Networks: v1alpha1.Networks{PodCIDRs: []string{"10.7.0.0/16"}, ServiceCIDRs: []string{"10.77.0.0/16"}}},
			{Name: "c2", Networks: v1alpha1.Networks{PodCIDRs: []string{"10.9.0.0/16"}},
				Globalnet: v1alpha1.GlobalnetOverride{CIDR: "121.2.0.0/24"}}}
		err := Validate(&s)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
