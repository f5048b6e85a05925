// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
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
		if found := (*finding)(nil); errors.As(err, &found) {
			return found
		}
		return &finding{expected: "flags of " + cmd.CommandPath(), found: err.Error(), remedy: seeHelp(cmd)}
	})
	check(root)
}

func check(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		check(sub)
	}
	cmd.Flags().VisitAll(refuseEmpty)
	cmd.PersistentFlags().VisitAll(refuseEmpty)
	accepts := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if accepts != nil && accepts(cmd, args) != nil {
			return &finding{expected: cmd.UseLine(), found: describeArguments(args), remedy: seeHelp(cmd)}
		}
		if err := checkClusterArguments(cmd, args); err != nil {
			return err
		}
		if err := cmd.ValidateFlagGroups(); err != nil {
			return &finding{expected: "flags that go together", found: err.Error(), remedy: "leave one of them out"}
		}
		return checkFlags(cmd)
	}
}

// scopes are the flags that say where a command acts, and what each names. Left out they mean everything, or a default:
// a script whose variable is unset gives them an empty value, and does not mean that.
var scopes = map[string]string{
	"clusters": "at least one cluster", "namespace": "a namespace", "clusterset": "a ClusterSet",
	"context": "a context of the kubeconfig", "karmada-context": "a context of the kubeconfig",
	"host-context": "a context of the kubeconfig", "host-namespace": "a namespace",
}

// nonEmpty is the value of a flag that names something: an empty one is an error.
type nonEmpty struct {
	pflag.Value
	empty *finding
}

// Set takes what is not empty.
func (v nonEmpty) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		return v.empty
	}
	return v.Value.Set(text)
}

// refuseEmpty has a flag that is a scope refuse an empty value.
func refuseEmpty(f *pflag.Flag) {
	what, ok := scopes[f.Name]
	if _, done := f.Value.(nonEmpty); done || !ok {
		return
	}
	if f.DefValue == "[]" { // pflag prints that of a type that it does not know
		f.DefValue = ""
	}
	spelling, otherwise := "--"+f.Name, f.DefValue
	if f.Shorthand != "" {
		spelling = "-" + f.Shorthand
	}
	if _, text, ok := strings.Cut(f.Usage, "(default: "); ok {
		otherwise = strings.TrimRight(text, ")")
	}
	if otherwise != "" {
		otherwise = " for " + otherwise
	}
	f.Value = nonEmpty{Value: f.Value, empty: &finding{
		expected: "the name of " + what + " after " + spelling, found: `""`,
		remedy: "name " + what + ", or leave " + spelling + " out" + otherwise,
	}}
}

// clusterArguments is how the usage of commands tells that their arguments are clusters.
const clusterArguments = "[CLUSTER...]"

// checkClusterArguments refuses arguments that can be no names of clusters.
func checkClusterArguments(cmd *cobra.Command, args []string) error {
	if !strings.HasSuffix(cmd.Use, clusterArguments) {
		return nil
	}
	return checkNames("names of clusters, separated by spaces", "leave it out", args...)
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
		return checkNames("the name of a namespace after --namespace", "leave the flag out", f.Value.String())
	case "clusters":
		if list, ok := f.Value.(nonEmpty).Value.(pflag.SliceValue); ok {
			return checkNames("names of clusters, separated by commas, after --clusters", "leave the flag out",
				list.GetSlice()...)
		}
	}
	return nil
}

// checkNames refuses what can be no name of an object, and so cannot be found either. Otherwise is what to do instead
// of a correction.
func checkNames(what, otherwise string, names ...string) error {
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return &finding{
				expected: what + ": lower case letters, digits and -",
				found:    fmt.Sprintf("%q", name),
				remedy:   didYouMean(name, []string{strings.ToLower(name)}) + "check the name, or " + otherwise,
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
