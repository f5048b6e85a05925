// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/internal/probe"
)

// newProbeCommand is what the throwaway pods of the plugin's verify and bench, and containers of its explain, run.
// It asks no API server.
func newProbeCommand() *cobra.Command {
	c := &cobra.Command{Use: "probe", Short: "Try how pods of other clusters are reached"}
	c.AddCommand(newProbeServer(), newProbeClient(), newProbeBench(), newProbeKnock())
	return c
}

func newProbeServer() *cobra.Command {
	var s probe.Server
	c := &cobra.Command{
		Use:   "server",
		Short: "Answer probes, TCP and UDP, with a name",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return s.Run(ctx, probe.Port)
		},
	}
	c.Flags().StringVar(&s.Name, "name", "", "name to answer with")
	c.Flags().StringVar(&s.Token, "token", "", "what every request begins with")
	return c
}

func newProbeClient() *cobra.Command {
	var client probe.Client
	c := &cobra.Command{
		Use:   "client CHECK...",
		Short: "Ask servers, and print a line for each answer",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			checks := make([]probe.Check, len(args))
			for i, text := range args {
				var err error
				if checks[i], err = probe.ParseCheck(text); err != nil {
					return err
				}
			}
			client.Out = c.OutOrStdout()
			return client.Run(ctx, checks)
		},
	}
	c.Flags().StringVar(&client.Token, "token", "", "what every request begins with")
	c.Flags().DurationVar(&client.Patience, "patience", 20*time.Second, "how long to try a check again that fails")
	return c
}

func newProbeBench() *cobra.Command {
	var b probe.Bench
	c := &cobra.Command{
		Use:   "bench KIND PATH...",
		Short: "Measure paths, and print a line for each",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			b.Kind, b.Out = args[0], c.OutOrStdout()
			paths := make([]probe.Path, len(args)-1)
			for i, text := range args[1:] {
				var err error
				if paths[i], err = probe.ParsePath(text); err != nil {
					return err
				}
			}
			return b.Run(ctx, paths)
		},
	}
	c.Flags().StringVar(&b.Token, "token", "", "what every request begins with")
	c.Flags().DurationVar(&b.Duration, "duration", 10*time.Second, "how long to measure each path")
	c.Flags().IntVar(&b.Flows, "flows", 1, "connections at a time, of throughput")
	c.Flags().DurationVar(&b.Patience, "patience", 20*time.Second, "how long a path may take until it works")
	return c
}

func newProbeKnock() *cobra.Command {
	k := probe.Knock{}
	c := &cobra.Command{
		Use:   "knock HOST",
		Short: "Connect once, from a given port, and print how that went",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if k.Network != "tcp" && k.Network != "udp" {
				return fmt.Errorf("--network: expected tcp or udp, found %q", k.Network)
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			k.Host = args[0]
			return json.NewEncoder(c.OutOrStdout()).Encode(k.Run(ctx))
		},
	}
	c.Flags().StringVar(&k.Network, "network", "tcp", "tcp or udp")
	c.Flags().Uint16Var(&k.Port, "port", 0, "port to connect to")
	c.Flags().Uint16Var(&k.From, "from", 0, "port to connect from")
	c.Flags().Uint32Var(&k.Mark, "mark", 0, "what datagrams begin with")
	c.Flags().BoolVar(&k.IPv6, "ipv6", false, "take IPv6 addresses of a name")
	return c
}
