// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// someImports returns as many imports, of services from a number on, of about a size each.
func someImports(rnd *rand.Rand, from, count, size int) (imports []*v1alpha1.Import, sizes []int) {
	for i := range count {
		imports = append(imports, &v1alpha1.Import{Namespace: "sample", Name: fmt.Sprintf("web-%d", from+i),
			Clusters: []v1alpha1.ImportCluster{{Cluster: "c1"}}})
		sizes = append(sizes, size/2+rnd.IntN(size))
	}
	return imports, sizes
}

// sizeIn is the size of what is in a half.
func sizeIn(imports []hashed, half string) (size, count int) {
	for n := range len(half) {
		imports = within(imports, half[:n+1])
	}
	size = aroundImports
	for _, i := range imports {
		size += i.size
	}
	return size, len(imports)
}

// checkDivided tells what is wrong with the halves of imports.
func checkDivided(t *testing.T, imports []hashed, halves []string) {
	t.Helper()
	if len(halves) == 0 {
		return
	}
	if !divides(halves) {
		t.Fatalf("%v do not divide a shard", halves)
	}
	for _, half := range halves {
		if size, count := sizeIn(imports, half); size > maxHalf && count > 1 && len(half) < maxBits {
			t.Errorf("%s has %d bytes in %d imports", half, size, count)
		}
		size, _ := sizeIn(imports, half[:len(half)-1])
		sibling := half[:len(half)-1] + string('0'+'1'-half[len(half)-1])
		if slices.Contains(halves, sibling) && size < minHalves {
			t.Errorf("%s and %s have %d bytes together", half, sibling, size)
		}
	}
}

// TestDivide: whatever comes and goes, no half is too large or too small, what has not changed moves nothing, and where
// halves come and go again it takes four times the services.
func TestDivide(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var halves []string
	moved := 0
	for step := range 400 {
		// Up to 256 KiB and down to nothing, in steps of some services.
		count := (step * 7 % 1100)
		if count > 550 {
			count = 1100 - count
		}
		list, sizes := someImports(rnd, 0, count, 450)
		imports := hashesOf(list, sizes)
		next := divide(imports, 0, halves, nil)
		checkDivided(t, imports, next)
		if again := divide(imports, 0, next, next); !slices.Equal(again, next) {
			t.Fatalf("step %d: %v become %v though nothing has changed", step, next, again)
		}
		if !slices.Equal(next, halves) {
			moved++
		}
		halves = next
	}
	if moved < 20 {
		t.Errorf("in 400 steps halves changed %d times: the test has seen little", moved)
	}
	for _, c := range []struct {
		what           string
		count, size    int
		others, halves int
		before, there  []string
	}{
		{"what fits", 30, 500, 0, 0, nil, nil},
		{"what does not", 40, 500, 0, 2, nil, nil},
		{"what has become less", 12, 500, 0, 2, []string{"0", "1"}, nil},
		{"what has become little", 6, 500, 0, 0, []string{"0", "1"}, nil},
		{"what has become nothing, in many", 0, 1, 0, 0, []string{"00", "010", "011", "1"}, nil},
		{"one that is too large", 1, 100_000, 0, 0, nil, nil},
		{"few beside many conditions", 10, 500, 200_000, 0, nil, nil},
		{"some beside many conditions", 24, 500, 200_000, 2, nil, nil},
		{"what is becoming halves", 20, 500, 0, 2, nil, []string{"0", "1"}},
		{"what is becoming more", 20, 500, 0, 4, nil, []string{"00", "01", "1", "11", "10", "000"}},
		{"what another has left", 20, 500, 0, 0, nil, []string{"0", "10", "110", "0001"}},
		{"what is becoming one", 20, 500, 0, 2, []string{"00", "01", "1"}, []string{"0", "00", "01", "1"}},
		{"what is not becoming one any more", 40, 500, 0, 3, []string{"00", "01", "1"}, []string{"0", "00", "01", "1"}},
	} {
		list, sizes := someImports(rnd, 0, c.count, c.size)
		if got := divide(hashesOf(list, sizes), c.others, c.before, c.there); len(got) != c.halves {
			t.Errorf("%s: %v, want %d halves", c.what, got, c.halves)
		}
	}
}

// TestDivideHostileNames: exporters choose names, and thereby hashes. However they do, each importer has few halves.
func TestDivideHostileNames(t *testing.T) {
	imports := make([]hashed, 0, 32)
	for i := range 32 {
		// Pairs that differ in nothing but the last bits that count or in none, and are too large for one half.
		imports = append(imports, hashed{hash: uint64(i/2)<<60 | uint64(i%2)<<48, at: i, size: 16 << 10})
	}
	halves := divide(imports, 0, nil, nil)
	checkDivided(t, imports, halves)
	if len(halves) > 16*maxBits {
		t.Errorf("%d halves for %d imports", len(halves), len(imports))
	}
	for i := range imports {
		imports[i].hash = 1
	}
	if halves = divide(imports, 0, nil, nil); len(halves) != maxBits+1 || !divides(halves) {
		t.Errorf("services of one hash are in %v", halves)
	}
}

func TestDivides(t *testing.T) {
	for text, want := range map[string]bool{
		"0 1": true, "1 0": true, "0 10 11": true, "": false, "0": false, "0 1 1": false, "0 1 10": false, "0 2": false,
		"0 10": false, strings.Repeat("0", 17) + " 1": false, "0 00 01 1": false,
	} {
		if got := divides(strings.Fields(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	var many []string
	for i := range 4096 {
		many = append(many, fmt.Sprintf("%012b", i))
	}
	if divides(many) {
		t.Error("more halves divide a shard than a Bundle may list")
	}
}

// TestLayOut: one step at a time, from each of the states that a controller may find.
func TestLayOut(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	many, sizes := someImports(rnd, 0, 60, 450)
	all := Bundle{Shard: 2, Imports: many, ExportConditions: []v1alpha1.ExportCondition{{Name: "web"}}}
	few := Bundle{Shard: 2, Imports: many[:5], ExportConditions: all.ExportConditions}
	wanted := divide(hashesOf(many, sizes), 0, nil, nil)
	none := func(string, *Bundle) bool { return false }
	every := func(string, *Bundle) bool { return true }
	for _, c := range []struct {
		what                 string
		all                  Bundle
		now                  laid
		own                  int // imports in the shard's own Bundle
		listed, halves, gone []string
	}{
		{"an agent that does not read halves", all, laid{has: every, answered: true}, 60, nil, nil, nil},
		{"little", few, laid{reads: true, has: every, answered: true}, 5, nil, nil, nil},
		{"halves come", all, laid{reads: true, has: none, answered: true}, 60, nil, wanted, nil},
		{"not all are answered", all, laid{reads: true, answered: true, there: wanted,
			has: func(half string, _ *Bundle) bool { return half != wanted[0] }}, 60, nil, wanted, nil},
		{"all are answered", all, laid{reads: true, has: every, there: wanted}, 0, wanted, wanted, nil},
		{"they are listed, and others are left", all, laid{reads: true, has: every, listed: wanted,
			there: append([]string{"0101"}, wanted...)}, 0, wanted, append([]string{"0101"}, wanted...), nil},
		{"that is answered", all, laid{reads: true, has: every, listed: wanted, answered: true,
			there: append([]string{"0101"}, wanted...)}, 0, wanted, wanted, []string{"0101"}},
		{"less", few, laid{reads: true, has: none, listed: wanted, there: wanted, answered: true}, 5, nil, wanted, nil},
		{"less, and that is sent", few, laid{reads: true, has: none, there: wanted}, 5, nil, wanted, nil},
		{"less, and that is answered", few, laid{reads: true, has: none, there: wanted, answered: true}, 5, nil, nil,
			wanted},
		{"the agent is an older one", all, laid{has: every, listed: wanted, there: wanted, answered: true}, 60, nil, wanted,
			nil},
		{"a list that divides nothing", few, laid{reads: true, has: every, listed: []string{"0"}, answered: true}, 5, nil,
			nil, nil},
	} {
		got := layOut(c.all, sizes[:len(c.all.Imports)], c.now)
		var halves []string
		imports := 0
		for half, spec := range got.halves {
			halves = append(halves, half)
			if slices.Contains(wanted, half) {
				imports += len(spec.Imports)
			}
			if spec.Shard != 2 || len(spec.ExportConditions) > 0 || !slices.IsSortedFunc(spec.Imports,
				func(a, b *v1alpha1.Import) int {
					return slices.IndexFunc(many, nameOf(a.Name)) - slices.IndexFunc(many, nameOf(b.Name))
				}) {
				t.Errorf("%s: half %s is %+v", c.what, half, spec)
			}
		}
		slices.Sort(halves)
		want := slices.Sorted(slices.Values(c.halves))
		if len(got.own.Imports) != c.own || !slices.Equal(got.own.Halves, c.listed) || !slices.Equal(halves, want) ||
			!slices.Equal(got.gone, c.gone) || len(got.own.ExportConditions) != 1 {
			t.Errorf("%s: %d imports and %v listed, halves %v, gone %v; want %d, %v, %v, %v", c.what, len(got.own.Imports),
				got.own.Halves, halves, got.gone, c.own, c.listed, want, c.gone)
		}
		if len(halves) > 0 && imports != len(c.all.Imports) {
			t.Errorf("%s: the halves have %d imports of %d", c.what, imports, len(c.all.Imports))
		}
	}
}

// nameOf finds an import by its name.
func nameOf(name string) func(*v1alpha1.Import) bool {
	return func(i *v1alpha1.Import) bool { return i.Name == name }
}

// TestLayOutGoesOn: what is made with what was made before is what is made anew, whatever happens in between.
func TestLayOutGoesOn(t *testing.T) {
	before := new(parted)
	kept := 0
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 6))
		imports, sizes := someImports(rnd, 0, 60, 450)
		now := laid{reads: true}
		for range 40 {
			switch rnd.IntN(6) {
			case 0: // services come or go
				imports, sizes = someImports(rnd, rnd.IntN(5), rnd.IntN(120), 900)
			case 1: // one changes
				imports, sizes = slices.Clone(imports), slices.Clone(sizes)
				if at := len(imports) / 2; at > 0 {
					changed := *imports[at]
					imports[at], sizes[at] = &changed, 1+rnd.IntN(20_000)
					changed.Mode = v1alpha1.ServiceModeClusterIP
					changed.Clusters = []v1alpha1.ImportCluster{{Cluster: fmt.Sprintf("c%d", rnd.IntN(9))}}
				}
			case 4: // the namespace of one comes or goes
				imports = slices.Clone(imports)
				if len(imports) > 0 {
					at := rnd.IntN(len(imports))
					changed := *imports[at]
					changed.Withheld = !changed.Withheld
					imports[at] = &changed
				}
			case 2:
				now.answered = !now.answered
			case 3:
				now.reads = rnd.IntN(4) > 0
			}
			all := Bundle{Shard: 2, Imports: imports, ExportConditions: []v1alpha1.ExportCondition{}}
			answers := map[string]bool{}
			now.has = func(half string, _ *Bundle) bool {
				if _, asked := answers[half]; !asked {
					answers[half] = rnd.IntN(4) > 0
				}
				return answers[half]
			}
			anew, goesOn := now, now
			anew.parted, goesOn.parted = nil, before
			want := layOut(all, sizes, anew)
			if identical(before.imports, imports) {
				kept++
			}
			got := layOut(all, sizes, goesOn)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: with what was made before\n%v, anew\n%v", seed, got, want)
			}
			now.listed, now.there = got.own.Halves, slices.Sorted(maps.Keys(got.halves))
		}
	}
	if kept < 100 {
		t.Errorf("the same imports were laid out %d times: the test has seen little", kept)
	}
}

// TestImportsThatStayAreTheSameMemory: of a changed endpoint others' imports and halves know without looking at them.
func TestImportsThatStayAreTheSameMemory(t *testing.T) {
	in, last := manyServices(5, 40, 4), new(latest)
	before := last.decide(in).Bundles
	in.Members = slices.Clone(in.Members)
	m := &in.Members[0]
	m.Exports = slices.Clone(m.Exports)
	m.Exports[0].Remarks = []string{"changed"} // which no import has
	m.Exports[1].CreatedAt.Time = m.Exports[1].CreatedAt.Add(-1e9)
	for cluster, spec := range last.decide(in).Bundles {
		moved := 0
		for i := range spec.Imports {
			if !identical(spec.Imports[i].Clusters, before[cluster].Imports[i].Clusters) {
				moved++
			}
		}
		if moved > 1 {
			t.Errorf("%s: %d of %d imports are elsewhere, of which one has changed at most", cluster, moved, len(spec.Imports))
		}
	}
}
