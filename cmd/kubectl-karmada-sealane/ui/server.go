// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Source is where a Map and its explanations come from.
type Source interface {
	// Read reads the network anew.
	Read(ctx context.Context) (Map, error)
	// Explain follows a packet between two ends, as the command explain takes them.
	Explain(ctx context.Context, from, to string) (*Explanation, error)
}

const (
	// explainTime is how long an explanation may take, maxEnd how long an end of it may be.
	explainTime = 30 * time.Second
	maxEnd      = 600
	// writeTime is how long a page may take to receive what it is sent.
	writeTime = 10 * time.Second
	// stopTime is how long requests have to end when the command does.
	stopTime = 2 * time.Second
)

// NewToken makes a token that nobody guesses.
func NewToken() string {
	var random [24]byte
	_, _ = rand.Read(random[:]) // it does not fail: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(random[:])
}

// Server serves one Map to pages of this machine that know the token.
type Server struct {
	listener net.Listener
	token    string
	page     page
	hub      *hub
	// one explanation at a time.
	explaining chan struct{}
	source     Source
}

// NewServer serves on a listener, which has to be of a loopback address, until ctx ends.
func NewServer(ctx context.Context, l net.Listener, source Source, token string) (*Server, error) {
	address, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil || !address.Addr().IsLoopback() {
		return nil, fmt.Errorf("expected to listen on a loopback address, which this machine alone reaches, found %s; "+
			"listen on 127.0.0.1 or ::1", l.Addr())
	}
	p, err := newPage()
	if err != nil {
		return nil, err
	}
	return &Server{listener: l, token: token, page: p, source: source, explaining: make(chan struct{}, 1),
		hub: &hub{source: source, ctx: ctx, pause: readPause, watchers: map[watcher]bool{}}}, nil
}

// URL of the page.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/?token=" + s.token }

// Serve until the server's context ends, which is no error.
func (s *Server) Serve() error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return s.hub.ctx }}
	ended := make(chan struct{})
	stopped := context.AfterFunc(s.hub.ctx, func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.hub.ctx), stopTime)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		<-ended
		return nil
	}
	stopped()
	return fmt.Errorf("serve the map: %w", err)
}

// ServeHTTP implements http.Handler. Everything but a refusal needs the token.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.page.secure(w.Header())
	if code, why := s.refused(r); code != 0 {
		if code == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", "GET, HEAD")
		}
		http.Error(w, why, code)
		return
	}
	switch r.URL.Path {
	case "/":
		s.page.serve(w)
	case "/events":
		s.events(w, r)
	case "/explain":
		s.explain(w, r)
	default:
		http.Error(w, "expected the path /, found another one; open the address that the command printed",
			http.StatusNotFound)
	}
}

// refused says why a request is not answered; 0 if it is.
func (s *Server) refused(r *http.Request) (int, string) {
	const open = "; open the address that the command printed"
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case err != nil || !remote.Addr().Unmap().IsLoopback():
		return http.StatusForbidden, "expected a request from this machine, found one from elsewhere"
	case !s.own(r.Host):
		// A page of another site whose name was made to lead here has that name.
		return http.StatusMisdirectedRequest, "expected the address that this listens on as Host, found another one" + open
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return http.StatusMethodNotAllowed, "expected GET or HEAD, as nothing can be changed here"
	case !s.knows(r):
		return http.StatusForbidden, "expected the token of this run of the command, found none or another one" + open
	}
	return 0, ""
}

// own says whether a Host is this server.
func (s *Server) own(host string) bool {
	// And not as localhost: another user may listen on that port of the other loopback address.
	return host == s.listener.Addr().String()
}

// knows says whether a request has the token: a page in its address, what the page asks for in a header, which other
// sites cannot set.
func (s *Server) knows(r *http.Request) bool {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if r.URL.Path == "/" {
		token, bearer = r.URL.Query().Get("token"), true
	}
	return bearer && subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

// pulseTime is between two comments that say how old what is shown is, in seconds.
const pulseTime = 2 * time.Second

// events sends a frame at once, then each that differs from the one before, and at last that the command has ended.
// Meanwhile it says how long ago the last reading was, so that a page can tell silence from rest.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	frames, leave, ok := s.hub.watch() //nolint:contextcheck // what reads for all pages does not end with one of them
	if !ok {
		http.Error(w, fmt.Sprintf("expected at most %d pages; close some", maxWatchers), http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(text string, data []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeTime)) // a writer without deadlines waits for ctx
		_, err := fmt.Fprintf(w, text, data)
		return err == nil && out.Flush() == nil
	}
	if r.Method == http.MethodHead || !send(": %s\n\n", []byte("the map follows")) {
		return
	}
	pulse := time.NewTicker(pulseTime)
	defer pulse.Stop()
	for {
		select {
		case <-pulse.C:
			age, old := s.hub.age()
			if !send(": %s\n\n", fmt.Appendf(nil, "age %d %t", int64(age/time.Second), old)) {
				return
			}
		case <-r.Context().Done():
			if s.hub.ctx.Err() != nil {
				send("data: %s\n\n", []byte(`{"ended":true}`))
			}
			return
		case data := <-frames:
			// JSON has no line break, which would end the event.
			if !send("data: %s\n\n", data) {
				return
			}
		}
	}
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	from, to := r.URL.Query().Get("from"), r.URL.Query().Get("to")
	if len(from) > maxEnd || len(to) > maxEnd {
		http.Error(w, fmt.Sprintf("expected ends of at most %d bytes", maxEnd), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), explainTime)
	defer cancel()
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		http.Error(w, "another packet is still followed; try again", http.StatusServiceUnavailable)
		return
	}
	e, err := s.source.Explain(ctx, strings.TrimSpace(from), strings.TrimSpace(to))
	if err != nil {
		e = &Explanation{Error: err.Error()}
	}
	e.clean()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(e) // the page that asked may be gone
}
