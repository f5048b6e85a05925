// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/matrix"
)

type verify struct {
	*options
	clusters      []string
	output        string
	junit         string
	memberTimeout time.Duration
	// logs follows the log of a pod.
	logs func(ctx context.Context, member *api, pod client.ObjectKey) (io.ReadCloser, error)
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
	set, members, err := v.membersToVerify(ctx, karmada)
	if err != nil {
		return err
	}
	sites, err := v.sites(ctx, karmada, members)
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

// probe makes what is needed in the members, runs the checks, and removes it again, however they end.
func (v *verify) probe(ctx context.Context, p *progress, sites []*site, set *v1alpha1.ClusterSet) (
	m matrix.Matrix, err error,
) {
	run := trial{namespace: namePrefix + utilrand.String(8), token: rand.Text(), set: set, sites: sites,
		until: time.Now().Add(lifetime)}
	for _, s := range sites {
		run.clusters = append(run.clusters, s.name)
	}
	defer func() {
		switch ctx.Err() {
		case context.Canceled:
			err = errors.New("verify was interrupted")
		case context.DeadlineExceeded:
			err = fmt.Errorf("verify did not end within %s: give it more with --timeout", v.timeout)
		}
		// Also after Ctrl-C, and when the time is over.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
		defer cancel()
		if left := run.remove(clean); left != nil {
			err = errors.Join(err, left)
			return
		}
		p.say("namespace %s removed", run.namespace)
	}()
	p.say("namespace %s, in %s", run.namespace, list(run.clusters))
	if err := run.each(ctx, run.createServers); err != nil {
		return m, err
	}
	if err := run.each(ctx, run.awaitServers); err != nil {
		return m, err
	}
	p.say("%d of %d servers run", run.serversRunning(), len(run.servers()))
	b := &board{Matrix: run.clusterset().Build()}
	live := b.show(v.Out, p, v.output == outputTable)
	err = run.each(ctx, func(ctx context.Context, s *site) error { return run.ask(ctx, s, b, v.logs) })
	live()
	return b.Matrix, err
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

// membersToVerify are those that were asked for, or all of the ClusterSet; there must be two.
func (v *verify) membersToVerify(ctx context.Context, karmada *api) (*v1alpha1.ClusterSet, []v1alpha1.Member, error) {
	all, err := karmada.members(ctx)
	if err != nil {
		return nil, nil, err
	}
	known := fleet{all: make([]string, len(all)), members: make([]fleetMember, len(all))}
	name := defaultClusterSet
	for i := range all {
		known.all[i], known.members[i].Member = all[i].Name, all[i]
		if len(v.clusters) > 0 && all[i].Name == v.clusters[0] {
			name = all[i].Spec.ClusterSet
		}
	}
	if err := known.known(v.clusters, v.invocation); err != nil {
		return nil, nil, err
	}
	var members []v1alpha1.Member
	for i := range all {
		inSet := all[i].Spec.ClusterSet == name && all[i].Spec.Phase != v1alpha1.MemberLeaving
		switch wanted := slices.Contains(v.clusters, all[i].Name); {
		case wanted && !inSet:
			return nil, nil, &finding{
				expected: "members of one ClusterSet that stay in it",
				found: fmt.Sprintf("%s of ClusterSet %s is %s, and %s is of %s", all[i].Name, all[i].Spec.ClusterSet,
					all[i].Spec.Phase, v.clusters[0], name),
				remedy: "verify the members of one ClusterSet at a time",
			}
		case inSet && (wanted || len(v.clusters) == 0):
			members = append(members, all[i])
		}
	}
	if len(members) < 2 {
		return nil, nil, &finding{
			expected: "two members or more, for there to be a way between them",
			found:    fmt.Sprintf("%d in ClusterSet %s", len(members), name),
			remedy:   "name two with -C, or make another cluster a member: " + v.invocation + " join CLUSTER",
		}
	}
	var set v1alpha1.ClusterSet
	if err := karmada.Get(ctx, client.ObjectKey{Name: name}, &set); err != nil {
		return nil, nil, fmt.Errorf("get ClusterSet %s: %w", name, err)
	}
	return &set, members, nil
}

// sites opens and surveys all members, in parallel.
func (v *verify) sites(ctx context.Context, karmada *api, members []v1alpha1.Member) ([]*site, error) {
	sites, errs := make([]*site, len(members)), make([]error, len(members))
	var g errgroup.Group
	for i := range members {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, 2*v.memberTimeout)
			defer cancel()
			sites[i] = &site{name: members[i].Name, member: &members[i]}
			c, err := v.member(ctx, karmada, &members[i])
			if err == nil {
				sites[i].api = c
				err = sites[i].survey(ctx)
			}
			errs[i] = err
			return nil
		})
	}
	_ = g.Wait()
	for i, err := range errs {
		if found := (*finding)(nil); errors.As(err, &found) {
			return nil, found
		}
		if err != nil {
			return nil, &finding{
				expected: fmt.Sprintf("to reach the API server of %s from here, to start pods there", members[i].Name),
				found:    refusal(err) + ": " + err.Error(),
				remedy: fmt.Sprintf("add a kubeconfig context named %s, as a pull member needs, or see that Karmada's "+
					"cluster proxy works; or leave it out with -C", members[i].Name),
			}
		}
	}
	if err := v.sweepAll(ctx, sites); err != nil {
		return nil, err
	}
	return sites, nil
}

// sweepAll removes what runs that were killed have left.
func (v *verify) sweepAll(ctx context.Context, sites []*site) error {
	var g errgroup.Group
	for _, s := range sites {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, cleanPatience)
			defer cancel()
			return s.api.removeTrials(ctx, time.Now())
		})
	}
	return g.Wait()
}
