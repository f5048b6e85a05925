// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// tables are ours as a kernel sees them.
func tables(t testing.TB, k *kernel.Kernel) []plan.Table {
	t.Helper()
	have, err := k.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return have.Tables
}

// anew are our tables as a kernel sees them that was not there before, and so has listed them.
func anew(t testing.TB) []plan.Table {
	t.Helper()
	k, err := kernel.New(nil, "/proc/sys/net")
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	return tables(t, k)
}

// differs says how what k has followed differs from what is listed.
func differs(t testing.TB, k *kernel.Kernel) string {
	t.Helper()
	return cmp.Diff(anew(t), tables(t, k), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{}))
}

// text lists tables.
func text(tables []plan.Table) string { return plan.Plan{Tables: tables}.String() }

const handleOfWeb = "nft -a list chain ip sealane web | sed -n 's/.*accept.*handle //p' | head -n1"

// others are what somebody else may do, in a table with maps, sets and chains (services).
var others = []string{
	"nft delete element ip sealane pods '{ 100.64.0.1 : 10.8.0.7 }'",
	"nft delete element ip sealane remote '{ 10.8.0.8 }'",
	"nft delete element ip6 sealane service '{ fd00:64::1 . tcp . 80 : goto web }'",
	"nft add element ip sealane pods '{ 100.64.0.9 : 10.8.0.9 }'",
	"nft add element ip sealane service '{ 100.64.0.9 . 47 . 81 : accept, 100.64.0.1 . sctp . 80 : jump web }'",
	"nft add element ip6 sealane marks '{ fd00:8::9 : 0x77 }'",
	"nft add element ip sealane remote '{ 10.77.0.0-10.77.0.5 }'",
	"nft add element ip6 sealane remote '{ ff00::/8, 2001:db8::/33, 2001:db8:8000::/33 }'",
	"nft 'delete element ip sealane pods { 100.64.0.1 : 10.8.0.7 }; " +
		"add element ip sealane pods { 100.64.0.1 : 10.8.0.8 }'",
	"nft flush map ip sealane service",
	"nft flush set ip6 sealane remote",
	"nft flush chain ip sealane counted",
	"nft add rule ip sealane web drop",
	"nft insert rule ip6 sealane counted accept comment other",
	"nft delete rule ip sealane web handle $(" + handleOfWeb + ")",
	"nft replace rule ip sealane web handle $(" + handleOfWeb + ") drop comment other",
	"nft rename chain ip sealane web spider",
	"nft add chain ip6 sealane foreign '{ type filter hook input priority -7; }'",
	"nft 'delete chain ip sealane which'",
	"nft add set ip sealane foreign '{ type ipv4_addr; elements = { 192.0.2.1 } }'",
	"nft add map ip sealane timed '{ type ipv4_addr : ipv4_addr; flags timeout; }'",
	"nft 'add map ip sealane letters { type ether_addr : verdict; elements = { 02:00:00:00:00:01 : drop } }'",
	"nft 'flush chain ip sealane counted; delete set ip sealane remote'",
	"nft 'flush chain ip sealane counted; delete set ip sealane remote; add set ip sealane remote { type inet_service; }'",
	"nft delete table ip sealane",
	"nft 'delete table ip6 sealane; add table ip6 sealane'",
	"nft flush ruleset",
	"nft 'add table ip other; add chain ip other web; add chain ip other counted; flush chain ip other counted'",
	"nft add table ip other; nft delete table ip other; nft delete element ip6 sealane pods '{ fd00:64::1 : fd00:8::7 }'",
	bulk("sealane", "pods", 3000),
}

// bulk adds many elements to a map from addresses to addresses, in one transaction.
func bulk(table, to string, elements int) string {
	return fmt.Sprintf(`(echo "add element ip %s %s {"
		for a in $(seq %d); do echo "11.$((a / 62500)).$((a / 250 %% 250)).$((a %% 250)) : 10.8.0.7,"; done; echo '}') | `+
		`nft -f -`, table, to, elements)
}

// Whatever others do to our tables between two looks is seen by the next one, as if all were listed, and repaired.
func TestOthersChangeTables(t *testing.T) {
	k, _ := open(t)
	want := plan.Plan{Tables: []plan.Table{services(plan.IPv4), services(plan.IPv6)}}
	for _, script := range others {
		reach(t, k, want)
		before := text(tables(t, k))
		run(t, script)
		if diff := differs(t, k); diff != "" {
			t.Errorf("%s: listed (-), followed (+)\n%s", script, diff)
		}
		if ours := !strings.Contains(script, "other; add chain"); ours && text(tables(t, k)) == before {
			t.Errorf("%s is not seen", script)
		}
	}
	reach(t, k, want)
	run(t, "nft flush ruleset")
}

// The same with several of them between two looks, and with what one left for the next.
func TestOthersChangeTablesAgainAndAgain(t *testing.T) {
	k, _ := open(t)
	want := plan.Plan{Tables: []plan.Table{services(plan.IPv4), services(plan.IPv6)}}
	reach(t, k, want)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		var done []string
		for range 1 + random.IntN(3) {
			script := others[random.IntN(len(others))]
			done = append(done, script)
			_ = exec.CommandContext(t.Context(), "sh", "-c", script).Run() // it may be impossible by now
		}
		if diff := differs(t, k); diff != "" {
			t.Fatalf("after %q: listed (-), followed (+)\n%s", done, diff)
		}
		if i%5 == 0 {
			reach(t, k, want)
		}
	}
	run(t, "nft flush ruleset")
}

// Somebody else loads so many rules that the kernel cannot tell all of them. What it could not tell is seen.
func TestChangesThatAreNotTold(t *testing.T) {
	k, _ := open(t)
	want := plan.Plan{Tables: []plan.Table{services(plan.IPv4), services(plan.IPv6)}}
	reach(t, k, want)
	run(t, "nft 'add table ip other; add map ip other many { type ipv4_addr : ipv4_addr; }'; "+
		bulk("other", "many", 40000))
	run(t, "nft delete element ip sealane pods '{ 100.64.0.1 : 10.8.0.7 }'; nft delete table ip other")
	if notTold(t) == 0 {
		t.Error("all was told: this shows nothing")
	}
	if diff := differs(t, k); diff != "" {
		t.Errorf("listed (-), followed (+)\n%s", diff)
	}
	reach(t, k, want)
	run(t, "nft delete element ip sealane pods '{ 100.64.0.1 : 10.8.0.7 }'")
	if diff := differs(t, k); diff != "" {
		t.Errorf("afterwards: listed (-), followed (+)\n%s", diff)
	}
}

// notTold is how many messages listeners to nftables have missed.
func notTold(t *testing.T) (drops int) {
	t.Helper()
	const protocol, groups, missed = 1, 3, 8
	text, err := os.ReadFile("/proc/self/net/netlink")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > missed && f[protocol] == "12" && f[groups] == "00000040" {
			var n int
			if _, err := fmt.Sscan(f[missed], &n); err != nil {
				t.Fatal(err)
			}
			drops += n
		}
	}
	return drops
}

// Others change our table and their own all the time, while it is looked at and changed. No look fails, and the last
// one sees what is there.
func TestOthersChangeTablesMeanwhile(t *testing.T) {
	k, _ := open(t)
	want := plan.Plan{Tables: []plan.Table{translating(20, 2000)}}
	reach(t, k, want)
	done := filepath.Join(t.TempDir(), "done")
	other := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", `
		nft 'add table ip other; add chain ip other c'
		for i in $(seq 60); do
			nft "add rule ip other c counter; add chain ip sealane c$i"
			nft "add element ip sealane globalpods { 11.0.0.$i : 10.7.1.1 }; add rule ip other c counter"
			nft delete element ip sealane globalpods "{ 120.1.65.$i : 10.7.65.$i }"
			nft delete chain ip sealane c$((i - 3)) 2>/dev/null
		done; touch `+done)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	looks := 0
	for ; ; looks++ {
		have := tables(t, k)
		if looks%10 == 9 {
			_ = k.Do(t.Context(), plan.Diff(want, plan.Plan{Tables: have})) // others may be faster
		}
		if _, err := os.Stat(done); err == nil {
			break
		}
	}
	if err := other.Wait(); err != nil || looks < 10 {
		t.Fatalf("%d looks, %v", looks, err)
	}
	if diff := differs(t, k); diff != "" {
		t.Errorf("listed (-), followed (+)\n%s", diff)
	}
	reach(t, k, want)
	run(t, "nft delete table ip other")
}

// What was handed out stays as it was.
func TestObservedTablesStay(t *testing.T) {
	k, _ := open(t)
	reach(t, k, plan.Plan{Tables: []plan.Table{services(plan.IPv4)}})
	first := tables(t, k)
	before := text(first)
	run(t, others[0]+";"+others[1]+"; nft add rule ip sealane web drop")
	if text(tables(t, k)) == before {
		t.Error("nothing is seen")
	}
	if text(first) != before {
		t.Errorf("what was observed is now\n%s\nand was\n%s", text(first), before)
	}
}
