// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	runtimemetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers"
	"github.com/sealane-io/sealane/internal/version"
	"github.com/sealane-io/sealane/propagation"
)

// run runs the controllers until the context ends.
func run(ctx context.Context, o options) error {
	level := slog.Level(-o.verbosity)
	logger := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	log.SetLogger(logger)
	config, err := o.config()
	if err != nil {
		return err
	}
	templates, err := propagation.Templates(sealane.Artifacts, propagation.Images{Agent: o.agentImage, DNS: o.dnsImage, PullPolicy: o.pullPolicy})
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
	options.Metrics = metricsserver.Options{BindAddress: o.metricsAddress}
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
	if err := controllers.Setup(mgr, templates, runtimemetrics.Registry); err != nil {
		return err
	}
	logger.Info("sealane-controller starts", "version", version.Version)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the controllers: %w", err)
	}
	return nil
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
