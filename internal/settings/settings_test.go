// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"testing"

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
