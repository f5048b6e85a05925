// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/internal/globalnet"
)

// slotOf returns the slot of c1's gateway in whose share an address is, or -1.
func slotOf(f family, seen net.Conn) int {
	buffer := make([]byte, 128)
	k, err := seen.Read(buffer)
	if err != nil {
		return -1
	}
	fields := strings.Fields(string(buffer[:k]))
	for slot := range 3 {
		if host, _, err := net.SplitHostPort(fields[len(fields)-1]); err == nil &&
			globalnet.Share(f.block("c1"), slot).Contains(netip.MustParseAddr(host)) {
			return slot
		}
	}
	return -1
}

// TestTwinClustersWithThreeGateways: each of three gateways sends from its own share, and what it has translated comes
// back to it. Two of them are lost one after the other: each time the connections end that the lost one has
// translated, at once, the others go on, and new ones come from the shares that are left. So it is in both families.
func TestTwinClustersWithThreeGateways(t *testing.T) {
	t.Parallel()
	n := newTwins(t, nil)
	n.gw4 = n.newMachine(t, "gw4", "c1", 6, "10.7.2", "fd07:0:0:2")
	n.gw5 = n.newMachine(t, "gw5", "c1", 7, "10.7.3", "fd07:0:0:3")
	for _, m := range n.all() { // connections of one pod take all gateways
		m.run(t, `for v in ipv4 ipv6; do echo 1 > /proc/sys/net/$v/fib_multipath_hash_policy; done`)
	}
	n.tellAgain(t)
	n.gw4.startTwin(t)
	n.gw5.startTwin(t)
	for _, m := range n.all() {
		m.serve(t)
	}
	families := []family{ofIPv4, ofIPv6}
	for _, f := range families {
		n.seenFromSlots(t, f, 0, 1, 2)
	}
	type flow struct {
		f    family
		slot int
	}
	flows := map[net.Conn]flow{}
	for _, f := range families {
		for range 40 {
			c, err := dialFrom(t, n.worker1.pod, f.tcp(), f.port(serviceOfTwin2, "80"))
			if err != nil {
				t.Fatal(err)
			}
			flows[c] = flow{f, slotOf(f, c)}
		}
	}
	lost := map[int]bool{}
	for slot, m := range map[int]*machine{1: n.gw4, 2: n.gw5} {
		n.run(t, "ip link set "+m.name+" down")
		lost[slot] = true
		var left []int
		for s := range 3 {
			if !lost[s] {
				left = append(left, s)
			}
		}
		for _, f := range families {
			n.seenFromSlots(t, f, left...)
		}
		ended := 0
		for c, of := range flows {
			err := asks(c)
			switch {
			case of.slot == slot && err == nil:
				t.Errorf("%s: a connection that %s translated goes on: how?", of.f, m.name)
			case of.slot == slot && strings.Contains(err.Error(), "timeout"):
				t.Errorf("%s: a connection that %s translated hangs: %v", of.f, m.name, err)
			case of.slot != slot && err != nil:
				t.Errorf("%s: a connection of slot %d ended with the gateway of slot %d: %v", of.f, of.slot, slot, err)
			}
			if of.slot == slot {
				ended++
				delete(flows, c)
			}
		}
		t.Logf("%s is lost: %d connections ended, %d go on", m.name, ended, len(flows))
		if ended == 0 || len(flows) == 0 {
			t.Error("this shows nothing")
		}
	}
	n.run(t, "ip link set gw4 up; ip link set gw5 up")
	for _, f := range families {
		n.seenFromSlots(t, f, 0, 1, 2)
	}
	for c, of := range flows {
		if err := asks(c); err != nil {
			t.Errorf("%s: a connection of the gateway that stayed ended: %v", of.f, err)
		}
	}
}

// seenFromSlots waits until new connections come from the shares of these gateways and of no others, and all are made.
func (n *twins) seenFromSlots(t *testing.T, f family, slots ...int) {
	t.Helper()
	last := ""
	defer func() {
		if t.Failed() {
			t.Log(last)
		}
	}()
	want := map[int]bool{}
	for _, s := range slots {
		want[s] = true
	}
	eventually(t, time.Minute, fmt.Sprintf("%s: new connections from the shares of %v", f, slots), func() bool {
		seen := map[int]int{}
		for range 30 {
			c, err := dialFor(t, time.Second, n.worker1.pod, f.tcp(), f.port(serviceOfTwin2, "80"))
			if err != nil {
				last = err.Error()
				return false
			}
			seen[slotOf(f, c)]++
			_ = c.Close()
		}
		last = fmt.Sprint(seen)
		for s := range seen {
			if !want[s] {
				return false
			}
		}
		return len(seen) == len(want)
	})
}
