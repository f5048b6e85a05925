// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/internal/probe"
	"github.com/sealane-io/sealane/internal/trace"
)

const port = 61234

// inside calls f in a network namespace. A socket that f opens stays in it.
func inside(t *testing.T, namespace string, f func() error) {
	t.Helper()
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ended <- func() error {
			fd, err := unix.Open("/run/netns/"+namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd) //nolint:errcheck // it was only read
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// run a command of the router.
func run(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.CommandContext(context.Background(), "sh", "-ec", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// serve on port 80 of the server.
func serve(t *testing.T) {
	t.Helper()
	inside(t, "n2", func() error {
		l, err := net.Listen("tcp", ":80") //nolint:noctx // it ends with the test
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		}()
		return nil
	})
}

// connect from the client, and send as much.
func connect(t *testing.T, to string, bytes int) {
	t.Helper()
	inside(t, "n1", func() error {
		local := &net.TCPAddr{Port: port}
		d := net.Dialer{Timeout: 400 * time.Millisecond, LocalAddr: local}
		d.SetMultipathTCP(false)
		c, err := d.DialContext(t.Context(), "tcp", to)
		if err != nil {
			return nil //nolint:nilerr // the trace says why
		}
		_, _ = c.Write(make([]byte, bytes))
		_ = c.(*net.TCPConn).SetLinger(0) // the port is free at once
		return c.Close()
	})
}

// traced is what a trace tells of what happens meanwhile.
func traced(t *testing.T, tr Tracer, meanwhile func()) []trace.Line {
	t.Helper()
	if tr.Protocol == 0 {
		tr.Protocol = unix.IPPROTO_TCP
	}
	in, out := io.Pipe()
	tr.Port, tr.Out, tr.Duration = port, out, 20*time.Second
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() {
		err := tr.Run(ctx)
		_ = out.CloseWithError(err)
		ended <- err
	}()
	var lines []trace.Line
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		l, err := trace.Parse(scanner.Bytes(), port)
		if err != nil {
			t.Fatalf("%s: %v", scanner.Bytes(), err)
		}
		lines = append(lines, l)
		if l.Listening {
			go func() {
				meanwhile()
				time.AfterFunc(100*time.Millisecond, end) // what the kernel has still to say
			}()
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if last := lines[len(lines)-1]; !last.Ended {
		t.Errorf("the last line is %+v", last)
	}
	nothingLeft(t)
	return lines
}

func nothingLeft(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), "nft", "list", "tables").Output()
	if err != nil || strings.Contains(string(out), "trace") {
		t.Fatalf("tables: %s, %v", out, err)
	}
}

// told writes what lines tell, without sizes and numbers.
func told(lines []trace.Line) []string {
	var out []string
	for _, l := range lines {
		switch {
		case l.Seen != nil:
			size := ""
			if l.Seen.Large() {
				size = " large"
			}
			out = append(out, fmt.Sprintf("%s%s %s>%s %s %s", l.Seen.Kind, size, l.Seen.From, l.Seen.To, l.Seen.Device,
				map[bool]string{true: "out", false: "in"}[l.Seen.Out]))
		case l.Dropped != nil:
			d := l.Dropped
			out = append(out, fmt.Sprintf("%s dropped by %s %s %s: %s", d.Kind, d.Family, d.Table, d.Chain, d.Rule))
		case l.Refused != nil:
			out = append(out, fmt.Sprintf("%s refused by %s: %s", l.Refused.Kind, l.Refused.By, l.Refused.Why))
		case l.LookedUp != nil:
			out = append(out, fmt.Sprintf("route to %s: %s %s", l.LookedUp.To, l.LookedUp.Device, l.LookedUp.Problem))
		case l.Missed != nil:
			out = append(out, fmt.Sprintf("missed %s: %s", l.Missed.What, l.Missed.Why))
		}
	}
	return out
}

func has(t *testing.T, got []string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("no %q in\n%s", w, strings.Join(got, "\n"))
		}
	}
}

// lacks says that nothing begins with a text.
func lacks(t *testing.T, got []string, text string) {
	t.Helper()
	if slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, text) }) {
		t.Errorf("%q is in\n%s", text, strings.Join(got, "\n"))
	}
}

// TestAFlowIsFollowedOnEveryDevice, both ways and in both families, and nothing else is.
func TestAFlowIsFollowedOnEveryDevice(t *testing.T) {
	serve(t)
	got := told(traced(t, Tracer{}, func() { connect(t, "10.1.2.2:80", 5000) }))
	has(t, got, "syn 10.1.1.2:61234>10.1.2.2:80 v1 in", "syn 10.1.1.2:61234>10.1.2.2:80 v2 out",
		"synack 10.1.2.2:80>10.1.1.2:61234 v2 in", "synack 10.1.2.2:80>10.1.1.2:61234 v1 out",
		"tcp large 10.1.1.2:61234>10.1.2.2:80 v2 out")
	lacks(t, got, "dropped")
	lacks(t, got, "missed")
	got = told(traced(t, Tracer{}, func() { connect(t, "[fd00:2::2]:80", 0) }))
	has(t, got, "syn [fd00:1::2]:61234>[fd00:2::2]:80 v2 out", "synack [fd00:2::2]:80>[fd00:1::2]:61234 v1 out")
	got = told(traced(t, Tracer{}, func() { connect(t, "10.1.2.2:81", 0) }))
	has(t, got, "rst 10.1.2.2:81>10.1.1.2:61234 v1 out")
	got = told(traced(t, Tracer{Protocol: unix.IPPROTO_UDP}, func() { connect(t, "10.1.2.2:80", 0) }))
	lacks(t, got, "syn")
}

// TestTheFlowIsTheSameBehindTranslations: the number that identifies it.
func TestTheFlowIsTheSameBehindTranslations(t *testing.T) {
	serve(t)
	run(t, `nft 'table ip translate {
		chain pre { type nat hook prerouting priority dstnat; ip daddr 10.1.9.9 dnat to 10.1.2.2; };
		chain post { type nat hook postrouting priority srcnat; oifname v2 masquerade; }; }'`)
	t.Cleanup(func() { run(t, "nft delete table ip translate") })
	flows := map[uint32]bool{}
	for _, l := range traced(t, Tracer{}, func() { connect(t, "10.1.9.9:80", 0) }) {
		if l.Seen != nil && l.Seen.Flow != 0 {
			flows[l.Seen.Flow] = true
		}
		if l.Seen != nil && l.Seen.Kind == trace.SYN && l.Seen.Out && l.Seen.To.String() != "10.1.2.2:80" {
			t.Errorf("it leaves as %+v", l.Seen)
		}
	}
	if len(flows) != 1 {
		t.Errorf("flows %v", flows)
	}
}

// TestWhatDropsAPacketIsNamed: a rule with its text and a policy, of anybody's table and of iptables.
func TestWhatDropsAPacketIsNamed(t *testing.T) {
	serve(t)
	for _, c := range []struct{ table, want string }{
		{"chain fw { type filter hook forward priority 0; tcp dport 80 counter drop; }",
			"syn dropped by ip policies fw: tcp dport 80 counter packets 1"},
		{"chain fw { type filter hook forward priority 0; jump sub; }; chain sub { ip daddr 10.1.2.2 reject; }",
			"syn dropped by ip policies sub: ip daddr 10.1.2.2 reject"},
		{"chain fw { type filter hook forward priority 0; policy drop; tcp dport 22 accept; }",
			"syn dropped by ip policies fw: "},
		{"chain fw { type filter hook forward priority 0; tcp sport 80 drop; }",
			"synack dropped by ip policies fw: tcp sport 80 drop"},
		{"chain fw { type filter hook forward priority 0; meta length > 1000 drop; }",
			"tcp dropped by ip policies fw: meta length > 1000 drop"},
	} {
		run(t, "nft 'table ip policies { "+c.table+"; }'")
		got := told(traced(t, Tracer{}, func() { connect(t, "10.1.2.2:80", 5000) }))
		run(t, "nft delete table ip policies")
		if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, c.want) }) {
			t.Errorf("no %q in\n%s", c.want, strings.Join(got, "\n"))
		}
	}
	run(t, "iptables-nft -A FORWARD -p tcp --dport 80 -m comment --comment stopped -j DROP")
	got := told(traced(t, Tracer{}, func() { connect(t, "10.1.2.2:80", 0) }))
	run(t, "iptables-nft -F FORWARD")
	const want = "syn dropped by ip filter FORWARD: "
	if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, want) }) {
		t.Errorf("iptables: %s", strings.Join(got, "\n"))
	}
}

// TestAPacketWithoutAWay: the kernel's own answer, and what it says of the route.
func TestAPacketWithoutAWay(t *testing.T) {
	got := told(traced(t, Tracer{}, func() { connect(t, "10.77.0.1:80", 0) }))
	has(t, got, "syn refused by 10.1.1.1: network unreachable", "route to 10.77.0.1:  network is unreachable")
	run(t, "ip rule add pref 50 to 10.1.2.2 blackhole")
	got = told(traced(t, Tracer{}, func() { connect(t, "10.1.2.2:80", 0) }))
	run(t, "ip rule del pref 50")
	has(t, got, "route to 10.1.2.2:  invalid argument")
	// Nobody has the address: the kernel gives up on it after three seconds, and says so.
	got = told(traced(t, Tracer{LookUp: []netip.Addr{netip.MustParseAddr("10.77.0.1")}},
		func() { connect(t, "10.1.2.9:80", 0) }))
	has(t, got, "route to 10.1.2.9: v2 10.1.2.9 does not answer on v2: nobody has this address there",
		"route to 10.77.0.1:  network is unreachable")
}

// TestOthersOnTheSamePortAreBounded: so are the lines, whatever they send, and what is left out is said.
func TestOthersOnTheSamePortAreBounded(t *testing.T) {
	lines := traced(t, Tracer{Protocol: unix.IPPROTO_UDP}, func() {
		inside(t, "n1", func() error {
			for i := range 2000 {
				local, to := &net.UDPAddr{Port: port}, &net.UDPAddr{IP: net.IPv4(10, 1, 2, 2), Port: 1000 + i}
				c, err := net.DialUDP("udp", local, to)
				if err != nil {
					return err
				}
				_, _ = c.Write([]byte("flood"))
				_ = c.Close()
			}
			return nil
		})
	})
	got := told(lines)
	if len(lines) > trace.MaxLines+10 {
		t.Errorf("%d lines: %s", len(lines), strings.Join(got, "\n"))
	}
	for _, what := range []trace.Lacking{trace.Packets, trace.Rules} { // why is what was noticed first
		if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, fmt.Sprintf("missed %s: ", what)) }) {
			t.Errorf("it is not said that %s are missed: %s", what, strings.Join(got, "\n"))
		}
	}
}

// TestNothingIsLeftOfATraceThatIsKilled.
func TestNothingIsLeftOfATraceThatIsKilled(t *testing.T) {
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-traces")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, "listening") {
		t.Fatalf("%s, %v", line, err)
	}
	tables, err := exec.CommandContext(t.Context(), "nft", "list", "tables").Output()
	if err != nil || !strings.Contains(string(tables), "inet sealane_trace_61234") {
		t.Fatalf("while it runs: %s, %v", tables, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	nothingLeft(t)
}

// TestTracesAreFew: one more is refused, and a place is free again when one has ended.
func TestTracesAreFew(t *testing.T) {
	var all []func()
	for range trace.MaxAtOnce {
		release, err := slot()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, release)
	}
	err := (&Tracer{Protocol: unix.IPPROTO_TCP, Port: port, Duration: time.Second, Out: io.Discard}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "less than 4 traces") {
		t.Errorf("one more: %v", err)
	}
	for _, release := range all {
		release()
	}
	traced(t, Tracer{}, func() {})
	for _, bad := range []Tracer{{Protocol: 1, Port: port, Duration: time.Second}, {Protocol: 6, Port: 80,
		Duration: time.Second}, {Protocol: 6, Port: port, Duration: time.Hour}, {Protocol: 6, Port: port},
		{Protocol: 6, Port: port, Duration: time.Second, LookUp: make([]netip.Addr, 9)}} {
		if bad.Run(t.Context()) == nil {
			t.Errorf("%+v runs", bad)
		}
	}
	var out bytes.Buffer
	tr := Tracer{Protocol: unix.IPPROTO_UDP, Port: port, Duration: 100 * time.Millisecond, Out: &out}
	if err := tr.Run(t.Context()); err != nil || !strings.HasSuffix(out.String(), "{\"ended\":true}\n") {
		t.Errorf("one that ends by itself: %v, %s", err, out.String())
	}
}

// knock sends datagrams from the client, or from the router itself.
func knock(t *testing.T, router bool, to string, number uint16) probe.Knocked {
	t.Helper()
	var got probe.Knocked
	k := probe.Knock{Network: "udp", Host: to, Port: number, From: port, Mark: 7}
	if router {
		return k.Run(t.Context())
	}
	inside(t, "n1", func() error {
		got = k.Run(t.Context())
		return nil
	})
	return got
}

// TestWhatBecomesOfDatagrams: the probe of explain --live and a trace tell the same of one that is answered, refused by
// ICMP or not sent at all, in both families.
func TestWhatBecomesOfDatagrams(t *testing.T) {
	inside(t, "n2", func() error {
		echo, err := net.ListenPacket("udp", ":80") //nolint:noctx // it ends with the test
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = echo.Close() })
		go func() {
			buffer := make([]byte, 1500)
			for {
				n, from, err := echo.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = echo.WriteTo(buffer[:n], from)
			}
		}()
		return nil
	})
	for _, c := range []struct {
		name, to string
		port     uint16
		router   bool
		// before, and after is undone.
		before, after string
		stage         probe.Stage
		want          []string
	}{
		{name: "answered", to: "10.1.2.2", port: 80, stage: probe.Answered, want: []string{
			"udp 10.1.1.2:61234>10.1.2.2:80 v2 out", "udp 10.1.2.2:80>10.1.1.2:61234 v1 out"}},
		{name: "answered, by IPv6", to: "fd00:2::2", port: 80, stage: probe.Answered, want: []string{
			"udp [fd00:1::2]:61234>[fd00:2::2]:80 v2 out", "udp [fd00:2::2]:80>[fd00:1::2]:61234 v1 out"}},
		{name: "a wrong port", to: "10.1.2.2", port: 9, stage: probe.Refused, want: []string{
			"udp 10.1.1.2:61234>10.1.2.2:9 v2 out", "udp refused by 10.1.2.2: " + trace.PortUnreachable}},
		{name: "a wrong port, by IPv6", to: "fd00:2::2", port: 9, stage: probe.Refused, want: []string{
			"udp [fd00:1::2]:61234>[fd00:2::2]:9 v2 out", "udp refused by fd00:2::2: " + trace.PortUnreachable}},
		{name: "the client's own rule drops it", to: "10.1.2.2", port: 9, stage: probe.Denied,
			before: "ip netns exec n1 nft 'table ip fw { chain o { type filter hook output priority 0; udp dport 9 drop; }; }'",
			after:  "ip netns exec n1 nft delete table ip fw"},
		{name: "a rule of the node drops its own", to: "10.1.2.2", port: 9, stage: probe.Denied, router: true,
			before: "nft 'table ip fw { chain o { type filter hook output priority 0; udp dport 9 drop; }; }'",
			after:  "nft delete table ip fw", want: []string{"udp dropped by ip fw o: udp dport 9 drop"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.before != "" {
				run(t, c.before)
				defer run(t, c.after)
			}
			var knocked probe.Knocked
			got := told(traced(t, Tracer{Protocol: unix.IPPROTO_UDP}, func() { knocked = knock(t, c.router, c.to, c.port) }))
			if knocked.Stage != c.stage {
				t.Errorf("the probe is %s, expected %s: %+v", knocked.Stage, c.stage, knocked)
			}
			has(t, got, c.want...)
			if c.want == nil {
				lacks(t, got, "udp")
			}
			lacks(t, got, "missed")
		})
	}
}
