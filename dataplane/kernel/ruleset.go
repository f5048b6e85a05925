// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

const (
	// relistEvery bounds how long what was listed is followed: there are changes that no transaction makes, as when a
	// process ends that owns a table.
	relistEvery = time.Minute
	// listAttempts is how often what changes while it is listed is listed again.
	listAttempts = 20
	// eventPatience is how long, and how often, the events of a generation that is there already are waited for.
	eventPatience, eventWaits = 10 * time.Millisecond, 10
	// manyStale chains and sets are listed by listing all, and manyElements of a map that change by listing the map.
	manyStale, manyElements = 64, 512
)

// ruleset is our tables as the kernel says that they are. They are listed once. From then on each transaction is
// followed by what the kernel tells of it, whoever makes it: an element of a map in memory, a chain or a set by listing
// that one. So a look costs what has changed, not what there is.
//
// The kernel numbers transactions (generations), so it is known whether all were heard of. Where one is missing, or the
// kernel says that it could not tell, all is listed anew. Our own transactions are followed like others: that nft
// accepted one says nothing of what is there.
type ruleset struct {
	mu     sync.Mutex
	events *nftEvents
	tables map[plan.Family]*nftTable
	// known says that the tables were listed, or are stale, and followed up to generation gen.
	known   bool
	gen     uint32
	listed  time.Time
	pending []nftEvent // of a transaction whose end was not told yet
	// forwards counts how often the FORWARD chain of iptables may have changed.
	forwards map[plan.Family]uint64
}

func newRuleset(families []plan.Family) (*ruleset, error) {
	events, err := subscribe()
	if err != nil {
		return nil, err
	}
	r := &ruleset{events: events, tables: map[plan.Family]*nftTable{}, forwards: map[plan.Family]uint64{}}
	for _, f := range families {
		r.tables[f] = newTable(f)
	}
	return r, nil
}

func (r *ruleset) close() { r.events.close() }

// observed is one look at the ruleset.
type observed struct {
	tables map[plan.Family]plan.Table // those that are there
	// forwards changes whenever the FORWARD chain may have changed.
	forwards map[plan.Family]uint64
}

// observe returns our tables as they are after every transaction that was there when it was called.
func (r *ruleset) observe(ctx context.Context) (observed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.sync(ctx); err != nil {
		return observed{}, err
	}
	out := observed{map[plan.Family]plan.Table{}, map[plan.Family]uint64{}}
	for f, t := range r.tables {
		out.forwards[f] = r.forwards[f]
		if t.there {
			out.tables[f] = t.Table
		}
	}
	return out, nil
}

func (r *ruleset) sync(ctx context.Context) error {
	if time.Since(r.listed) > relistEvery {
		r.forget()
	}
	for range listAttempts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.follow(); err != nil {
			return err
		}
		stale := false
		for f, t := range r.tables {
			if !t.stale() {
				continue
			}
			stale = true
			if err := t.list(); err != nil && !changing(err) {
				return fmt.Errorf("list nftables' table %s %s: %w", f, plan.TableName, err)
			}
		}
		if !stale {
			return nil
		}
	}
	return fmt.Errorf("list nftables' tables %s: expected that they rest for a moment, found changes %d times",
		plan.TableName, listAttempts)
}

// changing says that something was changed, or taken away, while it was listed. The next look is told what.
func changing(err error) bool {
	return errors.Is(err, nl.ErrDumpInterrupted) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR)
}

// follow hears what has changed, up to the generation that is there now.
func (r *ruleset) follow() error {
	gen, err := generation()
	if err != nil {
		return err
	}
	for range eventWaits {
		err := r.events.drain(r.hear)
		if errors.Is(err, errLost) {
			r.forget()
		} else if err != nil {
			return err
		}
		if !r.known {
			return r.begin()
		}
		if !before(r.gen, gen) {
			return nil
		}
		r.events.wait(eventPatience)
	}
	r.forget()
	return r.begin()
}

// begin from the generation that is there. Nothing is waiting to be heard, so what is not heard from now on is listed.
func (r *ruleset) begin() error {
	gen, err := generation()
	if err != nil {
		return err
	}
	r.known, r.gen, r.listed = true, gen, time.Now()
	for _, t := range r.tables {
		t.all = true
	}
	return nil
}

// forget makes the next look list all.
func (r *ruleset) forget() {
	r.known, r.pending = false, nil
	for f := range r.tables {
		r.forwards[f]++
	}
}

// hear one event. The last one of a transaction says its generation.
func (r *ruleset) hear(e nftEvent) {
	switch {
	case !r.known:
	case e.kind == unix.NFT_MSG_NEWGEN:
		r.commit(number(attr(e.message, unix.NFTA_GEN_ID)))
	case r.concerns(e):
		r.pending = append(r.pending, e.keep())
	}
}

// commit makes the changes of a transaction. One that ended while the first look began may have been seen in part, so
// it is made again: all that an event does is the same the second time.
func (r *ruleset) commit(gen uint32) {
	switch {
	case before(gen, r.gen):
	case gen == r.gen, gen == following(r.gen):
		for _, e := range r.pending {
			r.change(e)
		}
		for _, t := range r.tables {
			t.setElements()
		}
		r.gen = gen
	default:
		r.forget()
	}
	r.pending = r.pending[:0]
}

// concerns says whether an event is about a table of ours or about FORWARD chains.
func (r *ruleset) concerns(e nftEvent) bool {
	if r.table(e) == nil {
		return false
	}
	switch text(attr(e.message, nftaTable)) {
	case plan.TableName:
		return true
	case filterTable:
		isRule := e.kind == unix.NFT_MSG_NEWRULE || e.kind == unix.NFT_MSG_DELRULE
		return e.kind <= unix.NFT_MSG_DELRULE && (!isRule || text(attr(e.message, unix.NFTA_RULE_CHAIN)) == forwardChain)
	}
	return false
}

func (r *ruleset) table(e nftEvent) *nftTable {
	for f, t := range r.tables {
		if nlFamily(f) == int(e.family) {
			return t
		}
	}
	return nil
}

func (r *ruleset) change(e nftEvent) {
	t := r.table(e)
	if text(attr(e.message, nftaTable)) == plan.TableName {
		t.change(e)
	} else {
		r.forwards[t.Family]++
	}
}

// nftTable is our table of one family.
type nftTable struct {
	plan.Table // what of it was handed out is never written to
	there      bool
	kinds      map[string]setKind // of sets and maps
	chains     map[uint64]string  // names by handle
	// What is to be listed: all, or these.
	all                    bool
	staleChains, staleSets map[string]bool
	// changes of the elements of maps, by the map, in their order.
	changes map[string][]elementChange
}

type elementChange struct {
	plan.MapElement
	gone bool
}

func newTable(f plan.Family) *nftTable {
	return &nftTable{Table: plan.Table{Family: f}, kinds: map[string]setKind{}, chains: map[uint64]string{},
		staleChains: map[string]bool{}, staleSets: map[string]bool{}, changes: map[string][]elementChange{}}
}

func (t *nftTable) stale() bool { return t.all || len(t.staleChains)+len(t.staleSets) > 0 }

// change notes what an event is about.
func (t *nftTable) change(e nftEvent) {
	switch e.kind {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE:
		t.all = true
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		_, handle, c := parseChain(e.message)
		if was, ok := t.chains[handle]; ok && was != c.Name {
			t.all = true // elements that lead to it have another value now
		}
		t.staleChains[c.Name] = true
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		t.staleChains[text(attr(e.message, unix.NFTA_RULE_CHAIN))] = true
	case unix.NFT_MSG_NEWSET:
		if name, kind := parseSet(e.message); !kind.is(unix.NFT_SET_ANONYMOUS) {
			t.staleSets[name] = true
		}
	case unix.NFT_MSG_DELSET:
		name, _ := parseSet(e.message)
		if _, ok := t.kinds[name]; ok { // and no anonymous one
			t.staleSets[name] = true
		}
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		t.changeElements(e)
	}
}

func (t *nftTable) changeElements(e nftEvent) {
	name := text(attr(e.message, unix.NFTA_SET_ELEM_LIST_SET))
	kind, ok := t.kinds[name]
	switch {
	case !ok || t.staleSets[name]:
		return
	case !kind.plain() || len(t.changes[name]) >= manyElements:
		t.staleSets[name] = true
		return
	}
	for element := range parseElements(e.message) {
		t.changes[name] = append(t.changes[name],
			elementChange{kind.element(element), e.kind == unix.NFT_MSG_DELSETELEM})
	}
}

// setElements makes the changes of maps' elements.
func (t *nftTable) setElements() {
	for name, changes := range t.changes {
		i, ok := slices.BinarySearchFunc(t.Maps, name, byName(mapName))
		if !ok || t.staleSets[name] {
			continue
		}
		m := t.Maps[i]
		m.Elements = slices.Clone(m.Elements)
		for _, c := range changes {
			at, there := slices.BinarySearchFunc(m.Elements, c.Key, func(e plan.MapElement, key string) int {
				return strings.Compare(e.Key, key)
			})
			switch {
			case c.gone && there:
				m.Elements = slices.Delete(m.Elements, at, at+1)
			case c.gone:
			case there:
				m.Elements[at] = c.MapElement
			default:
				m.Elements = slices.Insert(m.Elements, at, c.MapElement)
			}
		}
		t.Maps = put(t.Maps, m, mapName)
	}
	clear(t.changes)
}

func setName(s plan.Set) string     { return s.Name }
func mapName(m plan.Map) string     { return m.Name }
func chainName(c plan.Chain) string { return c.Name }

func byName[E any](name func(E) string) func(E, string) int {
	return func(e E, n string) int { return strings.Compare(name(e), n) }
}

// put returns a copy, sorted by name, with an element in place of that of its name.
func put[E any](sorted []E, e E, name func(E) string) []E {
	i, there := slices.BinarySearchFunc(sorted, name(e), byName(name))
	sorted = slices.Clone(sorted)
	if there {
		sorted[i] = e
		return sorted
	}
	return slices.Insert(sorted, i, e)
}

// without returns a copy without the element of a name.
func without[E any](sorted []E, n string, name func(E) string) []E {
	return slices.DeleteFunc(slices.Clone(sorted), func(e E) bool { return name(e) == n })
}
