// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/ipv6"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/memberagent/node"
)

// Where the benchmark's gateways are: the prober's, and the others', each at a port of its own.
const (
	benchHere, benchThere = "172.31.9.1", "172.31.9.2"
	benchPort             = 20000
	benchMTU              = 1420
)

// BenchmarkProber measures, in cores, what a gateway spends on its probes of peers, and on theirs of it, which are as
// many: the prober, the tunnels, and the kernel as far as it works for this process. The peers are in another process.
// Of them none carries traffic, or so many that are busy.
func BenchmarkProber(b *testing.B) {
	for _, c := range []struct{ peers, busy int }{{2, 0}, {2, 2}, {20, 0}, {20, 20}, {200, 0}, {200, 20}, {200, 200}} {
		b.Run(fmt.Sprintf("cable=wireguard/peers=%d/busy=%d", c.peers, c.busy),
			func(b *testing.B) { benchProber(b, c.peers, c.busy) })
	}
}

func benchProber(b *testing.B, n, busy int) {
	private, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		b.Fatal(err)
	}
	targets := node.Paces(n, busy, benchMTU)
	fast, slow := 0, time.Second
	for _, t := range targets {
		if t.Interval == 50*time.Millisecond {
			fast++
		} else {
			slow = t.Interval
		}
	}
	others, keys := startPeers(b, n, fast, slow, private.PublicKey())
	defer func() { _, _ = others.Process.Kill(), others.Wait() }()
	holder := cable.NewHolder(logr.Discard())
	defer holder.Close()
	own := cable.OneKey(private)
	w, err := cable.OpenWireGuard(own, holder)
	if err != nil {
		b.Fatal(err)
	}
	const link = "bench-c0" // its control socket is in a directory of the host's
	script := fmt.Sprintf("ip addr add %s/128 dev %s nodad; ip link set %s mtu %d up", plan.ULA(own.Current()), link,
		link, benchMTU)
	if err := w.Create(link, benchMTU); err != nil {
		b.Fatal(err)
	}
	if err := w.Set(plan.Tunnel{Link: link, ListenPort: benchPort - 1, ID: own.Current()}); err != nil {
		b.Fatal(err)
	}
	byAddress := map[netip.Addr]node.Target{}
	for i, key := range keys {
		id := plan.PeerID(key[:])
		address := plan.ULA(id)
		byAddress[address] = targets[i]
		script += fmt.Sprintf("; ip -6 route add %s/128 dev %s src %s", address, link, plan.ULA(own.Current()))
		if err := w.SetPeer(plan.TunnelPeer{Link: link, Peer: plan.Peer{ID: id, KeepaliveSeconds: plan.KeepaliveSeconds,
			Candidates: []netip.AddrPort{netip.MustParseAddrPort(fmt.Sprintf("%s:%d", benchThere, benchPort+i))},
			AllowedIPs: []netip.Prefix{netip.PrefixFrom(address, 128)}}}, true); err != nil {
			b.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(b.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	p, err := node.NewProber(true, func() {})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	p.Set(byAddress, 50*time.Millisecond, 3)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		up := 0
		for a := range byAddress {
			if h := p.Health(a); h != nil && h.RTT != nil {
				up++
			}
		}
		if up == n {
			break
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d peers answer", up, n)
		}
	}
	packets := func() (sum int64) {
		for a := range byAddress {
			sum += p.Carried(a).SentPackets
		}
		return sum
	}
	sent, used, start := packets(), processorTime(b), time.Now()
	for range b.N {
		time.Sleep(3 * time.Second)
	}
	passed := time.Since(start).Seconds()
	b.ReportMetric((processorTime(b)-used).Seconds()/passed, "cores")
	b.ReportMetric(float64(packets()-sent)/passed, "probes/s")
	b.ReportMetric(0, "ns/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startPeers starts a process with n gateways behind a link to this namespace, and returns their keys. Each probes
// the gateway of a key, as many as fast of them every 50 ms and the others every slow.
func startPeers(b *testing.B, n, fast int, slow time.Duration, of wgtypes.Key) (*exec.Cmd, []wgtypes.Key) {
	b.Helper()
	others := inNamespaces("-peers", fmt.Sprintf("%d %d %d %s", n, fast, slow.Milliseconds(), of))
	others.Stdin = nil
	input, err := others.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	others.Stdout = nil
	output, err := others.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := others.Start(); err != nil {
		b.Fatal(err)
	}
	// A namespace that ends takes its links along only a little later.
	wire := fmt.Sprintf(
		`ip link del bench 2>/dev/null || true; ip link set lo up
		ip link add bench type veth peer name bench netns %d
		ip addr add %s/24 dev bench; ip link set bench up`, others.Process.Pid, benchHere)
	if out, err := exec.CommandContext(b.Context(), "sh", "-ec", wire).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	if _, err := io.WriteString(input, "go\n"); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	var keys []wgtypes.Key
	for len(keys) < n && lines.Scan() {
		key, err := wgtypes.ParseKey(lines.Text())
		if err != nil {
			b.Fatal(err)
		}
		keys = append(keys, key)
	}
	if len(keys) < n {
		b.Fatalf("%d of %d gateways came up", len(keys), n)
	}
	return others, keys
}

// runPeers is the other process of a benchmark.
func runPeers(text string) error {
	var n, fast, slow int
	var of string
	if _, err := fmt.Sscan(text, &n, &fast, &slow, &of); err != nil {
		return err
	}
	key, err := wgtypes.ParseKey(of)
	if err != nil {
		return err
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("tmpfs", "/run", "tmpfs", 0, "")); err != nil {
		return err
	}
	here := plan.PeerID(key[:])
	script := fmt.Sprintf("ip link set lo up; ip addr add %s/24 dev bench; ip link set bench up", benchThere)
	if out, err := exec.CommandContext(context.Background(), "sh", "-ec", script).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	holder := cable.NewHolder(logr.Discard())
	conn, err := net.ListenPacket("ip6:ipv6-icmp", "::") //nolint:noctx // as long as the process
	if err != nil {
		return err
	}
	for i := range n {
		private, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			return err
		}
		own := cable.OneKey(private)
		w, err := cable.OpenWireGuard(own, holder)
		if err != nil {
			return err
		}
		link := fmt.Sprintf("peer%d", i)
		if err := w.Create(link, benchMTU); err != nil {
			return err
		}
		if err := w.Set(plan.Tunnel{Link: link, ListenPort: uint16(benchPort + i), ID: own.Current()}); err != nil {
			return err
		}
		if err := w.SetPeer(plan.TunnelPeer{Link: link, Peer: plan.Peer{ID: here,
			Candidates: []netip.AddrPort{netip.MustParseAddrPort(fmt.Sprintf("%s:%d", benchHere, benchPort-1))},
			AllowedIPs: []netip.Prefix{netip.PrefixFrom(plan.ULA(here), 128)}}}, true); err != nil {
			return err
		}
		address := plan.ULA(own.Current())
		up := fmt.Sprintf(`ip addr add %[1]s/128 dev %[2]s nodad; ip link set %[2]s mtu %[3]d up
			ip -6 route add %[4]s/128 dev %[2]s metric %[5]d src %[1]s
			ip -6 rule add from %[1]s lookup %[5]d; ip -6 route add %[4]s/128 dev %[2]s table %[5]d`,
			address, link, benchMTU, plan.ULA(here), 1000+i)
		if out, err := exec.CommandContext(context.Background(), "sh", "-ec", up).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		device, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		interval := 50 * time.Millisecond
		if i >= fast {
			interval = time.Duration(slow) * time.Millisecond
		}
		go probeFrom(conn, device.Index, address, plan.ULA(here), interval)
		public := private.PublicKey()
		fmt.Println(public.String())
	}
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

func probeFrom(conn net.PacketConn, link int, from, to netip.Addr, interval time.Duration) {
	p := ipv6.NewPacketConn(conn)
	packet := make([]byte, 8)
	packet[0] = byte(ipv6.ICMPTypeEchoRequest)
	control := &ipv6.ControlMessage{Src: from.AsSlice(), IfIndex: link}
	for sequence := uint16(0); ; sequence++ {
		binary.BigEndian.PutUint16(packet[6:], sequence)
		_, _ = p.WriteTo(packet, control, &net.IPAddr{IP: to.AsSlice(), Zone: ""})
		time.Sleep(interval)
	}
}
