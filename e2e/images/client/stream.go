// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

// udpCommand sends datagrams to an echo and prints how many came back whole.
func udpCommand(args []string) error {
	flags := flag.NewFlagSet("udp", flag.ContinueOnError)
	count := flags.Int("count", 1, "number of datagrams")
	timeout := flags.Duration("timeout", 5*time.Second, "time for one answer")
	rest, err := parse(flags, args, 2)
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(rest[1])
	if err != nil || size < 1 || size > 65507 {
		return fmt.Errorf("udp: expected 1 to 65507 bytes, found %q", rest[1])
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp", rest[0])
	if err != nil {
		return fmt.Errorf("udp: %w", err)
	}
	defer func() { _ = conn.Close() }()
	whole := 0
	for n := range *count {
		if err = roundTrip(conn, byte(n), size, *timeout); err == nil {
			whole++
		}
	}
	fmt.Printf("%d of %d\n", whole, *count)
	if whole == 0 {
		return fmt.Errorf("udp: %w", err)
	}
	return nil
}

func roundTrip(conn net.Conn, seed byte, size int, timeout time.Duration) error {
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = seed + byte(i)
	}
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := conn.Write(sent); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	received := make([]byte, 1<<16)
	n, err := conn.Read(received)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if !bytes.Equal(received[:n], sent) {
		return fmt.Errorf("sent %d bytes, other %d came back", size, n)
	}
	return nil
}

// tcpReport is what happened to a long-lived connection.
type tcpReport struct {
	// connections is 1 if the first one lived to the end.
	connections, resets int
	longestGap          time.Duration
}

// tcpCommand holds a connection on which data flows both ways all the time:
// small requests on one kept-alive HTTP connection. It prints the number of
// connections that were needed, the resets, and the longest time between two
// answers. It fails if the first connection did not live to the end.
func tcpCommand(args []string) error {
	flags := flag.NewFlagSet("tcp", flag.ContinueOnError)
	duration := flags.Duration("duration", time.Minute, "how long")
	untilEOF := flags.Bool("until-eof", false, "until standard input ends, instead of a duration")
	interval := flags.Duration("interval", 20*time.Millisecond, "time between requests")
	timeout := flags.Duration("timeout", 30*time.Second, "silence after which the connection is given up")
	rest, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	report := hold(rest[0], over(*duration, *untilEOF), *interval, *timeout)
	fmt.Printf("connections=%d resets=%d longest-gap=%s\n", report.connections, report.resets,
		report.longestGap.Round(time.Millisecond))
	if report.connections != 1 || report.resets != 0 {
		return errors.New("tcp: the connection did not live to the end")
	}
	return nil
}

// over is closed after a time, or when standard input has ended.
func over(duration time.Duration, untilEOF bool) <-chan struct{} {
	end := make(chan struct{})
	go func() {
		defer close(end)
		if untilEOF {
			_, _ = io.Copy(io.Discard, os.Stdin)
			return
		}
		time.Sleep(duration)
	}()
	return end
}

// hold speaks HTTP on a connection of its own, not through http.Transport: that drops a connection whose last write it
// has not heard of within 50 ms, as happens on a loaded machine, and repeats a request on a new one in silence.
func hold(target string, over <-chan struct{}, interval, timeout time.Duration) tcpReport {
	var report tcpReport
	var c *stream
	last := time.Now()
	tick := time.NewTicker(max(interval, time.Millisecond))
	defer tick.Stop()
	for asking := true; asking; {
		err := func() (err error) {
			if c == nil {
				if c, err = openStream(target, timeout); err != nil {
					return err
				}
				report.connections++
			}
			return c.ask(target, timeout)
		}()
		if err == nil {
			report.longestGap = max(report.longestGap, time.Since(last))
			last = time.Now()
			asking = next(tick.C, over)
			continue
		}
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			report.resets++
		}
		fmt.Printf("%s error: %v\n", time.Now().UTC().Format("15:04:05.000"), err)
		if c != nil {
			_ = c.Close()
			c = nil
		}
		asking = next(tick.C, over)
	}
	report.longestGap = max(report.longestGap, time.Since(last))
	if c != nil {
		_ = c.Close()
	}
	return report
}

// next waits for a tick, and is false once all is over.
func next(tick <-chan time.Time, over <-chan struct{}) bool {
	select {
	case <-over:
		return false
	case <-tick:
		return true
	}
}

// stream is one kept-alive HTTP connection.
type stream struct {
	net.Conn
	answers *bufio.Reader
}

func openStream(target string, timeout time.Duration) (*stream, error) {
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(context.Background(), "tcp", target)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &stream{conn, bufio.NewReader(conn)}, nil
}

// ask makes one request and reads the whole answer.
func (s *stream) ask(host string, timeout time.Duration) error {
	if err := s.SetDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := fmt.Fprintf(s, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	response, err := http.ReadResponse(s.answers, nil)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}
