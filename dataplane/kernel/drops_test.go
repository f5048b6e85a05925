// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"testing"

	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// TestDrops: what the guard drops is counted, by chain, and changes of elements take nothing from it.
func TestDrops(t *testing.T) {
	k, key := open(t)
	if drops, err := k.Drops(t.Context()); err != nil || len(drops) != 0 {
		t.Fatalf("without a table: %v, %v", drops, err)
	}
	node := goldens(t, key)["spine.txtar/a-gw"]
	node.become(t)
	reach(t, k, node.plan)
	guard := func() uint64 {
		drops, err := k.Drops(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range drops {
			if d.Family == plan.IPv4 && d.Chain == "guard" {
				return d.Packets
			}
		}
		t.Fatalf("the guard is not among %v", drops)
		return 0
	}
	before := guard()
	const packets = 3
	for range packets {
		run(t, "ip link set lo up; bash -c 'echo forged >/dev/udp/127.0.0.1/4800'") // VXLAN to what is no node's address
	}
	if got := guard(); got != before+packets {
		t.Errorf("%d packets dropped, want %d", got, before+packets)
	}
	run(t, "nft add element ip sealane remote '{ 10.77.0.0/16 }'")
	if got := guard(); got != before+packets {
		t.Errorf("%d packets dropped after a change of an element, want %d", got, before+packets)
	}
	var again []kernel.Drops
	for range 2 {
		drops, err := k.Drops(t.Context())
		if err != nil || (again != nil && len(drops) != len(again)) {
			t.Errorf("%v, %v, before %v", drops, err, again)
		}
		again = drops
	}
}
