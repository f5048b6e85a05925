// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"golang.org/x/tools/txtar"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// idOf returns a gateway's ID by its private key.
func idOf(key wgtypes.Key) plan.PeerID {
	public := key.PublicKey()
	return plan.PeerID(public[:])
}

// open returns the kernel and its node's ID.
func open(t testing.TB) (*kernel.Kernel, plan.PeerID) {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	k := openWith(t, key, testr.NewWithInterface(t, testr.Options{}))
	return k, idOf(key)
}

func openWith(t testing.TB, key wgtypes.Key, log logr.Logger) *kernel.Kernel {
	t.Helper()
	return openHeld(t, key, cable.NewHolder(log))
}

// openHeld opens a kernel whose userspace devices others hold.
func openHeld(t testing.TB, key wgtypes.Key, holder cable.Devices) *kernel.Kernel {
	t.Helper()
	c, err := cable.OpenWireGuard(cable.OneKey(key), holder)
	if err != nil {
		t.Fatal(err)
	}
	return openDrivers(t, map[string]kernel.Driver{string(v1alpha1.CableWireGuard): c}, c.Close)
}

// openDrivers opens the kernel, which is clean at the end of the test, before its drivers are closed.
func openDrivers(t testing.TB, drivers map[string]kernel.Driver, closeDrivers func() error) *kernel.Kernel {
	t.Helper()
	k, err := kernel.New(drivers, "/proc/sys/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Clean(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		k.Close()
		if err := closeDrivers(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// golden is a node's plan, and the addresses that the node has.
type golden struct {
	plan      plan.Plan
	addresses []netip.Addr
}

// goldens returns what dataplane/plan's goldens describe, for nodes with the given key.
func goldens(t *testing.T, id plan.PeerID) map[string]golden {
	t.Helper()
	paths, err := filepath.Glob("../plan/testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	run(t, "ip link show eth0 || ip link add eth0 type bridge")
	run(t, "ip link set lo up; ip link set eth0 up")
	out := map[string]golden{"nothing": {}}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		in, nodes := readGolden(t, archive)
		top := topology.Build(in)
		for _, n := range nodes {
			n.ID = id
			out[filepath.Base(path)+"/"+n.Name] = golden{plan.For(top, n), addressesOf(top, n)}
		}
	}
	return out
}

func addressesOf(top topology.Topology, n plan.NodeFacts) []netip.Addr {
	addresses := slices.Clone(n.PodAddresses)
	for _, node := range top.Local.Nodes {
		if node.Name == n.Name {
			addresses = append(addresses, node.Addresses...)
		}
	}
	return addresses
}

// become gives the namespace the node's own addresses.
func (g golden) become(t *testing.T) {
	t.Helper()
	script := "ip addr flush dev eth0;"
	for _, a := range g.addresses {
		script += fmt.Sprintf("ip addr add %s dev eth0", netip.PrefixFrom(a, a.BitLen()))
		if a.Is6() {
			script += " nodad"
		}
		script += ";"
	}
	run(t, script)
}

func readGolden(t *testing.T, archive *txtar.Archive) (in topology.Input, nodes []plan.NodeFacts) {
	t.Helper()
	for _, f := range archive.Files {
		switch f.Name {
		case "objects.yaml":
			in = readObjects(t, string(f.Data))
		case "facts.yaml":
			// The nodes of other clusters that answer are given by their keys.
			var facts []struct {
				plan.NodeFacts
				Straight []string `json:"straight"`
			}
			unmarshal(t, f.Data, &facts)
			for _, n := range facts {
				n.NodeFacts.Straight = map[plan.PeerID]bool{}
				for _, text := range n.Straight {
					key, err := wgtypes.ParseKey(text)
					if err != nil {
						t.Fatal(err)
					}
					n.NodeFacts.Straight[plan.PeerID(key[:])] = true
				}
				nodes = append(nodes, n.NodeFacts)
			}
		}
	}
	return in, nodes
}

func readObjects(t *testing.T, objects string) (in topology.Input) {
	t.Helper()
	for doc := range strings.SplitSeq(objects, "---\n") {
		switch {
		case strings.Contains(doc, "kind: Peering"):
			in.Peering = &v1alpha1.Peering{}
			unmarshal(t, []byte(doc), in.Peering)
		case strings.Contains(doc, "kind: GlobalAllocation"):
			in.GlobalAllocations = append(in.GlobalAllocations, v1alpha1.GlobalAllocation{})
			unmarshal(t, []byte(doc), &in.GlobalAllocations[len(in.GlobalAllocations)-1])
		case strings.Contains(doc, "kind: ClusterGlobalEgressIP"):
			in.ClusterGlobalEgressIP = &v1alpha1.ClusterGlobalEgressIP{}
			unmarshal(t, []byte(doc), in.ClusterGlobalEgressIP)
		case strings.Contains(doc, "kind: Gateway"):
			in.Gateways = append(in.Gateways, v1alpha1.Gateway{})
			unmarshal(t, []byte(doc), &in.Gateways[len(in.Gateways)-1])
		case strings.Contains(doc, "kind: Node"):
			in.Nodes = append(in.Nodes, corev1.Node{})
			unmarshal(t, []byte(doc), &in.Nodes[len(in.Nodes)-1])
		}
	}
	return in
}

func unmarshal(t *testing.T, doc []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(doc, into); err != nil {
		t.Fatalf("read %s: %v", doc, err)
	}
}

func run(t testing.TB, script string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// reach makes the kernel hold a plan, and checks that it does.
func reach(t testing.TB, k *kernel.Kernel, want plan.Plan) {
	t.Helper()
	have, err := k.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Do(t.Context(), plan.Diff(want, have)); err != nil {
		t.Fatal(err)
	}
	have, err = k.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if left := plan.Diff(want, have); len(left) > 0 {
		t.Fatalf("still to do: %v\nhave:\n%v", left, have)
	}
}

// Whatever the node was before, it becomes what the plan says.
func TestRandomWalk(t *testing.T) {
	k, key := open(t)
	plans := goldens(t, key)
	names := make([]string, 0, len(plans))
	for name := range plans {
		names = append(names, name)
	}
	slices.Sort(names)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			t.Log(name)
			plans[name].become(t)
			reach(t, k, plans[name].plan)
		}
	}
}

func TestCleanLeavesNothing(t *testing.T) {
	k, key := open(t)
	plans := goldens(t, key)
	node := plans["dual-stack.txtar/a-gw"]
	node.become(t)
	before := settled(t)
	reach(t, k, node.plan)
	if snapshot(t) == before {
		t.Fatal("the plan changed nothing")
	}
	if err := k.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := snapshot(t); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
}

// settled is the snapshot once the kernel has added the local route of every IPv6 address, which it does a
// little later than the address.
func settled(t *testing.T) string {
	t.Helper()
	deadline := time.After(5 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		routes := run(t, "ip -6 route show table local type local dev eth0 | wc -l; ip -6 -o addr show dev eth0 | wc -l")
		if counts := strings.Fields(routes); len(counts) == 2 && counts[0] == counts[1] {
			return snapshot(t)
		}
		select {
		case <-deadline:
			t.Fatalf("IPv6 addresses without local routes: %s", routes)
		case <-tick.C:
		}
	}
}

// snapshot shows the namespace as an administrator sees it.
func snapshot(t *testing.T) string {
	return run(t, `ip -br link; ip -br addr; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all;
		nft list tables | grep sealane || true; iptables-nft -S; ip6tables-nft -S`)
}

// What others break is repaired.
func TestRepair(t *testing.T) {
	k, key := open(t)
	node := goldens(t, key)["dual-stack.txtar/a-gw"]
	node.become(t)
	want := node.plan
	reach(t, k, want)
	for _, damage := range []string{
		"ip link del sl-vx",
		"ip link del sl-c0",
		"ip link set sl-c0 down",
		"ip link set sl-vx mtu 1300",
		"ip addr flush dev sl-c0",
		"ip addr flush dev sl-vx",
		"ip route flush table 5100; ip -6 route flush table 5101",
		"ip route add 10.77.0.0/16 dev eth0 table 5100",
		"ip rule del pref 105; ip -6 rule del pref 103",
		"ip rule add pref 103 iif eth0 lookup 5101",
		"ip neigh flush dev sl-vx nud permanent; bridge fdb del 02:51:ac:1f:01:0b dev sl-vx dst 172.31.1.11",
		"ip link set dev sl-vx address 02:00:00:00:00:01",
		"nft delete table ip sealane",
		"nft flush chain ip6 sealane guard",
		"nft delete element ip sealane remote { 10.9.0.0/16 }",
		"nft add element ip sealane remote { 10.12.0.0/16 }",
		"nft add rule ip sealane clamp accept",
		"iptables-nft -F FORWARD; ip6tables-nft -D FORWARD 1",
		"sysctl -qw net.ipv4.conf.sl-c0.rp_filter=1 || echo 1 > /proc/sys/net/ipv4/conf/sl-c0/rp_filter",
	} {
		t.Log(damage)
		run(t, damage)
		have, err := k.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Diff(want, have)) == 0 {
			t.Errorf("%s went unnoticed", damage)
		}
		reach(t, k, want)
	}
}

// A change that fails is named, and the others are made.
func TestFailureIsNamed(t *testing.T) {
	k, key := open(t)
	node := goldens(t, key)["spine.txtar/a-gw"]
	node.become(t)
	want := node.plan
	want.Routes = append(want.Routes, plan.Route{
		Table: plan.OutboundTable, Dst: netip.MustParsePrefix("10.66.0.0/16"), Metric: plan.RouteMetric, Type: plan.Unicast,
		NextHops: []plan.NextHop{{Link: "sl-none", Weight: 1}},
	})
	err := k.Do(t.Context(), plan.Diff(want, plan.Plan{}))
	if err == nil || !strings.Contains(err.Error(), "add route 10.66.0.0/16 dev sl-none table 5100") {
		t.Errorf("error %q does not name the route", err)
	}
	have, err := k.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if left := plan.Diff(want, have); len(left) != 1 {
		t.Errorf("still to do: %v", left)
	}
}

// A restarted process finds a userspace device gone that was its own, and everything else in place; one that is held by
// another process is in place too.
func TestRestart(t *testing.T) {
	for _, alone := range []bool{true, false} {
		t.Run(map[bool]string{true: "devices of its own", false: "devices that are held"}[alone], func(t *testing.T) {
			key, err := wgtypes.GeneratePrivateKey()
			if err != nil {
				t.Fatal(err)
			}
			node := goldens(t, idOf(key))["spine.txtar/a-gw"]
			node.become(t)
			want := node.plan
			holder := cable.NewHolder(testr.New(t))
			t.Cleanup(holder.Close)
			devices := func() cable.Devices {
				if alone {
					return holder
				}
				mine, theirs := net.Pipe()
				go func() { _ = holder.Serve(theirs) }()
				t.Cleanup(func() { _ = mine.Close() })
				return cable.Remote(mine)
			}
			c, err := cable.OpenWireGuard(cable.OneKey(key), devices())
			if err != nil {
				t.Fatal(err)
			}
			first, err := kernel.New(map[string]kernel.Driver{string(v1alpha1.CableWireGuard): c}, "/proc/sys/net")
			if err != nil {
				t.Fatal(err)
			}
			reach(t, first, want)
			first.Close()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if alone {
				holder.Close()
			}
			second := openHeld(t, key, devices())
			have, err := second.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, change := range plan.Diff(want, have) {
				if !alone || change.Kind == plan.KindTable || change.Kind == plan.KindConnection ||
					change.Kind == plan.KindForward {
					t.Errorf("a restart does %v", change)
				}
			}
			reach(t, second, want)
		})
	}
}

func TestPeerKeepsItsEndpoint(t *testing.T) {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cable.OpenWireGuard(cable.OneKey(key), cable.NewHolder(testr.New(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Create("sl-c0", 1420); err != nil {
		t.Fatal(err)
	}
	first, second := netip.MustParseAddrPort("192.0.2.1:4500"), netip.MustParseAddrPort("[2001:db8::1]:4500")
	peer := plan.TunnelPeer{Link: "sl-c0", Peer: plan.Peer{ID: plan.PeerID(make([]byte, 31)) + "1", KeepaliveSeconds: 5,
		Candidates: []netip.AddrPort{first, second}, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}}
	expect := func(endpoint netip.AddrPort) {
		t.Helper()
		states, err := c.Peers("sl-c0")
		if err != nil || len(states) != 1 || states[0].Endpoint != endpoint {
			t.Fatalf("peers %+v, %v; want endpoint %v", states, err, endpoint)
		}
	}
	if err := c.SetPeer(peer, true); err != nil {
		t.Fatal(err)
	}
	expect(first)
	if err := c.Redial("sl-c0", peer.ID, second); err != nil {
		t.Fatal(err)
	}
	peer.AllowedIPs = nil
	if err := c.SetPeer(peer, false); err != nil {
		t.Fatal(err)
	}
	expect(second)
	// It was never heard: with its endpoint it was made anew, and is as it was.
	peer.AllowedIPs = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("fd09::/48")}
	if err := c.SetPeer(peer, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Redial("sl-c0", peer.ID, first); err != nil {
		t.Fatal(err)
	}
	have, err := c.Observe("sl-c0")
	if err != nil {
		t.Fatal(err)
	}
	want := plan.Peer{ID: peer.ID, Endpoint: first, AllowedIPs: peer.AllowedIPs, KeepaliveSeconds: 5}
	if len(have.Peers) != 1 || !reflect.DeepEqual(have.Peers[0], want) {
		t.Errorf("expected %+v, found %+v", want, have.Peers)
	}
	if err := c.RemovePeer("sl-c0", peer.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete("sl-c0"); err != nil {
		t.Fatal(err)
	}
	if err := c.RemovePeer("sl-c0", peer.ID); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
	if _, err := os.Stat("/run/wireguard/sl-c0.sock"); err == nil {
		t.Error("the control socket is still there")
	}
}

// A device whose control socket somebody removed cannot be configured, and is made anew.
func TestALostControlSocketComesBack(t *testing.T) {
	k, key := open(t)
	node := goldens(t, key)["spine.txtar/a-gw"]
	node.become(t)
	reach(t, k, node.plan)
	const socket = "/run/wireguard/sl-c0.sock"
	switch err := os.Remove(socket); {
	case os.IsNotExist(err):
		t.Skip("this kernel has WireGuard, and devices no control socket")
	case err != nil:
		t.Fatal(err)
	}
	reach(t, k, node.plan)
	if _, err := os.Stat(socket); err != nil {
		t.Error(err)
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if what, err := os.Readlink(fd); err == nil && strings.Contains(what, "inotify") {
			t.Errorf("a device takes one of the host's few inotify instances: %s", what)
		}
	}
}
