// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/dnspath"
)

type diagnose struct {
	*options
	scope
	context string
	output  string
	from    string
}

func newDiagnose(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Find out what is wrong",
		Long: `Find out what is wrong: check a subject, or all of them, by what the Karmada API, the cluster that hosts
Karmada and the members hold. Each check is ok, warn or fail, and says of what is not ok what was expected, what was
found and what to do. The exit code is 0 if none failed, and 1 otherwise; a warning does not change it.

Nothing is changed and no pod is started. A member is asked through the kubeconfig context of its name, if there is
one, else through Karmada's cluster proxy; one that cannot be asked is judged by what it last reported, and a warning
says so.

With --from, what gather has written to a file is checked as of the time it was taken, and nobody is asked.`,
	}
	cmd.AddCommand(newDiagnoseAll(o)...)
	cmd.AddCommand(newDiagnoseDNS(o))
	return cmd
}

func newDiagnoseDNS(o *options) *cobra.Command {
	d := &diagnose{options: o}
	cmd := &cobra.Command{
		Use:   "dns [NAME]",
		Short: "Check DNS in each member, or follow a name of the clusterset from a member to the backends",
		Long: `Without a NAME, check in each member that its DNS forwards Sealane's domains, and that both are served.

With one, follow it from a member to the backends: the name itself, what configures the cluster's own DNS, its
pods, Sealane's DNS, the exports, what the broker has the member import, the namespace, the ServiceImport with its
Service and EndpointSlices, the tunnels, the backends, and at last a look-up through the member's own DNS. It stops at
the first step that does not hold.

A short name is completed: SERVICE with the namespace of -n, and SERVICE.NAMESPACE. Members are asked as in
show. The look-up goes to a pod of the cluster's DNS, not through the Service that pods use.`,
		Example: `  ` + o.invocation + ` diagnose dns
  ` + o.invocation + ` diagnose dns whereami.sample.svc.clusterset.local --context c1
  ` + o.invocation + ` diagnose dns whereami -n sample
  ` + o.invocation + ` diagnose dns whereami-0.c2.whereami-ss.sample.svc.clusterset.local -C c1`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return d.subject(cmd.Context())
			}
			if d.from != "" {
				return &finding{expected: "no NAME with --from", found: args[0],
					remedy: "leave NAME out: a name is followed by asking the members, which a file does not"}
			}
			return d.dns(cmd.Context(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&d.clusters, "clusters", "C", nil, "members to look from (default: all)")
	f.StringVar(&d.context, "context", "", "kubeconfig context of the one member to look from")
	f.StringVarP(&d.namespace, "namespace", "n", "",
		"namespace of the service, if the name has none (default: that of the kubeconfig context)")
	f.StringVarP(&d.output, "output", "o", outputTable, "output format: table, json or yaml")
	f.DurationVar(&d.memberTimeout, "member-timeout", defaultMemberTimeout, "how long to wait for each member")
	addFrom(f, &d.from)
	cmd.MarkFlagsMutuallyExclusive("clusters", "context")
	cmd.MarkFlagsMutuallyExclusive("from", "context")
	return cmd
}

// subject checks DNS without a name.
func (d *diagnose) subject(ctx context.Context) error {
	all := &diagnoses{options: d.options, scope: d.scope, output: d.output, from: d.from,
		host: hostCluster{namespace: controllerName}}
	if d.context != "" {
		if err := all.aim(ctx, d.options, d.context); err != nil {
			return err
		}
	}
	for _, subject := range diagnoseSubjects() {
		if subject.name == subjectDNS {
			return all.run(ctx, subject)
		}
	}
	return nil
}

// diagnosis is the path of a name from one member.
type diagnosis struct {
	Cluster string         `json:"cluster"`
	Name    string         `json:"name"`
	Whole   bool           `json:"whole"`
	Steps   []dnspath.Step `json:"steps"`
}

func (d *diagnose) dns(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	if err := checkOutput(d.output); err != nil {
		return err
	}
	karmada, err := d.karmada()
	if err != nil {
		return err
	}
	if err := d.installed(ctx, karmada); err != nil {
		return err
	}
	if err := d.complete(ctx); err != nil {
		return err
	}
	f, err := d.gather(ctx, karmada, subjects{bundles: true, exports: true, services: true, gateways: true},
		scope{memberTimeout: d.memberTimeout, at: d.at})
	if err != nil {
		return err
	}
	name, broken := dnspath.Parse(text, d.namespace, f.domains())
	if broken != nil {
		return d.print([]diagnosis{{Name: text, Steps: []dnspath.Step{*broken}}})
	}
	if err := f.known(d.clusters, d.invocation); err != nil {
		return err
	}
	if len(f.members) == 0 {
		return &finding{expected: "a member to look from", found: "there is none",
			remedy: "make a cluster one: " + d.invocation + " join CLUSTER"}
	}
	var all []diagnosis
	for i := range f.members {
		m := &f.members[i]
		if len(d.clusters) > 0 && !slices.Contains(d.clusters, m.Name) {
			continue
		}
		steps, err := d.follow(ctx, karmada, f, m, name)
		if err != nil {
			return err
		}
		all = append(all, diagnosis{Cluster: m.Name, Name: name.FQDN, Whole: dnspath.Whole(steps), Steps: steps})
	}
	return d.print(all)
}

// complete finds the member that --context leads to, and the namespace.
func (d *diagnose) complete(ctx context.Context) error {
	if d.namespace == "" {
		namespace, _, err := d.config("", d.context).Namespace()
		if err != nil {
			return fmt.Errorf("namespace of the kubeconfig context: %w", err)
		}
		d.namespace = namespace
	}
	if d.context == "" {
		return nil
	}
	return d.aim(ctx, d.options, d.context)
}

// domains of all ClusterSets, in their order.
func (f *fleet) domains() []string {
	var out []string
	for i := range f.clusterSets {
		for _, domain := range f.clusterSets[i].Spec.DNS.Domains {
			if !slices.Contains(out, domain) {
				out = append(out, domain)
			}
		}
	}
	return out
}

// print writes the diagnoses, and fails if a path is broken.
func (d *diagnose) print(all []diagnosis) error {
	if d.output == outputJSON || d.output == outputYAML {
		if err := write(d.Out, d.output, table{subject: "dns", rows: all}); err != nil {
			return err
		}
	} else {
		for _, one := range all {
			if one.Cluster != "" {
				fmt.Fprintf(d.Out, "From %s:\n", one.Cluster)
			}
			dnspath.Print(d.Out, one.Steps, d.marks())
		}
	}
	var where []string
	for _, one := range all {
		if !one.Whole {
			where = append(where, strings.TrimSuffix(one.Steps[len(one.Steps)-1].Name+" from "+one.Cluster, " from "))
		}
	}
	if len(where) > 0 {
		return fmt.Errorf("%s: the path is broken at %s", all[0].Name, strings.Join(where, ", "))
	}
	return nil
}

// marks are signs in colour on a terminal; elsewhere the verdicts stand as words.
func (d *diagnose) marks() dnspath.Marks {
	if colourful(d.Out) {
		return dnspath.Marks{dnspath.OK: "\x1b[32m✓\x1b[0m", dnspath.Note: "\x1b[33m!\x1b[0m",
			dnspath.Broken: "\x1b[31m✗\x1b[0m"}
	}
	return nil
}
