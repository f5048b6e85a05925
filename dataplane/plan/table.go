// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/internal/netfacts"
)

// TableEdit turns a table that is there into Table, in one transaction, and leaves alone what is as it should
// be: rules keep their counters unless their own chain changes.
type TableEdit struct {
	Table Table
	// NewSets and NewMaps are made empty; their elements are among Added.
	NewSets []Set
	NewMaps []Map
	// Chains that are new or changed are emptied and written.
	Chains         []Chain
	Added, Removed []Element
	// GoneSets, GoneMaps and GoneChains are the names of what goes.
	GoneSets, GoneMaps, GoneChains []string
}

// Element of a set or, with a Value, of a map.
type Element struct{ Set, Key, Value string }

// NewTable is the edit that makes a table.
func NewTable(t Table) TableEdit {
	e, _ := edit(t, Table{Family: t.Family})
	return e
}

// edit returns what turns have into want. It is false where that takes a new table: a map or a chain changes
// its type, or a set holds what no plan has put there.
func edit(want, have Table) (TableEdit, bool) {
	e := TableEdit{Table: want}
	sets := index(have.Sets, func(s Set) string { return s.Name })
	for _, w := range want.Sets {
		h, ok := sets[w.Name]
		delete(sets, w.Name)
		if !ok {
			e.NewSets = append(e.NewSets, Set{Name: w.Name})
		}
		if slices.Contains(h.Elements, netip.Prefix{}) {
			return TableEdit{}, false
		}
		e.setElements(w, h)
	}
	oldMaps := index(have.Maps, func(m Map) string { return m.Name })
	for _, w := range want.Maps {
		h, ok := oldMaps[w.Name]
		delete(oldMaps, w.Name)
		if !ok {
			e.NewMaps = append(e.NewMaps, Map{Name: w.Name, Key: w.Key, Value: w.Value})
		} else if w.Key != h.Key || w.Value != h.Value {
			return TableEdit{}, false
		}
		e.mapElements(w, h)
	}
	for _, m := range oldMaps {
		e.mapElements(Map{Name: m.Name}, m) // they may refer to chains
	}
	chains := index(have.Chains, func(c Chain) string { return c.Name })
	for _, w := range want.Chains {
		h, ok := chains[w.Name]
		delete(chains, w.Name)
		if ok && (w.Type != h.Type || w.Hook != h.Hook || w.Priority != h.Priority) {
			return TableEdit{}, false
		}
		if !ok || !sameChain(w, h) {
			e.Chains = append(e.Chains, w)
		}
	}
	e.GoneSets, e.GoneMaps, e.GoneChains = names(sets), names(oldMaps), names(chains)
	return e, true
}

// setElements notes what to add to a set, and what to remove.
func (e *TableEdit) setElements(want, have Set) {
	element := func(p netip.Prefix) Element { return Element{Set: want.Name, Key: p.String()} }
	walk(want.Elements, have.Elements, netfacts.Compare,
		func(p netip.Prefix) { e.Added = append(e.Added, element(p)) },
		func(p netip.Prefix) { e.Removed = append(e.Removed, element(p)) })
}

// mapElements does the same with a map. An element of another value is removed and added.
func (e *TableEdit) mapElements(want, have Map) {
	element := func(m MapElement) Element { return Element{want.Name, m.Key, m.Value} }
	walk(want.Elements, have.Elements, MapElement.compare,
		func(m MapElement) { e.Added = append(e.Added, element(m)) },
		func(m MapElement) { e.Removed = append(e.Removed, element(m)) })
}

func (m MapElement) compare(other MapElement) int {
	return cmp.Or(strings.Compare(m.Key, other.Key), strings.Compare(m.Value, other.Value))
}

// walk goes through want and have side by side, and costs nothing for what is in both. They are sorted, or copies of
// them are.
func walk[E any](want, have []E, compare func(a, b E) int, add, remove func(E)) {
	want, have = ordered(want, compare), ordered(have, compare)
	for len(want) > 0 && len(have) > 0 {
		switch c := compare(want[0], have[0]); {
		case c < 0:
			add(want[0])
			want = want[1:]
		case c > 0:
			remove(have[0])
			have = have[1:]
		default:
			want, have = want[1:], have[1:]
		}
	}
	for _, w := range want {
		add(w)
	}
	for _, h := range have {
		remove(h)
	}
}

func ordered[E any](elements []E, compare func(a, b E) int) []E {
	if slices.IsSortedFunc(elements, compare) {
		return elements
	}
	elements = slices.Clone(elements)
	slices.SortFunc(elements, compare)
	return elements
}

func names[E any](gone map[string]E) []string { return slices.Sorted(maps.Keys(gone)) }

// String says what changes, on one line.
func (e TableEdit) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	for _, r := range e.Removed {
		add("delete %s", r)
	}
	for _, a := range e.Added {
		add("add %s", a)
	}
	for _, c := range e.Chains {
		add("write chain %s", c.Name)
	}
	for _, name := range slices.Concat(e.GoneSets, e.GoneMaps, e.GoneChains) {
		add("delete %s", name)
	}
	return fmt.Sprintf("%s %s: %s", e.Table.Family, TableName, strings.Join(parts, ", "))
}

func (e Element) String() string {
	if e.Value == "" {
		return fmt.Sprintf("%s { %s }", e.Set, e.Key)
	}
	return fmt.Sprintf("%s { %s : %s }", e.Set, e.Key, e.Value)
}
