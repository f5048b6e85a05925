// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
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
		e.elements(setElements(w), setElements(h))
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
		e.elements(mapElements(w), mapElements(h))
	}
	for _, m := range oldMaps {
		e.elements(nil, mapElements(m)) // they may refer to chains
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

// elements notes what to add and remove. A map's element of another value is removed and added.
func (e *TableEdit) elements(want, have []Element) {
	itself := func(e Element) Element { return e }
	wanted, there := index(want, itself), index(have, itself)
	for _, w := range want {
		if _, ok := there[w]; !ok {
			e.Added = append(e.Added, w)
		}
	}
	for _, h := range have {
		if _, ok := wanted[h]; !ok {
			e.Removed = append(e.Removed, h)
		}
	}
}

func names[E any](gone map[string]E) []string { return slices.Sorted(maps.Keys(gone)) }

func setElements(s Set) []Element {
	out := make([]Element, len(s.Elements))
	for i, p := range s.Elements {
		out[i] = Element{Set: s.Name, Key: p.String()}
	}
	return out
}

func mapElements(m Map) []Element {
	out := make([]Element, len(m.Elements))
	for i, e := range m.Elements {
		out[i] = Element{m.Name, e.Key, e.Value}
	}
	return out
}

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
