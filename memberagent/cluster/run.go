// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/redial"
	"github.com/sealane-io/sealane/internal/securemetrics"
	"github.com/sealane-io/sealane/internal/transitions"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
	"github.com/sealane-io/sealane/memberagent/cluster/exports"
	"github.com/sealane-io/sealane/memberagent/cluster/gateways"
	"github.com/sealane-io/sealane/memberagent/cluster/globalegress"
	"github.com/sealane-io/sealane/memberagent/cluster/globalips"
	"github.com/sealane-io/sealane/memberagent/cluster/hijack"
	"github.com/sealane-io/sealane/memberagent/cluster/imports"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
	"github.com/sealane-io/sealane/memberagent/cluster/loadbalancers"
	"github.com/sealane-io/sealane/memberagent/cluster/mailbox"
	"github.com/sealane-io/sealane/memberagent/cluster/mcscrds"
	"github.com/sealane-io/sealane/memberagent/cluster/nodenetworks"
	"github.com/sealane-io/sealane/memberagent/cluster/nodeslices"
)

// component that Events come from. The admission policy of the cluster agent's token knows it.
const component = "sealane-cluster-agent"

// LeaseName is the name of the leader election's Lease.
const LeaseName = "sealane-cluster-agent"

// Options of the agent.
type Options struct {
	// Version that is reported.
	Version string
	// Corefile is the ConfigMap of the cluster's CoreDNS, which is looked for where it has no name; DNS is the Service of
	// Sealane's DNS.
	Corefile, DNS types.NamespacedName
	// ClusterDomain of the cluster's own names, "" where it is not known.
	ClusterDomain string
	// Nameserver that pods of the cluster are told to ask, not valid where it is not known.
	Nameserver netip.Addr
	// LeaderElection makes all but one of several agents wait.
	LeaderElection bool
	// Metrics and Health are the addresses to listen on; "0" is none.
	Metrics, Health string
	// Profiling is the address that serves profiles; "" and "0" are none.
	Profiling string
	// MetricsCertDir has the certificate of Metrics; without one in it, one is made.
	MetricsCertDir string
	// Loaded, unless it is nil, is called when what there is most of has been read for the first time.
	Loaded func()
	// Registry receives the agent's metrics.
	Registry prometheus.Registerer
}

// errAPIChanged ends a session, to be started anew with other caches.
var errAPIChanged = errors.New("the cluster serves another version of the MCS API than at the start")

// again is the pause between two sessions.
const again = time.Second

// Run is the agent, until the context ends. A session ends when the API server is away for long enough to
// lose the Lease, and the next begins as soon as it is back: a process that ended instead would be held back
// by kubelet for minutes after the outage.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	health, err := listenHealth(ctx, o.Health)
	if err != nil {
		return err
	}
	defer health()
	for {
		err := session(ctx, config, o)
		if ctx.Err() != nil {
			return nil
		}
		log.FromContext(ctx).Info("starting anew", "reason", fmt.Sprint(err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// listenHealth answers /healthz and /readyz for as long as the process lives, whatever the API server does.
func listenHealth(ctx context.Context, address string) (stop func(), err error) {
	if address == "0" {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks: %w", err)
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.FromContext(ctx).Error(err, "health checks are not answered any more")
		}
	}()
	return func() { _ = server.Close() }, nil
}

// session runs until the context ends or something ends it that a new one puts right.
func session(ctx context.Context, config *rest.Config, o Options) error {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 200, 400
	config.UserAgent = "sealane-cluster-agent/" + o.Version
	redial.Notice(config)
	config.Wrap(redial.Transport)
	scheme, err := baseScheme()
	if err != nil {
		return err
	}
	bare, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	served, err := mcscrds.Await(ctx, bare)
	if err != nil {
		return stopped(ctx, err)
	}
	if err := awaitOwnKinds(ctx, bare); err != nil {
		return stopped(ctx, err)
	}
	log.FromContext(ctx).Info("starting", "version", o.Version, "mcsAPI", served)
	mcscrds.AddToScheme(scheme, served)
	m, err := newManager(ctx, config, scheme, o)
	if err != nil {
		return err
	}
	unregister, err := setup(m, bare, served, o)
	defer unregister()
	if err != nil {
		return err
	}
	if o.Loaded != nil {
		if err := m.Add(loaded(m.GetCache(), o.Loaded)); err != nil {
			return fmt.Errorf("wait for the caches: %w", err)
		}
	}
	return m.Start(ctx)
}

// loaded calls a function when the caches that grow with the imports have been filled.
func loaded(c cache.Cache, then func()) manager.RunnableFunc {
	return func(ctx context.Context) error {
		for _, o := range []client.Object{&v1alpha1.Bundle{}, &mcs.ServiceImport{}, &corev1.Service{},
			&discoveryv1.EndpointSlice{}} {
			if _, err := c.GetInformer(ctx, o); err != nil {
				return nil //nolint:nilerr // the session ends, or whoever needs the informer tells
			}
		}
		then()
		return nil
	}
}

// stopped is no error when the context has ended.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func baseScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return s, nil
}

// awaitOwnKinds waits until all of Sealane's kinds that the agent watches can be listed: it may start before its CRDs,
// and before its rights.
func awaitOwnKinds(ctx context.Context, c client.Reader) error {
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, list := range []client.ObjectList{&v1alpha1.PeeringList{}, &v1alpha1.BundleList{}, &v1alpha1.GatewayList{},
			&v1alpha1.GlobalIngressIPList{}, &v1alpha1.ClusterGlobalEgressIPList{}, &v1alpha1.GlobalEgressIPList{},
			&v1alpha1.GlobalAllocationList{}, &v1alpha1.NodeNetworkList{}, &v1alpha1.NodeSliceList{}} {
			if err := c.List(ctx, list, client.Limit(1)); err != nil {
				log.FromContext(ctx).V(1).Info("waiting for Sealane's kinds", "reason", err.Error())
				return false, nil
			}
		}
		return true, nil
	})
}

func newManager(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, o Options) (ctrl.Manager, error) {
	m, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Logger:                        log.FromContext(ctx),
		Cache:                         cacheOptions(),
		Metrics:                       securemetrics.Options(o.Metrics, o.MetricsCertDir, config),
		PprofBindAddress:              o.Profiling,
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              LeaseName,
		LeaderElectionNamespace:       v1alpha1.Namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return m, index.Register(ctx, m.GetFieldIndexer())
}

// options of every controller: quick first retries, none later than half a minute.
func options() controller.Options {
	skip := true
	return controller.Options{
		SkipNameValidation: &skip,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond,
			30*time.Second),
	}
}

// setup adds everything to the manager. The function that it returns takes the session's metrics back.
func setup(m ctrl.Manager, live client.Client, served string, o Options) (func(), error) {
	counters, limited := newMetrics(), served == mcscrds.V1Alpha1
	cached := m.GetClient()
	found := discovery.New(cached, live)
	ofCluster, err := transitions.Recorder(m, component)
	if err != nil {
		return func() {}, err
	}
	// At a pace of their own: there are many, which tenants can have changed at will, and those of gateways do not wait.
	ofServices, err := transitions.Recorder(m, component)
	if err != nil {
		return func() {}, err
	}
	dns := &clusterdns.Reconciler{Client: cached, Live: live, Events: ofCluster, Now: time.Now, Wiring: clusterdns.Wiring{
		ConfigMap: o.Corefile, Service: o.DNS, ClusterDomain: o.ClusterDomain, Nameserver: o.Nameserver,
	}}
	routed, underlay := nodenetworks.NewState(), hijack.NewState()
	reach, refusals := imports.NewReachability(cached), imports.NewRefusals()
	cleaned := func(ctx context.Context) (bool, error) { return mailbox.NodesCleaned(ctx, cached, live) }
	for _, r := range []interface {
		SetupWithManager(ctrl.Manager, controller.Options) error
	}{
		&gateways.Reconciler{Client: cached, NodesCleaned: cleaned, Now: time.Now,
			NodeAgents: func(ctx context.Context) (map[string]gateways.NodeAgent, error) {
				return mailbox.Agents(ctx, cached)
			}},
		&gateways.Silence{Client: cached, Live: live, Events: ofCluster, Now: time.Now},
		&loadbalancers.Reconciler{Client: cached, Events: ofCluster},
		&exports.Reconciler{Client: cached, Events: ofServices, WithoutGeneration: limited},
		&globalips.Reconciler{Client: cached, Live: live, Now: time.Now},
		&globalegress.Reconciler{Client: cached, Live: live, Now: time.Now},
		&nodeslices.Reconciler{Client: cached, NodesCleaned: cleaned, Events: ofCluster},
		&nodenetworks.Reconciler{Client: cached, Ranges: found.OnNodes, State: routed, Now: time.Now},
		&hijack.Reconciler{Client: cached, Live: live, Find: found.Find, State: underlay},
		reach,
		&imports.Reconciler{Client: cached, Families: found.Families, Reachability: reach, Limited: limited,
			Refusals: refusals, Events: ofServices, Written: counters.changed},
		dns,
		&mailbox.Bundles{Client: cached, Refusals: refusals, Limited: limited, Written: counters.reported("Bundle")},
		&mailbox.Answers{Client: cached, Written: counters.reported("Bundle")},
		&mailbox.Peering{Client: cached, Live: live, Discovery: found, DNS: dns.State(), Routed: routed, Underlay: underlay,
			Version: o.Version, Limited: limited, Refusals: refusals, Written: counters.reported("Peering"), Now: time.Now},
		&servedVersion{live: live, served: served},
	} {
		if err := r.SetupWithManager(m, options()); err != nil {
			return func() {}, fmt.Errorf("set up %T: %w", r, err)
		}
	}
	state := newState(cached)
	unregister := func() {
		for _, c := range []prometheus.Collector{counters.reports, counters.changes, state} {
			o.Registry.Unregister(c)
		}
	}
	if err := errors.Join(o.Registry.Register(counters.reports), o.Registry.Register(counters.changes),
		o.Registry.Register(state)); err != nil {
		return unregister, fmt.Errorf("register metrics: %w", err)
	}
	return unregister, nil
}
