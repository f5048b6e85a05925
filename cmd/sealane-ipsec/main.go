// SPDX-License-Identifier: Apache-2.0

// Sealane-ipsec runs charon, strongSwan's daemon, beside the agent of a node, while cables by IPsec ask for it.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var c ipsec.Charon
	var verbosity int
	cmd := &cobra.Command{
		Use:           "sealane-ipsec",
		Short:         "Run strongSwan's daemon where the node agent asks for it",
		Version:       version.Version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(ipsec.Implementations(), c.Implementation) {
				return fmt.Errorf("--implementation: expected one of %v, found %q", ipsec.Implementations(), c.Implementation)
			}
			c.Log = logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr,
				&slog.HandlerOptions{Level: slog.Level(-verbosity)}))
			return c.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "/run/sealane-ipsec", "directory in common with the node agent")
	f.StringVar(&c.Program, "charon", "/usr/sbin/charon-systemd", "strongSwan's daemon, which runs in the foreground")
	f.StringVar((*string)(&c.Implementation), "implementation", string(ipsec.Auto),
		"what encrypts: Kernel, Userspace, or Auto, which is the kernel where it can")
	f.IntVarP(&verbosity, "verbosity", "v", 0, "0 logs changes of state, 1 also what charon says")
	return cmd
}
