// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

type preflight struct {
	*options
	scope
	output string
	ipsec  bool
}

func newPreflight(o *options) *cobra.Command {
	p := &preflight{options: o}
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Check, before install, what clusters have against what Sealane needs",
		Long: `Check, before install, what Karmada and its clusters have against what Sealane needs: on the Karmada API
its kinds and the rights to install; in each cluster the version of Kubernetes, the nodes with their kernels and
addresses, kube-proxy, the CNI plugin, the cluster's DNS, the networks of pods and services, and what is in the way;
and which networks of two clusters overlap. Each check is ok, warn or fail, and a cluster's verdict is the worst of its
own. The exit code is not 0 if a check failed.

Of clusters that a ClusterSet has in a pair by ipsec, and with --ipsec of all, it is checked what that needs: the
kernels of the gateways, and the container of the node agents that install --ipsec brings.

Nothing is installed and no pod is started, so what only a node shows is not checked: the modules of its kernel,
/dev/net/tun, IPv6 unless an address shows it, and whether the gateways reach each other. Clusters are asked as in
show.`,
		Example: `  ` + o.invocation + ` preflight --karmada-context karmada-apiserver
  ` + o.invocation + ` preflight -C c1,c2 -o json
  ` + o.invocation + ` preflight --ipsec`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringSliceVarP(&p.clusters, "clusters", "C", nil, "clusters to check (default: all of Karmada)")
	f.BoolVar(&p.ipsec, "ipsec", false, "check what cables by ipsec need also where no ClusterSet has them yet")
	f.StringVarP(&p.output, "output", "o", outputTable, "output format: table, json or yaml")
	f.DurationVar(&p.memberTimeout, "member-timeout", defaultMemberTimeout, "how long to wait for each cluster")
	return cmd
}

func (p *preflight) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if err := checkOutput(p.output); err != nil {
		return err
	}
	karmada, err := p.karmada()
	if err != nil {
		return err
	}
	clusters, err := p.karmadaClusters(ctx, karmada)
	if err != nil {
		return err
	}
	if err := chosen(p.clusters, clusters); err != nil {
		return err
	}
	checks, err := karmada.preflight(ctx)
	if err != nil {
		return err
	}
	open, err := karmada.ports(ctx, clusters)
	if err != nil {
		return err
	}
	wanted, err := p.byIPsec(ctx, karmada, clusters, open)
	if err != nil {
		return err
	}
	if len(p.clusters) > 0 {
		clusters = slices.DeleteFunc(clusters, func(c clusterv1alpha1.Cluster) bool {
			return !slices.Contains(p.clusters, c.Name)
		})
	}
	found := make([]candidate, len(clusters))
	var g errgroup.Group
	for i := range clusters {
		g.Go(func() error { found[i] = p.candidate(ctx, karmada, &clusters[i], open, wanted); return nil })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	overlaps := overlapsOf(found)
	for i := range found {
		for _, c := range append(found[i].checks, overlaps[found[i].name]...) {
			c.Cluster = found[i].name
			checks = append(checks, c)
		}
	}
	return report(p.Out, p.output, "preflight", checks)
}

// byIPsec says by cluster what is to be checked for cables by IPsec, of all clusters if the command line asks for it.
func (p *preflight) byIPsec(ctx context.Context, karmada *api, clusters []clusterv1alpha1.Cluster,
	open map[string]openPorts) (map[string]*byIPsec, error) {
	wanted := map[string]*byIPsec{}
	for i := range clusters {
		if of := open[clusters[i].Name]; p.ipsec || len(of.ipsec) > 0 {
			wanted[clusters[i].Name] = &byIPsec{port: of.ipsecPort(), with: of.ipsec}
		}
	}
	if len(wanted) == 0 {
		return wanted, nil
	}
	installed, bare, err := karmada.nodeAgents(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range wanted {
		b.installed, b.bare = installed, bare
	}
	return wanted, nil
}

// preflight checks the Karmada API itself. Which release of Karmada it is the API does not tell: the kinds do that the
// controller works with.
func (a *api) preflight(ctx context.Context) ([]checked, error) {
	var missing []string
	for _, kind := range []schema.GroupVersionKind{
		{Group: "work.karmada.io", Version: "v1alpha1", Kind: "Work"},
		{Group: "policy.karmada.io", Version: "v1alpha1", Kind: "ClusterPropagationPolicy"},
		{Group: "config.karmada.io", Version: "v1alpha1", Kind: "ResourceInterpreterCustomization"},
	} {
		if _, err := a.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); gone(err) {
			missing = append(missing, kind.Kind+" of "+kind.GroupVersion().String())
		} else if err != nil {
			return nil, a.unanswered("the Karmada API", "--karmada-context", err)
		}
	}
	kinds := passed("karmada", "serves the kinds that Sealane works with")
	if len(missing) > 0 {
		kinds = checked{Name: "karmada", Verdict: verdictFail, Found: "not served: " + strings.Join(missing, ", "),
			Expected: "Karmada 1.16 with its CRDs", Remedy: "upgrade Karmada, or install its CRDs"}
	}
	out := []checked{kinds, a.kubernetesCheck()}
	rights := passed("rights", "this user may install")
	err := a.checkRights(ctx, installRights())
	if found := (*finding)(nil); errors.As(err, &found) {
		rights = checked{Name: "rights", Verdict: verdictFail, Found: found.found, Expected: found.expected,
			Remedy: found.remedy}
	} else if err != nil {
		return nil, err
	}
	return append(out, rights), nil
}

// candidate is a cluster that may become a member: what was checked there, and its networks for comparison.
type candidate struct {
	name     string
	checks   []checked
	networks v1alpha1.Networks
	nodes    []string
	// open is what has to pass firewalls.
	open openPorts
	// ipsec is nil where no pair of the cluster is to be reached so.
	ipsec *byIPsec
}

// candidate asks a cluster within the time that each has.
func (p *preflight) candidate(ctx context.Context, karmada *api, cluster *clusterv1alpha1.Cluster,
	open map[string]openPorts, wanted map[string]*byIPsec) candidate {
	ctx, cancel := context.WithTimeout(ctx, 2*p.memberTimeout)
	defer cancel()
	out := candidate{name: cluster.Name, open: open[cluster.Name], ipsec: wanted[cluster.Name]}
	if clusterReady(cluster) {
		out.checks = append(out.checks, passed("cluster", "Karmada finds it ready (%s)", cluster.Spec.SyncMode))
	} else {
		out.checks = append(out.checks, checked{Name: "cluster", Verdict: verdictFail, Found: "Karmada finds it not ready",
			Expected: "a Cluster that is Ready, as all that members get comes by Karmada",
			Remedy:   "kubectl --context " + karmada.context + " describe cluster " + cluster.Name})
	}
	// Karmada's identity of a cluster is that of its kube-system namespace, as Sealane's is.
	identity := &v1alpha1.Member{}
	identity.Name, identity.Spec.ClusterUID = cluster.Name, cluster.Spec.ID
	c, err := p.member(ctx, karmada, identity)
	if err == nil {
		var more []checked
		more, err = c.memberChecks(ctx, p.options, &out)
		out.checks = append(out.checks, more...)
	}
	if err != nil {
		out.checks = append(out.checks, checked{Name: "reached", Verdict: verdictWarn,
			Found:    refusal(err) + ": " + err.Error(),
			Expected: "to reach its API server from here, to check the rest",
			Remedy:   "add a kubeconfig context named " + cluster.Name + ", or see that Karmada's cluster proxy works"})
	}
	return out
}
