// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind" // registers itself
	_ "github.com/coredns/coredns/plugin/kubernetes"
	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/sealane-io/sealane/lighthouse"
)

// wiring makes servers in this process.
type wiring struct {
	// config of the server started last.
	config *dnsserver.Config
}

// captured is the directive that hands a server's configuration to the wiring.
const captured = "captured"

// newWiring adds our plugins to CoreDNS.
func newWiring() *wiring {
	w := &wiring{}
	plugin.Register(lighthouse.Name, lighthouse.Setup)
	plugin.Register(captured, func(c *caddy.Controller) error {
		w.config = dnsserver.GetConfig(c)
		return nil
	})
	dnsserver.Directives = []string{"bind", captured, lighthouse.Name, "kubernetes"}
	dnsserver.Quiet = true
	return w
}

// instance is a running server: reached over UDP, and by its handler.
type instance struct {
	caddy   *caddy.Instance
	handler *dnsserver.Server
	address string
}

// settle is how long a server may take until it answers for all imports.
const settle = 3 * time.Minute

// start starts a server with one source of names, waits until it answers for all n imports, and returns how much the
// heap has grown.
func (w *wiring) start(ctx context.Context, n int, source string) (s *instance, heap int64, err error) {
	before := heapInUse()
	s = &instance{}
	if s.address, err = freeAddress(ctx); err != nil {
		return nil, 0, err
	}
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return nil, 0, fmt.Errorf("split %s: %w", s.address, err)
	}
	corefile := fmt.Sprintf("%s:%s {\n bind 127.0.0.1\n %s\n %s\n}\n", zone, port, captured, source)
	s.caddy, err = caddy.Start(caddy.CaddyfileInput{Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns"})
	if err != nil {
		return nil, 0, fmt.Errorf("start the server: %w", err)
	}
	if s.handler, err = dnsserver.NewServer(s.address, []*dnsserver.Config{w.config}); err != nil {
		s.stop()
		return nil, 0, fmt.Errorf("make a handler: %w", err)
	}
	if err := s.complete(ctx, n); err != nil {
		s.stop()
		return nil, 0, err
	}
	return s, heapInUse() - before, nil
}

func (s *instance) stop() {
	s.caddy.ShutdownCallbacks()
	_ = s.caddy.Stop()
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// complete waits until every import has the answer that it should have.
func (s *instance) complete(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	w := &sink{}
	for i := range n {
		query := new(dns.Msg).SetQuestion(serviceName(i)+"."+namespace+".svc."+zone+".", dns.TypeA)
		for {
			s.handler.ServeDNS(ctx, w, query)
			if answers(w.reply, i) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("waited %v for the right answer for %s, got %v", settle, serviceName(i), w.reply)
			case <-tick.C:
			}
		}
	}
	return nil
}

// answers says whether a reply has the addresses of an import.
func answers(m *dns.Msg, i int) bool {
	if m == nil {
		return false
	}
	want := []string{address(8, i)}
	if isHeadless(i) {
		want = []string{address(11, i), address(12, i), address(13, i)}
	}
	var got []string
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			got = append(got, a.A.String())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	return slices.Equal(got, want)
}

// sink is a writer that packs replies, as one to a socket does, and keeps the last.
type sink struct {
	dns.ResponseWriter
	reply  *dns.Msg
	buffer []byte
}

func (s *sink) LocalAddr() net.Addr  { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53} }
func (s *sink) RemoteAddr() net.Addr { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000} }

func (s *sink) WriteMsg(m *dns.Msg) error {
	s.reply = m
	_, err := m.PackBuffer(s.buffer)
	return err
}

// sample is one measurement.
type sample struct {
	// perSecond is how many queries were answered, p50 and p99 how long one took.
	perSecond float64
	p50, p99  time.Duration
	// cpu is the processor time of this process per query: over UDP with that of the clients.
	cpu time.Duration
	// allocations per query; zero where clients allocate, too.
	allocations float64
}

// processorTime is what this process has used of the processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// inProcess asks one query after the other, without a network: parsed in, packed out.
func (s *instance) inProcess(ctx context.Context, queries []*dns.Msg, duration time.Duration) (sample, error) {
	w := &sink{buffer: make([]byte, dns.MaxMsgSize)}
	ctx = context.WithValue(context.WithValue(ctx, dnsserver.Key{}, s.handler), dnsserver.LoopKey{}, 0)
	took := make([]time.Duration, 0, 1<<20)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu := processorTime()
	start := time.Now()
	last := start
	for i := 0; last.Sub(start) < duration && len(took) < cap(took); i++ {
		s.handler.ServeDNS(ctx, w, queries[i%len(queries)])
		now := time.Now()
		took = append(took, now.Sub(last))
		last = now
	}
	cpu = processorTime() - cpu
	runtime.ReadMemStats(&after)
	if w.reply == nil || len(w.reply.Answer) == 0 {
		return sample{}, fmt.Errorf("no answer: %v", w.reply)
	}
	out := summarize(took, last.Sub(start), cpu)
	out.allocations = float64(after.Mallocs-before.Mallocs) / float64(len(took))
	return out, nil
}

// clients that ask at once over UDP, each one query after the other.
const clients = 8

// overUDP asks over the loopback interface.
func (s *instance) overUDP(ctx context.Context, queries []*dns.Msg, duration time.Duration) (sample, error) {
	raw := make([][]byte, len(queries))
	for i, q := range queries {
		var err error
		if raw[i], err = q.Pack(); err != nil {
			return sample{}, fmt.Errorf("pack a query: %w", err)
		}
	}
	var (
		mu   sync.Mutex
		took []time.Duration
	)
	g, ctx := errgroup.WithContext(ctx)
	cpu := processorTime()
	start := time.Now()
	for c := range clients {
		g.Go(func() error {
			own, err := ask(ctx, s.address, raw, c*len(raw)/clients, start.Add(duration))
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
			return err
		})
	}
	err := g.Wait()
	return summarize(took, time.Since(start), processorTime()-cpu), err
}

// ask asks until the end, beginning with the query at first, and returns how long each took.
func ask(ctx context.Context, address string, raw [][]byte, first int, end time.Time) ([]time.Duration, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(end.Add(10 * time.Second)); err != nil {
		return nil, fmt.Errorf("set a deadline: %w", err)
	}
	buffer := make([]byte, dns.MaxMsgSize)
	took := make([]time.Duration, 0, 1<<16)
	for i := first; ; i++ {
		start := time.Now()
		if start.After(end) {
			return took, nil
		}
		if _, err := conn.Write(raw[i%len(raw)]); err != nil {
			return nil, fmt.Errorf("ask: %w", err)
		}
		length, err := conn.Read(buffer)
		if err != nil {
			return nil, fmt.Errorf("wait for an answer: %w", err)
		}
		// The count of answers is in octets 6 and 7.
		if length < 12 || buffer[6] == 0 && buffer[7] == 0 {
			return nil, errors.New("an answer has no records")
		}
		took = append(took, time.Since(start))
	}
}
