// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sealane-io/sealane/internal/securemetrics"
	"github.com/sealane-io/sealane/internal/version"
	"github.com/sealane-io/sealane/memberagent/cluster"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

// clusterFlags of `sealane-agent cluster`.
type clusterFlags struct {
	kubeconfig, corefile, dns string
	verbosity                 int
	options                   cluster.Options
}

// newClusterCommand is the agent that speaks for one member cluster.
func newClusterCommand() *cobra.Command {
	f := clusterFlags{}
	c := &cobra.Command{
		Use:           "cluster",
		Short:         "Report this cluster's networks and exports, and materialise its imports",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty inside a pod")
	flags.StringVar(&f.corefile, "coredns-configmap", "",
		"ConfigMap, as namespace/name, whose key Corefile configures the cluster's DNS; found by the Service of that "+
			"if empty")
	flags.StringVar(&f.dns, "dns-service", "sealane-system/sealane-dns", "Service, as namespace/name, of Sealane's DNS")
	flags.BoolVar(&f.options.LeaderElection, "leader-elect", true, "let one of several agents work and the others wait")
	flags.StringVar(&f.options.Metrics, "metrics-bind-address", ":8443",
		"address that serves metrics over TLS, to whom the cluster's API server lets read them; 0 for none")
	flags.StringVar(&f.options.MetricsCertDir, "metrics-cert-dir", securemetrics.CertDir,
		"directory of tls.crt and tls.key for metrics; without them, a certificate is made")
	flags.StringVar(&f.options.Health, "health-probe-bind-address", ":8081",
		"address that serves /healthz and /readyz; 0 for none")
	flags.StringVar(&f.options.Profiling, "profiling-bind-address", "0",
		"address that serves profiles of the process, to whoever can reach it; 0 for none")
	flags.IntVarP(&f.verbosity, "verbosity", "v", 0, "0 logs changes of state, 1 also why")
	return c
}

func (f *clusterFlags) run(c *cobra.Command) error {
	var err error
	if f.corefile != "" {
		if f.options.Corefile, err = namespacedName("--coredns-configmap", f.corefile); err != nil {
			return err
		}
	}
	if f.options.DNS, err = namespacedName("--dns-service", f.dns); err != nil {
		return err
	}
	logger := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(-f.verbosity)}))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	// An empty path means the pod's own credentials.
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	if f.kubeconfig == "" {
		// Only a pod's own resolv.conf tells the cluster's domain and DNS.
		f.options.ClusterDomain, f.options.Nameserver = clusterDNS("/etc/resolv.conf")
	}
	// What it holds grows with the imports, and little of it changes: a heap of twice that would be garbage for nothing.
	// While all of it is read, there is most of that.
	const gcLoading, gcPercent = 20, 38
	debug.SetGCPercent(gcLoading)
	f.options.Loaded = func() { debug.SetGCPercent(gcPercent) }
	f.options.Version = version.Version
	f.options.Registry = metrics.Registry
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return cluster.Run(log.IntoContext(ctx, logger), config, f.options)
}

// clusterDNS returns the cluster's domain and name server; none of what the file does not tell.
func clusterDNS(path string) (domain string, server netip.Addr) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", netip.Addr{}
	}
	return clusterdns.SearchedClusterDomain(string(text)), clusterdns.NameserverOf(string(text))
}

func namespacedName(flag, value string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || namespace == "" || name == "" {
		return types.NamespacedName{}, fmt.Errorf("%s: expected namespace/name, found %q", flag, value)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
