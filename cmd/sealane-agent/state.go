// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/dataplane/nodestate"
)

// newStateCommand is for people, and for the plugin's gather, which executes it in the node agent's pod.
func newStateCommand() *cobra.Command {
	var sysctlDir string
	c := &cobra.Command{
		Use:   "state",
		Short: "Print what this node's kernel has of Sealane, without private keys; nothing is changed",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			const enough = 20 * time.Second
			ctx, cancel := context.WithTimeout(c.Context(), enough)
			defer cancel()
			return nodestate.Write(ctx, c.OutOrStdout(), sysctlDir)
		},
	}
	c.Flags().StringVar(&sysctlDir, "sysctl-dir", "/proc/sys/net", "the node's /proc/sys/net, or a mount of it")
	return c
}
