// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	runtimemetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers"
	"github.com/sealane-io/sealane/internal/credential"
	"github.com/sealane-io/sealane/internal/version"
)

// run runs the controllers until the context ends.
func run(ctx context.Context, o options) error {
	level := slog.Level(-o.verbosity)
	logger := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	log.SetLogger(logger)
	klog.SetLogger(logger)
	config, err := o.config()
	if err != nil {
		return err
	}
	options, err := controllers.Options()
	if err != nil {
		return err
	}
	// A leader that cannot renew for this long gives up; the data plane does not notice.
	lease, renew, retry := 15*time.Second, 10*time.Second, 2*time.Second
	options.Logger = logger
	if options.Metrics, err = o.metrics(); err != nil {
		return err
	}
	if options.PprofBindAddress, err = o.profiles(); err != nil {
		return err
	}
	options.HealthProbeBindAddress = o.probeAddress
	options.LeaderElection = o.leaderElect
	options.LeaderElectionID = "sealane-controller"
	options.LeaderElectionNamespace = v1alpha1.Namespace
	options.LeaderElectionReleaseOnCancel = true
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &lease, &renew, &retry
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	if err := addChecks(mgr); err != nil {
		return err
	}
	if err := controllers.Setup(mgr, runtimemetrics.Registry); err != nil {
		return err
	}
	if err := o.renewToken(mgr, config, runtimemetrics.Registry); err != nil {
		return err
	}
	logger.Info("sealane-controller starts", "version", version.Version)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the controllers: %w", err)
	}
	return nil
}

// renewToken adds to the manager what keeps its credential from expiring.
func (o *options) renewToken(mgr manager.Manager, config *rest.Config, registry prometheus.Registerer) error {
	store, err := o.store(config)
	if err != nil || store == nil {
		return err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for tokens: %w", err)
	}
	expiry := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sealane_controller_token_expiry_timestamp_seconds",
		Help: "Unix time at which the stored token for the Karmada API expires.",
	})
	if err := registry.Register(expiry); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return mgr.Add(&credential.Renewer{Accounts: core, Store: store, Expiry: expiry, Now: time.Now})
}

// addChecks makes the process alive while it answers, and ready once its caches are.
func addChecks(mgr manager.Manager) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", controllers.Ready(mgr)); err != nil {
		return fmt.Errorf("add the readiness check: %w", err)
	}
	return nil
}
