// SPDX-License-Identifier: Apache-2.0

package services

import (
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// maxHalf is the size of a Work's manifest from which on what it carries is halved, if that is more than one service.
	maxHalf = 16 << 10
	// minHalves is what two halves have together that become one. It is far below maxHalf, so that few changes of
	// services move any.
	minHalves = maxHalf / 4
	// aroundImports is what a manifest has beside its imports, at most about.
	aroundImports = 1 << 10
	// maxBits is the length of the longest prefix, and maxHalves how many the CRD allows. No two services need more:
	// 512 KiB have at most 128 parts of minHalves, at each of the lengths.
	maxBits, maxHalves = 16, 2048
)

// hashed is one import, where it is in the list of all, its size, and the hash that says which half it is in.
type hashed struct {
	hash     uint64
	at, size int
}

// hashesOf are the imports of a Bundle in the order of their hashes, so that each half has those of a range.
func hashesOf(imports []*v1alpha1.Import, sizes []int) []hashed {
	out := make([]hashed, len(imports))
	for i := range imports {
		out[i] = hashed{v1alpha1.HalfHash(imports[i].Namespace, imports[i].Name), i, sizes[i]}
	}
	slices.SortFunc(out, func(a, b hashed) int {
		switch {
		case a.hash < b.hash:
			return -1
		case a.hash > b.hash:
			return 1
		}
		return a.at - b.at
	})
	return out
}

// within returns the imports of a half, of some that begin with all bits of it but the last.
func within(imports []hashed, half string) []hashed {
	if half == "" {
		return imports
	}
	bit := 64 - len(half)
	at := sort.Search(len(imports), func(i int) bool { return imports[i].hash>>bit&1 == 1 })
	if half[len(half)-1] == '0' {
		return imports[:at]
	}
	return imports[at:]
}

// divide returns the halves that imports should be in, none where they fit in the shard's own Bundle, which has other
// things to say of a size. What is divided stays so unless it has become small, and what has been begun is not given up
// for less: listed are the halves that count, and there those that have a Work.
func divide(imports []hashed, others int, listed, there []string) []string {
	inner, parts := inside(listed), inside(there)
	// begun says of a half that is not divided that it is being, as all parts of it are there.
	begun := func(half string) bool { return complete(there, parts, half+"0") && complete(there, parts, half+"1") }
	var out []string
	var visit func(imports []hashed, half string)
	visit = func(imports []hashed, half string) {
		size := aroundImports
		for _, i := range imports {
			size += i.size
		}
		large := size > maxHalf
		if half == "" {
			// Each change of an import would write the conditions, too.
			large = size+others > maxHalf && size > 2*minHalves
		}
		divided, least := inner[half], minHalves
		if divided && slices.Contains(there, half) {
			least = 2 * minHalves // it is becoming one
		}
		divided = divided || begun(half)
		if divided && size >= least || !divided && large && len(imports) > 1 && len(half) < maxBits {
			for _, next := range []string{half + "0", half + "1"} {
				visit(within(imports, next), next)
			}
			return
		}
		out = append(out, half)
	}
	if visit(imports, ""); len(out) == 1 {
		return nil
	}
	return out
}

// complete says that a half is there, or all parts of it are.
func complete(there []string, parts map[string]bool, half string) bool {
	return slices.Contains(there, half) ||
		parts[half] && complete(there, parts, half+"0") && complete(there, parts, half+"1")
}

// inside are the halves that are divided into others.
func inside(halves []string) map[string]bool {
	out := map[string]bool{}
	for _, half := range halves {
		for n := range len(half) {
			out[half[:n]] = true
		}
	}
	return out
}

// divides says that halves have each service in one of them. Anything else is of somebody else's making.
func divides(halves []string) bool {
	if len(halves) > maxHalves {
		return false
	}
	sorted := slices.Sorted(slices.Values(halves))
	share := 0
	for i, half := range sorted {
		if half == "" || len(half) > maxBits || strings.Trim(half, "01") != "" ||
			i > 0 && strings.HasPrefix(half, sorted[i-1]) {
			return false
		}
		share += 1 << (maxBits - len(half))
	}
	return share == 1<<maxBits
}

// laid is how the imports of one importer lie in the Bundles of a shard now.
type laid struct {
	// reads says that the importer's agent finds imports in halves.
	reads bool
	// listed are the halves that the shard's own Bundle lists, and answered says that the importer has answered that.
	listed   []string
	answered bool
	// there are the halves that have a Work, sorted.
	there []string
	// has says that the importer has answered that a half says this.
	has func(half string, spec *Bundle) bool
	// parted is what was made of the imports before; nil is nothing.
	parted *parted
}

// parted are imports by their hashes, and the halves that were made of them. What one decision found is the next one's
// where that has the same imports, and where it has others of the same names these need no hashes.
type parted struct {
	imports []*v1alpha1.Import
	hashed  []hashed
	halves  map[string]*Bundle
	last    *division
}

// division is what divide was asked of the imports, and what it said.
type division struct {
	others                int
	listed, there, wanted []string
}

// divide returns the halves that the imports should be in.
func (p *parted) divide(others int, listed, there []string) []string {
	if d := p.last; d == nil || d.others != others || !slices.Equal(d.listed, listed) || !slices.Equal(d.there, there) {
		p.last = &division{others, listed, there, divide(p.hashed, others, listed, there)}
	}
	return p.last.wanted
}

// take goes on with these imports.
func (p *parted) take(imports []*v1alpha1.Import, sizes []int) {
	if p.halves != nil && identical(p.imports, imports) {
		return
	}
	p.last = nil
	if p.halves == nil || !slices.EqualFunc(p.imports, imports, func(a, b *v1alpha1.Import) bool {
		return a == b || a.Name == b.Name && a.Namespace == b.Namespace
	}) {
		p.hashed, p.halves = hashesOf(imports, sizes), map[string]*Bundle{}
		p.imports = imports
		return
	}
	for i := range p.hashed {
		h := &p.hashed[i]
		h.size = sizes[h.at]
		if a, b := p.imports[h.at], imports[h.at]; a != b && (a.Withheld != b.Withheld ||
			!identical(a.Clusters, b.Clusters) || len(a.Clusters) == 0) {
			p.forget(h.hash)
		}
	}
	p.imports = imports
}

// forget drops the halves that an import is in.
func (p *parted) forget(hash uint64) {
	maps.DeleteFunc(p.halves, func(half string, _ *Bundle) bool {
		for i := range len(half) {
			if byte(hash>>(63-i)&1) != half[i]-'0' {
				return false
			}
		}
		return true
	})
}

// half returns what the Bundle of a half of all says.
func (p *parted) half(all *Bundle, half string) *Bundle {
	if p.halves[half] == nil {
		p.halves[half] = halfOf(*all, p.hashed, half)
	}
	return p.halves[half]
}

// keep drops all other halves.
func (p *parted) keep(halves map[string]*Bundle) {
	maps.DeleteFunc(p.halves, func(half string, _ *Bundle) bool { return halves[half] == nil })
}

// arrangement is what the Bundles of one importer should say of a shard, without revisions.
type arrangement struct {
	own    Bundle
	halves map[string]*Bundle
	sorted []string // names of halves
	// gone are the halves whose Works are to be deleted.
	gone []string
}

// layOut makes one step towards Bundles that are not too large, of all that the importer should have of a shard and the
// sizes of its imports. Nothing disappears on the way: halves that are wanted are written, and all others that may be
// read still kept up to date; when the importer has answered what is wanted, that is listed, and when it has answered
// the list, the others go. Back to one Bundle there is nothing to wait for.
func layOut(all Bundle, sizes []int, now laid) arrangement {
	out := arrangement{own: all}
	if !divides(now.listed) {
		now.listed = nil // all is in the shard's own Bundle, or will be with this write
	}
	if now.parted == nil {
		now.parted = new(parted)
	}
	var wanted []string
	if now.reads && (len(now.listed)+len(now.there) > 0 || mayBeLarge(sizes, all)) {
		now.parted.take(all.Imports, sizes)
		wanted = now.parted.divide(conditionsSize(all.ExportConditions), now.listed, now.there)
	}
	kept := slices.Concat(now.listed, wanted)
	if !now.answered {
		kept = append(kept, now.there[:min(len(now.there), maxHalves)]...)
	}
	slices.Sort(kept)
	kept = slices.Compact(kept)
	if len(kept) > 0 {
		now.parted.take(all.Imports, sizes)
	}
	out.halves, out.sorted = make(map[string]*Bundle, len(kept)), kept
	for _, half := range kept {
		out.halves[half] = now.parted.half(&all, half)
	}
	now.parted.keep(out.halves)
	list := now.listed
	if len(wanted) == 0 || !slices.ContainsFunc(wanted, func(half string) bool {
		return !slices.Contains(now.listed, half) && !now.has(half, out.halves[half])
	}) {
		list = wanted
	}
	if len(list) > 0 {
		out.own.Imports, out.own.Halves = []*v1alpha1.Import{}, list
	}
	for _, half := range now.there {
		if _, stays := out.halves[half]; !stays {
			out.gone = append(out.gone, half)
		}
	}
	return out
}

// mayBeLarge says whether a Bundle that is not divided can be too large: that of a small fleet is not looked at more
// closely.
func mayBeLarge(sizes []int, all Bundle) bool {
	size := aroundImports
	for _, s := range sizes {
		size += s
	}
	return size > 2*minHalves && size+conditionsSize(all.ExportConditions) > maxHalf
}

// conditionsSize is the size of conditions in JSON.
func conditionsSize(conditions []v1alpha1.ExportCondition) int {
	size := 0
	for i := range conditions {
		size += conditionSize(&conditions[i])
	}
	return size
}

// halfOf returns what the Bundle of a half says. Its imports stay in the order of all.
func halfOf(all Bundle, imports []hashed, half string) *Bundle {
	for n := range len(half) {
		imports = within(imports, half[:n+1])
	}
	at := make([]int, len(imports))
	for i := range imports {
		at[i] = imports[i].at
	}
	slices.Sort(at)
	out := &Bundle{Shard: all.Shard, Imports: make([]*v1alpha1.Import, len(at)),
		ExportConditions: []v1alpha1.ExportCondition{}}
	for i := range at {
		out.Imports[i] = all.Imports[at[i]]
	}
	return out
}
