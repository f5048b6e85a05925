// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"strings"
	"testing"
)

// TestParseProfile reads what perf 6.1 prints.
func TestParseProfile(t *testing.T) {
	const report = `# Samples: 27  of event 'cpu-clock'
#
#      Samples` + "\tCommand        \tSymbol\n" + `
 9          ` + "\tswapper        \t[k] pv_native_safe_halt\n" + `
 6          ` + "\tkube-apiserver \t[k] native_write_msr\n" + `
 5          ` + "\tsealane-agent  \t[.] 0x00000000000373fe\n" + `
 4          ` + "\tkubelet        \t[k] nft_do_chain\n" + `
 3          ` + "\tsealane-agent  \t[k] nft_do_chain\n"
	got, err := parseProfile(report)
	want := map[function]int{
		{"kube-apiserver", "native_write_msr", true}:   6,
		{"sealane-agent", "0x00000000000373fe", false}: 5,
		{"kubelet", "nft_do_chain", true}:              4,
		{"sealane-agent", "nft_do_chain", true}:        3,
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("found %v, %v; expected %v", got, err, want)
	}
	for _, bad := range []string{"7", "many\tprogram\t[k] f"} {
		if _, err := parseProfile(bad); err == nil || !strings.Contains(err.Error(), "report of perf: expected") {
			t.Errorf("%q: found error %v", bad, err)
		}
	}
}

// TestRows: what packets cost counts to them, whichever program was interrupted.
func TestRows(t *testing.T) {
	for f, want := range map[function]string{
		{"sealane-agent", "0x1", false}:               "WireGuard in its process",
		{"whereami", "runtime.memmove", false}:        "client and server",
		{"etcd", "runtime.memmove", false}:            control,
		{"etcd", "nft_do_chain", true}:                "rules and connection tracking",
		{"etcd", "finish_task_switch", true}:          control,
		{"swapper", "finish_task_switch", true}:       waits,
		{"sealane-agent", "tun_get_user", true}:       "bridges, veth, VXLAN, TUN",
		{"sealane-agent", "_copy_to_iter", true}:      "copies",
		{"swapper", "default_idle", true}:             idle,
		{"client", "__tcp_transmit_skb", true}:        "TCP, sockets, packets' memory",
		{"client", "something_that_fits_none", true}:  others,
		{"sealane-agent", "__ip_finish_output", true}: "IP and UDP",
	} {
		if got := f.row(); got != want {
			t.Errorf("%v: found %q, expected %q", f, got, want)
		}
	}
}

// TestProfile is of medians of rounds, in which a function need not be.
func TestProfile(t *testing.T) {
	a, b := function{"swapper", "nft_do_chain", true}, function{"client", "tcp_ack", true}
	p := profile{rounds: []map[function]float64{{a: 1, b: 2}, {a: 3}, {a: 5, b: 4}}}
	if per := p.Per("rules and connection tracking"); per != 3 {
		t.Errorf("rules: found %v, expected 3", per)
	}
	if all := p.All(); all != 3 {
		t.Errorf("all: found %v, expected 3", all)
	}
	if top := p.Top(); len(top) != 2 || top[0] != (hot{"nft_do_chain", 3}) || top[1] != (hot{"tcp_ack", 2}) {
		t.Errorf("most in %v", top)
	}
}
