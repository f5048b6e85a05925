// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/matrix"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/probe"
)

// maxBench is how long a path may be measured: the pods live for a few minutes.
const maxBench = 30 * time.Second

type bench struct {
	*options
	kind     string
	from, to string
	on       string
	duration time.Duration
	flows    int
	output   string
	logs     logReader
}

func newBench(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure between pods of two members",
		Long: `Measure between pods of two members: what a path carries, how long a datagram takes there and back, or how
long a name takes to be resolved. The pods are throwaway ones, as those of verify, and are removed at the end. Beside
the path between the members stands one within the first, for what the machines themselves cost.`,
	}
	for _, kind := range []struct{ name, short, what string }{
		{probe.Throughput, "Measure TCP downloads",
			"Measure how fast a pod of a member downloads from a pod of another one by TCP, in samples of 200 ms."},
		{probe.Latency, "Measure round trips of datagrams",
			"Measure how long a small datagram takes from a pod of a member to a pod of another one, and back."},
		{probe.DNS, "Measure look-ups of names",
			"Measure how long a pod of a member takes to resolve names of a service that another one exports, through\n" +
				"its own cluster's DNS and what that keeps in its cache."},
	} {
		b := &bench{options: o, kind: kind.name, logs: followLog}
		sub := &cobra.Command{
			Use:   kind.name + " FROM TO",
			Short: kind.short,
			Long: kind.what + `

Both members are asked as in verify. The exit code is not 0 if nothing could be measured on a path.`,
			Example: `  ` + o.invocation + ` bench ` + kind.name + ` c1 c2
  ` + o.invocation + ` bench ` + kind.name + ` c1 c2 --on gateway --duration 20s -o json`,
			Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				b.from, b.to = args[0], args[1]
				return b.run(cmd.Context())
			},
		}
		f := sub.Flags()
		f.StringVar(&b.on, "on", "", "nodes that the pods are on: gateway or worker (default: worker, if both have one)")
		f.DurationVar(&b.duration, "duration", 10*time.Second, "how long to measure each path")
		f.StringVarP(&b.output, "output", "o", outputTable, "output format: table, wide, json or yaml")
		if kind.name == probe.Throughput {
			f.IntVar(&b.flows, "flows", 1, "connections at a time")
		}
		cmd.AddCommand(sub)
	}
	return cmd
}

// measured is what a benchmark prints as JSON.
type measured struct {
	Kind  string `json:"kind"`
	Unit  string `json:"unit"`
	From  string `json:"from"`
	To    string `json:"to"`
	On    string `json:"on"`
	Flows int    `json:"flows,omitempty"`
	// Paths have what was measured, in seconds or bits per second; the first is within the cluster.
	Paths []probe.Summary `json:"paths"`
	Note  string          `json:"note"`
}

func (b *bench) check() error {
	if err := checkOutput(b.output); err != nil {
		return err
	}
	if b.duration < time.Second || b.duration > maxBench {
		return &finding{expected: fmt.Sprintf("--duration between 1s and %s", maxBench), found: b.duration.String(),
			remedy: "choose one between, and run it more often for more"}
	}
	if b.kind == probe.Throughput && (b.flows < 1 || b.flows > 64) {
		return &finding{expected: "--flows between 1 and 64", found: strconv.Itoa(b.flows), remedy: "choose one between"}
	}
	if b.on != "" && !slices.Contains(matrix.Roles(), matrix.Role(b.on)) {
		return &finding{expected: "--on to be gateway or worker", found: fmt.Sprintf("%q", b.on), remedy: "choose one"}
	}
	return nil
}

func (b *bench) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if err := b.check(); err != nil {
		return err
	}
	karmada, err := b.karmada()
	if err != nil {
		return err
	}
	if err := b.installed(ctx, karmada); err != nil {
		return err
	}
	set, members, err := b.membersToTry(ctx, karmada, []string{b.from, b.to})
	if err != nil {
		return err
	}
	sites, err := b.sites(ctx, karmada, members, defaultMemberTimeout)
	if err != nil {
		return err
	}
	// They come sorted by name.
	if sites[0].name != b.from {
		slices.Reverse(sites)
	}
	role, err := b.role(sites)
	if err != nil {
		return err
	}
	for _, s := range sites {
		s.nodes = map[matrix.Role]string{role: s.nodes[role]}
	}
	p := newProgress(b.ErrOut)
	out := measured{Kind: b.kind, From: b.from, To: b.to, On: string(role), Flows: b.flows, Unit: units[b.kind].name,
		Note: notes[b.kind]}
	err = b.try(ctx, p, sites, set, func(ctx context.Context, t *trial) error {
		p.say("measuring, %s for each path", b.duration)
		var err error
		out.Paths, err = b.measure(ctx, t)
		return err
	})
	if err != nil {
		return err
	}
	return b.report(out)
}

// role of the nodes that both members have.
func (b *bench) role(sites []*site) (matrix.Role, error) {
	for _, role := range []matrix.Role{matrix.Worker, matrix.Gateway} {
		if b.on != "" && b.on != string(role) {
			continue
		}
		if !slices.ContainsFunc(sites, func(s *site) bool { return s.nodes[role] == "" }) {
			return role, nil
		}
	}
	return "", &finding{
		expected: fmt.Sprintf("%s and %s to have a %s that is ready, takes pods, and has a node agent that is ready", b.from,
			b.to, cmp.Or(b.on, "worker, or a gateway,")),
		found: "one of them has none", remedy: "choose other nodes with --on, or other members",
	}
}

// paths that are measured from the first site: within it, and to the second one.
func (b *bench) paths(t *trial) ([]probe.Path, error) {
	from, to := t.sites[0], t.sites[1]
	for _, s := range t.servers() {
		if s.Failure != "" {
			return nil, fmt.Errorf("%s: %s", s.Cluster, s.Failure)
		}
	}
	own, other := from.servers[0], to.servers[0]
	suffix := "." + t.namespace + ".svc." + t.set.Spec.DNS.Domains[0] + "."
	within, between := "within "+b.from, b.from+" to "+b.to
	if b.kind == probe.DNS {
		// The first is completed by the pod's search domains, as only the cluster knows its own.
		paths := []probe.Path{{Name: within, Address: own.Service}, {Name: "ClusterSetIP", Address: other.Service + suffix},
			{Name: "headless", Address: other.Headless + suffix}}
		if t.clusterset().ClusterNames {
			paths = append(paths, probe.Path{Name: "by-cluster", Address: to.name + "." + other.Service + suffix})
		}
		return paths, nil
	}
	host := other.PodIPs[0].String()
	if to.knownGlobally(from.name) {
		host = other.Headless + suffix
	}
	port := strconv.Itoa(probe.Port)
	return []probe.Path{{Name: within, Address: net.JoinHostPort(own.PodIPs[0].String(), port)},
		{Name: between, Address: net.JoinHostPort(host, port)}}, nil
}

// measure has a client in the first site measure all paths.
func (b *bench) measure(ctx context.Context, t *trial) ([]probe.Summary, error) {
	paths, err := b.paths(t)
	if err != nil {
		return nil, err
	}
	from := t.sites[0]
	args := []string{"bench", b.kind, "--token=" + t.token, "--duration=" + b.duration.String(),
		"--flows=" + strconv.Itoa(b.flows), "--patience=" + askPatience.String()}
	out := make([]probe.Summary, len(paths))
	for i, p := range paths {
		args = append(args, p.String())
		out[i].Path = p.Name
	}
	at := from.place(matrix.Pod, from.roles()[0])
	if err := from.api.Create(ctx, t.client(from, at, args...)); err != nil {
		return nil, fmt.Errorf("create the client in %s: %w", from.name, err)
	}
	patience := startPatience + time.Duration(len(paths))*(b.duration+askPatience)
	reason := t.follow(ctx, from, clientName(at), patience, b.logs, func(log io.Reader) bool { return take(log, out) })
	for i := range out {
		if out[i].Samples == 0 {
			out[i].Error = cmp.Or(out[i].Error, reason)
		}
	}
	return out, nil
}

// take reads summaries of the paths from a log, and says whether it has all of them.
func take(log io.Reader, out []probe.Summary) bool {
	lines := bufio.NewScanner(io.LimitReader(log, int64(len(out)+1)*probe.MaxLine))
	lines.Buffer(make([]byte, 0, probe.MaxLine), probe.MaxLine)
	for lines.Scan() {
		s, err := probe.ParseSummary(lines.Bytes())
		if err != nil {
			continue
		}
		s.Error = clip.Line(s.Error)
		for i := range out {
			if out[i].Path == s.Path {
				out[i] = s
			}
		}
	}
	return !slices.ContainsFunc(out, func(s probe.Summary) bool { return s.Samples == 0 && s.Error == "" })
}
