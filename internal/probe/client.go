// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// oneTry is how long a client waits for one answer.
	oneTry = 4 * time.Second
	// betweenTries is how long it waits before it asks again.
	betweenTries = 300 * time.Millisecond
	// atOnce is how many checks are tried at a time, for whose answers a client has waited no longer than prompt: one that
	// waits costs nobody anything.
	atOnce = 16
	prompt = 500 * time.Millisecond
)

// Longest is how long a client takes for that many checks of which none succeeds: all that wait for their last try when
// the patience is over begin it within so many turns.
func Longest(checks int, patience time.Duration) time.Duration {
	return patience + time.Duration(checks/atOnce+1)*prompt + oneTry + betweenTries
}

// Client runs checks.
type Client struct {
	Token string
	// Patience is how long a check is tried again that fails: what it asks for may have been made just before.
	Patience time.Duration
	// Out gets a line for every result, as soon as there is one.
	Out io.Writer
}

// Run tries every check until it succeeds, or fails still when the client's patience is over.
func (c Client) Run(ctx context.Context, checks []Check) error {
	deadline := time.Now().Add(c.Patience)
	slots := make(chan struct{}, atOnce)
	results := make(chan Result)
	var all sync.WaitGroup
	for _, check := range checks {
		all.Go(func() { results <- c.settle(ctx, check, deadline, slots) })
	}
	go func() { all.Wait(); close(results) }()
	var failed error
	for r := range results {
		line, err := json.Marshal(r)
		if err == nil {
			_, err = c.Out.Write(append(line, '\n'))
		}
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return fmt.Errorf("write results: %w", failed)
	}
	return nil
}

func (c Client) settle(ctx context.Context, check Check, deadline time.Time, slots chan struct{}) Result {
	r := Result{ID: check.ID}
	for {
		slots <- struct{}{}
		leave := sync.OnceFunc(func() { <-slots })
		late := time.AfterFunc(prompt, leave)
		began := time.Now()
		err := c.try(ctx, check)
		r.Tries, r.Took = r.Tries+1, time.Since(began)
		late.Stop()
		leave()
		if err == nil {
			r.OK, r.Error = true, ""
			return r
		}
		r.Error = explain(err)
		if len(r.Error) > maxError {
			r.Error = r.Error[:maxError]
		}
		if time.Now().Add(betweenTries).After(deadline) {
			return r
		}
		select {
		case <-ctx.Done():
			return r
		case <-time.After(betweenTries):
		}
	}
}

// explain says in words what a failed try means.
func explain(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %s: %v", oneTry, err)
	}
	return err.Error()
}

// try asks once.
func (c Client) try(ctx context.Context, check Check) error {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	// Go's own resolver, which takes the name servers of the pod and works without the C library.
	dialer := net.Dialer{Resolver: &net.Resolver{PreferGo: true}}
	conn, err := dialer.DialContext(ctx, check.Network, check.Address)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // what was to be learned is learned
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	payload := make([]byte, check.size())
	_, _ = rand.Read(payload)
	var answer []byte
	if check.stream() {
		answer, err = c.overStream(conn, payload)
	} else {
		answer, err = c.overDatagrams(conn, payload)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", conn.RemoteAddr(), err)
	}
	return judge(answer, check, payload, conn.RemoteAddr())
}

// overStream sends while it receives: what one direction holds back must not hold up the other.
func (c Client) overStream(conn net.Conn, payload []byte) ([]byte, error) {
	request := append([]byte(c.Token), binary.BigEndian.AppendUint32(nil, uint32(len(payload)))...)
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(append(request, payload...))
		sent <- err
	}()
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer(len(payload))))
	if err != nil {
		return nil, fmt.Errorf("after %d bytes of the answer: %w", len(answer), err)
	}
	return answer, <-sent
}

func (c Client) overDatagrams(conn net.Conn, payload []byte) ([]byte, error) {
	if _, err := conn.Write(append([]byte(c.Token), payload...)); err != nil {
		return nil, err
	}
	answer := make([]byte, maxAnswer(len(payload)))
	n, err := conn.Read(answer)
	return answer[:n], err
}

// maxName is the length of the longest name of a server.
const maxName = 256

func maxAnswer(payload int) int64 { return int64(lengthSize + maxName + payload) }

// judge compares an answer with what was expected.
func judge(answer []byte, check Check, payload []byte, from net.Addr) error {
	if len(answer) < lengthSize {
		return fmt.Errorf("expected an answer of %s, found %d bytes from %s", check.Server, len(answer), from)
	}
	length, rest := binary.BigEndian.Uint32(answer), answer[lengthSize:]
	if length > maxName || int(length) > len(rest) {
		return fmt.Errorf("expected an answer of %s, found something else from %s", check.Server, from)
	}
	if name := string(rest[:length]); name != check.Server {
		return fmt.Errorf("expected %s to answer, found %q at %s", check.Server, name, from)
	}
	if !bytes.Equal(rest[length:], payload) {
		return fmt.Errorf("expected the %d bytes that were sent to come back from %s, found %d", len(payload), from,
			len(rest)-int(length))
	}
	return nil
}
