// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"slices"
	"time"
)

// rttCommand sends small datagrams to an echo, one after the other, and prints the median round trip in
// microseconds.
func rttCommand(args []string) error {
	flags := flag.NewFlagSet("rtt", flag.ContinueOnError)
	count := flags.Int("count", 500, "number of datagrams")
	rest, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	if *count < 1 {
		return fmt.Errorf("rtt: expected at least one datagram, found %d", *count)
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp", rest[0])
	if err != nil {
		return fmt.Errorf("rtt: %w", err)
	}
	defer func() { _ = conn.Close() }()
	trips := make([]time.Duration, *count)
	for n := range trips {
		begin := time.Now()
		if err := roundTrip(conn, byte(n), 64, time.Second); err != nil {
			return fmt.Errorf("rtt: datagram %d of %d: %w", n+1, *count, err)
		}
		trips[n] = time.Since(begin)
	}
	slices.Sort(trips)
	fmt.Println(trips[len(trips)/2].Microseconds())
	return nil
}
