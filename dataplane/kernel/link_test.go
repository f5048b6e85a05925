// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"net"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// TestAPortThatAnotherProgramHas is named with what to do, and free when that program ends; while our own link has it,
// no other has.
func TestAPortThatAnotherProgramHas(t *testing.T) {
	k, key := open(t)
	node := goldens(t, key)["spine.txtar/a-gw"]
	node.become(t)
	const port = 4800
	taken := func(want bool) {
		t.Helper()
		if got, err := k.PortTaken(port, plan.IPv4); err != nil || got != want {
			t.Errorf("the port is another program's: expected %t, found %t, %v", want, got, err)
		}
	}
	taken(false)
	program, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	taken(true)
	err = k.Do(t.Context(), plan.Diff(node.plan, plan.Plan{}))
	if err == nil || !strings.Contains(err.Error(), "UDP port 4800 is another program's on this node: see which") {
		t.Errorf("error %v does not name the port", err)
	}
	taken(true) // our link is there, and down
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	have, err := k.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Do(t.Context(), plan.Diff(node.plan, have)); err != nil {
		t.Fatal(err)
	}
	taken(false)
}
