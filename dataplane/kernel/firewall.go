// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// firewall is nftables, for our own tables, and iptables, for a place in the FORWARD chains.
type firewall struct {
	nft     map[plan.Family]knftables.Interface
	nftPath string
}

func newFirewall(families []plan.Family) (*firewall, error) {
	path, err := exec.LookPath("nft")
	if err != nil {
		return nil, fmt.Errorf("find nft: %w", err)
	}
	f := &firewall{nft: map[plan.Family]knftables.Interface{}, nftPath: path}
	for _, family := range families {
		if f.nft[family], err = knftables.New(knftables.Family(family.String()), plan.TableName); err != nil {
			return nil, fmt.Errorf("open nftables: %w", err)
		}
	}
	return f, nil
}

// setTable makes a table anew, or removes it, in one transaction. Connections keep their translation.
func (f *firewall) setTable(ctx context.Context, t plan.Table, op plan.Op) error {
	nft, ok := f.nft[t.Family]
	if !ok {
		return errors.New("this kernel does not have the family")
	}
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{}) // deleting needs one
	tx.Delete(&knftables.Table{})
	if op != plan.Delete {
		addTable(tx, t)
	}
	return nft.Run(ctx, tx)
}

// addTable writes a table as an edit of an empty one.
func addTable(tx *knftables.Transaction, t plan.Table) {
	tx.Add(&knftables.Table{})
	write(tx, plan.NewTable(t))
}

// editTable changes a table in one transaction. If nft refuses that, because somebody else changes the table
// meanwhile, the table is made anew.
func (f *firewall) editTable(ctx context.Context, e plan.TableEdit) error {
	nft, ok := f.nft[e.Table.Family]
	if !ok {
		return errors.New("this kernel does not have the family")
	}
	tx := nft.NewTransaction()
	write(tx, e)
	if err := nft.Run(ctx, tx); err != nil {
		return f.setTable(ctx, e.Table, plan.Replace)
	}
	return nil
}

// write adds the changes in an order in which nothing refers to what is not there yet, or is no more.
func write(tx *knftables.Transaction, e plan.TableEdit) {
	addressType := map[plan.Family]string{plan.IPv4: "ipv4_addr", plan.IPv6: "ipv6_addr"}[e.Table.Family]
	for _, s := range e.NewSets {
		tx.Add(&knftables.Set{Name: s.Name, Type: addressType, Flags: []knftables.SetFlag{knftables.IntervalFlag}})
	}
	for _, m := range e.NewMaps {
		tx.Add(&knftables.Map{Name: m.Name, Type: m.Key + " : " + m.Value})
	}
	for _, c := range e.Chains {
		tx.Add(chain(c))
		tx.Flush(&knftables.Chain{Name: c.Name})
	}
	for _, name := range e.GoneChains {
		tx.Flush(&knftables.Chain{Name: name})
	}
	isMap := map[string]bool{}
	for _, m := range e.Table.Maps {
		isMap[m.Name] = true
	}
	for _, name := range e.GoneMaps {
		isMap[name] = true
	}
	for _, r := range e.Removed {
		tx.Delete(element(r, isMap[r.Set]))
	}
	for _, a := range e.Added {
		tx.Add(element(a, isMap[a.Set]))
	}
	for _, c := range e.Chains {
		for _, r := range c.Rules {
			tx.Add(&knftables.Rule{Chain: c.Name, Rule: r, Comment: knftables.PtrTo(plan.RuleID(r))})
		}
	}
	for _, name := range e.GoneMaps {
		tx.Delete(&knftables.Map{Name: name})
	}
	for _, name := range e.GoneChains {
		tx.Delete(&knftables.Chain{Name: name})
	}
	for _, name := range e.GoneSets {
		tx.Delete(&knftables.Set{Name: name})
	}
}

func chain(c plan.Chain) *knftables.Chain {
	if c.Hook == "" {
		return &knftables.Chain{Name: c.Name}
	}
	return &knftables.Chain{
		Name:     c.Name,
		Type:     knftables.PtrTo(knftables.BaseChainType(c.Type)),
		Hook:     knftables.PtrTo(knftables.BaseChainHook(c.Hook)),
		Priority: knftables.PtrTo(knftables.BaseChainPriority(c.Priority)),
	}
}

func element(e plan.Element, inMap bool) *knftables.Element {
	key := strings.Split(e.Key, " . ")
	if inMap {
		return &knftables.Element{Map: e.Set, Key: key, Value: []string{e.Value}}
	}
	return &knftables.Element{Set: e.Set, Key: key}
}

// table returns our table of a family, and whether there is one.
func (f *firewall) table(ctx context.Context, family plan.Family) (plan.Table, bool, error) {
	out, err := f.list(ctx, "list", "table", family.String(), plan.TableName)
	if err != nil || out == nil {
		return plan.Table{}, false, err
	}
	t, err := parseTable(family, out)
	if err != nil {
		return plan.Table{}, false, fmt.Errorf("understand nft's table %s %s: %w", family, plan.TableName, err)
	}
	return t, true, nil
}

// list runs nft and returns nil if what it is to list does not exist.
func (f *firewall) list(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, f.nftPath, append([]string{"--json"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case err == nil:
		return out, nil
	case strings.Contains(stderr.String(), "No such file or directory"):
		return nil, nil
	}
	return nil, fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
}

// nftObject is one object of nft's JSON (libnftables-json(5)); all but one field are nil.
type nftObject struct {
	Set *struct {
		Name     string            `json:"name"`
		Elements []json.RawMessage `json:"elem"`
	} `json:"set"`
	Map *struct {
		Name     string               `json:"name"`
		Key      nftType              `json:"type"`
		Value    string               `json:"map"`
		Elements [][2]json.RawMessage `json:"elem"`
	} `json:"map"`
	Chain *struct {
		Name     string `json:"name"`
		Type     string `json:"type"`
		Hook     string `json:"hook"`
		Priority int    `json:"prio"`
	} `json:"chain"`
	Rule *struct {
		Chain   string `json:"chain"`
		Comment string `json:"comment"`
	} `json:"rule"`
}

// parseTable reads nft's JSON. Sets and chains are sorted by name, as in a plan.
func parseTable(family plan.Family, text []byte) (plan.Table, error) {
	var list struct {
		Objects []nftObject `json:"nftables"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return plan.Table{}, err
	}
	t := plan.Table{Family: family}
	rules := map[string][]string{}
	for _, o := range list.Objects {
		switch {
		case o.Set != nil:
			elements, err := parseElements(o.Set.Elements)
			if err != nil {
				return plan.Table{}, fmt.Errorf("set %s: %w", o.Set.Name, err)
			}
			t.Sets = append(t.Sets, plan.Set{Name: o.Set.Name, Elements: elements})
		case o.Map != nil:
			m := plan.Map{Name: o.Map.Name, Key: string(o.Map.Key), Value: o.Map.Value}
			for _, e := range o.Map.Elements {
				m.Elements = append(m.Elements, plan.MapElement{
					Key: spell(e[0], ""), Value: spell(e[1], o.Map.Value)})
			}
			slices.SortFunc(m.Elements, func(a, b plan.MapElement) int { return cmp.Compare(a.Key, b.Key) })
			t.Maps = append(t.Maps, m)
		case o.Chain != nil:
			c := plan.Chain{Name: o.Chain.Name, Type: o.Chain.Type, Hook: o.Chain.Hook}
			if c.Hook != "" {
				c.Priority = priorityName(o.Chain.Priority)
			}
			t.Chains = append(t.Chains, c)
		case o.Rule != nil:
			rules[o.Rule.Chain] = append(rules[o.Rule.Chain], o.Rule.Comment)
		}
	}
	for i := range t.Chains {
		t.Chains[i].Rules = rules[t.Chains[i].Name]
	}
	slices.SortFunc(t.Sets, func(a, b plan.Set) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Maps, func(a, b plan.Map) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Chains, func(a, b plan.Chain) int { return cmp.Compare(a.Name, b.Name) })
	return t, nil
}

// nftType is the type of a key: a name, or several that are concatenated.
type nftType string

func (t *nftType) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*t = nftType(one)
		return nil
	}
	var several []string
	err := json.Unmarshal(text, &several)
	*t = nftType(strings.Join(several, " . "))
	return err
}

// spell writes the expression of a map's key or value as nft lists it. What no plan has is left in JSON, so
// that the table is seen to differ.
func spell(text json.RawMessage, valueType string) string {
	var name string
	var number uint32
	var several struct {
		Parts []json.RawMessage `json:"concat"`
	}
	var verdicts map[string]*struct {
		Target string `json:"target"`
	}
	switch {
	case json.Unmarshal(text, &name) == nil:
		return name
	case json.Unmarshal(text, &number) == nil && valueType == "mark":
		return fmt.Sprintf("0x%08x", number)
	case json.Unmarshal(text, &number) == nil:
		return fmt.Sprint(number)
	case json.Unmarshal(text, &several) == nil && len(several.Parts) > 0:
		var parts []string
		for _, part := range several.Parts {
			parts = append(parts, spell(part, ""))
		}
		return strings.Join(parts, " . ")
	case json.Unmarshal(text, &verdicts) == nil && valueType == "verdict" && len(verdicts) == 1:
		for verdict, to := range verdicts {
			if to != nil {
				return verdict + " " + to.Target
			}
			return verdict
		}
	}
	return string(text)
}

// parseElements reads addresses, prefixes, and what nft makes of neighbouring prefixes, ranges.
func parseElements(elements []json.RawMessage) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, e := range elements {
		var text string
		if json.Unmarshal(e, &text) == nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return nil, err
			}
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		var element struct {
			Prefix *struct {
				Addr netip.Addr `json:"addr"`
				Len  int        `json:"len"`
			} `json:"prefix"`
		}
		if err := json.Unmarshal(e, &element); err != nil {
			return nil, err
		}
		if element.Prefix != nil {
			out = append(out, netip.PrefixFrom(element.Prefix.Addr, element.Prefix.Len))
			continue
		}
		out = append(out, netip.Prefix{}) // not ours, so that the table is seen to differ
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	return out, nil
}

// priorityName spells a hook's priority as the plan does: relative to the nearest name.
func priorityName(value int) string {
	const near = 20
	for _, base := range []struct {
		name  string
		value int
	}{{"raw", -300}, {"mangle", -150}, {"dstnat", -100}, {"filter", 0}, {"srcnat", 100}} {
		switch offset := value - base.value; {
		case offset == 0:
			return base.name
		case -near < offset && offset < near:
			return fmt.Sprintf("%s%+d", base.name, offset)
		}
	}
	return fmt.Sprint(value)
}
