// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// Traffic is what went between two pods: one TCP connection that was held, numbered datagrams to an echo, and
// connections that were opened one after the other.
type Traffic struct {
	// Resets of the connection, and the longest time without an answer on it.
	Resets  int
	Silence time.Duration
	// Datagrams, those without an answer, and the longest time without one.
	Sent, Lost      int
	DatagramSilence time.Duration
	// Opened and Failed are the connections of which each was new, Slowest what one of them took.
	Opened, Failed int
	Slowest        time.Duration
}

// StartTraffic begins traffic from the client of a node in a cluster to a server, HOST:PORT of a whereami, which must
// answer. What it returns ends it, and says how it went; a connection that did not live to its end fails the test.
func StartTraffic(t *testing.T, cluster, node, server string) (end func() Traffic) {
	t.Helper()
	client := "client-" + node
	Eventually(t, Patience, func(ctx context.Context) error {
		_, err := Ask(ctx, cluster, client, "http://"+server)
		return err
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel) // also of a test that fails meanwhile
	var flows sync.WaitGroup
	var errs [3]error
	var ends []io.Closer
	var traffic Traffic
	var streams int
	var silence, datagrams, slowest string
	for i, flow := range []struct {
		command, report string
		into            []any
	}{
		{"tcp", "connections=%d resets=%d longest-gap=%s", []any{&streams, &traffic.Resets, &silence}},
		{"flow", "sent=%d lost=%d longest-gap=%s", []any{&traffic.Sent, &traffic.Lost, &datagrams}},
		{"connects", "made=%d failed=%d slowest=%s", []any{&traffic.Opened, &traffic.Failed, &slowest}},
	} {
		stdin, untilOver := io.Pipe()
		ends = append(ends, untilOver)
		flows.Go(func() {
			out, err := inPodWith(ctx, stdin, cluster, client, flow.command, "-until-eof", "-interval=20ms", server)
			line, _, _ := strings.Cut(out, "\n")
			if _, errScan := fmt.Sscanf(line, flow.report, flow.into...); err == nil && errScan != nil {
				err = fmt.Errorf("client %s: expected %q, found %q: %w", flow.command, flow.report, out, errScan)
			}
			if err != nil {
				errs[i] = fmt.Errorf("%w: %s", err, out)
			}
		})
	}
	return func() Traffic {
		t.Helper()
		for _, e := range ends {
			_ = e.Close()
		}
		flows.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatalf("traffic from %s to %s: %v", client, server, err)
		}
		for text, into := range map[string]*time.Duration{silence: &traffic.Silence,
			datagrams: &traffic.DatagramSilence, slowest: &traffic.Slowest} {
			d, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			*into = d
		}
		return traffic
	}
}
