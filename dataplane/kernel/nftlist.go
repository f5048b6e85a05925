// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// list what is stale. Whatever changes meanwhile is stale again as soon as it is heard of.
func (t *nftTable) list() error {
	if t.all || len(t.staleChains)+len(t.staleSets) > manyStale {
		return t.listAll()
	}
	for name := range maps.Clone(t.staleChains) {
		if err := t.listChain(name); err != nil {
			return err
		}
		delete(t.staleChains, name)
	}
	for name := range maps.Clone(t.staleSets) {
		if err := t.listSet(name); err != nil {
			return err
		}
		delete(t.staleSets, name)
	}
	return nil
}

// listAll lists everything of the table.
func (t *nftTable) listAll() error {
	fresh := newTable(t.Family)
	err := t.ask(unix.NFT_MSG_GETTABLE, unix.NFT_MSG_NEWTABLE, 0, func([]byte) { fresh.there = true },
		selector{unix.NFTA_TABLE_NAME, plan.TableName})
	if errors.Is(err, unix.ENOENT) {
		*t = *fresh
		return nil
	}
	if err != nil {
		return err
	}
	if err := fresh.listChains(); err != nil {
		return err
	}
	err = t.ask(unix.NFT_MSG_GETSET, unix.NFT_MSG_NEWSET, unix.NLM_F_DUMP, func(m []byte) {
		if name, kind := parseSet(m); !kind.is(unix.NFT_SET_ANONYMOUS) {
			fresh.kinds[name] = kind
		}
	}, selector{unix.NFTA_SET_TABLE, plan.TableName})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fresh.kinds)) {
		if err := fresh.listElements(name); err != nil {
			return err
		}
	}
	*t = *fresh
	return nil
}

func (t *nftTable) ask(request, answer, flags int, each func(message []byte), of ...selector) error {
	return ask(request, answer, flags, t.Family, each, of...)
}

// listChains lists all chains with the IDs of their rules.
func (t *nftTable) listChains() error {
	err := t.ask(unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_DUMP, func(m []byte) {
		if table, handle, c := parseChain(m); table == plan.TableName { // the kernel lists those of all tables
			t.chains[handle] = c.Name
			t.Chains = append(t.Chains, c)
		}
	})
	if err != nil {
		return err
	}
	rules := map[string][]string{}
	err = t.ask(unix.NFT_MSG_GETRULE, unix.NFT_MSG_NEWRULE, unix.NLM_F_DUMP, func(m []byte) {
		chain, id := parseRule(m)
		rules[chain] = append(rules[chain], id)
	}, selector{unix.NFTA_RULE_TABLE, plan.TableName})
	for i := range t.Chains {
		t.Chains[i].Rules = rules[t.Chains[i].Name]
	}
	slices.SortFunc(t.Chains, func(a, b plan.Chain) int { return cmp.Compare(a.Name, b.Name) })
	return err
}

// listChain lists one chain, which may be gone.
func (t *nftTable) listChain(name string) error {
	maps.DeleteFunc(t.chains, func(_ uint64, of string) bool { return of == name })
	var c plan.Chain
	var handle uint64
	err := t.ask(unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_NEWCHAIN, 0, func(m []byte) { _, handle, c = parseChain(m) },
		selector{unix.NFTA_CHAIN_TABLE, plan.TableName}, selector{unix.NFTA_CHAIN_NAME, name})
	if errors.Is(err, unix.ENOENT) {
		t.Chains = without(t.Chains, name, chainName)
		return nil
	}
	if err != nil {
		return err
	}
	err = t.ask(unix.NFT_MSG_GETRULE, unix.NFT_MSG_NEWRULE, unix.NLM_F_DUMP, func(m []byte) {
		_, id := parseRule(m)
		c.Rules = append(c.Rules, id)
	}, selector{unix.NFTA_RULE_TABLE, plan.TableName}, selector{unix.NFTA_RULE_CHAIN, name})
	if err != nil {
		return err
	}
	t.chains[handle] = name
	t.Chains = put(t.Chains, c, chainName)
	return nil
}

// listSet lists one set or map, which may be gone.
func (t *nftTable) listSet(name string) error {
	t.Sets, t.Maps = without(t.Sets, name, setName), without(t.Maps, name, mapName)
	delete(t.kinds, name)
	err := t.ask(unix.NFT_MSG_GETSET, unix.NFT_MSG_NEWSET, 0, func(m []byte) { _, t.kinds[name] = parseSet(m) },
		selector{unix.NFTA_SET_TABLE, plan.TableName}, selector{unix.NFTA_SET_NAME, name})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.listElements(name)
}

// listElements lists a set or a map of a kind that is known.
func (t *nftTable) listElements(name string) error {
	kind := t.kinds[name]
	elements := func(each func(message []byte)) error {
		return t.ask(unix.NFT_MSG_GETSETELEM, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_DUMP, each,
			selector{unix.NFTA_SET_ELEM_LIST_TABLE, plan.TableName}, selector{unix.NFTA_SET_ELEM_LIST_SET, name})
	}
	if !kind.is(unix.NFT_SET_MAP) {
		between := []bound{{}} // no addresses
		var err error
		if kind.addresses() {
			between = nil
			err = elements(func(m []byte) { between = append(between, bounds(m)...) })
		}
		t.Sets = put(t.Sets, plan.Set{Name: name, Elements: prefixesOf(between)}, setName)
		return err
	}
	m := plan.Map{Name: name, Key: kind.keyName(), Value: kind.valueName()}
	var err error
	if kind.plain() {
		err = elements(func(message []byte) {
			for e := range parseElements(message) {
				m.Elements = append(m.Elements, kind.element(e))
			}
		})
	}
	slices.SortFunc(m.Elements, func(a, b plan.MapElement) int { return strings.Compare(a.Key, b.Key) })
	// A dump during which others add elements may list one twice.
	m.Elements = slices.CompactFunc(m.Elements, func(a, b plan.MapElement) bool { return a.Key == b.Key })
	t.Maps = put(t.Maps, m, mapName)
	return err
}
