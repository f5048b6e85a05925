// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

var deviceOf = regexp.MustCompile(`dev (sl-\S+)|via (\S+) dev sl-vx`)

// hops lists where a machine's route to a prefix leads, sorted: cables, and nodes over the overlay.
func (m *machine) hops(prefix string) []string {
	family := "-4"
	if strings.Contains(prefix, ":") {
		family = "-6"
	}
	out, err := m.command("ip " + family + " route show " + prefix + " table 5100 metric 100").CombinedOutput()
	if err != nil {
		return []string{string(out)}
	}
	var hops []string
	for _, match := range deviceOf.FindAllStringSubmatch(string(out), -1) {
		if match[2] != "" {
			hops = append(hops, match[2])
		} else if match[1] != "sl-vx" {
			hops = append(hops, match[1])
		}
	}
	slices.Sort(hops)
	return hops
}

// carries says whether a machine's traffic to a prefix goes by these hops and no others.
func (m *machine) carries(prefix string, hops ...string) bool {
	return slices.Equal(m.hops(prefix), hops)
}

// highlyAvailable is a network with two gateways and a worker in each cluster, in which kube-proxy's rule drops what
// connection tracking calls invalid. IPv6 is disabled on the machines named.
func highlyAvailable(t *testing.T, ipv4Only ...string) *network {
	t.Helper()
	n := newNetwork(t, ipv4Only...)
	n.gw3 = newMachine(t, "gw3", "c2", 4, "10.9.1", "fd09:0:0:1")
	n.gw4 = newMachine(t, "gw4", "c1", 5, "10.8.2", "fd08:0:0:2")
	n.worker2 = newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
	n.disableIPv6(t, ipv4Only)
	n.tell(t, v1alpha1.MemberActive)
	for _, m := range []*machine{n.gw3, n.gw4, n.worker2} {
		m.start(t)
	}
	for _, m := range n.all() {
		for _, iptables := range []string{"iptables-nft", "ip6tables-nft"} {
			m.run(t, iptables+" -I FORWARD -m conntrack --ctstate INVALID -j DROP")
		}
	}
	n.settled(t)
	// c2's CNI, and its proxy with a service whose backend is the worker's pod.
	for _, m := range []*machine{n.gw2, n.gw3, n.worker2} {
		for _, other := range []*machine{n.gw2, n.gw3, n.worker2} {
			if m != other {
				m.run(t, fmt.Sprintf("ip route add %s.0/24 via %s", other.pods, other.ip))
			}
		}
		m.forwardsItsPods(t)
		m.run(t, fmt.Sprintf(`nft add table ip proxy
			nft add chain ip proxy services '{ type nat hook prerouting priority dstnat; }'
			nft add rule ip proxy services ip daddr %s dnat to %s.10`, serviceOfC2, n.worker2.pods))
	}
	return n
}

// settled waits until every node's traffic is spread over all gateways.
func (n *network) settled(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "all gateways carry", func() bool {
		for _, m := range []*machine{n.gw1, n.gw4} {
			if !m.carries("10.9.0.0/16", "sl-c0", "sl-c1") || !m.ipv4Only && !m.carries("fd09::/48", "sl-c0", "sl-c1") {
				return false
			}
		}
		for _, m := range []*machine{n.gw2, n.gw3} {
			if !m.carries("10.8.0.0/16", "sl-c0", "sl-c1") {
				return false
			}
		}
		return n.worker1.carries("10.9.0.0/16", n.gw1.ip, n.gw4.ip) && n.worker2.carries("10.8.0.0/16", n.gw2.ip, n.gw3.ip)
	})
}

// flow is traffic between pods of two workers that each answers the other at once. It is counted at the asking end.
type flow struct {
	name string
	mu   sync.Mutex
	last time.Time
	// silence is the longest time without an answer, err what ended the connection.
	silence time.Duration
	err     error
	// sent and answers since the flow began anew; of a TCP connection only answers.
	sent, answers int
}

func (f *flow) asked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent++
}

func (f *flow) answered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silence, f.last, f.answers = max(f.silence, time.Since(f.last)), time.Now(), f.answers+1
}

// reset begins anew, and returns the silence so far.
func (f *flow) reset() (silence time.Duration, lost int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	silence, lost, err = max(f.silence, time.Since(f.last)), max(0, f.sent-f.answers), f.err
	f.silence, f.last, f.sent, f.answers = 0, time.Now(), 0, 0
	return silence, lost, err
}

// flows starts, for as long as the test runs, a UDP flow and a TCP connection from pod to pod, in both directions and
// of both families, if all machines have both.
func (n *network) flows(t *testing.T) []*flow {
	t.Helper()
	var out []*flow
	ipv4Only := slices.ContainsFunc(n.all(), func(m *machine) bool { return m.ipv4Only })
	for i, ends := range [][2]*machine{{n.worker1, n.worker2}, {n.worker2, n.worker1}} {
		addresses := []string{ends[1].pods + ".10", "[" + ends[1].pods6 + "::10]"}
		if ipv4Only {
			addresses = addresses[:1]
		}
		for _, address := range addresses {
			address = fmt.Sprintf("%s:%d", address, 7000+i)
			out = append(out, udpFlow(t, ends[0].pod, ends[1].pod, address, address),
				tcpFlow(t, ends[0].pod, ends[1].pod, address))
		}
	}
	// Of a service that the remote gateway translates: which is another one after a failure, so no connection.
	out = append(out, udpFlow(t, n.worker1.pod, n.worker2.pod, n.worker2.pods+".10:7002", serviceOfC2+":7002"))
	for _, f := range out {
		eventually(t, 10*time.Second, f.name+" flows", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.answers > 10
		})
	}
	return out
}

func udpFlow(t *testing.T, from, to *exec.Cmd, listen, address string) *flow {
	t.Helper()
	f := &flow{name: "udp " + address, last: time.Now()}
	var server, client net.Conn
	inNetworkOf(t, to, func() error {
		a, err := net.ResolveUDPAddr("udp", listen)
		if err != nil {
			return err
		}
		s, err := net.ListenUDP("udp", a)
		server = s
		if err == nil {
			go func() {
				buffer := make([]byte, 64)
				for {
					k, peer, err := s.ReadFromUDP(buffer)
					if err != nil {
						return
					}
					_, _ = s.WriteToUDP(buffer[:k], peer)
				}
			}()
		}
		return err
	})
	inNetworkOf(t, from, func() (err error) {
		client, err = (&net.Dialer{}).DialContext(t.Context(), "udp", address)
		return err
	})
	t.Cleanup(func() { _, _ = server.Close(), client.Close() })
	go func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for range ticker.C {
			if _, err := client.Write([]byte("probe")); err != nil && t.Context().Err() != nil {
				return
			}
			f.asked()
		}
	}()
	go func() {
		buffer := make([]byte, 64)
		for t.Context().Err() == nil {
			if _, err := client.Read(buffer); err == nil {
				f.answered()
			}
		}
	}()
	return f
}

func tcpFlow(t *testing.T, from, to *exec.Cmd, address string) *flow {
	t.Helper()
	f := &flow{name: "tcp " + address, last: time.Now()}
	var listener net.Listener
	var client net.Conn
	inNetworkOf(t, to, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		return err
	})
	go func() {
		if c, err := listener.Accept(); err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	inNetworkOf(t, from, func() (err error) {
		client, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", address)
		return err
	})
	t.Cleanup(func() { _, _ = listener.Close(), client.Close() })
	fail := func(err error) {
		if t.Context().Err() == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.err = err
		}
	}
	go func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for i := uint64(0); ; i++ {
			<-ticker.C
			if err := binary.Write(client, binary.BigEndian, i); err != nil {
				fail(err)
				return
			}
		}
	}()
	go func() {
		for want := uint64(0); ; want++ {
			var got uint64
			if err := binary.Read(client, binary.BigEndian, &got); err != nil || got != want {
				fail(fmt.Errorf("expected answer %d, found %d: %w", want, got, err))
				return
			}
			f.answered()
		}
	}()
	return f
}

// TestGatewaysMayDie: of two gateways in each cluster any one is lost in any way, and no connection breaks.
func TestGatewaysMayDie(t *testing.T) {
	n := highlyAvailable(t)
	flows := n.flows(t)
	const cut = `iptables-nft -t raw -I PREROUTING -p udp --dport %s -j DROP`
	const uncut = `iptables-nft -t raw -D PREROUTING -p udp --dport %s -j DROP`
	for _, m := range []*machine{n.gw1, n.gw4, n.gw3} {
		for _, fault := range []struct {
			name       string
			do, repair func()
			// lost datagrams that are allowed of a flow that sends one every 5 ms.
			lost int
		}{
			{"agent terminated", func() { m.stop(t, syscall.SIGTERM) }, func() { m.start(t) }, 20},
			{"link down", func() { m.run(t, "ip link set eth0 down") }, func() { m.run(t, "ip link set eth0 up") },
				400},
			{"agent killed", func() { m.stop(t, syscall.SIGKILL) }, func() { m.start(t) }, 400},
			{"cables cut in one direction", func() { m.run(t, fmt.Sprintf(cut, "4500:4515")) },
				func() { m.run(t, fmt.Sprintf(uncut, "4500:4515")) }, 400},
			{"overlay cut in one direction", func() { m.run(t, fmt.Sprintf(cut, "4800")) },
				func() { m.run(t, fmt.Sprintf(uncut, "4800")) }, 400},
		} {
			t.Run(m.name+" "+fault.name, func(t *testing.T) {
				check := func(when string) {
					time.Sleep(50 * time.Millisecond) // for what is under way
					for _, f := range flows {
						silence, lost, err := f.reset()
						t.Logf("%s: %s: longest silence %d ms, %d lost", when, f.name, silence.Milliseconds(), lost)
						// What a gateway has translated comes back to it alone, by the overlay that it does not hear.
						deaf := strings.HasPrefix(fault.name, "overlay") && strings.Contains(f.name, serviceOfC2)
						if err != nil || !deaf && (lost > fault.lost**slow || silence > 2*time.Second*time.Duration(*slow)) {
							t.Errorf("%s: %s: expected no break, at most %d lost and 2 s of silence, found %d and %s: %v", when, f.name,
								fault.lost, lost, silence, err)
						}
					}
				}
				for _, f := range flows {
					_, _, _ = f.reset()
				}
				fault.do()
				time.Sleep(3 * time.Second)
				check("lost")
				fault.repair()
				n.settled(t)
				check("returned")
			})
		}
	}
	t.Run("every cable loses half of its packets", func(t *testing.T) {
		const lossy = `iptables-nft -t raw -%s PREROUTING -p udp --dport 4500:4531 ` +
			`-m statistic --mode random --probability 0.5 -j DROP`
		gateways := []*machine{n.gw1, n.gw2, n.gw3, n.gw4}
		for _, m := range gateways {
			m.run(t, fmt.Sprintf(lossy, "I"))
		}
		time.Sleep(6 * time.Second) // by now they have failed often, and each is held for longer than this takes
		for _, f := range flows {
			_, _, _ = f.reset()
		}
		time.Sleep(6 * time.Second)
		for _, f := range flows {
			silence, lost, err := f.reset()
			t.Logf("%s: longest silence %d ms, %d lost", f.name, silence.Milliseconds(), lost)
			// TCP waits longer each time that what it sends again is lost too, and what a gateway has translated stays
			// with that one.
			datagrams := strings.HasPrefix(f.name, "udp") && !strings.Contains(f.name, serviceOfC2)
			if err != nil || datagrams && silence > 2*time.Second*time.Duration(*slow) {
				t.Errorf("%s: expected at most 2 s of silence, found %s: %v", f.name, silence, err)
			}
		}
		for _, m := range gateways {
			m.run(t, fmt.Sprintf(lossy, "D"))
		}
		n.settled(t)
	})
}
