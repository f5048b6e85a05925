// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newDocs prints the reference of all commands as one Markdown page.
func newDocs(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "docs", Hidden: true, Args: cobra.NoArgs,
		Short: "Print the reference of all commands as Markdown",
		Run: func(cmd *cobra.Command, _ []string) {
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "# Command reference\n\n%s.\n\nFlags of every command:\n```\n%s```\n", root.Short,
				root.PersistentFlags().FlagUsages())
			document(out, root)
		},
	}
}

func document(out io.Writer, parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		text := cmd.Long
		if text == "" {
			text = cmd.Short + "."
		}
		fmt.Fprintf(out, "\n## %s\n%s\n\n```\n%s\n", cmd.CommandPath(), text, cmd.UseLine())
		if cmd.Example != "" {
			fmt.Fprintf(out, "\n%s\n", cmd.Example)
		}
		if flags := cmd.LocalFlags().FlagUsages(); flags != "" {
			fmt.Fprintf(out, "\n%s", strings.TrimRight(flags, "\n")+"\n")
		}
		fmt.Fprintln(out, "```")
		document(out, cmd)
	}
}
