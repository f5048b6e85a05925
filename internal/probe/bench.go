// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The kinds of benchmarks.
const (
	// Throughput of TCP downloads, in bits per second, sampled every sampleEvery.
	Throughput = "throughput"
	// Latency of small datagrams, there and back, in seconds.
	Latency = "latency"
	// DNS look-ups through the pod's own name servers, in seconds.
	DNS = "dns"
)

const (
	sampleEvery = 200 * time.Millisecond
	// maxSamples that are kept: what comes after them would say nothing else.
	maxSamples = 100_000
	// betweenLookups keeps a benchmark from being a load on the cluster's DNS.
	betweenLookups = 5 * time.Millisecond
)

// Summary is what a benchmark measured. Percentiles are by nearest rank.
type Summary struct {
	Path    string  `json:"path"`
	Samples int     `json:"samples"`
	Failed  int     `json:"failed"`
	Mean    float64 `json:"mean"`
	Min     float64 `json:"min"`
	P10     float64 `json:"p10"`
	P50     float64 `json:"p50"`
	P90     float64 `json:"p90"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
	// Error is why nothing was measured, or what failed last.
	Error string `json:"error,omitempty"`
}

// ParseSummary reads a line of the log of a client that measures; it is none if it tells no path.
func ParseSummary(line []byte) (Summary, error) {
	var s Summary
	if len(line) > MaxLine {
		return s, fmt.Errorf("expected a line of at most %d bytes, found %d", MaxLine, len(line))
	}
	if err := json.Unmarshal(line, &s); err != nil {
		return s, fmt.Errorf("decode summary: %w", err)
	}
	if s.Path == "" {
		return s, errors.New("no summary: it tells no path")
	}
	return s, nil
}

// summarize sorts the samples.
func summarize(path string, samples []float64, failed int, last error) Summary {
	s := Summary{Path: path, Samples: len(samples), Failed: failed}
	if last != nil {
		s.Error = last.Error()[:min(len(last.Error()), maxError)]
	}
	if len(samples) == 0 {
		s.Error = cmp.Or(s.Error, "nothing was measured")
		return s
	}
	slices.Sort(samples)
	total := 0.0
	for _, v := range samples {
		total += v
	}
	s.Mean, s.Min, s.Max = total/float64(len(samples)), samples[0], samples[len(samples)-1]
	s.P10, s.P50 = percentile(samples, 10), percentile(samples, 50)
	s.P90, s.P99 = percentile(samples, 90), percentile(samples, 99)
	return s
}

// percentile is the least of sorted values that at least p percent of all do not exceed.
func percentile(sorted []float64, p float64) float64 {
	return sorted[max(int(math.Ceil(p/100*float64(len(sorted))))-1, 0)]
}

// Path is what a benchmark measures: who answers at an address, or, for DNS, a name.
type Path struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// ParsePath reads a path as String writes it.
func ParsePath(text string) (Path, error) {
	var p Path
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("decode path %q: %w", text, err)
	}
	if p.Name == "" || p.Address == "" {
		return p, fmt.Errorf("path %q: expected a name and an address", text)
	}
	return p, nil
}

// String writes a path as an argument of the client.
func (p Path) String() string {
	text, err := json.Marshal(p)
	if err != nil {
		return err.Error() // of strings there is none
	}
	return string(text)
}

// Bench measures paths, one after the other.
type Bench struct {
	Kind, Token string
	Duration    time.Duration
	// Flows at a time, of throughput.
	Flows int
	// Patience is how long a path may take until it works for the first time.
	Patience time.Duration
	Out      io.Writer
}

// Run writes a line for each path.
func (b Bench) Run(ctx context.Context, paths []Path) error {
	measure := map[string]func(context.Context, Path) Summary{
		Throughput: b.throughput, Latency: b.latency, DNS: b.dns,
	}[b.Kind]
	if measure == nil {
		return fmt.Errorf("expected %s, %s or %s, found %q", Throughput, Latency, DNS, b.Kind)
	}
	for _, p := range paths {
		line, err := json.Marshal(measure(ctx, p))
		if err == nil {
			_, err = b.Out.Write(append(line, '\n'))
		}
		if err != nil {
			return fmt.Errorf("write results: %w", err)
		}
	}
	return nil
}

// repeat takes samples of what once does until the time is over. What fails before it has worked once is tried again
// within the patience, and does not count.
func (b Bench) repeat(ctx context.Context, p Path, pause time.Duration, once func(context.Context) error) Summary {
	var samples []float64
	var last error
	failed, began := 0, time.Now()
	for end := began.Add(b.Patience); time.Now().Before(end) && len(samples) < maxSamples && ctx.Err() == nil; {
		attempt, cancel := context.WithTimeout(ctx, oneTry)
		start := time.Now()
		err := once(attempt)
		took := time.Since(start)
		cancel()
		switch err {
		case nil:
			if len(samples) == 0 {
				end, failed, last = time.Now().Add(b.Duration), 0, nil
			}
			samples = append(samples, took.Seconds())
			time.Sleep(pause)
		default:
			last = err
			failed++
			time.Sleep(max(pause, betweenLookups))
		}
	}
	return summarize(p.Name, samples, failed, last)
}

// latency asks the next question when the one before is answered, or has been waited for in vain.
func (b Bench) latency(ctx context.Context, p Path) Summary {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp", p.Address)
	if err != nil {
		return summarize(p.Name, nil, 1, err)
	}
	defer conn.Close() //nolint:errcheck // nothing is to be learned of it
	request := append([]byte(b.Token), make([]byte, smallPayload)...)
	answer := make([]byte, maxAnswer(smallPayload))
	number := uint64(0)
	return b.repeat(ctx, p, 0, func(ctx context.Context) error {
		number++
		binary.BigEndian.PutUint64(request[len(b.Token):], number)
		deadline, _ := ctx.Deadline()
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
		if _, err := conn.Write(request); err != nil {
			return err
		}
		for {
			n, err := conn.Read(answer)
			if err != nil {
				return err
			}
			// An answer that is late is of a question that was given up.
			if n >= smallPayload && binary.BigEndian.Uint64(answer[n-smallPayload:]) == number {
				return nil
			}
		}
	})
}

// dns looks a name up as any program of a pod does.
func (b Bench) dns(ctx context.Context, p Path) Summary {
	resolver := net.Resolver{PreferGo: true}
	return b.repeat(ctx, p, betweenLookups, func(ctx context.Context) error {
		_, err := resolver.LookupNetIP(ctx, "ip", p.Address)
		return err
	})
}

// throughput downloads by several connections at once, and samples what all of them got.
func (b Bench) throughput(ctx context.Context, p Path) Summary {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var received atomic.Int64
	conns := make([]net.Conn, 0, b.Flows)
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	deadline := time.Now().Add(b.Patience)
	for len(conns) < b.Flows {
		conn, err := b.startDownload(ctx, p)
		if err == nil {
			conns = append(conns, conn)
		} else if time.Now().Add(betweenTries).After(deadline) {
			return summarize(p.Name, nil, 1, err)
		} else {
			time.Sleep(betweenTries)
		}
	}
	failures := make(chan error, b.Flows)
	var flows sync.WaitGroup
	for _, conn := range conns {
		flows.Go(func() {
			if err := receive(conn, &received); ctx.Err() == nil {
				failures <- err
			}
		})
	}
	var samples []float64
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	before, at := received.Load(), time.Now()
	for end := at.Add(b.Duration); time.Now().Before(end) && ctx.Err() == nil; {
		<-tick.C
		now, bytes := time.Now(), received.Load()
		samples = append(samples, float64(bytes-before)*8/now.Sub(at).Seconds())
		before, at = bytes, now
	}
	cancel()
	for _, conn := range conns {
		_ = conn.Close()
	}
	flows.Wait()
	var last error
	failed := len(failures)
	if failed > 0 {
		last = <-failures
	}
	return summarize(p.Name, samples, failed, last)
}

func (b Bench) startDownload(ctx context.Context, p Path) (net.Conn, error) {
	attempt, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(attempt, "tcp", p.Address)
	if err != nil {
		return nil, err
	}
	head := make([]byte, 1)
	_, err = conn.Write(binary.BigEndian.AppendUint32([]byte(b.Token), download))
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(oneTry))
	}
	if err == nil {
		_, err = io.ReadFull(conn, head)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// receive until the connection ends, and say how.
func receive(conn net.Conn, received *atomic.Int64) error {
	buffer := make([]byte, 256<<10)
	for {
		n, err := conn.Read(buffer)
		received.Add(int64(n))
		if err != nil {
			return err
		}
	}
}
