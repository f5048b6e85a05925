// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestDigestOfRelays(t *testing.T) {
	of := func(clusters, with string) v1alpha1.RelayedClusters {
		return v1alpha1.RelayedClusters{Clusters: []string{clusters}, With: []string{with}}
	}
	type list = []v1alpha1.RelayedClusters
	digests := map[string]string{}
	for name, relays := range map[string]list{"none": nil, "one": {of("a", "b")}, "back": {of("b", "a")},
		"both": {of("a", "b"), of("b", "a")}, "other": {of("a", "c")},
		"more": {{Clusters: []string{"a"}, With: []string{"b", "c"}}}} {
		digest := v1alpha1.DigestOfRelays(relays)
		if other, taken := digests[digest]; taken || len(digest) != 16 {
			t.Errorf("%s has the digest %q, as has %q", name, digest, other)
		}
		digests[digest] = name
	}
	one, other := list{of("a", "b"), of("b", "a")}, list{of("b", "a"), of("a", "b")}
	if v1alpha1.DigestOfRelays(one) != v1alpha1.DigestOfRelays(other) {
		t.Error("the order matters")
	}
}
