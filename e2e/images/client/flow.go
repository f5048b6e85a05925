// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// flowCommand sends numbered datagrams to an echo at an even pace, whatever comes back, and prints how many were sent,
// how many were not answered within a second after the last one, and the longest time without an answer.
func flowCommand(args []string) error {
	flags := flag.NewFlagSet("flow", flag.ContinueOnError)
	duration := flags.Duration("duration", 10*time.Second, "how long")
	untilEOF := flags.Bool("until-eof", false, "until standard input ends, instead of a duration")
	interval := flags.Duration("interval", 5*time.Millisecond, "time between datagrams")
	rest, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp", rest[0])
	if err != nil {
		return fmt.Errorf("flow: %w", err)
	}
	defer func() { _ = conn.Close() }()
	type answers struct {
		seen    map[uint64]bool
		longest time.Duration
		last    time.Time
	}
	begin, answered := time.Now(), make(chan answers)
	go func() {
		a := answers{seen: map[uint64]bool{}, last: begin}
		for buffer := make([]byte, 64); ; {
			n, err := conn.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				answered <- a
				return
			}
			// An ICMP error is an answer of a router, and not of the echo.
			if err != nil || n != 8 {
				continue
			}
			now := time.Now()
			a.longest, a.last = max(a.longest, now.Sub(a.last)), now
			a.seen[binary.BigEndian.Uint64(buffer)] = true
		}
	}()
	tick := time.NewTicker(*interval)
	defer tick.Stop()
	var sent uint64
	end := over(*duration, *untilEOF)
	for sending := true; sending; sending = next(tick.C, end) {
		_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, sent)) // what could not be sent was lost too
		sent++
	}
	stopped := time.Now()
	if err := conn.SetReadDeadline(stopped.Add(time.Second)); err != nil {
		return fmt.Errorf("flow: %w", err)
	}
	a := <-answered
	lost := 0
	for n := range sent {
		if !a.seen[n] {
			lost++
		}
	}
	fmt.Printf("sent=%d lost=%d longest-gap=%s\n", sent, lost,
		max(a.longest, stopped.Sub(a.last)).Round(time.Millisecond))
	return nil
}

// connectsCommand opens TCP connections at an even pace, each of which it closes at once, and prints how many were
// opened, how many could not be, and what the slowest took.
func connectsCommand(args []string) error {
	flags := flag.NewFlagSet("connects", flag.ContinueOnError)
	duration := flags.Duration("duration", 10*time.Second, "how long")
	untilEOF := flags.Bool("until-eof", false, "until standard input ends, instead of a duration")
	interval := flags.Duration("interval", 10*time.Millisecond, "time between connections")
	timeout := flags.Duration("timeout", 5*time.Second, "time for one connection")
	rest, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	made, failed, slowest := 0, 0, time.Duration(0)
	tick := time.NewTicker(*interval)
	defer tick.Stop()
	end := over(*duration, *untilEOF)
	for opening := true; opening; opening = next(tick.C, end) {
		group.Go(func() {
			begin := time.Now()
			conn, err := (&net.Dialer{Timeout: *timeout}).DialContext(context.Background(), "tcp", rest[0])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
				return
			}
			_ = conn.Close()
			made, slowest = made+1, max(slowest, time.Since(begin))
		})
	}
	group.Wait()
	fmt.Printf("made=%d failed=%d slowest=%s\n", made, failed, slowest.Round(time.Millisecond))
	return nil
}
