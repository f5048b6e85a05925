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

func addTable(tx *knftables.Transaction, t plan.Table) {
	addressType := map[plan.Family]string{plan.IPv4: "ipv4_addr", plan.IPv6: "ipv6_addr"}[t.Family]
	tx.Add(&knftables.Table{})
	for _, s := range t.Sets {
		tx.Add(&knftables.Set{Name: s.Name, Type: addressType, Flags: []knftables.SetFlag{knftables.IntervalFlag}})
		for _, e := range s.Elements {
			tx.Add(&knftables.Element{Set: s.Name, Key: []string{e.String()}})
		}
	}
	for _, c := range t.Chains {
		tx.Add(&knftables.Chain{
			Name:     c.Name,
			Type:     knftables.PtrTo(knftables.BaseChainType(c.Type)),
			Hook:     knftables.PtrTo(knftables.BaseChainHook(c.Hook)),
			Priority: knftables.PtrTo(knftables.BaseChainPriority(c.Priority)),
		})
		for _, r := range c.Rules {
			tx.Add(&knftables.Rule{Chain: c.Name, Rule: r, Comment: knftables.PtrTo(plan.RuleID(r))})
		}
	}
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
		case o.Chain != nil:
			t.Chains = append(t.Chains, plan.Chain{Name: o.Chain.Name, Type: o.Chain.Type, Hook: o.Chain.Hook,
				Priority: priorityName(o.Chain.Priority)})
		case o.Rule != nil:
			rules[o.Rule.Chain] = append(rules[o.Rule.Chain], o.Rule.Comment)
		}
	}
	for i := range t.Chains {
		t.Chains[i].Rules = rules[t.Chains[i].Name]
	}
	slices.SortFunc(t.Sets, func(a, b plan.Set) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Chains, func(a, b plan.Chain) int { return cmp.Compare(a.Name, b.Name) })
	return t, nil
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
