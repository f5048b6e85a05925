// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// completionTime is how long somebody who has pressed Tab waits.
const completionTime = 3 * time.Second

// completer returns the words that may stand in a place. One that cannot be asked for them returns none: a shell has no
// use for errors.
type completer func(ctx context.Context, cmd *cobra.Command) []string

// complete gives every flag and argument that has known values its completion.
func (o *options) complete(root *cobra.Command) {
	flags := map[string]completer{
		"clusters": o.memberNames, "clusterset": o.clusterSetNames, "namespace": o.namespaceNames,
		"context": o.contextCompleter(""), "karmada-context": o.contextCompleter(""),
		"host-context":      o.contextCompleter("host-kubeconfig"),
		"controller":        fixed(controllerDeployment, controllerExternal),
		"render":            fixed(renderKarmada, renderHost),
		flagMode:            fixed(string(v1alpha1.ServiceModeClusterSetIP), string(v1alpha1.ServiceModeClusterIP)),
		flagImporters:       o.memberNames,
		"image-pull-policy": fixed(string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever)),
		"wait":              fixed(slices.Sorted(maps.Keys(statusConditions()))...),
		"output":            fixed(outputTable, outputWide, outputJSON, outputYAML),
	}
	arguments := map[string]completer{
		"join": o.clusterNames, "leave": o.memberNames, "rotate-keys": o.memberNames,
		"export": o.serviceNames, "unexport": o.exportNames, "dns": o.exportNames,
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		register := func(f *pflag.Flag) {
			values, known := flags[f.Name]
			if f.Name == "wait" && f.Value.Type() == "bool" || f.Name == "output" && cmd.Name() == "gather" {
				return // a switch, and a file
			}
			if _, set := cmd.GetFlagCompletionFunc(f.Name); known && !set {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, asFunction(values)) // it fails for flags that are not there
			}
		}
		cmd.LocalFlags().VisitAll(register)
		if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() && len(cmd.ValidArgs) == 0 {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
			values, ok := arguments[cmd.Name()]
			if cmd.Parent() != nil && cmd.Parent().Name() == "bench" {
				values, ok = o.memberNames, true
			}
			if ok {
				cmd.ValidArgsFunction = argumentsOf(cmd, values)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// asFunction completes a value, or the last of a list of values that commas separate.
func asFunction(values completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		before, last := "", word
		if at := strings.LastIndex(word, ","); at >= 0 {
			before, last = word[:at+1], word[at+1:]
		}
		given := strings.Split(before, ",")
		var out []string
		for _, value := range ask(cmd, values) {
			if strings.HasPrefix(value, last) && !slices.Contains(given, value) {
				out = append(out, before+value)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// argumentsOf completes arguments, each value once, and as many as the command takes.
func argumentsOf(cmd *cobra.Command, values completer) cobra.CompletionFunc {
	most := len(strings.Fields(cmd.Use)) - 1
	if strings.HasSuffix(cmd.Use, clusterArguments) {
		most = 1 << 10
	}
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all := slices.DeleteFunc(ask(cmd, values), func(value string) bool {
			return slices.Contains(args, value) || !strings.HasPrefix(value, word)
		})
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// ask asks for values, within the time that somebody waits.
func ask(cmd *cobra.Command, values completer) []string {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	out := values(ctx, cmd)
	slices.Sort(out)
	return slices.Compact(out)
}

func fixed(values ...string) completer {
	return func(context.Context, *cobra.Command) []string { return slices.Clone(values) }
}

// contextCompleter are the contexts of the kubeconfig, or of the one that a flag names.
func (o *options) contextCompleter(flag string) completer {
	return func(_ context.Context, cmd *cobra.Command) []string { return o.contextNames(flagOf(cmd, flag)) }
}

func flagOf(cmd *cobra.Command, name string) string {
	if f := cmd.Flag(name); name != "" && f != nil {
		return f.Value.String()
	}
	return ""
}

// listedNames are the names of all objects of a list on the Karmada API, in a namespace if one is given.
func (o *options) listedNames(ctx context.Context, namespace string, list client.ObjectList,
	names func() []string) []string {
	karmada, err := o.karmada()
	if err != nil || karmada.List(ctx, list, client.InNamespace(namespace)) != nil {
		return nil
	}
	return names()
}

func namesOf[T any, P interface {
	*T
	client.Object
}](items []T) []string {
	out := make([]string, 0, len(items))
	for i := range items {
		out = append(out, P(&items[i]).GetName())
	}
	return out
}

func (o *options) memberNames(ctx context.Context, _ *cobra.Command) []string {
	var list v1alpha1.MemberList
	if all := o.listedNames(ctx, "", &list, func() []string { return namesOf(list.Items) }); len(all) > 0 {
		return all
	}
	return o.clusterNames(ctx, nil) // before anything is installed
}

func (o *options) clusterNames(ctx context.Context, _ *cobra.Command) []string {
	var list clusterv1alpha1.ClusterList
	return o.listedNames(ctx, "", &list, func() []string { return namesOf(list.Items) })
}

func (o *options) clusterSetNames(ctx context.Context, _ *cobra.Command) []string {
	var list v1alpha1.ClusterSetList
	return o.listedNames(ctx, "", &list, func() []string { return namesOf(list.Items) })
}

func (o *options) namespaceNames(ctx context.Context, _ *cobra.Command) []string {
	var list corev1.NamespaceList
	return o.listedNames(ctx, "", &list, func() []string { return namesOf(list.Items) })
}

// serviceNames are the Services on the Karmada API, in the namespace that is given. Of one that a member has alone
// only that knows.
func (o *options) serviceNames(ctx context.Context, cmd *cobra.Command) []string {
	namespace := flagOf(cmd, "namespace")
	if namespace == "" {
		namespace, _, _ = o.config("", o.karmadaContext).Namespace()
	}
	var list corev1.ServiceList
	return o.listedNames(ctx, namespace, &list, func() []string { return namesOf(list.Items) })
}

// exportNames are the services that are exported, in the namespace that is given.
func (o *options) exportNames(ctx context.Context, cmd *cobra.Command) []string {
	var list mcsv1alpha1.ServiceExportList
	return o.listedNames(ctx, flagOf(cmd, "namespace"), &list, func() []string { return namesOf(list.Items) })
}
