// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// six is the address of IPv6 that stands for one of the twins' global addresses.
func six(ip string) string {
	return globalnet.IPv6Addr(netip.MustParsePrefix("fd5e:a1a4:e242::/48"), netip.MustParseAddr(ip)).String()
}

func sixPort(ip, port string) string { return net.JoinHostPort(six(ip), port) }

// TestTwinClustersOfIPv6: two clusters with the same networks of IPv6 reach each other's services and pods by global
// addresses of it, both where they have IPv4 too and where they do not.
func TestTwinClustersOfIPv6(t *testing.T) {
	t.Parallel()
	for name, only := range map[string]bool{"dual-stack": false, "of IPv6 alone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &twins{network: withoutMachines(t), onlyIPv6: only}
			n.startTwins(t)
			for _, m := range n.all() {
				m.serve(t)
			}
			eventually(t, time.Minute, "gateways connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
			n.answersIPv6(t)
			for _, m := range []*machine{n.gw1, n.gw2} {
				m.run(t, fmt.Sprintf(`nft add table ip6 test
					nft add chain ip6 test pre '{ type filter hook prerouting priority -301; }'
					nft add rule ip6 test pre iifname sl-c0 ip6 saddr != { fd5e:a1a4:e242::/48, fd51::/16 } counter comment shown
					nft add rule ip6 test pre iifname sl-c0 ip6 daddr != { %s, fd51::/16 } counter comment shown`,
					blocksIPv6[m.cluster]))
			}
			t.Run("from everywhere, to both backends", n.fromEverywhereByIPv6)
			t.Run("errors reach the real sender", n.errorsOfIPv6)
			t.Run("a large transfer", n.transferByIPv6)
			t.Run("large datagrams", func(t *testing.T) { n.largeDatagrams(t, ofIPv6) })
			t.Run("SCTP", func(t *testing.T) { n.associates(t, ofIPv6) })
			t.Run("session affinity", func(t *testing.T) { n.keepsToOneBackend(t, ofIPv6) })
			t.Run("addresses that nobody has", n.unassignedOfIPv6)
			n.pods = podsOfTwins()
			n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.0.10", "10.7.1.10"})
			eventually(t, 20*time.Second, "a pod is known by its own address", func() bool {
				_, client, err := ask(t, n.worker1.pod, "tcp6", sixPort("120.2.0.21", "8080"))
				return err == nil && client.String() == six("120.1.0.21")
			})
			t.Run("pods both ways", n.podsBothWaysByIPv6)
			for _, m := range []*machine{n.gw1, n.gw2} {
				if shown := counted(t, m.command("nft list table ip6 test"), "shown"); shown != 0 {
					t.Errorf("%s: %d packets came with an address that is not global", m.name, shown)
				}
			}
			t.Run("headers of extensions", n.extensionsOfIPv6)
			t.Run("a hostile twin", n.hostileByIPv6)
			t.Run("nothing is left", func(t *testing.T) {
				n.tellTwins(t, v1alpha1.MemberLeaving, nil)
				for _, m := range n.all() {
					m.becomes(t, 20*time.Second, "")
				}
			})
		})
	}
}

func (n *twins) answersIPv6(t *testing.T) {
	t.Helper()
	for from, to := range map[*machine]string{n.worker1: serviceOfTwin2, n.worker2: serviceOfTwin1} {
		eventually(t, 20*time.Second, "an answer to "+from.name, func() bool {
			_, _, err := ask(t, from.pod, "tcp6", sixPort(to, "80"))
			return err == nil
		})
	}
}

func (n *twins) fromEverywhereByIPv6(t *testing.T) {
	for name, c := range map[string]struct {
		from *exec.Cmd
		own  string
	}{
		"a pod of a worker": {n.worker1.pod, "c1"}, "a pod of a gateway": {n.gw1.pod, "c1"},
		"a worker": {n.worker1.holder, "c1"}, "a gateway": {n.gw1.holder, "c1"},
		"a pod of the other's worker": {n.worker2.pod, "c2"}, "the other's gateway": {n.gw2.holder, "c2"},
	} {
		to := map[string]string{"c1": serviceOfTwin2, "c2": serviceOfTwin1}[c.own]
		share := globalnet.Share(netip.MustParsePrefix(blocksIPv6[c.own]), 0)
		for _, network := range []string{"tcp6", "udp6"} {
			servers, clients := map[string]bool{}, map[netip.Addr]bool{}
			for range 40 {
				server, client, err := ask(t, c.from, network, sixPort(to, "80"))
				if err != nil {
					t.Errorf("%s from %s: %v", network, name, err)
					break
				}
				servers[server], clients[client] = true, true
				if !share.Contains(client) {
					t.Errorf("%s from %s: the server sees %s", network, name, client)
				}
			}
			if len(servers) != 2 || len(clients) != 1 {
				t.Errorf("%s from %s: answered by %v, seen as %v: want both backends, and one address", network, name,
					servers, clients)
			}
		}
	}
}

func (n *twins) errorsOfIPv6(t *testing.T) {
	t.Run("port unreachable", func(t *testing.T) {
		if _, _, err := ask(t, n.worker1.pod, "udp6", sixPort(serviceOfTwin2, "81")); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("packet too big", func(t *testing.T) {
		// The way to the pod narrows behind the worker.
		n.worker2.run(t, "ip -6 route replace fd07:0:0:1::10/128 dev cni0 mtu lock 1290; ip link set pod0 mtu 1290")
		defer n.worker2.run(t, "ip -6 route del fd07:0:0:1::10/128; ip link set pod0 mtu 1500")
		c, err := dialFrom(t, n.worker1.pod, "udp6", sixPort(serviceOfTwin2, "81"))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "the sender learns the path's MTU", func() bool {
			_, _ = c.Write(make([]byte, 1330))
			mtu := 0
			if err := raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
				mtu, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU)
			}); err != nil {
				t.Fatal(err)
			}
			return mtu == 1290
		})
	})
	t.Run("echo", func(t *testing.T) {
		if text, err := within(n.worker1.pod, "ping -c 1 -W 1 "+six(serviceOfTwin2)).CombinedOutput(); err == nil {
			t.Errorf("a service answers an echo request: %s", text)
		}
	})
}

func (n *twins) transferByIPv6(t *testing.T) {
	c, err := dialFrom(t, n.worker1.pod, "tcp6", sixPort(serviceOfTwin2, "80"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second * time.Duration(*slow))); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1); b[0] != '\n'; {
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(sent, got) {
		t.Errorf("%d bytes are not echoed: %v", len(sent), err)
	}
}

// unassignedOfIPv6: what nobody has is refused to others, and from within leads nowhere.
func (n *twins) unassignedOfIPv6(t *testing.T) {
	for _, m := range n.all() {
		m.run(t, "echo 0 > /proc/sys/net/ipv6/icmp/ratelimit")
	}
	refused := func(err error) bool {
		return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH)
	}
	for name, from := range map[string]*exec.Cmd{"a worker's pod": n.worker1.pod, "a gateway": n.gw1.holder} {
		for _, to := range []string{sixPort("120.2.0.99", "80"), sixPort("120.2.0.140", "80"),
			sixPort(serviceOfTwin2, "443"), sixPort(serviceOfTwin1, "80"), sixPort("120.1.0.99", "80")} {
			if _, err := dialFrom(t, from, "tcp6", to); !refused(err) {
				t.Errorf("%s to %s: %v", name, to, err)
			}
		}
		const twice = 1500 * time.Millisecond // the second SYN is sent after a second
		if _, err := dialFor(t, twice, from, "tcp6", sixPort("120.2.0.128", "22")); err == nil {
			t.Errorf("%s connects to the gateway itself", name)
		}
	}
	if server, client, err := ask(t, n.worker1.pod, "tcp6", "[fd07:0:0:1::10]:8080"); err != nil || server != "worker1" ||
		client.String() != "fd07:0:0:1::10" {
		t.Errorf("the own pod: %s sees %s, %v", server, client, err)
	}
}

func (n *twins) podsBothWaysByIPv6(t *testing.T) {
	for name, c := range map[string]struct {
		from *exec.Cmd
		own  string // "": one of those that the gateway sends from
		to   map[string]string
	}{
		"a pod of a worker":  {n.worker1.pod, "120.1.0.21", map[string]string{"120.2.0.20": "gw2", "120.2.0.21": "worker2"}},
		"a pod of a gateway": {n.gw1.pod, "120.1.0.20", map[string]string{"120.2.0.20": "gw2", "120.2.0.21": "worker2"}},
		"a worker":           {n.worker1.holder, "", map[string]string{"120.2.0.20": "gw2", "120.2.0.21": "worker2"}},
		"a pod of the other's worker": {n.worker2.pod, "120.2.0.21",
			map[string]string{"120.1.0.20": "gw1", "120.1.0.21": "worker1"}},
		"a pod of the other's gateway": {n.gw2.pod, "120.2.0.20",
			map[string]string{"120.1.0.20": "gw1", "120.1.0.21": "worker1"}},
	} {
		for address, want := range c.to {
			for _, network := range []string{"tcp6", "udp6"} {
				server, client, err := ask(t, c.from, network, sixPort(address, "8080"))
				if err != nil || server != want {
					t.Errorf("%s from %s to %s: answered by %q, %v", network, name, address, server, err)
					continue
				}
				share := globalnet.Share(netip.MustParsePrefix(blocksIPv6["c1"]), 0)
				if c.own == "" && !share.Contains(client) || c.own != "" && client.String() != six(c.own) {
					t.Errorf("%s from %s to %s: the server sees %s", network, name, address, client)
				}
			}
		}
	}
	if text, err := within(n.worker1.pod, "ping -c 1 -W 3 "+six("120.2.0.21")).CombinedOutput(); err != nil {
		t.Errorf("echo: %v: %s", err, text)
	}
	_, _, err := ask(t, n.worker1.pod, "udp6", sixPort("120.2.0.21", "8081"))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("port unreachable: %v", err)
	}
}

// hostileByIPv6: a gateway does not send what is not translated, and one that does, or that sends from addresses of
// others, is not heard.
func (n *twins) hostileByIPv6(t *testing.T) {
	n.gw1.run(t, `nft add table ip6 evil; nft add chain ip6 evil out '{ type filter hook output priority -400; }'
		nft add rule ip6 evil out udp dport 7777 notrack`)
	n.gw2.run(t, `nft add chain ip6 test arrived '{ type filter hook prerouting priority -299; }'
		nft add rule ip6 test arrived iifname sl-c0 udp dport 7777 counter comment arrived`)
	arrived := func() int { return counted(t, n.gw2.command("nft list table ip6 test"), "arrived") }
	// send binds to an address that is not the machine's own.
	send := func(source string) (err error) {
		inNetworkOf(t, n.gw1.holder, func() error {
			err = sendFrom6(source, six(serviceOfTwin2), 7777)
			return nil
		})
		return err
	}
	if err := send("fd07:0:0:1::10"); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a pod's address is sent: expected EPERM, found %v", err)
	}
	for _, source := range []string{"fd07:0:0:1::10", six("120.9.0.1"), six("120.2.0.130")} {
		for range 10 {
			n.gw1.run(t, "nft delete table ip6 sealane 2>/dev/null || true")
			_ = send(source) // the table may be back already
		}
	}
	if got := arrived(); got != 0 {
		t.Errorf("%d packets from addresses of others arrive", got)
	}
	eventually(t, 5*time.Second, "one of its own arrives, or this could not fail", func() bool {
		n.gw1.run(t, "nft delete table ip6 sealane 2>/dev/null || true")
		_ = send(six("120.1.0.130"))
		return arrived() > 0
	})
}

// sendFrom6 sends a datagram from any address.
func sendFrom6(from, to string, port int) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1); err != nil {
		return err
	}
	source, target := netip.MustParseAddr(from).As16(), netip.MustParseAddr(to).As16()
	if err := unix.Bind(fd, &unix.SockaddrInet6{Addr: source}); err != nil {
		return err
	}
	return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet6{Port: port, Addr: target})
}
