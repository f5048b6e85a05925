// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
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

// TestImportsAreReadAsTheyAreNow: also where the Bundle of one service is read, which does not list the deltas.
func TestImportsAreReadAsTheyAreNow(t *testing.T) {
	told := func(name string, sequence int64, deltas int32, clusters ...string) v1alpha1.Bundle {
		var b v1alpha1.Bundle
		b.Name, b.Spec.Sequence, b.Spec.Deltas = name, sequence, deltas
		i := v1alpha1.Import{Namespace: "sample", Name: "web"}
		for _, c := range clusters {
			i.Clusters = append(i.Clusters, v1alpha1.ImportCluster{Cluster: c})
		}
		b.Spec.Imports = []v1alpha1.Import{i}
		return b
	}
	own, base := told("sealane-0", 5, 2, "c1"), told("sealane-1", 5, 0, "c1")
	there := []v1alpha1.Bundle{own, base, told("sealane-delta-0", 6, 0, "c1", "c2"), told("sealane-delta-2", 9, 0)}
	read := func(all []v1alpha1.Bundle) func(string) (*v1alpha1.Bundle, error) {
		return func(name string) (*v1alpha1.Bundle, error) {
			for i := range all {
				if all[i].Name == name {
					return &all[i], nil
				}
			}
			return nil, nil
		}
	}
	for what, c := range map[string]struct {
		bundles, there []v1alpha1.Bundle
		want           int // clusters
	}{
		"all":                    {there[:2], there, 2},
		"one of another shard":   {there[1:2], there, 2},
		"without any deltas":     {there[:2], there[:2], 1},
		"without what has these": {there[1:2], there[1:], 1},
	} {
		got, err := asNow(c.bundles, read(c.there))
		if err != nil || len(got) != len(c.bundles) {
			t.Fatalf("%s: %+v, %v", what, got, err)
		}
		for i := range got {
			if n := len(got[i].Spec.Imports[0].Clusters); got[i].Name != c.bundles[i].Name || n != c.want {
				t.Errorf("%s: %s has %d clusters, want %d", what, got[i].Name, n, c.want)
			}
		}
	}
	failed := errors.New("no answer")
	fail := func(string) (*v1alpha1.Bundle, error) { return nil, failed }
	if _, err := asNow(there[1:2], fail); !errors.Is(err, failed) {
		t.Errorf("%v, want %v", err, failed)
	}
}
