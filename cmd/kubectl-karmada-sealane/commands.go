// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// refuseUnknown makes every command that only groups others fail on a word that none of them is named, which
// cobra would answer with the group's help and exit code 0. Without a word the help is what was asked for.
func refuseUnknown(parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		refuseUnknown(cmd)
	}
	if !parent.HasSubCommands() || parent.Runnable() {
		return
	}
	parent.Args = cobra.ArbitraryArgs
	parent.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
}

// unknownCommand names the commands that there are below cmd.
func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return &finding{
		expected: "a command of " + cmd.CommandPath() + ": " + strings.Join(names, ", "),
		found:    fmt.Sprintf("%q", word),
		remedy:   didYouMean(word, names) + "see " + cmd.CommandPath() + " --help",
	}
}

// newHelp is cobra's help command, which fails on a topic that does not exist.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if cmd, _, err := root.Find(args); err == nil {
				for _, sub := range cmd.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, sub.Name())
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return unknownCommand(root, args[0])
			}
			if len(rest) > 0 && cmd.HasSubCommands() {
				return unknownCommand(cmd, rest[0])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
