// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sealane-io/sealane/dataplane/kernel"
)

// watch counts what Watch tells, from when it listens.
func watch(t *testing.T, k *kernel.Kernel) *atomic.Int32 {
	t.Helper()
	told := &atomic.Int32{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Watch(ctx, func() { told.Add(1) }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	deadline := time.Now().Add(5 * time.Second)
	for told.Load() == 0 {
		run(t, "ip link set sl-vx alias watched; ip link set sl-vx alias ''")
		if time.Now().After(deadline) {
			t.Fatal("nothing is told")
		}
	}
	return told
}

// more waits until something was told since there were before.
func more(t *testing.T, told *atomic.Int32, before int32) bool {
	t.Helper()
	const within = 2 * time.Second
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < within; <-tick.C {
		if told.Load() > before {
			return true
		}
	}
	return false
}

// rest waits until all that was done so far has been told: the last of it is.
func rest(t *testing.T, told *atomic.Int32) int32 {
	t.Helper()
	before := told.Load()
	run(t, "ip addr add 192.0.2.77/32 dev lo")
	if !more(t, told, before) {
		t.Fatal("an address is not told")
	}
	before = told.Load()
	run(t, "ip addr del 192.0.2.77/32 dev lo")
	if !more(t, told, before) {
		t.Fatal("an address that goes is not told")
	}
	return told.Load()
}

// What others do to a node is told at once.
func TestWatch(t *testing.T) {
	k, key := open(t)
	node := goldens(t, key)["dual-stack.txtar/a-gw"]
	node.become(t)
	reach(t, k, node.plan)
	told := watch(t, k)
	for _, damage := range []string{
		"ip neigh replace 172.31.1.11 lladdr 02:51:00:00:00:01 dev sl-vx nud permanent",
		"ip neigh replace 172.31.1.11 lladdr 02:51:ac:1f:01:0b dev sl-vx nud stale",
		"ip neigh del 172.31.1.11 dev sl-vx",
		"ip neigh add 172.31.1.77 lladdr 02:51:ac:1f:01:4d dev sl-vx nud permanent",
		"bridge fdb replace 02:51:ac:1f:01:0b dev sl-vx dst 172.31.1.77 self permanent",
		"bridge fdb append 02:51:ac:1f:01:4d dev sl-vx dst 172.31.1.77 self static",
		"bridge fdb del 02:51:ac:1f:01:0b dev sl-vx self",
		"echo 1 > /proc/sys/net/ipv4/conf/sl-vx/rp_filter",
		"echo 0 > /proc/sys/net/ipv4/conf/sl-c0/rp_filter",
		"echo 1 > /proc/sys/net/ipv6/conf/sl-c0/disable_ipv6",
		"ip link set sl-vx mtu 1300",
		"ip link set sl-c0 down",
		"ip route flush table 5100",
		"ip rule del pref 105",
		"ip link del sl-c0",
	} {
		before := rest(t, told)
		run(t, damage)
		if !more(t, told, before) {
			t.Errorf("%s is not told", damage)
		}
		rest(t, told)
		reach(t, k, node.plan)
	}
	// A link made anew has another index.
	before := rest(t, told)
	run(t, "echo 1 > /proc/sys/net/ipv4/conf/sl-c0/rp_filter")
	if !more(t, told, before) {
		t.Error("rp_filter of a link that was made meanwhile is not told")
	}
}

// What others do to their own is not.
func TestWatchIsQuiet(t *testing.T) {
	k, key := open(t)
	node := goldens(t, key)["dual-stack.txtar/a-gw"]
	node.become(t)
	reach(t, k, node.plan)
	told := watch(t, k)
	for _, noise := range []string{
		"ip neigh replace 172.31.1.77 lladdr 02:51:00:00:00:01 dev eth0 nud reachable; ip neigh del 172.31.1.77 dev eth0",
		"bridge fdb replace 02:51:00:00:00:01 dev eth0 self permanent; bridge fdb del 02:51:00:00:00:01 dev eth0 self",
		"echo 1 > /proc/sys/net/ipv4/conf/eth0/rp_filter; echo 0 > /proc/sys/net/ipv4/conf/eth0/rp_filter",
		"echo 1 > /proc/sys/net/ipv4/conf/sl-c0/forwarding; echo 0 > /proc/sys/net/ipv4/conf/sl-c0/forwarding",
		"ip link set eth0 alias busy; ip link set eth0 alias ''",
		"ip -6 neigh replace ff02::77 lladdr 33:33:00:00:00:77 dev sl-vx nud noarp",
		"ip route add 192.0.2.78 dev lo; ip route del 192.0.2.78 dev lo",
	} {
		const often = 5
		before := rest(t, told)
		for range often {
			run(t, noise)
		}
		if now := rest(t, told); now-before >= often {
			t.Errorf("%s is told %d times", noise, now-before-2)
		}
	}
}
