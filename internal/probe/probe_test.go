// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const token = "0123456789abcdef"

// start serves on the loopback and returns the address.
func start(t *testing.T, s Server) string {
	t.Helper()
	var listen net.ListenConfig
	streams, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	datagrams, err := listen.ListenPacket(t.Context(), "udp", streams.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, streams, datagrams) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return streams.Addr().String()
}

// ask runs checks and returns the results by number.
func ask(t *testing.T, token string, patience time.Duration, checks ...Check) map[int]Result {
	t.Helper()
	var out bytes.Buffer
	if err := (Client{Token: token, Patience: patience, Out: &out}).Run(t.Context(), checks); err != nil {
		t.Fatal(err)
	}
	results := map[int]Result{}
	for line := range bytes.Lines(out.Bytes()) {
		r, err := ParseResult(line)
		if err != nil {
			t.Fatal(err)
		}
		results[r.ID] = r
	}
	if len(results) != len(checks) {
		t.Errorf("%d checks have %d results", len(checks), len(results))
	}
	return results
}

// all are checks of every kind.
func all(address, server string) []Check {
	var checks []Check
	for i, network := range []string{"tcp4", "udp4"} {
		for j, large := range []bool{false, true} {
			c := Check{ID: 2*i + j, Network: network, Address: address, Large: large, Server: server}
			checks = append(checks, c)
		}
	}
	return checks
}

func TestAServerAnswersEveryKindOfCheck(t *testing.T) {
	address := start(t, Server{Name: "c2/gateway", Token: token})
	for id, r := range ask(t, token, time.Second, all(address, "c2/gateway")...) {
		if !r.OK || r.Error != "" || r.Tries < 1 || r.Took <= 0 {
			t.Errorf("check %d: %+v", id, r)
		}
	}
}

func TestAnotherServerIsAFailure(t *testing.T) {
	address := start(t, Server{Name: "c3/worker", Token: token})
	for id, r := range ask(t, token, 0, all(address, "c2/worker")...) {
		if r.OK || !strings.Contains(r.Error, `expected c2/worker to answer, found "c3/worker"`) {
			t.Errorf("check %d: %+v", id, r)
		}
	}
}

func TestNothingIsAnsweredWithoutTheToken(t *testing.T) {
	address := start(t, Server{Name: "c2/gateway", Token: token})
	for id, r := range ask(t, "fedcba9876543210", 0, all(address, "c2/gateway")...) {
		if r.OK || r.Error == "" {
			t.Errorf("check %d: %+v", id, r)
		}
	}
}

func TestACheckIsTriedAgainWithinThePatience(t *testing.T) {
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	check := Check{Network: "tcp4", Address: address, Server: "late"}
	if r := ask(t, token, 0, check)[0]; r.OK || r.Tries != 1 || !strings.Contains(r.Error, "refused") {
		t.Errorf("without patience: %+v", r)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	time.AfterFunc(500*time.Millisecond, func() {
		streams, err := listen.Listen(ctx, "tcp", address)
		if err != nil {
			return
		}
		datagrams, err := listen.ListenPacket(ctx, "udp", "127.0.0.1:0")
		if err == nil {
			_ = Server{Name: "late", Token: token}.serve(ctx, streams, datagrams)
		}
	})
	if r := ask(t, token, time.Minute, check)[0]; !r.OK || r.Tries < 2 {
		t.Errorf("with patience: %+v", r)
	}
}

// TestADeadPathIsGivenUpInTime: checks that wait for an answer do not wait for each other, too.
func TestADeadPathIsGivenUpInTime(t *testing.T) {
	t.Parallel()
	var listen net.ListenConfig
	silent, err := listen.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // nobody reads it
	alive := all(start(t, Server{Name: "alive", Token: token}), "alive")
	var checks []Check
	for id := len(alive); id < 5*atOnce; id++ {
		checks = append(checks, Check{ID: id, Network: "udp4", Address: silent.LocalAddr().String(), Server: "dead"})
	}
	checks = append(checks, alive...)
	began := time.Now()
	for id, r := range ask(t, token, 0, checks...) {
		if r.OK != (id < len(alive)) || r.Tries != 1 {
			t.Errorf("check %d: %+v", id, r)
		}
	}
	took, most := time.Since(began), Longest(len(checks), 0)
	t.Logf("%d checks took %s, at most %s expected", len(checks), took, most)
	if took > most || most > 2*oneTry {
		t.Errorf("%d checks of which none is answered took %s, at most %s expected: two tries are %s", len(checks), took,
			most, 2*oneTry)
	}
}

// TestFewChecksAreTriedAtATime as long as answers come promptly.
func TestFewChecksAreTriedAtATime(t *testing.T) {
	t.Parallel()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // the test is over
	var open, most atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			most.Store(max(most.Load(), open.Add(1)))
			time.AfterFunc(prompt/10, func() { open.Add(-1); _ = conn.Close() })
		}
	}()
	checks := make([]Check, 5*atOnce)
	for id := range checks {
		checks[id] = Check{ID: id, Network: "tcp4", Address: l.Addr().String(), Server: "hasty"}
	}
	ask(t, token, 0, checks...)
	if got := most.Load(); got > atOnce || got < atOnce/4 {
		t.Errorf("%d checks at a time, expected up to %d", got, atOnce)
	}
}

func TestAnAnswerIsComparedWithWhatWasSent(t *testing.T) {
	s, check := Server{Name: "c2/gateway"}, Check{Server: "c2/gateway"}
	payload := []byte("payload")
	from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	for name, tc := range map[string]struct {
		answer []byte
		want   string
	}{
		"whole":              {append(s.head(), payload...), ""},
		"cut off":            {append(s.head(), payload[:3]...), "found 3"},
		"changed":            {append(s.head(), "payloaD"...), "to come back"},
		"nothing":            {nil, "found 0 bytes"},
		"a name without end": {[]byte{255, 255, 255, 255, 'c'}, "something else"},
	} {
		err := judge(tc.answer, check, payload, from)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestChecksSurviveTheCommandLine(t *testing.T) {
	for _, want := range append(all("10.9.0.3:8460", "c2/gateway"),
		Check{ID: 9, Network: "udp6", Address: "[fd00::1]:8460", Large: true}) {
		if got, err := ParseCheck(want.String()); err != nil || got != want {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
	}
	for _, text := range []string{"", "{", `{"network":"unix","address":"a:1"}`, `{"network":"tcp4","address":"a"}`} {
		if c, err := ParseCheck(text); err == nil {
			t.Errorf("%q is taken as %+v", text, c)
		}
	}
}

// FuzzResult: a line comes from a pod of a member.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"id":3,"ok":true,"tries":1,"tookNanoseconds":5}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if _, err := ParseResult(line); err == nil && len(line) > MaxLine {
			t.Errorf("a line of %d bytes is taken", len(line))
		}
	})
}

// failing is a log that cannot be written.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no log") }

func TestResultsThatCannotBeWrittenAreAnError(t *testing.T) {
	check := Check{Network: "tcp4", Address: "127.0.0.1:1"}
	err := Client{Token: token, Out: failing{}}.Run(t.Context(), []Check{check})
	if err == nil || !strings.Contains(err.Error(), "no log") {
		t.Errorf("got %v", err)
	}
}
