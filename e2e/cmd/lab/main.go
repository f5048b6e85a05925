// SPDX-License-Identifier: Apache-2.0

// Command lab boots, loads, shows and removes a Karmada with member clusters on
// this machine.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/sealane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var name string
	root := &cobra.Command{
		Use:           "lab",
		Short:         "A real Karmada with real member clusters on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&name, "name", ".lab", "the lab's state directory")
	root.AddCommand(deps(), up(&name), down(&name), load(&name), status(&name))
	return root
}

func deps() *cobra.Command {
	var tests bool
	cmd := &cobra.Command{
		Use:   "deps",
		Short: "Install the packages and build the programs that labs need",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return lab.Deps(cmd.Context(), cmd.OutOrStdout(), tests) },
	}
	cmd.Flags().BoolVar(&tests, "tests", false, "also what the project's tests need")
	return cmd
}

func up(name *string) *cobra.Command {
	var file string
	var archives []string
	var install bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Boot a lab, or complete and verify one that exists",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			topology, err := readTopology(file)
			if err != nil {
				return err
			}
			l, err := lab.Up(cmd.Context(), lab.Options{Name: *name, Topology: topology, Out: cmd.OutOrStdout(),
				Images: archives})
			if err != nil || !install {
				return err
			}
			return (&sealane.Sealane{Lab: l, Out: cmd.OutOrStdout()}).Install(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&file, "topology", "", "topology file; by default that of the existing lab, or else c1 (push) "+
		"and c2 (pull) with two nodes each")
	cmd.Flags().BoolVar(&install, "install", true, "install Sealane through its plugin")
	cmd.Flags().StringArrayVar(&archives, "image", nil, "further image archive to load into every node")
	return cmd
}

func readTopology(file string) (lab.Topology, error) {
	if file == "" {
		return lab.Topology{}, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return lab.Topology{}, fmt.Errorf("read topology: %w", err)
	}
	topology, err := lab.ParseTopology(data)
	if err != nil {
		return lab.Topology{}, fmt.Errorf("%s: %w", file, err)
	}
	return topology, nil
}

func down(name *string) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove a lab, whatever state it is in",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if quiet {
				out = io.Discard
			}
			return lab.Down(cmd.Context(), *name, out)
		},
	}
	cmd.Flags().BoolVar(&quiet, "quiet", false, "print nothing but errors")
	return cmd
}

func load(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE...",
		Short: "Load Docker or OCI image archives into every node",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, archives []string) error {
			l, err := lab.Open(*name)
			if err != nil {
				return err
			}
			for _, archive := range archives {
				if err := l.LoadImages(cmd.Context(), archive); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func status(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the processes of a lab",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Open(*name)
			if err != nil {
				return err
			}
			for _, process := range l.Processes() {
				state := "stopped"
				if l.Running(process) {
					state = "running"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-32s %-8s %s\n", process, state, l.LogFile(process))
			}
			return nil
		},
	}
}
