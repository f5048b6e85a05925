// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"strings"
	"testing"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestDomainsThatClustersHaveAreNotPutIntoForce(t *testing.T) {
	for domain, want := range map[string]bool{
		"clusterset.local": true, "cluster.local": false, "a.cluster.local": false, "local": false, "com": false,
	} {
		var s v1alpha1.ClusterSet
		s.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800}
		s.Spec.Shards = 4
		s.Spec.DNS.Domains = []string{domain}
		if err := Validate(&s); (err == nil) != want {
			t.Errorf("%s: %v", domain, err)
		}
	}
}

func TestVXLANIsAnExplicitChoice(t *testing.T) {
	anyCluster := make([]policyv1alpha1.ClusterAffinity, 1)
	for name, c := range map[string]struct {
		change func(*v1alpha1.ClusterSetSpec)
		want   string // part of the error; "" is none
	}{
		"wireguard": {func(*v1alpha1.ClusterSetSpec) {}, ""},
		"vxlan": {func(s *v1alpha1.ClusterSetSpec) { s.Cable.Driver = v1alpha1.CableVXLAN },
			"cable: driver vxlan does not encrypt, and unencrypted is not true"},
		"vxlan, unencrypted": {func(s *v1alpha1.ClusterSetSpec) {
			s.Cable.Driver, s.Cable.Unencrypted = v1alpha1.CableVXLAN, true
		}, ""},
		"wireguard, unencrypted": {func(s *v1alpha1.ClusterSetSpec) { s.Cable.Unencrypted = true },
			"cable: unencrypted is true, and driver wireguard encrypts"},
		"no port is left": {func(s *v1alpha1.ClusterSetSpec) {
			s.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableVXLAN, Unencrypted: true, Port: 4500, VXLANPort: 4533}
		}, "vxlanPort 4533 is the port that cables by vxlan need"},
		"a pair": {func(s *v1alpha1.ClusterSetSpec) {
			s.Cables = []v1alpha1.PairCable{{Clusters: anyCluster, Driver: v1alpha1.CableVXLAN, Unencrypted: true}}
		}, ""},
		"a pair, not said": {func(s *v1alpha1.ClusterSetSpec) {
			s.Cables = []v1alpha1.PairCable{{Clusters: anyCluster, Driver: v1alpha1.CableVXLAN}}
		}, "cables[0]: driver vxlan does not encrypt"},
		"a pair of none": {func(s *v1alpha1.ClusterSetSpec) {
			s.Cables = []v1alpha1.PairCable{{Driver: v1alpha1.CableWireGuard}}
		}, "cables[0]: clusters has 0 selectors"},
		"fips": {func(s *v1alpha1.ClusterSetSpec) { s.Cable.IPsecAlgorithms = v1alpha1.IPsecFIPS }, ""},
		"algorithms of nobody": {func(s *v1alpha1.ClusterSetSpec) { s.Cable.IPsecAlgorithms = "fips" },
			`cable: ipsecAlgorithms "fips" are unknown: expected Default or FIPS`},
		"a driver of nobody": {func(s *v1alpha1.ClusterSetSpec) {
			s.Cables = []v1alpha1.PairCable{{Clusters: anyCluster, Driver: "ipx"}}
		}, `cables[0]: driver "ipx" is unknown: expected wireguard, vxlan or ipsec`},
	} {
		var s v1alpha1.ClusterSet
		s.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800}
		s.Spec.Shards, s.Spec.DNS.Domains = 4, []string{"clusterset.local"}
		c.change(&s.Spec)
		err := Validate(&s)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: expected %q, found %v", name, c.want, err)
		}
	}
}
