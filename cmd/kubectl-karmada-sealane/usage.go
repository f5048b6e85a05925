// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkUsage has every command refuse what is wrong with its command line before any API server is asked, as a
// finding: cobra's own errors do not say what to do.
func checkUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &finding{expected: "flags of " + cmd.CommandPath(), found: err.Error(), remedy: seeHelp(cmd)}
	})
	check(root)
}

func check(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		check(sub)
	}
	accepts := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if accepts != nil && accepts(cmd, args) != nil {
			return &finding{expected: cmd.UseLine(), found: describeArguments(args), remedy: seeHelp(cmd)}
		}
		if err := cmd.ValidateFlagGroups(); err != nil {
			return &finding{expected: "flags that go together", found: err.Error(), remedy: "leave one of them out"}
		}
		return checkFlags(cmd)
	}
}

func describeArguments(args []string) string {
	if len(args) == 0 {
		return "no argument"
	}
	return fmt.Sprintf("arguments: %q", args)
}

func seeHelp(cmd *cobra.Command) string { return "see " + cmd.CommandPath() + " --help" }

// checkFlags checks the values of the flags that several commands have.
func checkFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err == nil && f.Changed {
			err = checkFlag(f)
		}
	})
	return err
}

func checkFlag(f *pflag.Flag) error {
	switch f.Name {
	case "timeout", "member-timeout":
		if d, err := time.ParseDuration(f.Value.String()); err == nil && d <= 0 {
			return &finding{
				expected: "--" + f.Name + " to be longer than 0", found: f.Value.String(),
				remedy: "give a duration such as 30s or 5m",
			}
		}
	case "namespace":
		if f.Value.String() == "" {
			return nil
		}
		return checkNames("the name of a namespace", f, f.Value.String())
	case "clusters":
		if list, ok := f.Value.(pflag.SliceValue); ok {
			return checkNames("names of clusters, separated by commas,", f, list.GetSlice()...)
		}
	}
	return nil
}

// checkNames refuses what can be no name of an object, and so cannot be found either.
func checkNames(what string, f *pflag.Flag, names ...string) error {
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return &finding{
				expected: what + " after --" + f.Name + ": lower case letters, digits and -",
				found:    fmt.Sprintf("%q", name),
				remedy:   didYouMean(name, []string{strings.ToLower(name)}) + "check the name, or leave the flag out",
			}
		}
	}
	return nil
}

// checkServiceName refuses what can be no name of a Service.
func checkServiceName(name string) error {
	if len(validation.IsDNS1035Label(name)) == 0 {
		return nil
	}
	remedy := "check the name"
	if namespace, service, found := strings.Cut(name, "/"); found {
		remedy = fmt.Sprintf("give the namespace with -n: %s -n %s", service, namespace)
	}
	return &finding{
		expected: "the name of a Service: at most 63 lower case letters, digits and -, a letter first",
		found:    fmt.Sprintf("%q", name), remedy: remedy,
	}
}
