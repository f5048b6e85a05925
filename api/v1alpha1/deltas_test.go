// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func TestParseDeltaName(t *testing.T) {
	for _, n := range []int32{0, 7, MaxDeltas - 1} {
		if got, ok := ParseDeltaName(DeltaName(n)); !ok || got != n {
			t.Errorf("%s: %d, %t", DeltaName(n), got, ok)
		}
		if _, _, ok := ParseBundleName(DeltaName(n)); ok {
			t.Errorf("%s is also the name of a shard's Bundle", DeltaName(n))
		}
	}
	for _, name := range []string{"sealane-delta-", "sealane-delta-01", "sealane-delta-128", "sealane-delta--1",
		"sealane-0", "sealane-delta-0-0", "delta-1"} {
		if n, ok := ParseDeltaName(name); ok {
			t.Errorf("%s: %d", name, n)
		}
	}
}

// told is a Bundle that has imports of these modes.
func told(name string, sequence int64, imports ...Import) *Bundle {
	b := &Bundle{Spec: BundleSpec{Sequence: sequence, Imports: imports}}
	b.Name = name
	return b
}

func TestCurrentImport(t *testing.T) {
	is := func(name string, mode ServiceMode) Import { return Import{Namespace: "sample", Name: name, Mode: mode} }
	divided := told(BundleName(0), 3)
	divided.Spec.Halves = []string{"0", "1"}
	own := func(deltas int32, sequence int64, imports ...Import) *Bundle {
		b := told(BundleName(0), sequence, imports...)
		b.Spec.Deltas = deltas
		return b
	}
	delta := func(n int32, sequence int64, imports ...Import) *Bundle {
		return told(DeltaName(n), sequence, imports...)
	}
	for name, c := range map[string]struct {
		bundles []*Bundle
		want    ServiceMode
		unknown bool
	}{
		"without deltas":     {[]*Bundle{own(0, 5, is("a", ""), is("web", "base"))}, "base", false},
		"nothing of it":      {[]*Bundle{own(0, 5, is("a", ""))}, "", false},
		"no Bundle":          {nil, "", true},
		"half gone":          {[]*Bundle{divided}, "", true},
		"newer delta":        {[]*Bundle{own(1, 5, is("web", "base")), delta(0, 6, is("web", "new"))}, "new", false},
		"older delta":        {[]*Bundle{own(1, 5, is("web", "base")), delta(0, 4, is("web", "old"))}, "base", false},
		"broker of before":   {[]*Bundle{own(1, 0, is("web", "base")), delta(0, 6, is("web", "old"))}, "base", false},
		"not listed":         {[]*Bundle{own(0, 5, is("web", "base")), delta(0, 6, is("web", "new"))}, "base", false},
		"listed and gone":    {[]*Bundle{own(2, 5, is("web", "base")), delta(0, 6, is("web", "new"))}, "", true},
		"delta adds nothing": {[]*Bundle{own(1, 5), delta(0, 6, is("web", "new"))}, "", false},
		"newest of several": {[]*Bundle{own(3, 5, is("web", "base")), delta(0, 8, is("web", "new")),
			delta(1, 7, is("web", "old")), delta(2, 9, is("a", "other"))}, "new", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, known, err := CurrentImport("sample", "web", 1, func(name string) (*Bundle, error) {
				for _, b := range c.bundles {
					if b.Name == name {
						return b, nil
					}
				}
				return nil, nil
			})
			if err != nil || known == c.unknown || (got == nil) != (c.want == "") || got != nil && got.Mode != c.want {
				t.Errorf("%+v, known %t, %v", got, known, err)
			}
		})
	}
	failed := errors.New("no cache")
	if _, known, err := CurrentImport("sample", "web", 1, func(string) (*Bundle, error) { return nil, failed }); known ||
		!errors.Is(err, failed) {
		t.Errorf("known %t, %v", known, err)
	}
}

func TestCurrentImportThatIsWithheld(t *testing.T) {
	base := told(BundleName(0), 5, Import{Namespace: "sample", Name: "web", Withheld: true})
	base.Spec.Deltas = 1
	delta := told(DeltaName(0), 6, Import{Namespace: "sample", Name: "web"})
	got, known, err := CurrentImport("sample", "web", 1, func(name string) (*Bundle, error) {
		return map[string]*Bundle{base.Name: base, delta.Name: delta}[name], nil
	})
	if err != nil || !known || !got.Withheld {
		t.Errorf("%+v, known %t, %v", got, known, err)
	}
}

// TestCurrent: of any Bundles that are all there, imports are those of CurrentImport, and what was given is as it was.
func TestCurrent(t *testing.T) {
	const shards, services = 2, 8
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var bundles []Bundle
		for _, name := range []string{"sealane-delta-0", "sealane-0", "sealane-1", "sealane-1-0", "sealane-1-1",
			"sealane-delta-1", "sealane-delta-2"} {
			b := told(name, random.Int64N(1<<40)*int64(min(random.IntN(6), 1)))
			for n := range services {
				if random.IntN(3) > 0 {
					b.Spec.Imports = append(b.Spec.Imports, Import{Namespace: "sample", Name: fmt.Sprintf("web-%d", n),
						Mode: ServiceMode(name), Withheld: random.IntN(6) == 0 && !strings.Contains(name, "delta")})
				}
			}
			if name == "sealane-0" {
				b.Spec.Deltas = int32(random.IntN(4))
			}
			if name == "sealane-1" && random.IntN(2) == 0 {
				b.Spec.Halves = []string{"0", "1"}
			}
			bundles = append(bundles, *b)
		}
		random.Shuffle(len(bundles), func(i, j int) { bundles[i], bundles[j] = bundles[j], bundles[i] })
		before := make([]Bundle, len(bundles))
		for i := range bundles {
			bundles[i].DeepCopyInto(&before[i])
		}
		named := func(all []Bundle) func(string) (*Bundle, error) {
			return func(name string) (*Bundle, error) {
				for i := range all {
					if all[i].Name == name {
						return &all[i], nil
					}
				}
				return nil, nil
			}
		}
		now := Current(bundles)
		if len(now) != 4 || !reflect.DeepEqual(bundles, before) {
			t.Fatalf("seed %d: %d Bundles, want 4; or what was given has changed", seed, len(now))
		}
		for n := range services {
			name := fmt.Sprintf("web-%d", n)
			want, known, err := CurrentImport("sample", name, shards, named(bundles))
			if err != nil || !known {
				t.Fatalf("seed %d: %s is not known, %v", seed, name, err)
			}
			own, _ := named(now)(BundleName(Shard("sample", name, shards)))
			base, _ := named(now)(BundleOf(own, "sample", name))
			if got := base.Spec.Import("sample", name); !reflect.DeepEqual(got, want) {
				t.Errorf("seed %d: %s is %+v, want %+v", seed, name, got, want)
			}
		}
	}
}

// TestCurrentWithoutAll: what is there counts, where a Bundle is missing that is listed or lists them.
func TestCurrentWithoutAll(t *testing.T) {
	base, delta := told(BundleName(0), 5, Import{Name: "web", Mode: "base"}), told(DeltaName(1), 6, Import{Name: "web"})
	base.Spec.Deltas = 2
	if got := Current([]Bundle{*delta, *base}); len(got) != 1 || got[0].Spec.Imports[0].Mode != "" {
		t.Errorf("without the first Bundle of deltas: %+v", got)
	}
	base.Name = BundleName(1)
	if got := Current([]Bundle{*delta, *base}); len(got) != 1 || got[0].Spec.Imports[0].Mode != "base" {
		t.Errorf("with none that is listed: %+v", got)
	}
}
