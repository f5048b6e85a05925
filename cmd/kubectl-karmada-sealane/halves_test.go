// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestHalvesAreRead: those that a shard's own Bundle lists, of which a service needs one.
func TestHalvesAreRead(t *testing.T) {
	named := func(name string, halves ...string) v1alpha1.Bundle {
		var b v1alpha1.Bundle
		b.Name, b.Spec.Halves = name, halves
		return b
	}
	own, whole := named("sealane-0", "0", "10"), named("sealane-1")
	// By their hashes, sample/db is in "0" and sample/web in "10".
	for _, c := range []struct {
		own     v1alpha1.Bundle
		service string
		want    []string
	}{
		{own, "", []string{"sealane-0-0", "sealane-0-10"}}, {own, "db", []string{"sealane-0-0"}},
		{named("sealane-0", "0"), "web", nil}, {whole, "", nil}, {whole, "web", nil},
	} {
		within := scope{namespace: "sample", service: c.service}
		if got := within.halves(&c.own); !slices.Equal(got, c.want) {
			t.Errorf("for %q of %s: %q, want %q", c.service, c.own.Name, got, c.want)
		}
	}
	bundles := []v1alpha1.Bundle{named("sealane-0-10"), own, named("sealane-0-1")}
	if got := bundleIn(bundles, "sample", "web", 1); got == nil || got.Name != "sealane-0-10" {
		t.Errorf("web is in %+v", got)
	}
	if got := bundleIn(bundles, "sample", "db", 1); got != nil {
		t.Errorf("db is in %s, which does not have it", got.Name)
	}
	if got := bundleIn([]v1alpha1.Bundle{named("sealane-0")}, "sample", "db", 1); got == nil || got.Name != "sealane-0" {
		t.Errorf("without halves db is in %+v", got)
	}
}
