// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"sync"
	"time"
)

// flowCommand sends numbered datagrams to an echo at an even pace, whatever comes back, and prints how many were sent,
// how many were not answered, and the longest time without an answer. What goes out in the last second is not counted
// as lost.
func flowCommand(args []string) error {
	flags := flag.NewFlagSet("flow", flag.ContinueOnError)
	duration := flags.Duration("duration", 10*time.Second, "how long")
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
	begin := time.Now()
	end := begin.Add(*duration)
	answered, gap := make(chan map[uint64]bool), make(chan time.Duration)
	go func() {
		seen, longest, last := map[uint64]bool{}, time.Duration(0), begin
		buffer := make([]byte, 64)
		for time.Now().Before(end) {
			_ = conn.SetReadDeadline(end)
			// An ICMP error is an answer of a router, and not of the echo.
			n, err := conn.Read(buffer)
			if err != nil || n != 8 {
				continue
			}
			now := time.Now()
			longest, last = max(longest, now.Sub(last)), now
			seen[binary.BigEndian.Uint64(buffer)] = true
		}
		answered <- seen
		gap <- max(longest, time.Since(last))
	}()
	tick := time.NewTicker(*interval)
	defer tick.Stop()
	var sent, counted uint64
	for now := begin; now.Before(end); now = <-tick.C {
		if end.Sub(now) > time.Second {
			counted++
		}
		_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, sent)) // what could not be sent was lost too
		sent++
	}
	seen := <-answered
	lost := 0
	for n := range counted {
		if !seen[n] {
			lost++
		}
	}
	fmt.Printf("sent=%d lost=%d longest-gap=%s\n", counted, lost, (<-gap).Round(time.Millisecond))
	return nil
}

// connectsCommand opens TCP connections at an even pace, each of which it closes at once, and prints how many were
// opened, how many could not be, and what the slowest took.
func connectsCommand(args []string) error {
	flags := flag.NewFlagSet("connects", flag.ContinueOnError)
	duration := flags.Duration("duration", 10*time.Second, "how long")
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
	for end := time.Now().Add(*duration); time.Now().Before(end); <-tick.C {
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
