// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/matrix"
)

type verify struct {
	*options
	clusters      []string
	output        string
	junit         string
	memberTimeout time.Duration
	logs          logReader
}

func newVerify(o *options) *cobra.Command {
	v := &verify{options: o, logs: followLog}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that the pods and nodes of each member reach those of the others",
		Long: `Prove that the members reach each other: start throwaway pods on a gateway and on a worker of each, in a
namespace of their own, and have pods and nodes of every member ask for the pods of every other one, by the pod's
address, by ClusterIP, and by the names of an exported service, a headless one and one of a given cluster, with TCP and
UDP, little data and much, and each family that both have. The exit code is not 0 if a check failed.

The pods run the image of the member's own node agents, without rights and without the network of the node but for
those that ask as a node. They end by themselves after a few minutes. The namespace, which is named at the start, is
removed at the end, also after Ctrl-C. What a run leaves behind that was killed, the next one removes, as uninstall
does.

Members are asked as in show, so a pull member needs a kubeconfig context of its name, or a cluster proxy of Karmada
that reaches it. The user needs the right to make namespaces, pods, services and ServiceExports in them.`,
		Example: `  ` + o.invocation + ` verify
  ` + o.invocation + ` verify -C c1,c2 --junit verify.xml
  ` + o.invocation + ` verify -C c1,c2 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return v.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringSliceVarP(&v.clusters, "clusters", "C", nil, "members to verify (default: all of the ClusterSet)")
	f.StringVarP(&v.output, "output", "o", outputTable, "output format: table, json or yaml")
	f.StringVar(&v.junit, "junit", "", "file to write a JUnit report to, for a CI system")
	f.DurationVar(&v.memberTimeout, "member-timeout", defaultMemberTimeout, "how long to wait for each member's answers")
	return cmd
}

func (v *verify) run(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	if err := checkOutput(v.output); err != nil {
		return err
	}
	karmada, err := v.karmada()
	if err != nil {
		return err
	}
	if err := v.installed(ctx, karmada); err != nil {
		return err
	}
	set, members, err := v.membersToTry(ctx, karmada, v.clusters)
	if err != nil {
		return err
	}
	sites, err := v.sites(ctx, karmada, members, v.memberTimeout)
	if err != nil {
		return err
	}
	p := newProgress(v.ErrOut)
	m, err := v.probe(ctx, p, sites, set)
	if err != nil {
		return err
	}
	took := time.Since(began)
	if v.junit != "" {
		report, err := m.JUnit(began, took)
		if err == nil {
			err = os.WriteFile(v.junit, report, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return v.report(m, took)
}

// probe runs the checks.
func (v *verify) probe(ctx context.Context, p *progress, sites []*site, set *v1alpha1.ClusterSet) (
	m matrix.Matrix, err error,
) {
	err = v.try(ctx, p, sites, set, func(ctx context.Context, t *trial) error {
		b := &board{Matrix: t.clusterset().Build()}
		live := b.show(v.Out, p, v.output == outputTable)
		err := t.each(ctx, func(ctx context.Context, s *site) error { return t.ask(ctx, s, b, v.logs) })
		live()
		m = b.Matrix
		return err
	})
	return m, err
}

// report prints the table, what fails, and whether all is well.
func (v *verify) report(m matrix.Matrix, took time.Duration) error {
	failed, all := m.Count(matrix.Failed), len(m.Checks)-m.Count(matrix.Skipped)
	t := table{subject: "verify", columns: matrix.Columns(), narrow: len(matrix.Columns()), cells: m.Cells(),
		rows: m.Checks}
	if err := write(v.Out, v.output, t); err != nil {
		return err
	}
	if v.output != outputJSON && v.output != outputYAML {
		for _, reason := range m.Reasons() {
			fmt.Fprintf(v.Out, "%s\n", oneLine(reason))
		}
		fmt.Fprintf(v.Out, "%d of %d checks ok, %d skipped, in %s\n", m.Count(matrix.OK), all, m.Count(matrix.Skipped),
			took.Round(time.Second))
	}
	if failed > 0 {
		return fmt.Errorf("verify: %d of %d checks failed", failed, all)
	}
	return nil
}
