// SPDX-License-Identifier: Apache-2.0

// Sealane-controller is the broker: it runs beside Karmada, talks to the Karmada API alone, and holds
// no credential for any member.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sealane-io/sealane/internal/version"
)

func main() {
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o options
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
