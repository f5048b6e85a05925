// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// What each gateway of TestThroughput has of a processor, or of its link, and for how long each way is measured. By the
// smaller share the processors of gateways bound four connections; a single one's rate then says when they may run.
const (
	gatewayShare  = 0.12
	aloneShare    = 0.3
	gatewayLink   = "20mbit"
	throughputFor = 5 * time.Second
)

// limit gives a process, and what it starts from then on, a share of a processor: a cgroup below this process's own.
// What it returns removes that, as the test's end does.
func limit(t *testing.T, name string, pid int, share float64) (remove func()) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	const period = 10000 // in µs; short, so that nobody waits long
	quota := strconv.Itoa(int(share * period))
	var own string
	settings := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case slices.Contains(strings.Split(fields[1], ","), "cpu"):
			own = filepath.Join("/sys/fs/cgroup/cpu", fields[2])
			settings = map[string]string{"cpu.cfs_period_us": strconv.Itoa(period), "cpu.cfs_quota_us": quota}
		case fields[0] == "0" && own == "":
			own = filepath.Join("/sys/fs/cgroup", fields[2])
			settings = map[string]string{"cpu.max": fmt.Sprintf("%s %d", quota, period)}
		}
	}
	group := filepath.Join(own, fmt.Sprintf("sealane-throughput-%d-%s", os.Getpid(), name))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	remove = func() {
		_ = os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) // unless it has ended
		eventually(t, 10*time.Second, group+" is removed", func() bool {
			err := syscall.Rmdir(group)
			return err == nil || errors.Is(err, syscall.ENOENT)
		})
	}
	t.Cleanup(remove)
	settings["cgroup.procs"] = strconv.Itoa(pid)
	for _, file := range []string{"cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.max", "cgroup.procs"} {
		if value, ok := settings[file]; ok {
			if err := os.WriteFile(filepath.Join(group, file), []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	return remove
}

// transfers are TCP connections between pods, which carry as much as they can.
type transfers struct {
	received atomic.Int64
	conns    []io.Closer
}

// transfer opens connections from ports of the pod of worker1 to that of worker2.
func (n *network) transfer(t *testing.T, ports ...int) *transfers {
	t.Helper()
	return n.transferTo(t, n.worker2.pods+".10", ports...)
}

// transferTo does the same by an address that leads to the pod of worker2.
func (n *network) transferTo(t *testing.T, address string, ports ...int) *transfers {
	t.Helper()
	f := &transfers{}
	to := &net.TCPAddr{IP: net.ParseIP(address), Port: throughputPort}
	var listener *net.TCPListener
	inNetworkOf(t, n.worker2.pod, func() (err error) {
		listener, err = net.ListenTCP("tcp4", &net.TCPAddr{Port: throughputPort})
		return err
	})
	f.conns = append(f.conns, listener)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				buffer := make([]byte, 1<<18)
				for {
					k, err := c.Read(buffer)
					f.received.Add(int64(k))
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	for _, port := range ports {
		var c net.Conn
		inNetworkOf(t, n.worker1.pod, func() (err error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}, Timeout: 10 * time.Second,
				Control: func(_, _ string, raw syscall.RawConn) error {
					return raw.Control(func(fd uintptr) {
						_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
					})
				}}
			c, err = d.DialContext(context.WithoutCancel(t.Context()), "tcp4", to.String())
			return err
		})
		_ = c.(*net.TCPConn).SetLinger(0) // the port is used again
		f.conns = append(f.conns, c)
		go func() {
			data := make([]byte, 1<<18)
			for {
				if _, err := c.Write(data); err != nil {
					return
				}
			}
		}()
	}
	return f
}

// rate returns what arrives, in Mbit/s, and ends the connections.
func (f *transfers) rate() float64 {
	time.Sleep(2 * time.Second) // until TCP has found it
	before, start := f.received.Load(), time.Now()
	time.Sleep(throughputFor)
	rate := float64(f.received.Load()-before) * 8 / 1e6 / time.Since(start).Seconds()
	for _, c := range f.conns {
		_ = c.Close()
	}
	return rate
}

const throughputPort = 7300

// evenly returns the ports of four connections of which, with a hash of ports, each gateway of both clusters carries
// two.
func (n *network) evenly(t *testing.T) []int {
	t.Helper()
	by := map[string][]int{}
	get := func(m *machine, in string, port int) string {
		return m.run(t, fmt.Sprintf("ip route get %s.10 from %s.10 iif %s ipproto tcp sport %d dport %d", n.worker2.pods,
			n.worker1.pods, in, port, throughputPort))
	}
	for port := 21000; port < 21200; port++ {
		first := n.gw1
		if strings.Contains(get(n.worker1, "cni0", port), "via "+n.gw4.ip) {
			first = n.gw4
		}
		second := deviceOf.FindStringSubmatch(get(first, "sl-vx", port))
		if second == nil {
			t.Fatalf("%s has no way", first.name)
		}
		path := first.name + " " + second[1]
		if by[path] = append(by[path], port); len(by[path]) < 2 {
			continue
		}
		for _, pair := range [][2]string{{"gw1 sl-c0", "gw4 sl-c1"}, {"gw1 sl-c1", "gw4 sl-c0"}} {
			if len(by[pair[0]]) >= 2 && len(by[pair[1]]) >= 2 {
				t.Logf("two connections by %s, two by %s", pair[0], pair[1])
				return slices.Concat(by[pair[0]][:2], by[pair[1]][:2])
			}
		}
	}
	t.Fatalf("no four connections that are spread evenly: %v", by)
	return nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// inTurns measures several ways, one after the other in each round, for the machine's load may rise or fall, and in
// each round another one first. It returns the rates by way and round.
func inTurns(ways ...func() float64) [][]float64 {
	rates := make([][]float64, len(ways))
	for i := range *rounds {
		for j := range ways {
			w := (i + j) % len(ways)
			rates[w] = append(rates[w], ways[w]())
		}
	}
	return rates
}

// ratesTo are those from the pod of one cluster's gateway to addresses of the other's, by address and round.
func (n *network) ratesTo(t *testing.T, addresses ...string) [][]float64 {
	t.Helper()
	pods := *n
	pods.worker1, pods.worker2 = n.gw1, n.gw2
	port := 21000
	var ways []func() float64
	for _, address := range addresses {
		ways = append(ways, func() float64 {
			port++
			return pods.transferTo(t, address, port).rate()
		})
	}
	return inTurns(ways...)
}

// ratio returns the median of the ratios of two ways in the same rounds.
func ratio(t *testing.T, what string, as, bs []float64) float64 {
	t.Helper()
	var ratios []float64
	for i, a := range as {
		ratios = append(ratios, a/bs[i])
	}
	t.Logf("%s: %.0f and %.0f Mbit/s, ratio %.2f (%.0f, %.0f, %.2f)", what, median(as), median(bs), median(ratios), as,
		bs, ratios)
	return median(ratios)
}

// compare measures two ways in turns and returns the median of the rounds' ratios.
func compare(t *testing.T, what string, a, b func() float64) float64 {
	t.Helper()
	rates := inTurns(a, b)
	return ratio(t, what, rates[0], rates[1])
}

// TestThroughput measures, with -throughput rounds, what two gateways in each cluster that both carry let through,
// against one of them, where each has the same share of a processor, or a link of the same rate; and what one gateway
// lets through that does not track what it passes on, against one that does. The ways take turns, and ratios are of the
// same round.
func TestThroughput(t *testing.T) {
	if *rounds == 0 {
		t.Skip("it measures: say in how many rounds with -throughput")
	}
	n := highlyAvailable(t)
	for _, m := range n.all() {
		m.run(t, "echo 1 > /proc/sys/net/ipv4/fib_multipath_hash_policy")
	}
	gateways := []*machine{n.gw1, n.gw2, n.gw3, n.gw4}
	ports := n.evenly(t)
	in := func(mode v1alpha1.GatewayMode, settled func()) func() float64 {
		return func() float64 {
			n.mode = mode
			n.tell(t, v1alpha1.MemberActive)
			settled()
			return n.transfer(t, ports...).rate()
		}
	}
	one := func() {
		eventually(t, time.Minute, "one gateway carries", func() bool {
			return len(n.worker1.hops("10.9.0.0/16")) == 1 && len(n.worker2.hops("10.8.0.0/16")) == 1 &&
				!slices.ContainsFunc([]*machine{n.gw1, n.gw4}, func(m *machine) bool { return len(m.hops("10.9.0.0/16")) != 1 }) &&
				!slices.ContainsFunc([]*machine{n.gw2, n.gw3}, func(m *machine) bool { return len(m.hops("10.8.0.0/16")) != 1 })
		})
	}
	two := func(what string) {
		ratio := compare(t, "two gateways that carry, against one, each with "+what,
			in(v1alpha1.GatewaysActiveActive, func() { n.settled(t) }), in(v1alpha1.GatewaysActivePassive, one))
		if ratio < 1.7 {
			t.Errorf("two gateways carry %.2f times what one does, want 1.7", ratio)
		}
	}
	for _, m := range gateways {
		m.run(t, "tc qdisc replace dev eth0 root tbf rate "+gatewayLink+" burst 64k latency 100ms")
	}
	two("a link of " + gatewayLink)
	var unlimited []func()
	for _, m := range gateways {
		m.run(t, "tc qdisc del dev eth0 root")
		unlimited = append(unlimited, limit(t, m.name, m.agent.Process.Pid, gatewayShare))
	}
	two(fmt.Sprintf("%.0f %% of a processor", 100*gatewayShare))
	for _, remove := range unlimited {
		remove()
	}

	for _, m := range []*machine{n.gw3, n.gw4} {
		m.stop(t, syscall.SIGTERM)
	}
	n.gw3, n.gw4, n.mode = nil, nil, ""
	n.tell(t, v1alpha1.MemberActive)
	eventually(t, time.Minute, "the only gateways carry", func() bool {
		return n.worker1.carries("10.9.0.0/16", n.gw1.ip) && n.worker2.carries("10.8.0.0/16", n.gw2.ip) &&
			n.gw1.carries("10.9.0.0/16", "sl-c0") && n.gw2.carries("10.8.0.0/16", "sl-c0")
	})
	for _, m := range []*machine{n.gw1, n.gw2} {
		limit(t, m.name, m.agent.Process.Pid, aloneShare)
	}
	port := ports[0]
	tracks := func(want bool) func() float64 {
		return func() float64 {
			port++ // what is left of a connection that was tracked in part is none of this one's
			for _, m := range []*machine{n.gw1, n.gw2} {
				m.run(t, "nft 'add table ip untracked; delete table ip untracked'")
				if !want {
					m.run(t, `nft 'add table ip untracked
						add chain ip untracked transit { type filter hook prerouting priority raw; }
						add rule ip untracked transit iifname "sl-*" notrack'`)
				}
			}
			return n.transfer(t, port).rate()
		}
	}
	// Encryption is most of the cost, and rounds of one way differ by a tenth.
	if ratio := compare(t, "one that does not track, against one that does", tracks(false), tracks(true)); ratio < 0.9 {
		t.Errorf("a gateway that does not track carries %.2f times what one that does, want no less", ratio)
	}
}
