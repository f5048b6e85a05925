// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// defaultMemberTimeout is how long show waits for each member.
const defaultMemberTimeout = 5 * time.Second

type show struct {
	*options
	scope
	// context of a member to ask.
	context string
	output  string
	watch   bool
	host    hostCluster
}

// shown is a subject of show: what it needs read, and its table.
type shown struct {
	name  string
	short string
	need  subjects
	table func(*fleet) table
}

func showSubjects() []shown {
	gateways := subjects{gateways: true}
	return []shown{
		{"clusterset", "ClusterSets, their members and problems", subjects{}, clusterSetTable},
		{"connections", "tunnels between the gateways of different clusters, with status and round trip time", gateways,
			connectionTable},
		{"endpoints", "gateways as the other clusters see them", gateways, endpointTable},
		{"gateways", "gateway nodes and their part in their cluster", gateways, gatewayTable},
		{"networks", "pod and service networks of each member, and its block of global addresses", subjects{}, networkTable},
		{"rollout", "how far each member has come with new node agents, whose turn it is, and what holds it up", subjects{},
			rollOutTable},
		{"services", "exported services: from which clusters, how far each export has come, and who imports it",
			subjects{bundles: true, exports: true, services: true}, serviceTable},
		{"problems",
			"everything that needs somebody's attention: of ClusterSets, members, gateways, tunnels, exports and imports",
			subjects{gateways: true, bundles: true, exports: true, services: true}, problemTable},
		{"imports", "imported services in each member: addresses, source clusters, endpoints, and what is missing",
			subjects{bundles: true, services: true}, importTable},
		{"globalips",
			"global addresses of each member, of both families, and whose they are: services, pods, hosts outside, " +
				"namespaces, the cluster",
			subjects{gateways: true, globals: true}, globalIPTable},
	}
}

func newShow(o *options) *cobra.Command {
	s := &show{options: o}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the state of the network",
		Long: `Show the state of the network, from the Karmada API and from the members' own Gateways. A member is asked
through the kubeconfig context of its name, if there is one, else through Karmada's cluster proxy; what a
member that cannot be reached last reported is shown, and marked. Of its connections that are times, losses and
traffic in coarse steps, marked by ~, which are a few minutes old.

With --watch it is read again every 2 seconds, until Ctrl-C, or for --timeout if that is given. A terminal shows the
latest tables in place of the ones before. Elsewhere the tables are printed once, and then a line, with the time, for
each row that has come (+) or gone (-); a row that changes is both. With -o json and yaml, all is printed at each
change.`,
	}
	f := cmd.PersistentFlags()
	f.StringSliceVarP(&s.clusters, "clusters", "C", nil, "members to show (default: all)")
	f.StringVarP(&s.output, "output", "o", outputTable, "output format: table, wide, json or yaml")
	f.DurationVar(&s.memberTimeout, "member-timeout", defaultMemberTimeout, "how long to wait for each member")
	f.BoolVarP(&s.watch, "watch", "w", false, "show it again whenever it changes")
	s.host.addFlags(f)
	for _, subject := range showSubjects() {
		c := &cobra.Command{
			Use: subject.name, Short: "Show " + subject.short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd, false, subject) },
		}
		if subject.need.services || subject.need.globals {
			s.addNamespace(c)
		}
		if subject.name == "imports" {
			c.Flags().StringVar(&s.context, "context", "", "kubeconfig context of the one member to show")
		}
		cmd.AddCommand(c)
	}
	all := &cobra.Command{
		Use: "all", Short: "Show everything", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd, true, showSubjects()...) },
	}
	s.addNamespace(all)
	cmd.AddCommand(
		all, newOverlap(s), newShowPlan(s),
		&cobra.Command{
			Use: "versions", Short: "Show versions of the controller and of the members' agents", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd, true) },
		},
	)
	return cmd
}

// addNamespace adds the flags that narrow what is shown of services.
func (s *show) addNamespace(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.namespace, "namespace", "n", "", "namespace of the services (default: all)")
	cmd.Flags().BoolP("all-namespaces", "A", false, "services of all namespaces, as without -n")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// run shows subjects, and versions if these are asked for.
func (s *show) run(cmd *cobra.Command, versions bool, list ...shown) error {
	var last *fleet
	err := s.present(cmd, func(ctx context.Context) ([]table, error) {
		tables, f, err := s.read(ctx, versions, list...)
		last = f
		return tables, err
	})
	if err == nil && !s.watch && len(list) == 1 && list[0].need.globals {
		return last.asked() // what a member that cannot be asked would show nobody else knows
	}
	return err
}

// present writes the tables that a function reads, once or, with --watch, again and again.
func (s *show) present(cmd *cobra.Command, read func(context.Context) ([]table, error)) error {
	if err := checkOutput(s.output); err != nil {
		return err
	}
	if s.watch {
		ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
		if cmd.Flags().Changed("timeout") {
			ctx, cancel = context.WithTimeout(ctx, s.timeout)
		}
		defer cancel()
		return follow(ctx, newDisplay(s.Out, s.output), read)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
	defer cancel()
	tables, err := read(ctx)
	if err != nil {
		return err
	}
	return write(s.Out, s.output, tables...)
}

// read reads what subjects need, and makes their tables.
func (s *show) read(ctx context.Context, versions bool, list ...shown) ([]table, *fleet, error) {
	karmada, err := s.karmada()
	if err != nil {
		return nil, nil, err
	}
	if err := s.installed(ctx, karmada); err != nil {
		return nil, nil, err
	}
	within := s.scope
	if s.context != "" {
		if err := within.aim(ctx, s.options, s.context); err != nil {
			return nil, nil, err
		}
	}
	need := subjects{gateways: versions}
	for _, subject := range list {
		need = need.or(subject.need)
	}
	f, err := s.gather(ctx, karmada, need, within)
	if err != nil {
		return nil, nil, err
	}
	if err := f.known(within.clusters, s.invocation); err != nil {
		return nil, nil, err
	}
	var tables []table
	for _, subject := range list {
		tables = append(tables, subject.table(f))
	}
	if versions {
		tables = append(tables, versionTable(s.versions(ctx, karmada, &s.host, f)))
	}
	return tables, f, nil
}

func clusterSetTable(f *fleet) table {
	return newTable("clustersets", clusterSetRows(f), 7, "NAME", "MEMBERS", "ACCEPTED", "CONNECTED", "PAIRS", "READY",
		"PROBLEMS", "DRIVER", "DOMAINS")
}

func connectionTable(f *fleet) table {
	return newTable("connections", connectionRows(f), 10,
		strings.Fields("CLUSTER GATEWAY REMOTE-CLUSTER REMOTE-GATEWAY ADDRESS NAT STATUS RTT-AVG LOSS MESSAGE ACTIVE LINK "+
			"RTT-MIN/MAX/DEV RECEIVED SENT "+columnLastChange+" ALGORITHMS")...)
}

func endpointTable(f *fleet) table {
	return newTable("endpoints", endpointRows(f), 6, "CLUSTER", "GATEWAY", "SLOT", "PRIVATE", "PUBLIC", "CABLE",
		"MTU", "PUBLIC-KEY")
}

func gatewayTable(f *fleet) table {
	return newTable("gateways", gatewayRows(f), 8, "CLUSTER", "GATEWAY", "SLOT", "HA", "READY", "CABLE", "KEY",
		"SUMMARY", "VERSION", "KEY-MADE-AT", "FLOWS-BY")
}

func rollOutTable(f *fleet) table {
	return newTable("rollout", rollOutRows(f), 5, "CLUSTER", "STATE", "NODES", columnSince, "MESSAGE", "REVISION",
		"LAST-NODE")
}

func networkTable(f *fleet) table {
	return newTable("networks", networkRows(f), 6, "CLUSTER", "PODS", "SERVICES", "GLOBAL", "ACCEPTED", "MESSAGE",
		"CLUSTERSET", "NODES", "OVERLAPS")
}
