// SPDX-License-Identifier: Apache-2.0

// Package controllers wires the broker's controllers to one manager: what they read of the Karmada API,
// how little of it they keep, and what they write with.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	appsv1alpha1 "github.com/karmada-io/karmada/pkg/apis/apps/v1alpha1"
	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	networkingv1alpha1 "github.com/karmada-io/karmada/pkg/apis/networking/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/conditions"
	"github.com/sealane-io/sealane/controllers/exports"
	"github.com/sealane-io/sealane/controllers/fabric"
	"github.com/sealane-io/sealane/controllers/membership"
	"github.com/sealane-io/sealane/controllers/metrics"
	"github.com/sealane-io/sealane/controllers/policies"
	"github.com/sealane-io/sealane/controllers/services"
	"github.com/sealane-io/sealane/controllers/takeover"
	"github.com/sealane-io/sealane/controllers/verdicts"
	"github.com/sealane-io/sealane/internal/installation"
	"github.com/sealane-io/sealane/internal/transitions"
	"github.com/sealane-io/sealane/propagation"
)

// Scheme holds every kind that the broker reads or writes.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme, mcsv1alpha1.Install,
		clusterv1alpha1.Install, policyv1alpha1.Install, workv1alpha1.Install, workv1alpha2.Install,
		networkingv1alpha1.Install, appsv1alpha1.Install,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build the scheme: %w", err)
		}
	}
	return scheme, nil
}

// Options of a manager for the broker: its caches hold our Works alone, and of everything only what is
// read.
func Options() (ctrl.Options, error) {
	scheme, err := Scheme()
	if err != nil {
		return ctrl.Options{}, err
	}
	return ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&workv1alpha1.Work{}: {Transform: propagation.Pack, Label: labels.SelectorFromSet(
					labels.Set{propagation.LabelManagedBy: v1alpha1.ManagedBy})},
				&workv1alpha2.ClusterResourceBinding{}: {Transform: stripBinding},
				&workv1alpha2.ResourceBinding{}:        {Transform: stripResourceBinding},
				&clusterv1alpha1.Cluster{}:             {Transform: stripCluster},
			},
		},
	}, nil
}

// stripBinding drops what other people's bindings would cost in memory.
func stripBinding(obj any) (any, error) {
	if b, ok := obj.(*workv1alpha2.ClusterResourceBinding); ok {
		b.ManagedFields, b.Annotations = nil, nil
		for i := range b.Status.AggregatedStatus {
			b.Status.AggregatedStatus[i].Status = nil
		}
	}
	return obj, nil
}

func stripResourceBinding(obj any) (any, error) {
	if b, ok := obj.(*workv1alpha2.ResourceBinding); ok {
		exports.Strip(b)
	}
	return obj, nil
}

func stripCluster(obj any) (any, error) {
	if c, ok := obj.(*clusterv1alpha1.Cluster); ok {
		c.ManagedFields, c.Annotations = nil, nil
		c.Spec.ResourceModels, c.Status.ResourceSummary = nil, nil
		for i := range c.Status.APIEnablements {
			if e := &c.Status.APIEnablements[i]; e.GroupVersion != mcsv1alpha1.GroupVersion.String() {
				e.Resources = nil
			}
		}
	}
	return obj, nil
}

// Setup adds the controllers to a manager.
func Setup(mgr ctrl.Manager, registry prometheus.Registerer) error {
	m := metrics.New(registry)
	works := propagation.Writer{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	const component = "sealane-controller"
	ofClusters, err := transitions.Recorder(mgr, component)
	if err != nil {
		return err
	}
	// At a pace of their own: there are many, which tenants can have changed at will, and those of clusters do not wait.
	ofServices, err := transitions.Recorder(mgr, component)
	if err != nil {
		return err
	}
	before := &takeover.Caches{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	said, problems := new(verdicts.Reader), services.NewProblemIndex()
	conditions := conditions.Writer{Client: mgr.GetClient(), Events: ofServices, Now: time.Now}
	templates, err := installation.Templates(sealane.Artifacts, installation.Images{})
	if err != nil {
		return err
	}
	for name, c := range map[string]interface {
		SetupWithManager(ctrl.Manager, *takeover.Caches) error
	}{
		"membership": &membership.Reconciler{Client: mgr.GetClient(), Events: ofClusters, Templates: templates},
		"fabric": &fabric.Reconciler{Client: mgr.GetClient(), Works: works, Events: ofClusters, Metrics: m, Others: problems,
			Changed: problems.Changed, Now: time.Now},
		"exports":  &exports.Reconciler{Client: mgr.GetClient(), Verdicts: said, Conditions: conditions},
		"policies": &policies.Reconciler{Client: mgr.GetClient(), Verdicts: said, Conditions: conditions},
		"services": &services.Reconciler{Client: mgr.GetClient(), Works: works, Metrics: m, Problems: problems,
			Now: time.Now},
	} {
		if err := c.SetupWithManager(mgr, before); err != nil {
			return fmt.Errorf("set up controller %s: %w", name, err)
		}
	}
	return nil
}

// Ready says yes once the caches hold what the API server holds.
func Ready(mgr ctrl.Manager) healthz.Checker {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not synced")
		}
		return nil
	}
}
