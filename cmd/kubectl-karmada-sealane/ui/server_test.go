// SPDX-License-Identifier: Apache-2.0

package ui_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui/uitest"
)

const token = "the-token"

// served is a server that a test asks.
type served struct {
	*ui.Server
	address string
	source  *uitest.Source
	stop    func()
}

func serve(t *testing.T, m ui.Map) *served {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	source := &uitest.Source{}
	source.Set(m)
	server, err := ui.NewServer(ctx, l, source, token)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	stopped := false
	s := &served{server, l.Addr().String(), source, func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the server does not end")
		}
	}}
	t.Cleanup(s.stop)
	return s
}

// reply is an answer, read.
type reply struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request.
func (s *served) ask(t *testing.T, method, path string, change func(*http.Request)) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	answer, err := (&http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{answer.StatusCode, answer.Header, string(body)}
}

func bearing(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// TestWhoIsAnswered: nobody without the token, no other site whose name leads here, and nobody who wants a change.
func TestWhoIsAnswered(t *testing.T) {
	s := serve(t, uitest.Fleet(3))
	host := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Host = name; bearing(token)(r) }
	}
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path string
		change       func(*http.Request)
		want         int
	}{
		{"GET", "/?token=" + token, nil, 200},
		{"HEAD", "/?token=" + token, nil, 200},
		{"GET", "/?token=" + token, host("localhost:" + port), 421},
		{"GET", "/", nil, 403},
		{"GET", "/?token=", nil, 403},
		{"GET", "/?token=another", nil, 403},
		{"GET", "/?token=" + token + "x", nil, 403},
		{"GET", "/", bearing(token), 403},
		{"GET", "/explain?from=a&to=b", bearing(token), 200},
		{"GET", "/explain?from=a&to=b&token=" + token, nil, 403},
		{"GET", "/events?token=" + token, nil, 403},
		{"GET", "/events", bearing("another"), 403},
		{"HEAD", "/events", bearing(token), 200},
		{"GET", "/explain?from=a&to=b", func(r *http.Request) { r.Header.Set("Authorization", token) }, 403},
		{"GET", "/favicon.ico", nil, 403},
		{"GET", "/other", bearing(token), 404},
		{"GET", "/../etc/passwd", bearing(token), 404},
		{"GET", "/explain?from=" + strings.Repeat("a", 700), bearing(token), 400},
		{"POST", "/?token=" + token, nil, 405},
		{"PUT", "/explain", bearing(token), 405},
		{"DELETE", "/events", bearing(token), 405},
		{"OPTIONS", "/events", bearing(token), 405},
		{"GET", "/?token=" + token, host("attacker.example:" + port), 421},
		{"GET", "/?token=" + token, host("127.0.0.1"), 421},
		{"GET", "/?token=" + token, host("127.0.0.1:1"), 421},
	} {
		got := s.ask(t, c.method, c.path, c.change)
		if got.code != c.want {
			t.Errorf("%s %.60s: %d, want %d: %.200s", c.method, c.path, got.code, c.want, got.body)
		}
		policy := got.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
			got.header.Get("Access-Control-Allow-Origin") != "" || got.header.Get("Set-Cookie") != "" {
			t.Errorf("%s %.60s: headers %v", c.method, c.path, got.header)
		}
		if c.want >= 400 && (strings.Contains(got.body, token) || strings.Contains(got.body, "c1")) {
			t.Errorf("%s %.60s: a refusal says %q", c.method, c.path, got.body)
		}
	}
}

// TestOnlyThisMachineIsServed: no listener of another address, and no request of another machine.
func TestOnlyThisMachineIsServed(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was sent
	if _, err := ui.NewServer(t.Context(), l, &uitest.Source{}, token); err == nil ||
		!strings.Contains(err.Error(), "expected to listen on a loopback address") {
		t.Errorf("a listener of every address: %v", err)
	}
	s := serve(t, uitest.Fleet(1))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, s.URL(), nil)
	r.RemoteAddr = "192.0.2.7:4711"
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("a request from another machine: %d", w.Code)
	}
}

// TestThePageLoadsNothing: it is one document without an address in it but its own.
func TestThePageLoadsNothing(t *testing.T) {
	s := serve(t, uitest.Fleet(1))
	body := s.ask(t, "GET", "/?token="+token, nil).body
	for _, word := range []string{"https:", "src=", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
		"eval(", "style=", "onclick=", "@style@", "@script@"} {
		if strings.Contains(body, word) {
			t.Errorf("the page has %q in it", word)
		}
	}
	if strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), "http:") {
		t.Error("the page has an address in it")
	}
}

type event struct {
	Map     *ui.Map `json:"map"`
	Trouble string  `json:"trouble"`
	Ended   bool    `json:"ended"`
}

// events opens a stream, and returns what comes by it until leave is called.
func (s *served) events(t *testing.T) (<-chan event, func()) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	bearing(token)(r)
	transport := &http.Transport{}
	answer, err := transport.RoundTrip(r) //nolint:bodyclose // who reads it closes it
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %v", answer.Status, answer.Header)
	}
	out := make(chan event, 100)
	go func() {
		defer close(out)
		defer answer.Body.Close() //nolint:errcheck // it was only read
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				var e event
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					t.Error(err)
				}
				out <- e
			}
		}
	}()
	return out, func() {
		leave()
		for range out { //nolint:revive // until the stream has ended
		}
		transport.CloseIdleConnections()
	}
}

// next is the next event.
func next(t *testing.T, events <-chan event) event {
	t.Helper()
	select {
	case e, open := <-events:
		if !open {
			t.Fatal("the stream has ended")
		}
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event within a minute")
	}
	panic("unreachable")
}

// TestAChangeIsSeenWithinTwoSeconds, of a few at least one on a loaded machine.
func TestAChangeIsSeenWithinTwoSeconds(t *testing.T) {
	maps := []ui.Map{uitest.Fleet(3), uitest.Cut(uitest.Fleet(3), "c1", "c2")}
	s := serve(t, maps[0])
	events, leave := s.events(t)
	next(t, events)
	soonest := time.Hour
	for i := 1; i <= 4 && soonest > 2*time.Second; i++ {
		began := time.Now()
		s.source.Set(maps[i%2])
		next(t, events)
		soonest = min(soonest, time.Since(began))
	}
	if soonest > 2*time.Second {
		t.Errorf("the soonest of four changes took %s", soonest)
	}
	leave()
}

// TestChangesArrive at every page, and nothing does while nothing changes.
func TestChangesArrive(t *testing.T) {
	fleet := uitest.Fleet(3)
	s := serve(t, fleet)
	first, leaveFirst := s.events(t)
	if e := next(t, first); e.Map == nil || len(e.Map.Edges) != 3 || e.Map.Edges[0].State != ui.Connected {
		t.Fatalf("the first event is %+v", e)
	}
	second, leaveSecond := s.events(t)
	next(t, second)
	s.source.Set(uitest.Cut(fleet, "c1", "c2"))
	for _, events := range []<-chan event{first, second} {
		if e := next(t, events); e.Map.Edges[0].State != ui.Down || len(e.Map.Problems) != 1 {
			t.Errorf("after the cut: %+v", e)
		}
	}
	later := uitest.Cut(fleet, "c1", "c2")
	later.Taken = "2026-01-02T03:05:00Z"
	s.source.Set(later)
	for before := s.source.Reads(); s.source.Reads() < before+2; {
		select {
		case e := <-first:
			t.Fatalf("an event without a change: %+v", e)
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.source.Fail(errors.New("the API server is gone"))
	if e := next(t, first); !strings.Contains(e.Trouble, "the API server is gone") || e.Map == nil {
		t.Errorf("a reading that failed: %+v", e)
	}
	s.source.Set(fleet)
	if e := next(t, first); e.Trouble != "" || e.Map.Edges[0].State != ui.Connected {
		t.Errorf("after all: %+v", e)
	}
	leaveFirst()
	leaveSecond()
}

// TestPagesAreToldOfTheEnd, so that they do not ask whoever listens on the port next.
func TestPagesAreToldOfTheEnd(t *testing.T) {
	s := serve(t, uitest.Fleet(2))
	events, _ := s.events(t)
	next(t, events)
	s.stop()
	if e := next(t, events); !e.Ended {
		t.Errorf("the last event is %+v", e)
	}
	if _, open := <-events; open {
		t.Error("the stream goes on")
	}
}

// TestNobodyIsAskedWithoutAPage, and no goroutine stays for one that has gone.
func TestNobodyIsAskedWithoutAPage(t *testing.T) {
	s := serve(t, uitest.Fleet(3))
	if n := s.source.Reads(); n != 0 {
		t.Errorf("read %d times before there was a page", n)
	}
	before := runtime.NumGoroutine()
	for range 3 {
		var leaves []func()
		for range 5 {
			events, leave := s.events(t)
			next(t, events)
			leaves = append(leaves, leave)
		}
		for _, leave := range leaves {
			leave()
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestThereIsRoomForSomePages: one more is told so.
func TestThereIsRoomForSomePages(t *testing.T) {
	s := serve(t, uitest.Fleet(2))
	for range 32 {
		events, _ := s.events(t)
		next(t, events)
	}
	if got := s.ask(t, "GET", "/events", bearing(token)); got.code != 503 || !strings.Contains(got.body, "32") {
		t.Errorf("%+v", got)
	}
	s.stop()
}

// TestExplanations have their steps, and an error says what to do.
func TestExplanations(t *testing.T) {
	s := serve(t, uitest.Fleet(2))
	path := "/explain?from=c1%2Fc1-w1&to=" + url.QueryEscape("cart.shop")
	var got struct {
		From, To, Arrives, Error string
		Steps                    []struct{ At, Step, Verdict, Found, Expected, Remedy string }
	}
	if err := json.Unmarshal([]byte(s.ask(t, "GET", path, bearing(token)).body), &got); err != nil {
		t.Fatal(err)
	}
	if got.From != "c1/c1-w1" || got.Arrives != "sometimes" || len(got.Steps) != 2 || got.Steps[1].Remedy == "" {
		t.Errorf("%+v", got)
	}
	refused := s.ask(t, "GET", "/explain?from=nowhere&to=x", bearing(token))
	if err := json.Unmarshal([]byte(refused.body), &got); err != nil || refused.code != 200 ||
		!strings.Contains(got.Error, "to do: name one") {
		t.Errorf("%+v: %v", refused, err)
	}
}

// TestTokensDiffer and are long.
func TestTokensDiffer(t *testing.T) {
	a, b := ui.NewToken(), ui.NewToken()
	if a == b || len(a) != 32 {
		t.Errorf("%q and %q", a, b)
	}
}
