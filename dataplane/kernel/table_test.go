// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// services is a table as one that translates has it: maps to addresses, marks and chains, regular chains, a set.
func services(f plan.Family) plan.Table {
	address := map[plan.Family][]string{
		plan.IPv4: {"10.8.0.7", "10.8.0.8", "100.64.0.1"}, plan.IPv6: {"fd00:8::7", "fd00:8::8", "fd00:64::1"},
	}[f]
	kind := map[plan.Family]string{plan.IPv4: "ipv4_addr", plan.IPv6: "ipv6_addr"}[f]
	prefix := func(s string) netip.Prefix { a := netip.MustParseAddr(s); return netip.PrefixFrom(a, a.BitLen()) }
	return plan.Table{
		Family: f,
		Sets:   []plan.Set{{Name: "remote", Elements: []netip.Prefix{prefix(address[0]), prefix(address[1])}}},
		Maps: []plan.Map{
			{Name: "marks", Key: kind, Value: "mark", Elements: []plan.MapElement{{Key: address[0], Value: "0x5e000001"}}},
			{Name: "pods", Key: kind, Value: kind, Elements: []plan.MapElement{{Key: address[2], Value: address[0]}}},
			{Name: "service", Key: kind + " . inet_proto . inet_service", Value: "verdict", Elements: []plan.MapElement{
				{Key: address[2] + " . tcp . 80", Value: "goto web"}, {Key: address[2] + " . udp . 53", Value: "drop"}}},
		},
		Chains: []plan.Chain{
			{Name: "counted", Type: "filter", Hook: "output", Priority: "filter", Rules: []string{
				f.String() + " daddr @remote counter", "counter"}},
			{Name: "web", Rules: []string{"counter accept"}},
			{Name: "which", Type: "nat", Hook: "prerouting", Priority: "dstnat-5", Rules: []string{
				f.String() + " daddr . meta l4proto . th dport vmap @service"}},
		},
	}
}

// A table is changed element by element: counters of rules survive everything but a change of their chain, and
// what is observed afterwards is what was wanted.
func TestTablesAreEdited(t *testing.T) {
	k, _ := open(t)
	run(t, "ip link set lo up; ip addr add 10.8.0.7/32 dev lo; ip addr add fd00:8::7/128 dev lo nodad")
	defer run(t, "ip addr flush dev lo")
	tables := func() []plan.Table { return []plan.Table{services(plan.IPv4), services(plan.IPv6)} }
	reach(t, k, plan.Plan{Tables: tables()})
	run(t, "ping -c3 -i 0.01 10.8.0.7; ping -c3 -i 0.01 fd00:8::7")
	steps := []struct {
		name string
		edit func(*plan.Table)
		want string // the change of the IPv4 table
		kept bool
	}{
		{"an element of a set goes", func(t *plan.Table) {
			t.Sets[0].Elements = t.Sets[0].Elements[:1]
		}, "replace table ip sealane: delete remote { 10.8.0.8/32 }", true},
		{"an element of a map is moved, in a map of verdicts too", func(t *plan.Table) {
			t.Maps[1].Elements[0].Value = t.Maps[0].Elements[0].Key
			t.Maps[2].Elements[1].Value = "goto web"
		}, "replace table ip sealane: delete service { 100.64.0.1 . udp . 53 : drop }, add service { 100.64.0.1 . udp . 53 " +
			": goto web }", true},
		{"a chain goes with the elements that lead there, another comes", func(t *plan.Table) {
			t.Chains[0], t.Chains[1] = t.Chains[1], t.Chains[0]
			t.Chains[0].Name = "api" // chains are sorted
			t.Maps[2].Elements = []plan.MapElement{{Key: t.Maps[2].Elements[0].Key, Value: "goto api"}}
		}, "replace table ip sealane: delete service { 100.64.0.1 . tcp . 80 : goto web }, delete service { 100.64.0.1 . " +
			"udp . 53 : drop }, " +
			"add service { 100.64.0.1 . tcp . 80 : goto api }, write chain api, delete web", true},
		{"a set and the rule that uses it go", func(t *plan.Table) {
			t.Sets, t.Chains[0].Rules = nil, []string{"counter"}
		}, "replace table ip sealane: write chain counted, delete remote", false},
		{"maps and the chain that uses them go", func(t *plan.Table) {
			t.Maps, t.Chains = nil, t.Chains[:1]
		}, "", true},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			reach(t, k, plan.Plan{Tables: tables()})
			run(t, "ping -c3 -i 0.01 10.8.0.7; ping -c3 -i 0.01 fd00:8::7")
			want := tables()
			for i := range want {
				s.edit(&want[i])
			}
			have, err := k.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			changes := plan.Diff(plan.Plan{Tables: want}, have)
			if got := changes[0].String(); s.want != "" && got != s.want {
				t.Errorf("change %s\nwant   %s", got, s.want)
			}
			counted := []int{counter(t, plan.IPv4), counter(t, plan.IPv6)}
			if slices.Contains(counted, 0) {
				t.Fatal("nothing was counted")
			}
			reach(t, k, plan.Plan{Tables: want})
			after := []int{counter(t, plan.IPv4), counter(t, plan.IPv6)}
			if kept := after[0] >= counted[0] && after[1] >= counted[1]; kept != s.kept {
				t.Errorf("counters went from %v to %v", counted, after)
			}
		})
	}
}

// counter is that of the last rule of the chain "counted".
func counter(t *testing.T, f plan.Family) int {
	t.Helper()
	listed := run(t, "nft list chain "+f.String()+" sealane counted | grep counter | tail -n1")
	fields := strings.Fields(listed)
	i := slices.Index(fields, "packets")
	if i < 0 {
		t.Fatalf("no counter in %s", listed)
	}
	n := 0
	for _, digit := range fields[i+1] {
		n = 10*n + int(digit-'0')
	}
	return n
}

// A chain of another priority, or a map of another type, takes a new table.
func TestTablesAreMadeAnew(t *testing.T) {
	k, _ := open(t)
	for _, change := range []func(*plan.Table){
		func(t *plan.Table) { t.Chains[0].Priority = "filter+1" },
		func(t *plan.Table) { t.Maps[0].Value, t.Maps[0].Elements = t.Maps[0].Key, nil },
		func(*plan.Table) { run(t, "nft add element ip sealane remote { 10.77.0.0-10.77.0.5 }") },
	} {
		table := services(plan.IPv4)
		reach(t, k, plan.Plan{Tables: []plan.Table{table}})
		change(&table)
		reach(t, k, plan.Plan{Tables: []plan.Table{table}})
	}
}
