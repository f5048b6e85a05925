// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	runtimemetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/internal/securemetrics"
	"github.com/sealane-io/sealane/internal/version"
	"github.com/sealane-io/sealane/memberagent/node"
)

// nodeFlags of `sealane-agent node`.
type nodeFlags struct {
	kubeconfig, sysctlDir string
	metrics, certDir      string
	health                string
	supervise, child      bool
	verbosity             int
	options               node.Options
	names                 node.KubeNames
}

// metricsAfter the agent's start are they served.
const metricsAfter = 2 * time.Second

// newNodeCommand is the agent of one node.
func newNodeCommand() *cobra.Command {
	f := nodeFlags{}
	c := &cobra.Command{
		Use:           "node",
		Short:         "Program this node's kernel: tunnels, routes, rules and firewall",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			log := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr,
				&slog.HandlerOptions{Level: slog.Level(-f.verbosity)})).WithValues("node", f.options.Node)
			ctx, stop := signal.NotifyContext(logr.NewContext(c.Context(), log), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			if f.supervise {
				return supervise(ctx, log, f.options.StateDir, f.health, append(os.Args[1:], "--supervise=false", "--supervised"))
			}
			return f.run(ctx, stop)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.options.Node, "node-name", "", "name of the Node that this agent runs on (required)")
	flags.StringVar(&f.names.Pod, "pod-name", "",
		"name of the agent's own Pod, in whose conditions it tells the node's state")
	flags.StringVar(&f.names.Namespace, "namespace", v1alpha1.Namespace, "namespace of the agent's Pod and DaemonSet")
	flags.StringVar(&f.names.DaemonSet, "daemonset", "sealane-node",
		"the agent's DaemonSet; once it is gone, the agent cleans the node before it ends")
	flags.StringVar(&f.options.Revision, "revision", "",
		"the pod's label controller-revision-hash: a roll-out waits while an agent of the same has failed elsewhere")
	flags.StringVar(&f.options.StateDir, "state-dir", "/var/lib/sealane",
		"directory on the node that keeps the private key")
	flags.StringVar(&f.options.IPsecDir, "ipsec-dir", "",
		"directory in common with the container that runs charon, for cables by ipsec; empty if there is none")
	flags.StringVar(&f.sysctlDir, "sysctl-dir", "/proc/sys/net", "the node's /proc/sys/net, or a writable mount of it")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty inside a pod")
	flags.StringVar(&f.metrics, "metrics-bind-address", "127.0.0.1:9811",
		"address that serves metrics over TLS, to whom the cluster's API server lets read them; 0 for none")
	flags.StringVar(&f.certDir, "metrics-cert-dir", securemetrics.CertDir,
		"directory of tls.crt and tls.key for metrics; without them, a certificate is made")
	flags.StringVar(&f.health, "health-probe-bind-address", "127.0.0.1:9812",
		"address that serves /healthz and /readyz; 0 for none")
	flags.BoolVar(&f.supervise, "supervise", false,
		"run the agent as a child that is started again when it dies, and hold its userspace devices meanwhile")
	flags.BoolVar(&f.child, "supervised", false, "set by --supervise for its child")
	flags.IntVar(&f.options.Deaths, "deaths", 0, "set by --supervise: how many agents in a row have died")
	if err := errors.Join(flags.MarkHidden("supervised"), flags.MarkHidden("deaths")); err != nil {
		panic(err) // the flags are defined above
	}
	flags.IntVarP(&f.verbosity, "verbosity", "v", 0, "0 logs changes of state, 1 also why")
	if err := c.MarkFlagRequired("node-name"); err != nil {
		panic(err) // the flag is defined above
	}
	return c
}

func (f *nodeFlags) run(ctx context.Context, stop func()) error {
	log := logr.FromContextOrDiscard(ctx)
	ctrllog.SetLogger(log)
	klog.SetLogger(log)
	// The agent itself allocates little: a heap of twice what it holds would be garbage for nothing. With
	// userspace devices the cable changes this by the traffic.
	const gcPercent = 25
	debug.SetGCPercent(gcPercent)
	// An empty path means the pod's own credentials.
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	keys, problem, err := f.openKeys(log)
	if err != nil {
		return err
	}
	devices, lock, release, err := f.holding(ctx)
	if err != nil {
		return err
	}
	defer release()
	wireGuard, err := cable.OpenWireGuard(keys, devices)
	if err != nil {
		return err
	}
	k, err := kernel.New(map[string]kernel.Driver{string(v1alpha1.CableWireGuard): wireGuard}, f.sysctlDir)
	if err != nil {
		return err
	}
	metrics, err := node.NewMetrics(runtimemetrics.Registry)
	if err != nil {
		return err
	}
	f.options.Version, f.options.Keys, f.options.NewKey = version.Version, keys, problem
	f.names.Node = f.options.Node
	agent, err := node.New(f.options, k, metrics)
	if err != nil {
		return err
	}
	kube, err := node.NewKube(config, f.names, agent.Poke) //nolint:contextcheck // it waits for nothing
	if err != nil {
		return err
	}
	agent.SetCluster(kube)
	go func() {
		if err := kube.Run(ctx); err != nil {
			log.Error(err, "caches ended")
			stop()
		}
	}()
	log.Info("node agent starts", "version", version.Version, "cable", wireGuard.Implementation())
	err = agent.TakeTurn(ctx, lock)
	switch {
	case ctx.Err() != nil:
		return nil // told to end before its turn
	case err != nil:
		log.Error(err, "another agent of this node would not be noticed")
	}
	// The other agent's addresses are free now. The certificate that metrics need is made while the node works again.
	time.AfterFunc(metricsAfter, func() { securemetrics.Serve(ctx, securemetrics.Options(f.metrics, f.certDir, config)) })
	serve(ctx, f.health, healthHandler(agent))
	servePlan(ctx, f.options.StateDir, agent)
	return errors.Join(agent.Run(ctx), wireGuard.Close())
}

// openKeys opens the node's keys. The problem is why some are new, empty where none is.
func (f *nodeFlags) openKeys(log logr.Logger) (keys *cable.Keys, problem string, err error) {
	keys, problem, err = cable.OpenKeys(f.options.StateDir)
	if err != nil {
		return nil, "", err
	}
	if f.options.IPsecDir != "" {
		also, err := keys.WithIPsec()
		if err != nil {
			return nil, "", err
		}
		problem = strings.Trim(problem+"; "+also, "; ")
	}
	if problem != "" {
		log.Info("the node has a new key", "why", problem)
	}
	return keys, problem, nil
}

// holding returns the devices and the node's lock: what the process that supervises this one holds, or this one itself.
func (f *nodeFlags) holding(ctx context.Context) (devices cable.Devices, lock *os.File, release func(), err error) {
	if f.child {
		devices, lock, err = inherited()
		return devices, lock, func() {}, err
	}
	log := logr.FromContextOrDiscard(ctx)
	lock, err = openLock(log, f.options.StateDir)
	if err != nil {
		return nil, nil, nil, err
	}
	holder := cable.NewHolder(log)
	// It goes on while the agent ends.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go holder.BoundMemory(ctx)
	return holder, lock, func() {
		cancel()
		holder.Close()
		_ = lock.Close() // after the devices, which another agent would find
	}, nil
}

// openLock opens the node's lock. Where the state directory does not allow that, the node is better served by an agent
// that would not notice another than by none.
func openLock(log logr.Logger, stateDir string) (*os.File, error) {
	lock, err := node.OpenLock(stateDir)
	if err == nil {
		return lock, nil
	}
	log.Error(err, "another agent of this node would not be noticed")
	fd, err := unix.MemfdCreate("agent.lock", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open a lock: %w", err)
	}
	return os.NewFile(uintptr(fd), "agent.lock"), nil
}

func healthHandler(agent *node.Agent) http.Handler {
	mux := http.NewServeMux()
	check := func(path, problem string, good func() bool) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if !good() {
				http.Error(w, problem, http.StatusServiceUnavailable)
				return
			}
			_, _ = fmt.Fprintln(w, "ok")
		})
	}
	check("/healthz", "the loop is stuck", agent.Alive)
	check("/readyz", "the node is not as planned", agent.Ready)
	return mux
}

// serveAgain is the wait before an address that could not be had is tried again.
const serveAgain = time.Second

// serve HTTP until the context ends. An address that cannot be had is logged and tried again: traffic matters more.
func serve(ctx context.Context, address string, handler http.Handler) {
	if address == "0" {
		return
	}
	const headerTimeout = 5 * time.Second
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: headerTimeout}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		log, said := logr.FromContextOrDiscard(ctx), ""
		for ctx.Err() == nil {
			err := server.ListenAndServe()
			if errors.Is(err, http.ErrServerClosed) {
				return
			}
			if err.Error() != said {
				said = err.Error()
				log.Error(err, "not serving yet", "address", address)
			}
			time.Sleep(serveAgain)
		}
	}()
}
