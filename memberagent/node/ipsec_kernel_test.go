// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/ipsec"
)

// espOfKernel says whether the kernel is to encrypt.
func espOfKernel() bool { return ipsec.Implementation(*esp) == ipsec.Kernel }

// needsESP skips a test where the kernel is not to encrypt.
func needsESP(t *testing.T) {
	t.Helper()
	if !espOfKernel() {
		t.Skip("the kernel of this machine has no ESP: TestIPsecByTheKernel of e2e/vm runs this in one that has")
	}
}

// TestTheKernelEncrypts what goes by a cable by IPsec, goes on when charon is killed, and has nothing of it any more
// when there is no such cable.
func TestTheKernelEncrypts(t *testing.T) {
	needsESP(t)
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec})
	// Of somebody else, on the same machine.
	n.gw1.run(t, `ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 7 reqid 7 mode tunnel \
		aead 'rfc4106(gcm(aes))' 0x0000000000000000000000000000000000000007 128
		ip xfrm policy add dir out src 192.0.2.1 dst 192.0.2.2 tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel`)
	carries := func(when string) {
		t.Helper()
		n.sendBy(t, "sl-ci0", byIPsec)
		for _, to := range []string{n.worker2.pods + ".10", n.worker2.pods6 + "::10"} {
			size := map[bool]string{true: "1282", false: "1302"}[strings.Contains(to, ":")] // of 1330 with the headers
			eventually(t, 20*time.Second, when+", a packet of full size gets to "+to, func() bool {
				return within(n.worker1.pod, "ping -c1 -W2 -M do -s "+size+" "+to).Run() == nil
			})
		}
	}
	carries("at first")
	for _, m := range n.gateways() {
		eventually(t, 20*time.Second, m.name+" says that its kernel encrypts", func() bool {
			return strings.HasSuffix(m.tunnel().Algorithms, ", ESP AES_GCM_16/128 by the kernel")
		})
		m.killCharon(t)
		carries("charon of " + m.name + " was killed")
	}
	n.gw1.run(t, "ip link del sealane-esp")
	carries("the carrier of gw1 was removed")

	n.othersPolicies(t)
	carries("the other policies have gone")
	n.sealed(t)

	n.reachBy(t, v1alpha1.CableWireGuard, "c1", "c2")
	for _, m := range n.gateways() {
		eventually(t, 30*time.Second, "nothing of it is left on "+m.name, func() bool {
			return m.charon(t) == 0 && m.command("! ip -o link | grep -q sl-ci && "+nothingOfESP).Run() == nil
		})
	}
	n.gw1.run(t, "ip xfrm state | grep -q 192.0.2.1; ip xfrm policy | grep -q 192.0.2.1")
}

// othersPolicies has somebody else on gw1 take packets to outer addresses, to encrypt them by a cipher that does not,
// and fails the test if one leaves so. A packet that goes elsewhere shows that such a one would be seen.
func (n *network) othersPolicies(t *testing.T) {
	t.Helper()
	const takesCable = "dst fd51::/16 proto 17 dport 4535"
	other := fmt.Sprintf("src %s dst %s", n.gw1.ip6, n.gw2.ip6)
	by := " dir out tmpl " + other + " proto esp reqid 8 mode tunnel"
	n.run(t, "nft add rule bridge clear c ether type ip6 @nh,448,16 0xfd51 counter comment byothers")
	seen := func() int { return counted(t, n.command("nft list table bridge clear"), "byothers") }
	dropped := func() (sum int) {
		for _, f := range strings.Split(n.gw1.run(t, "nft list chain ip6 sealane sent"), "packets ")[1:] {
			var k int
			_, _ = fmt.Sscan(f, &k)
			sum += k
		}
		return sum
	}
	n.gw1.run(t, `ip xfrm state add `+other+` proto esp spi 8 reqid 8 mode tunnel enc 'ecb(cipher_null)' ''
		ip -6 route add fd51:dead::1/128 dev eth0
		ip xfrm policy add dst fd51:dead::1/128`+by+`
		own=$(ip -6 -o addr show dev sealane-esp | grep -o 'fd51[0-9a-f:]*')
		ping -c3 -W1 -i0.2 -I "$own" fd51:dead::1 || true`)
	before := seen()
	if before == 0 {
		t.Fatal("no packet of somebody else's policy was seen: this could not fail")
	}
	for _, take := range []struct{ what, begin, end string }{
		{"a policy", "ip xfrm policy add " + takesCable + by, "ip xfrm policy del " + takesCable + " dir out"},
		{"a policy by a mark", `ip xfrm policy add dst fd51::/16 mark 0x77` + by + `
			nft 'add table ip6 other; add chain ip6 other marks { type route hook output priority mangle; }
				add rule ip6 other marks udp dport 4535 meta mark set 0x77'`,
			"nft delete table ip6 other; ip xfrm policy del dst fd51::/16 mark 0x77 dir out"},
	} {
		n.gw1.run(t, take.begin)
		from := dropped()
		eventually(t, 20*time.Second, take.what+" of somebody else's takes packets", func() bool {
			return dropped() >= from+5
		})
		n.gw1.run(t, take.end)
		if k := seen() - before; k > 0 {
			t.Errorf("%d packets left by %s of somebody else's, which encrypts nothing", k, take.what)
		}
	}
	n.gw1.run(t, `ip xfrm policy del dst fd51:dead::1/128 dir out; ip -6 route del fd51:dead::1/128
		ip xfrm state del `+other+` proto esp spi 8`)
}

// nothingOfESP fails where something of cables by IPsec is left that the kernel encrypts.
const nothingOfESP = `! ip -o link | grep -q sealane-esp && ! { ip xfrm state; ip xfrm policy; } | grep -q if_id`

// TestNothingOfESPIsLeft by who is uninstalled, or installed again without the container.
func TestNothingOfESPIsLeft(t *testing.T) {
	needsESP(t)
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec})
	n.sendBy(t, "sl-ci0", byIPsec)
	if err := os.WriteFile(n.gw1.path("uninstalled"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.gw1.endIPsec()
	n.gw1.stop(t, syscall.SIGTERM)
	n.gw1.run(t, nothingOfESP)

	n.gw2.endIPsec()
	n.gw2.stop(t, syscall.SIGTERM)
	n.gw2.run(t, "! { "+nothingOfESP+"; }") // it may be an upgrade
	if err := os.RemoveAll(n.gw2.path("ipsec")); err != nil {
		t.Fatal(err)
	}
	n.gw2.start(t)
	eventually(t, 20*time.Second, "an agent without the container cleans up", func() bool {
		return n.gw2.command(nothingOfESP).Run() == nil
	})
}

// TestTheKernelsESPOutlivesItsPod: security associations that no process has go on, but for the moment in which nothing
// has their UDP port.
func TestTheKernelsESPOutlivesItsPod(t *testing.T) {
	needsESP(t)
	t.Parallel()
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec})
	n.sendBy(t, "sl-ci0", byIPsec)
	f := newTraffic(t, n.worker1, n.worker2)
	for range 2 {
		for _, m := range n.gateways() {
			f.begin()
			// As a DaemonSet has it, the next pod is there before this one has ended: its container waits for its turn.
			former := m.endIPsec
			m.endIPsec = m.runIPsec(t)
			f.stretch.lasts(t, 500*time.Millisecond)
			former()
			m.stop(t, syscall.SIGTERM)
			// Without an agent, the container that runs charon is to undo nothing, and to hold its port.
			for begin := time.Now(); time.Since(begin) < 3*time.Second; {
				eventually(t, time.Second, "packets pass without an agent", func() bool {
					return n.worker1.pings(n.worker2.pods+".10", "")
				})
			}
			m.start(t)
			n.sendBy(t, "sl-ci0", byIPsec)
			f.stretch.lasts(t, 6*time.Second)
			f.stretch.check(t, "the pod of "+m.name+" is another one", allowed{lost: 100, outage: time.Second})
		}
	}
	n.sealed(t)
}

// TestTheKernelsESPInASurge: the next pod is there, and its agent waits, before the one before it ends. The first of
// them came while there were no cables by IPsec.
func TestTheKernelsESPInASurge(t *testing.T) {
	needsESP(t)
	t.Parallel()
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{})
	n.sendBy(t, "sl-c0", v1alpha1.CableWireGuard)
	f := newTraffic(t, n.worker1, n.worker2)
	for _, when := range []string{"cables became IPsec while the next pod waited", "cables were IPsec"} {
		former := n.gw1.endIPsec
		n.gw1.endIPsec = n.gw1.runIPsec(t)
		next := n.gw1.follow(t)
		n.reachBy(t, byIPsec, "c1", "c2")
		n.sendBy(t, "sl-ci0", byIPsec)
		f.begin()
		former()
		n.gw1.stop(t, syscall.SIGTERM)
		n.gw1.agent = next
		f.stretch.lasts(t, 6*time.Second)
		n.sendBy(t, "sl-ci0", byIPsec)
		eventually(t, 40*time.Second, when+": keys do not stay", func() bool { return n.gw1.tunnel().Reason == "" })
		f.stretch.check(t, when, allowed{lost: 100, outage: time.Second})
	}
	n.sealed(t)
}

// TestOneFamilyIsEnoughForTheKernelsESP, whichever it is, also while charon is killed.
func TestOneFamilyIsEnoughForTheKernelsESP(t *testing.T) {
	needsESP(t)
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec})
	n.sendBy(t, "sl-ci0", byIPsec)
	for _, shut := range []string{"ip", "ip6", "ip"} {
		n.run(t, "nft flush chain bridge clear shut; nft add rule bridge clear shut ether type "+shut+" udp dport 4534 drop")
		n.gw1.killCharon(t)
		took := eventually(t, 40*time.Second, "a connection while "+shut+" is shut", func() bool {
			at, err := netip.ParseAddrPort(n.gw1.tunnel().Address)
			return err == nil && at.Addr().Is6() == (shut == "ip") && n.worker1.pings(n.worker2.pods+".10", "")
		})
		t.Logf("connected %s after %s was shut", took.Round(100*time.Millisecond), shut)
		lost := 0
		for range 20 {
			if !n.worker1.pings(n.worker2.pods+".10", "") {
				lost++
			}
		}
		if lost > 2 { // one association may take the place of another
			t.Errorf("%d of 20 packets were lost while %s is shut", lost, shut)
		}
	}
	n.run(t, "nft flush chain bridge clear shut")
	n.sendBy(t, "sl-ci0", byIPsec)
}

// TestLeavingWhileCharonHangs: what it would have removed goes all the same, and comes again with the cluster.
func TestLeavingWhileCharonHangs(t *testing.T) {
	needsESP(t)
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec})
	n.sendBy(t, "sl-ci0", byIPsec)
	n.gw1.signalCharon(t, syscall.SIGSTOP)
	n.tellSome(t, v1alpha1.MemberLeaving, n.gw1)
	eventually(t, 20*time.Second, "nothing is left", func() bool {
		return n.gw1.charon(t) == 0 && n.gw1.command(nothingOfESP).Run() == nil
	})
	n.tellSome(t, v1alpha1.MemberActive, n.gw1)
	n.sendBy(t, "sl-ci0", byIPsec)
}
