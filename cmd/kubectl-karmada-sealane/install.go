// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/version"
)

// How the controller runs.
const (
	controllerDeployment = "deployment"
	controllerExternal   = "external"
)

// defaultRegistry has the released images.
const defaultRegistry = "ghcr.io/sealane-io"

type install struct {
	*options
	clusters   []string
	clusterSet string
	// globalnet is the mode of a new ClusterSet; empty leaves it to the API server.
	globalnet string
	wait      bool
	// render says for which API server the objects are printed, renderKarmada or renderHost; empty applies them.
	render string
	// outputDir is where they are written to instead, as a base for kustomize; empty prints them.
	outputDir  string
	controller controller
}

func newInstall(o *options) *cobra.Command {
	in := &install{options: o}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install Sealane on the Karmada API and connect its clusters",
		Long: `Install Sealane: CRDs, the members' workloads and the controller's identity on the Karmada API, the controller
itself on the cluster that hosts Karmada, which propagates the workloads to the members, and a ClusterSet. Then
wait until every member is connected to every other and resolves the clusterset's names through its own
cluster DNS.

Running it again with the same flags and version changes nothing that is as it should be, but gives the controller a
new token; with others, it sets images, pull policy, replicas and the way the controller runs to what these say. An
existing ClusterSet is never changed.

--render prints what would be applied on the Karmada API, in that order, for GitOps, and asks no API server;
--render=host prints the controller with its rights on the host. The ClusterSet, which is yours, the policies of the
members' workloads, which the controller edits, and the controller's credential are part of neither. With --output-dir
they are written to a directory, as a base for kustomize.`,
		Example: `  # every cluster of Karmada, the controller in the cluster of context karmada-host
  ` + o.invocation + ` install --karmada-context karmada-apiserver --host-context karmada-host

  # clusters that have the same networks, as k3s gives them
  ` + o.invocation + ` install --globalnet Auto

  # two clusters, the controller as a process of your own
  ` + o.invocation + ` install -C c1,c2 --controller=external`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return in.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringSliceVarP(&in.clusters, "clusters", "C", nil,
		"clusters that belong (default: all, those that join Karmada later included)")
	f.StringVar(&in.clusterSet, "clusterset", defaultClusterSet, "name of the ClusterSet")
	f.StringVar(&in.globalnet, "globalnet", "", "which clusters of a new ClusterSet get a block of global addresses: "+
		"Off, Auto (those that overlap others) or On (default Off)")
	f.BoolVar(&in.wait, "wait", true, "wait until the members are connected")
	f.StringVar(&in.render, "render", "",
		"print the objects for an API server instead of applying them: karmada, or host for the cluster that hosts Karmada")
	f.Lookup("render").NoOptDefVal = renderKarmada
	f.StringVar(&in.outputDir, "output-dir", "",
		"with --render: write the objects to this directory, with a kustomization.yaml, instead of printing them")
	in.controller.addFlags(f)
	return cmd
}

func (in *install) run(ctx context.Context) error {
	if in.render != "" || in.outputDir != "" {
		return in.renderObjects()
	}
	if err := errors.Join(in.controller.checkMode(), checkGlobalnet(in.globalnet)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, in.timeout)
	defer cancel()
	p := newProgress(in.ErrOut)
	karmada, err := in.karmada()
	if err != nil {
		return err
	}
	if err := in.preflight(ctx, karmada, p); err != nil {
		return err
	}
	if err := karmada.installCRDs(ctx, p); err != nil {
		return err
	}
	if err := karmada.installBundle(ctx, &in.controller, p); err != nil {
		return err
	}
	if err := in.controller.install(ctx, in.options, karmada, p); err != nil {
		return err
	}
	if err := in.ensureClusterSet(ctx, karmada, p); err != nil {
		return err
	}
	if !in.wait {
		p.say("installed %s; not waiting for the members", version.Version)
		return nil
	}
	if err := in.waitConnected(ctx, karmada, p, in.clusterSet, nil); err != nil {
		return err
	}
	p.say("installed %s", version.Version)
	return nil
}

func checkGlobalnet(mode string) error {
	modes := []v1alpha1.GlobalnetMode{"", v1alpha1.GlobalnetOff, v1alpha1.GlobalnetAuto, v1alpha1.GlobalnetOn}
	if slices.Contains(modes, v1alpha1.GlobalnetMode(mode)) {
		return nil
	}
	return &finding{expected: "--globalnet to be Off, Auto or On", found: fmt.Sprintf("%q", mode),
		remedy: "choose one of the three"}
}

func (in *install) preflight(ctx context.Context, karmada *api, p *progress) error {
	clusters, err := in.karmadaClusters(ctx, karmada)
	if err != nil {
		return err
	}
	if err := chosen(in.clusters, clusters); err != nil {
		return err
	}
	if err := karmada.checkRights(ctx, installRights()); err != nil {
		return err
	}
	if err := karmada.checkServiceExport(p); err != nil {
		return err
	}
	if err := in.controller.complete(in.options); err != nil {
		return err
	}
	p.say("Karmada API %s: %s", karmada.config.Host, summary(clusters))
	return nil
}

// summary lists clusters with their mode: "2 clusters (c1 Push, c2 Pull not ready)".
func summary(clusters []clusterv1alpha1.Cluster) string {
	var parts []string
	for i := range clusters {
		c := &clusters[i]
		text := c.Name + " " + string(c.Spec.SyncMode)
		if !clusterReady(c) {
			text += " not ready"
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "no clusters yet"
	}
	return fmt.Sprintf("%d clusters (%s)", len(parts), strings.Join(parts, ", "))
}

func clusterReady(c *clusterv1alpha1.Cluster) bool {
	for _, condition := range c.Status.Conditions {
		if condition.Type == clusterv1alpha1.ClusterConditionReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return false
}

// ensureClusterSet creates the ClusterSet; one that exists is the user's.
func (in *install) ensureClusterSet(ctx context.Context, karmada *api, p *progress) error {
	var existing v1alpha1.ClusterSet
	err := karmada.Get(ctx, client.ObjectKey{Name: in.clusterSet}, &existing)
	if err == nil {
		p.say("ClusterSet %s exists and is left as it is", in.clusterSet)
		if len(in.clusters) > 0 {
			p.warn("--clusters is ignored for a ClusterSet that exists: use %s join and leave", in.invocation)
		}
		if in.globalnet != "" && in.globalnet != string(existing.Spec.Globalnet.Mode) {
			p.warn("--globalnet is ignored for a ClusterSet that exists: set its spec.globalnet.mode")
		}
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get ClusterSet %s: %w", in.clusterSet, err)
	}
	set := &v1alpha1.ClusterSet{
		ObjectMeta: metav1.ObjectMeta{Name: in.clusterSet},
		Spec: v1alpha1.ClusterSetSpec{
			ClusterAffinity: policyv1alpha1.ClusterAffinity{ClusterNames: in.clusters},
			Globalnet:       v1alpha1.GlobalnetSpec{Mode: v1alpha1.GlobalnetMode(in.globalnet)},
		},
	}
	if err := karmada.Create(ctx, set, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("create ClusterSet %s: %w", in.clusterSet, err)
	}
	who := "every cluster"
	if len(in.clusters) > 0 {
		who = strings.Join(in.clusters, ", ")
	}
	p.say("ClusterSet %s created: %s", in.clusterSet, who)
	return nil
}
