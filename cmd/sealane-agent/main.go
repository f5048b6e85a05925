// SPDX-License-Identifier: Apache-2.0

// Command sealane-agent is Sealane in a member cluster: `cluster` speaks for the cluster, `node` programs the kernel of
// each node, `probe` is what the throwaway pods of verify run, `trace` what explain --live asks of a node.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/internal/version"
)

func main() {
	root := &cobra.Command{
		Use:           "sealane-agent",
		Short:         "Connect this cluster to the others of its ClusterSet",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newClusterCommand(), newNodeCommand(), newProbeCommand(), newStateCommand(), newPlanCommand(),
		newTraceCommand(), newVersionCommand())
	if err := root.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), version.Version)
			return err
		},
	}
}
