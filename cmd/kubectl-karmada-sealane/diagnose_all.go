// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// diagnosed is a subject of diagnose: what is checked of a snapshot. A check asks nobody.
type diagnosed struct {
	name, short string
	check       func(*snapshot) []checked
}

func diagnoseSubjects() []diagnosed {
	return []diagnosed{
		{"versions", "whether this command, the controller and the members' agents are of one version, and Kubernetes is " +
			"recent enough", checkVersions},
		{"deployment", "whether the controller and, in each member, the agents and Sealane's DNS run", checkDeployment},
		{"karmada", "whether Karmada reaches the members, and has brought there what they are to have", checkKarmada},
		{"networks", "whether the members' networks are known, accepted and routed", checkNetworks},
		{"connections", "whether the gateways of any two members reach each other", checkConnections},
		{subjectDNS, "whether each member's DNS forwards Sealane's domains, and both are served; or follow a name",
			checkDNS},
		{"services", "whether services are exported and imported as they are to be", checkServices},
		{"kube-proxy", "how each member serves its Services", checkKubeProxy},
		{"cni", "the members' CNI plugins", checkCNI},
		{"mtu", "whether tunnels lose packets for their size, in either direction", checkMTU},
		{"firewall", "whether UDP passes, each way, between the gateways of members and between the nodes of each",
			checkFirewall},
	}
}

// diagnoses are the checks that a command line asks for.
type diagnoses struct {
	*options
	scope
	output string
	host   hostCluster
	// from is what gather has written, to be checked instead.
	from string
}

// newDiagnoseAll returns the commands for all subjects, and for each but DNS.
func newDiagnoseAll(o *options) []*cobra.Command {
	d := &diagnoses{options: o}
	all := &cobra.Command{
		Use: "all", Short: "Check everything", Args: cobra.NoArgs,
		Long: `Check everything: all other subjects but the path of a single name. Each check is ok, warn or fail, with
what was expected, what was found and what to do.`,
		Example: `  ` + o.invocation + ` diagnose all
  ` + o.invocation + ` diagnose all -C c1,c2 -o json
  ` + o.invocation + ` diagnose all --from sealane-gather.tgz`,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context(), diagnoseSubjects()...) },
	}
	commands := []*cobra.Command{all}
	for _, subject := range diagnoseSubjects() {
		if subject.name == subjectDNS {
			continue // it has more to it
		}
		commands = append(commands, &cobra.Command{
			Use: subject.name, Short: "Check " + subject.short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context(), subject) },
		})
	}
	for _, cmd := range commands {
		f := cmd.Flags()
		f.StringSliceVarP(&d.clusters, "clusters", "C", nil, "members to check (default: all)")
		f.StringVarP(&d.output, "output", "o", outputTable, "output format: table, json or yaml")
		f.DurationVar(&d.memberTimeout, "member-timeout", defaultMemberTimeout, "how long to wait for each member")
		d.host.addFlags(f)
		addFrom(f, &d.from)
	}
	return commands
}

func (d *diagnoses) run(ctx context.Context, list ...diagnosed) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	if err := checkOutput(d.output); err != nil {
		return err
	}
	s, err := d.take(ctx)
	if err != nil {
		return err
	}
	if err := s.fleet().known(d.clusters, d.invocation); err != nil {
		return err
	}
	return report(d.Out, d.output, "diagnose", s.check(list...))
}

func addFrom(f *pflag.FlagSet, from *string) {
	f.StringVar(from, "from", "",
		"check what gather has written to this file, as of the time it was taken, and ask nobody")
}

// take reads the snapshot that is to be checked.
func (d *diagnoses) take(ctx context.Context) (*snapshot, error) {
	if d.from != "" {
		s, err := d.readArchive(d.from, defaultLimits())
		if err == nil && len(d.clusters) > 0 {
			s.members = slices.DeleteFunc(s.members, func(p place) bool { return !slices.Contains(d.clusters, p.name) })
		}
		return s, err
	}
	karmada, err := d.karmada()
	if err != nil {
		return nil, err
	}
	if err := d.installed(ctx, karmada); err != nil {
		return nil, err
	}
	return d.snapshot(ctx, karmada, &d.host, d.scope)
}

// check runs the checks of subjects. What a member that could not be asked has to say is missing in all of them.
func (s *snapshot) check(list ...diagnosed) []checked {
	var out []checked
	for _, subject := range list {
		out = append(out, subject.check(s)...)
	}
	for i := range s.members {
		if why := s.members[i].lacks(everything); why != "" {
			out = append(out, s.members[i].says("reached", verdictWarn, finding{
				expected: "to reach its API server from here, to check the rest", found: why,
				remedy: "add a kubeconfig context named " + s.members[i].name + ", or see that Karmada's cluster proxy works"}))
		}
	}
	return out
}

// fine is what is as it should be in a place.
func (p *place) fine(subject, format string, args ...any) checked {
	c := passed(subject, format, args...)
	c.Cluster = p.name
	return c
}

// says is what is not.
func (p *place) says(subject string, v verdict, f finding) checked {
	return checked{Cluster: p.name, Name: subject, Verdict: v, Found: f.found, Expected: f.expected, Remedy: f.remedy}
}

// unsure is a warning that what a subject is judged by was not read; false if it was.
func (p *place) unsure(subject string, kinds ...string) (checked, bool) {
	for _, kind := range kinds {
		if why := p.unread[kind]; why != "" {
			return p.says(subject, verdictWarn, finding{expected: "to read every " + kind + " there, to check it",
				found: why, remedy: "ask for the right to list them, and that the API server serves them"}), true
		}
	}
	return checked{}, false
}

// kubectl is a command line that looks at a place.
func (p *place) kubectl(format string, args ...any) string {
	return "kubectl --context " + p.context + " " + fmt.Sprintf(format, args...)
}

// judged is a condition that a subject goes by: what is wrong if it is not True, how badly, and what to do.
type judged struct {
	kind             string
	verdict          verdict
	expected, remedy string
}

// byConditions judges the conditions of an object that are there and not True. One that is Unknown is a warning.
func (p *place) byConditions(subject, object string, conditions []metav1.Condition, list ...judged) []checked {
	var out []checked
	for _, j := range list {
		c := meta.FindStatusCondition(conditions, j.kind)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		v := j.verdict
		if c.Status == metav1.ConditionUnknown {
			v = verdictWarn
		}
		found := fmt.Sprintf("%s: %s=%s %s", object, c.Type, c.Status, c.Reason)
		if c.Message != "" {
			found += ": " + c.Message
		}
		out = append(out, p.says(subject, v, finding{expected: j.expected, found: found, remedy: j.remedy}))
	}
	return out
}
