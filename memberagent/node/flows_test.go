// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// flow is traffic between pods of two workers that each answers the other at once. It is counted at the asking end.
type flow struct {
	name string
	mu   sync.Mutex
	// sentAt and answeredAt are when each question was sent and its answer came; zero while it has not. Of a connection,
	// all questions are answered as long as it lives.
	sentAt, answeredAt []time.Time
	// broken says what ended a connection, or which of many were not made.
	broken []error
}

// seen is what a flow saw of a stretch of time.
type seen struct {
	sent, lost int
	// silence is the longest time without an answer, outage the longest in which all that was sent was lost, and slowest
	// the longest that an answer took. On a busy machine there is silence without loss.
	silence, outage, slowest time.Duration
	broken                   []error
}

func (s seen) String() string {
	return fmt.Sprintf("sent %d, lost %d, longest outage %d ms, longest silence %d ms, slowest answer %d ms, broken %v",
		s.sent, s.lost, s.outage.Milliseconds(), s.silence.Milliseconds(), s.slowest.Milliseconds(), s.broken)
}

func (f *flow) asked() (number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sentAt, f.answeredAt = append(f.sentAt, time.Now()), append(f.answeredAt, time.Time{})
	return len(f.sentAt) - 1
}

func (f *flow) answered(number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if number < len(f.answeredAt) && f.answeredAt[number].IsZero() {
		f.answeredAt[number] = time.Now()
	}
}

func (f *flow) breaks(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = append(f.broken, err)
}

// since says what the flow saw of the questions from a number on and up to another, which is -1 for now.
func (f *flow) since(from, to int) seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	if to < 0 {
		to = len(f.sentAt)
	}
	s := seen{sent: to - from}
	if from == to {
		return s
	}
	var answers []time.Time
	for i, lostFrom := from, from; i < to; i++ {
		if f.answeredAt[i].IsZero() {
			s.lost++
			s.outage = max(s.outage, f.sentAt[i].Sub(f.sentAt[lostFrom]))
			continue
		}
		lostFrom = i + 1
		answers = append(answers, f.answeredAt[i])
		s.slowest = max(s.slowest, f.answeredAt[i].Sub(f.sentAt[i]))
	}
	slices.SortFunc(answers, time.Time.Compare)
	last := f.sentAt[from]
	for _, at := range append(answers, f.sentAt[to-1]) {
		s.silence, last = max(s.silence, at.Sub(last)), at
	}
	return s
}

func (f *flow) number() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sentAt)
}

// stretch is a stretch of time, as numbers of questions.
type stretch struct {
	flows []*flow
	from  []int
}

func begin(flows []*flow) stretch {
	s := stretch{flows: flows}
	for _, f := range flows {
		s.from = append(s.from, f.number())
	}
	return s
}

// asksEvery is how often a flow of datagrams asks.
const asksEvery = 10 * time.Millisecond

// lasts waits until each flow of datagrams has asked as often as it does within a time.
func (s stretch) lasts(t *testing.T, d time.Duration) {
	t.Helper()
	questions := int(d / asksEvery)
	eventually(t, time.Minute, "traffic goes on", func() bool {
		return !slices.ContainsFunc(s.flows, func(f *flow) bool {
			return strings.HasPrefix(f.name, "udp") && f.number() < s.from[slices.Index(s.flows, f)]+questions
		})
	})
}

// end returns what the flows have seen, once the answers that were under way have come, or have had time to.
func (s stretch) end() []seen {
	const patience = time.Second
	var to []int
	for _, f := range s.flows {
		to = append(to, f.number())
	}
	out := make([]seen, len(s.flows))
	deadline := time.Now().Add(patience)
	for i, f := range s.flows {
		for out[i] = f.since(s.from[i], to[i]); out[i].lost > 0 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
			out[i] = f.since(s.from[i], to[i])
		}
		out[i].broken = f.brokenSince()
	}
	return out
}

// allowed is what flows may see of a stretch.
type allowed struct {
	// lost datagrams of a flow that asks every 10 ms, and its longest outage; a connection may be silent for twice as
	// long, as TCP waits longer each time.
	lost   int
	outage time.Duration
	// exempt says which flows may see more; nil is none.
	exempt func(*flow) bool
}

// check says what the flows have seen of a stretch. Whatever is allowed, nothing breaks, and no new connection fails or
// takes longer than SYNs that are sent again.
func (s stretch) check(t *testing.T, when string, a allowed) {
	t.Helper()
	for _, complaint := range s.complaints(t, when, a) {
		t.Error(complaint)
	}
}

// complaints are what check says.
func (s stretch) complaints(t *testing.T, when string, a allowed) (out []string) {
	t.Helper()
	const mostSYNs = 3500 * time.Millisecond // the third is sent after 3 s
	for i, seen := range s.end() {
		f := s.flows[i]
		t.Logf("%s: %s: %s", when, f.name, seen)
		lossy, slowly := false, false
		switch exempt := a.exempt != nil && a.exempt(f); {
		case strings.HasPrefix(f.name, "connects"):
			slowly = seen.slowest > mostSYNs*time.Duration(*slow)
		case exempt:
		case strings.HasPrefix(f.name, "udp"):
			lossy, slowly = seen.lost > a.lost**slow, seen.outage > a.outage*time.Duration(*slow)
		default:
			slowly = seen.silence > 2*a.outage*time.Duration(*slow)
		}
		if len(seen.broken) > 0 || lossy || slowly {
			out = append(out, fmt.Sprintf(
				"%s: %s: expected no break, at most %d lost, %s of outage, and %s until a connection is made, found: %s", when,
				f.name, a.lost, a.outage, mostSYNs, seen))
		}
	}
	return out
}

// loseNothing runs what must not lose a datagram, and again if one was lost: a busy machine loses some by itself,
// though not each time.
func loseNothing(t *testing.T, flows []*flow, do func(s stretch)) {
	t.Helper()
	const times = 3
	var complaints []string
	for range times {
		s := begin(flows)
		do(s)
		if complaints = s.complaints(t, "in all", allowed{outage: time.Second}); len(complaints) == 0 {
			return
		}
	}
	t.Errorf("%d times in a row: %s", times, strings.Join(complaints, "\n"))
}

// brokenSince returns what broke since the last time.
func (f *flow) brokenSince() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.broken
	f.broken = nil
	return out
}

// flows starts, for as long as the test runs, a UDP flow, a TCP connection and new TCP connections from pod to pod, in
// both directions and of both families, if all machines have both.
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
			at := func(port int) string { return fmt.Sprintf("%s:%d", address, port+i) }
			out = append(out, udpFlow(t, ends[0].pod, ends[1].pod, at(7000), at(7000)),
				tcpFlow(t, ends[0].pod, ends[1].pod, at(7000), at(7000)), connects(t, ends[0].pod, ends[1].pod, at(7100)))
		}
	}
	// Of a service that the remote gateway translates: which is another one after a failure, so no connection.
	out = append(out, udpFlow(t, n.worker1.pod, n.worker2.pod, n.worker2.pods+".10:7002", serviceOfC2+":7002"))
	for _, f := range out {
		eventually(t, 10*time.Second, f.name+" flows", func() bool { s := f.since(0, -1); return s.sent-s.lost > 10 })
	}
	return out
}

func udpFlow(t *testing.T, from, to *exec.Cmd, listen, address string) *flow {
	t.Helper()
	f := &flow{name: "udp " + address}
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
		ticker := time.NewTicker(asksEvery)
		defer ticker.Stop()
		for t.Context().Err() == nil {
			<-ticker.C
			// An error is that of an earlier datagram, which is lost, and so is this one.
			_, _ = client.Write(binary.BigEndian.AppendUint32(nil, uint32(f.asked())))
		}
	}()
	go func() {
		buffer := make([]byte, 64)
		for t.Context().Err() == nil {
			if k, err := client.Read(buffer); err == nil && k == 4 {
				f.answered(int(binary.BigEndian.Uint32(buffer)))
			}
		}
	}()
	return f
}

func tcpFlow(t *testing.T, from, to *exec.Cmd, listen, address string) *flow {
	t.Helper()
	f := &flow{name: "tcp " + address}
	var listener net.Listener
	var client net.Conn
	inNetworkOf(t, to, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", listen)
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
			f.breaks(err)
		}
	}
	go func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			<-ticker.C
			if err := binary.Write(client, binary.BigEndian, uint64(f.asked())); err != nil {
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
			f.answered(int(got))
		}
	}()
	return f
}

// connects makes a new TCP connection every 20 ms, and closes it at once. The flow breaks with each that fails: by an
// error, or since it takes as long as a SYN and three more.
func connects(t *testing.T, from, to *exec.Cmd, address string) *flow {
	t.Helper()
	f := &flow{name: "connects " + address}
	var listener net.Listener
	inNetworkOf(t, to, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		return err
	})
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	target := netip.MustParseAddrPort(address)
	ready := make(chan error, 1)
	go func() {
		// Once it is there nothing comes of an error but that it cannot return.
		ready <- visit(from, func() error {
			ready <- nil
			f.connect(t, target)
			return nil
		})
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return f
}

// connect makes connections in this thread's network namespace until the test ends.
func (f *flow) connect(t *testing.T, target netip.AddrPort) {
	const every, patience = 20 * time.Millisecond, 8 * time.Second
	fail := func(format string, args ...any) {
		if t.Context().Err() == nil {
			f.breaks(fmt.Errorf(format, args...))
		}
	}
	var pending []pendingConnection
	defer func() {
		for _, p := range pending {
			_ = unix.Close(p.fd)
		}
	}()
	for next := time.Now(); t.Context().Err() == nil; {
		if now := time.Now(); now.After(next) {
			next = next.Add(every)
			p := pendingConnection{number: f.asked(), at: now}
			var err error
			if p.fd, err = dial(target); err != nil {
				fail("connection %d: %w", p.number, err)
			} else {
				pending = append(pending, p)
			}
		}
		made(&pending)
		pending = slices.DeleteFunc(pending, func(p pendingConnection) bool {
			switch {
			case p.done && p.err != nil:
				fail("connection %d, after %s: %w", p.number, time.Since(p.at), p.err)
			case p.done:
				f.answered(p.number)
			case time.Since(p.at) > patience:
				fail("connection %d: not made within %s", p.number, patience)
			default:
				return false
			}
			_ = unix.Close(p.fd)
			return true
		})
	}
}

type pendingConnection struct {
	fd, number int
	at         time.Time
	done       bool
	err        error
}

// dial begins a connection and does not wait for it.
func dial(to netip.AddrPort) (int, error) {
	family := unix.AF_INET6
	var address unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, address); err != nil && err != unix.EINPROGRESS {
		_ = unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// made waits some milliseconds for connections, and marks those that are made, or have failed.
func made(pending *[]pendingConnection) {
	const wait = 5 // ms
	fds := make([]unix.PollFd, len(*pending))
	for i, p := range *pending {
		fds[i] = unix.PollFd{Fd: int32(p.fd), Events: unix.POLLOUT}
	}
	_, _ = unix.Poll(fds, wait)
	for i := range fds {
		if fds[i].Revents == 0 {
			continue
		}
		p := &(*pending)[i]
		p.done = true
		if e, err := unix.GetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
			p.err = err
		} else if e != 0 {
			p.err = unix.Errno(e)
		}
	}
}
