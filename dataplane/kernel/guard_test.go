// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// failingNFT puts an nft before the real one that refuses every transaction while the file it returns exists.
func failingNFT(t *testing.T) (switched string) {
	t.Helper()
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	switched = filepath.Join(dir, "fails")
	script := "#!/bin/sh\ncase \" $* \" in *' -f '*) [ -e " + switched + " ] && { echo refused >&2; exit 1; };; " +
		"esac\nexec " + nft + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return switched
}

// A firewall that cannot be had leaves the node closed: no link, no accept; its packets go nowhere already.
func TestAFailingFirewallOpensNothing(t *testing.T) {
	fails := failingNFT(t)
	k, key := open(t)
	node := goldens(t, key)["spine.txtar/a-gw"]
	node.become(t)
	if err := os.WriteFile(fails, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := k.Do(t.Context(), plan.Diff(node.plan, plan.Plan{}))
	if !errors.Is(err, kernel.ErrUnguarded) || !strings.Contains(err.Error(), "add table ip sealane: ") {
		t.Errorf("error %v", err)
	}
	if links := run(t, "ip -br link; iptables-nft -S FORWARD"); strings.Contains(links, "sl-") {
		t.Errorf("up without a guard:\n%s", links)
	}
	if routes := run(t, "ip route show table 5100; ip rule"); !strings.Contains(routes, "blackhole 10.9.0.0/16") ||
		!strings.Contains(routes, "lookup 5100") {
		t.Errorf("open:\n%s", routes)
	}
	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
	reach(t, k, node.plan)
}

// While the firewall cannot be changed, what is no longer wanted goes nevertheless.
func TestAFailingFirewallKeepsNothingOpen(t *testing.T) {
	fails := failingNFT(t)
	k, key := open(t)
	plans := goldens(t, key)
	node, worker := plans["spine.txtar/a-gw"], plans["spine.txtar/a-worker"]
	node.become(t)
	reach(t, k, node.plan)
	if err := os.WriteFile(fails, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	have, err := k.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Do(t.Context(), plan.Diff(worker.plan, have)); err == nil {
		t.Error("the firewall was changed")
	}
	if links := run(t, "ip -br link"); strings.Contains(links, "sl-c0") {
		t.Errorf("the cable is still there:\n%s", links)
	}
	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
}

// The accepts of an earlier version, which let anything pass, give way.
func TestOldAcceptsGiveWay(t *testing.T) {
	k, key := open(t)
	node := goldens(t, key)["dual-stack.txtar/a-gw"]
	node.become(t)
	for _, ipt := range []string{"iptables-nft", "ip6tables-nft"} {
		for _, direction := range []string{"-i", "-o"} {
			run(t, ipt+" -I FORWARD "+direction+" sl-+ -m comment --comment sealane -j ACCEPT")
		}
		run(t, ipt+" -A FORWARD -i docker0 -m comment --comment other -j ACCEPT")
	}
	reach(t, k, node.plan)
	for _, ipt := range []string{"iptables-nft", "ip6tables-nft"} {
		want := `-P FORWARD ACCEPT
-A FORWARD -o sl-+ -m mark --mark 0x4/0x4 -m comment --comment sealane -j ACCEPT
-A FORWARD -i sl-+ -m mark --mark 0x4/0x4 -m comment --comment sealane -j ACCEPT
-A FORWARD -i docker0 -m comment --comment other -j ACCEPT
`
		if got := run(t, ipt+" -S FORWARD"); got != want {
			t.Errorf("%s:\n%s", ipt, got)
		}
		run(t, ipt+" -D FORWARD -i docker0 -m comment --comment other -j ACCEPT")
	}
}
