// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/tracer"
	"github.com/sealane-io/sealane/internal/trace"
)

// newTraceCommand is what the plugin's explain --live executes in the node agents' pods.
func newTraceCommand() *cobra.Command {
	var protocol string
	var lookUp []string
	var untilEOF bool
	var t tracer.Tracer
	c := &cobra.Command{
		Use:   "trace",
		Short: "Print where packets of one flow are seen on this node; nothing is changed, and nothing is left",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
			defer stop()
			switch protocol {
			case "tcp":
				t.Protocol = unix.IPPROTO_TCP
			case "udp":
				t.Protocol = unix.IPPROTO_UDP
			default:
				return fmt.Errorf("--protocol: expected tcp or udp, found %q", protocol)
			}
			for _, text := range lookUp {
				a, err := netip.ParseAddr(text)
				if err != nil {
					return fmt.Errorf("--look-up: %w", err)
				}
				t.LookUp = append(t.LookUp, a.Unmap())
			}
			if untilEOF {
				var end context.CancelFunc
				ctx, end = context.WithCancel(ctx)
				go func() {
					_, _ = io.Copy(io.Discard, c.InOrStdin())
					end()
				}()
			}
			t.Out = c.OutOrStdout()
			return t.Run(ctx)
		},
	}
	f := c.Flags()
	f.StringVar(&protocol, "protocol", "tcp", "protocol of the flow: tcp or udp")
	f.Uint16Var(&t.Port, "port", 0, fmt.Sprintf("source port of the flow's requests, %d or more", trace.MinPort))
	f.DurationVar(&t.Duration, "duration", 10*time.Second, "how long to watch, at most "+trace.MaxDuration.String())
	f.StringSliceVar(&lookUp, "look-up", nil, "further destinations to look up the way to, of packets that do not go on")
	f.BoolVar(&untilEOF, "until-eof", false, "end when the standard input does")
	return c
}
