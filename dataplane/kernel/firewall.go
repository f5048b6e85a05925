// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// firewall is nftables, for our own tables, and iptables, for a place in the FORWARD chains. Tables are written by the
// nft program and read from the kernel.
type firewall struct {
	nft     map[plan.Family]knftables.Interface
	nftPath string
	rules   *ruleset
	accepts accepts
}

func newFirewall(families []plan.Family) (*firewall, error) {
	path, err := exec.LookPath("nft")
	if err != nil {
		return nil, fmt.Errorf("find nft: %w", err)
	}
	f := &firewall{nft: map[plan.Family]knftables.Interface{}, nftPath: path}
	if f.rules, err = newRuleset(families); err != nil {
		return nil, err
	}
	for _, family := range families {
		if f.nft[family], err = knftables.New(knftables.Family(family.String()), plan.TableName); err != nil {
			f.close()
			return nil, fmt.Errorf("open nftables: %w", err)
		}
	}
	return f, nil
}

func (f *firewall) close() { f.rules.close() }

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
