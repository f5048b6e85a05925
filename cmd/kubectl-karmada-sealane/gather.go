// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/redact"
)

// gathering is a command line of gather.
type gathering struct {
	*options
	scope
	host      hostCluster
	file      string
	logsSince time.Duration
	logBytes  int64
}

func newGather(o *options) *cobra.Command {
	g := &gathering{options: o}
	cmd := &cobra.Command{
		Use: "gather", Short: "Write all that support needs to one file", Args: cobra.NoArgs,
		Long: `Write all that support needs to one file, a compressed archive: Sealane's objects and those that it depends on,
of the Karmada API, the cluster that hosts Karmada and the members; events; logs of the controller, the agents and the
DNS; and of each node's kernel what Sealane has there. diagnose --from checks it later, elsewhere, with the
same verdicts.

No Secret is read, and private keys, tokens, passwords and the values of environment variables are taken out of the
rest. Look at it before you send it: names and addresses of clusters, nodes, namespaces and services are in it.

Members are asked as in show, for which reading pods' logs needs a right of its own, and what a node's kernel has the
right to execute in the node agents' pods. What cannot be read is said in the file manifest.yaml, and the exit code is
0 all the same; it is 1 if nothing could be written.`,
		Example: `  ` + o.invocation + ` gather
  ` + o.invocation + ` gather -C c1,c2 -o case-17.tgz --logs-since 2h
  ` + o.invocation + ` diagnose all --from case-17.tgz`,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringSliceVarP(&g.clusters, "clusters", "C", nil, "members to gather from (default: all)")
	f.StringVarP(&g.file, "output", "o", "",
		"file to write, or - for the standard output (default: sealane-gather-TIME.tgz)")
	f.DurationVar(&g.logsSince, "logs-since", time.Hour, "how far back logs go; 0 leaves them out")
	f.Int64Var(&g.logBytes, "log-bytes", 1<<20, "how much of each container's log to keep, the newest")
	f.DurationVar(&g.memberTimeout, "member-timeout", defaultMemberTimeout, "how long to wait for each member")
	g.host.addFlags(f)
	return cmd
}

func (g *gathering) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	if g.logsSince < 0 || g.logBytes < 0 {
		return &finding{expected: "--logs-since and --log-bytes of 0 or more",
			found: fmt.Sprintf("%s and %d", g.logsSince, g.logBytes), remedy: "leave them out, or give 0 for no logs"}
	}
	karmada, err := g.karmada()
	if err != nil {
		return err
	}
	if err := g.installed(ctx, karmada); err != nil {
		return err
	}
	p := newProgress(g.ErrOut)
	p.say("reading the Karmada API and the members")
	s, err := g.snapshot(ctx, karmada, &g.host, g.scope)
	if err != nil {
		return err
	}
	if err := s.fleet().known(g.clusters, g.invocation); err != nil {
		return err
	}
	out, err := g.create(s.taken)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // an error of the last write is that of Close below
	written, err := g.write(ctx, s, out, p)
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", g.file, err)
	}
	if missing := len(written.missing) + s.unreadKinds(); missing > 0 {
		p.warn("%d things could not be read; %s in it says which and why", missing, manifestFile)
	}
	p.say("wrote %s; look at it before you send it", g.file)
	return nil
}

// unreadKinds counts what a snapshot lacks.
func (s *snapshot) unreadKinds() int {
	n := len(s.karmada.unread) + len(s.host.unread)
	for i := range s.members {
		n += len(s.members[i].unread)
	}
	return n
}

// create opens the file to write, which nobody else may read.
func (g *gathering) create(when time.Time) (io.WriteCloser, error) {
	if g.file == "-" {
		if f, is := g.Out.(*os.File); is && term.IsTerminal(int(f.Fd())) {
			return nil, &finding{expected: "the standard output to be a file or a pipe", found: "a terminal",
				remedy: "leave -o out, or name a file"}
		}
		g.file = "the standard output"
		return kept{g.Out}, nil
	}
	if g.file == "" {
		g.file = archiveDir + "-" + when.UTC().Format("20060102-150405") + ".tgz"
	}
	f, err := os.OpenFile(g.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, objectFileMode)
	if err != nil {
		return nil, &finding{expected: "to make the file " + g.file, found: err.Error(),
			remedy: "name another that does not exist yet, with -o"}
	}
	return f, nil
}

// kept is a stream that others close.
type kept struct{ io.Writer }

func (kept) Close() error { return nil }

// write reads what is no part of a snapshot, and writes all.
func (g *gathering) write(ctx context.Context, s *snapshot, out io.Writer, p *progress) (*archive, error) {
	redactor, err := s.redactor()
	if err != nil {
		return nil, err
	}
	a := newArchive(out, s.taken, redactor)
	work := &errgroup.Group{}
	work.SetLimit(atOnce)
	for _, at := range s.places() {
		if why := at.place.lacks(everything); why != "" {
			p.warn("%s: %s", at.dir, why)
			continue
		}
		r := &placeReader{gathering: g, archive: a, gatheredPlace: at, namespace: v1alpha1.Namespace}
		if at.dir == hostDir {
			r.namespace = g.host.namespace
		}
		work.Go(func() error { return r.gather(ctx) })
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return a, a.close(s)
}

// gatheredPlace is a place of a snapshot with its directory, and the kinds that people read and no check goes by.
type gatheredPlace struct {
	dir   string
	place *place
	extra []source
}

func (s *snapshot) places() []gatheredPlace {
	out := []gatheredPlace{{karmadaDir, &s.karmada, []source{
		listed("ExportRecord", func() client.ObjectList { return &v1alpha1.ExportRecordList{} }),
	}}, {hostDir, &s.host, nil}}
	for i := range s.members {
		out = append(out, gatheredPlace{path.Join(membersDir, s.members[i].name), &s.members[i], []source{
			listed("Lease", func() client.ObjectList { return &coordinationv1.LeaseList{} },
				client.InNamespace(v1alpha1.Namespace)),
			listed("GlobalIngressIP", func() client.ObjectList { return &v1alpha1.GlobalIngressIPList{} }),
			listed("GlobalEgressIP", func() client.ObjectList { return &v1alpha1.GlobalEgressIPList{} }),
		}})
	}
	return out
}

// redactor keeps the public keys that the objects of a snapshot publish.
func (s *snapshot) redactor() (*redact.Redactor, error) {
	var public []string
	for _, at := range s.places() {
		for _, o := range at.place.objects {
			fields, err := fieldsOf(o)
			if err != nil {
				return nil, err
			}
			public = append(public, redact.PublicKeys(fields)...)
		}
	}
	return redact.New(public...), nil
}
