// SPDX-License-Identifier: Apache-2.0

// Sealane-controller is the broker: it runs beside Karmada, talks to the Karmada API alone, and holds
// no credential for any member.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sealane-io/sealane/internal/version"
)

// garbage is how much the heap may grow by before it is collected, in percent of what lives: with Go's 100 the caches
// of a large fleet take twice what they need.
const garbage = 60

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if err := command(rest.InClusterConfig).ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// command is run in the cluster that host reaches, if any.
func command(host func() (*rest.Config, error)) *cobra.Command {
	o := options{host: host}
	cmd := &cobra.Command{
		Use:           "sealane-controller",
		Short:         "Sealane's broker on the Karmada API",
		Version:       version.Version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.addFlags(cmd.Flags())
	return cmd
}
