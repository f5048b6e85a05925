// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/version"
)

func newVersion(o *options) *cobra.Command {
	var clientOnly bool
	s := &show{options: o}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this command, the controller and the members' agents",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if clientOnly {
				return s.client()
			}
			return s.everyVersion(cmd)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&clientOnly, "client", false, "print the version of this command only")
	f.StringVarP(&s.output, "output", "o", outputTable, "output format: table, wide, json or yaml")
	f.DurationVar(&s.memberTimeout, "member-timeout", defaultMemberTimeout, "how long to wait for each member")
	s.host.addFlags(f)
	return cmd
}

// everyVersion prints its own version also where nobody else can be asked: who runs it may have no cluster yet.
func (s *show) everyVersion(cmd *cobra.Command) error {
	err := s.run(cmd, true)
	if err == nil || checkOutput(s.output) != nil {
		return err
	}
	return errors.Join(err, write(s.Out, s.output, ownVersion()))
}

func ownVersion() table {
	return versionTable([]versionRow{{Component: "plugin", Version: version.Version}})
}

// client prints the version of this command: the bare word, unless a format asks for a table.
func (s *show) client() error {
	if err := checkOutput(s.output); err != nil {
		return err
	}
	if s.output == outputTable {
		_, err := fmt.Fprintln(s.Out, version.Version)
		return err
	}
	return write(s.Out, s.output, ownVersion())
}

func versionTable(rows []versionRow) table {
	return newTable("versions", rows, 4, "COMPONENT", "CLUSTER", "VERSION", "MESSAGE", "IMAGE")
}

// versions of every part that can be asked.
func (o *options) versions(ctx context.Context, karmada *api, host *hostCluster, f *fleet) []versionRow {
	rows := []versionRow{
		{Component: "plugin", Version: version.Version},
		o.controllerVersion(ctx, host),
	}
	image := karmada.agentImage(ctx)
	for i := range f.members {
		m := &f.members[i]
		rows = append(rows,
			versionRow{Component: "cluster agent", Cluster: m.Name, Version: m.Status.AgentVersion, Image: image})
		if m.err != nil {
			rows = append(rows, versionRow{Component: "gateway", Cluster: m.Name, Message: m.unavailable()})
		}
		for j := range m.gateways {
			g := &m.gateways[j]
			rows = append(rows,
				versionRow{Component: "gateway " + g.Name, Cluster: m.Name, Version: g.Status.Version, Image: image})
		}
	}
	return rows
}

// controllerVersion reads the Deployment on the host; a controller that runs elsewhere cannot be asked.
func (o *options) controllerVersion(ctx context.Context, h *hostCluster) versionRow {
	row := versionRow{Component: "controller"}
	if err := h.complete(o); err != nil {
		row.Message = "runs elsewhere, or name the cluster that hosts Karmada with --host-context"
		return row
	}
	var d appsv1.Deployment
	host, err := o.connect(h.kubeconfig, h.context)
	if err == nil {
		err = host.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: controllerName}, &d)
	}
	if err != nil {
		row.Message = err.Error()
		return row
	}
	row.Image = imageIn(d.Spec.Template.Spec)
	if row.Version = imageTag(row.Image); row.Version == "" {
		row.Message = untagged
	}
	return row
}

// agentImage is the image that the bundle asks for, before any OverridePolicy.
func (a *api) agentImage(ctx context.Context) string {
	var ds appsv1.DaemonSet
	if err := a.Get(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: "sealane-node"}, &ds); err != nil ||
		len(ds.Spec.Template.Spec.Containers) == 0 {
		return ""
	}
	return ds.Spec.Template.Spec.Containers[0].Image
}
