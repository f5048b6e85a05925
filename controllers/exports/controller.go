// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"context"
	"fmt"
	"slices"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	networkingv1alpha1 "github.com/karmada-io/karmada/pkg/apis/networking/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/util/names"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/conditions"
	"github.com/sealane-io/sealane/controllers/services"
	"github.com/sealane-io/sealane/controllers/verdicts"
	"github.com/sealane-io/sealane/internal/clip"
)

// The kinds whose placement matters.
const (
	kindServiceExport = "ServiceExport"
	kindService       = "Service"
)

// Reconciler keeps the conditions of the ServiceExports on the Karmada API.
type Reconciler struct {
	Client     client.Client
	Verdicts   *verdicts.Reader
	Conditions conditions.Writer
}

// Reconcile brings the conditions of one ServiceExport up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var export mcsv1alpha1.ServiceExport
	if err := r.Client.Get(ctx, req.NamespacedName, &export); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	clusters, scheduling, err := r.gather(ctx, &export)
	if err != nil {
		return ctrl.Result{}, err
	}
	karmada, err := r.karmada(ctx, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	want := Summarise(clusters, scheduling)
	for i := range want {
		if want[i].Type == Conflict {
			want[i] = karmada.Conflict(want[i], export.Namespace, export.Name)
		}
	}
	updated := export.DeepCopy()
	return r.Conditions.Write(ctx, &export, updated, &updated.Status.Conditions, want...)
}

// gather reads what is known of an export in the clusters that it is scheduled to and, where there are none,
// why.
func (r *Reconciler) gather(ctx context.Context, export *mcsv1alpha1.ServiceExport) ([]Cluster, string, error) {
	binding, err := r.binding(ctx, kindServiceExport, client.ObjectKeyFromObject(export))
	if err != nil {
		return nil, "", err
	}
	if binding == nil || len(binding.Spec.Clusters) == 0 {
		return nil, unscheduled(binding), nil
	}
	service, err := r.binding(ctx, kindService, client.ObjectKeyFromObject(export))
	if err != nil {
		return nil, "", err
	}
	clusters := make([]Cluster, 0, len(binding.Spec.Clusters))
	for _, target := range binding.Spec.Clusters {
		facts, err := r.facts(ctx, target.Name, client.ObjectKeyFromObject(export))
		if err != nil {
			return nil, "", err
		}
		at := slices.IndexFunc(binding.Status.AggregatedStatus,
			func(i workv1alpha2.AggregatedStatusItem) bool { return i.ClusterName == target.Name })
		if at >= 0 {
			facts.Delivery = &binding.Status.AggregatedStatus[at]
		}
		if service != nil {
			facts.ServiceIn = placed(service)
		}
		clusters = append(clusters, Cluster{Name: target.Name, Conditions: facts.Conditions(target.Name)})
	}
	return clusters, "", nil
}

// unscheduled says why an export is in no cluster.
func unscheduled(binding *workv1alpha2.ResourceBinding) string {
	if binding != nil {
		c := meta.FindStatusCondition(binding.Status.Conditions, workv1alpha2.Scheduled)
		if c != nil && c.Status == metav1.ConditionFalse && c.Message != "" {
			return "no cluster is scheduled: " + clip.Text(c.Message, maxText)
		}
	}
	return "no cluster is scheduled: does a PropagationPolicy select this ServiceExport?"
}

// placed are the clusters of a binding, sorted; not nil.
func placed(binding *workv1alpha2.ResourceBinding) []string {
	out := make([]string, 0, len(binding.Spec.Clusters))
	for _, c := range binding.Spec.Clusters {
		out = append(out, c.Name)
	}
	slices.Sort(out)
	return out
}

// binding returns the ResourceBinding of a template, nil if there is none.
func (r *Reconciler) binding(ctx context.Context, kind string,
	of client.ObjectKey) (*workv1alpha2.ResourceBinding, error) {
	out := new(workv1alpha2.ResourceBinding)
	key := client.ObjectKey{Namespace: of.Namespace, Name: names.GenerateBindingName(kind, of.Name)}
	if err := r.Client.Get(ctx, key, out); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read the ResourceBinding of %s %s: %w", kind, of, err)
	}
	return out, nil
}

// facts reads what is known of a cluster, and what the broker said to it of an export.
func (r *Reconciler) facts(ctx context.Context, cluster string, export client.ObjectKey) (Facts, error) {
	var out Facts
	c, m, set := new(clusterv1alpha1.Cluster), new(v1alpha1.Member), new(v1alpha1.ClusterSet)
	if found, err := r.find(ctx, cluster, c); err != nil || !found {
		return out, err
	}
	out.Cluster = c
	if found, err := r.find(ctx, cluster, m); err != nil || !found {
		return out, err
	}
	out.Member = m
	found, err := r.find(ctx, m.Spec.ClusterSet, set)
	if err != nil || !found {
		return out, err
	}
	out.Said, err = r.Verdicts.For(ctx, r.Client, m, set, export)
	if err != nil {
		return out, fmt.Errorf("read what the broker said to %s of ServiceExport %s: %w", cluster, export, err)
	}
	return out, nil
}

func (r *Reconciler) find(ctx context.Context, name string, into client.Object) (bool, error) {
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, into); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("read %T %s: %w", into, name, err)
	}
	return true, nil
}

// karmada reads whether Karmada's own controllers are told to drive the same service.
func (r *Reconciler) karmada(ctx context.Context, req ctrl.Request) (services.KarmadaServices, error) {
	var out services.KarmadaServices
	err := r.Client.Get(ctx, req.NamespacedName, new(mcsv1alpha1.ServiceImport))
	if client.IgnoreNotFound(err) != nil {
		return out, fmt.Errorf("read ServiceImport %s: %w", req, err)
	}
	out.ServiceImport = err == nil
	service := new(networkingv1alpha1.MultiClusterService)
	err = r.Client.Get(ctx, req.NamespacedName, service)
	if client.IgnoreNotFound(err) != nil {
		return out, fmt.Errorf("read MultiClusterService %s: %w", req, err)
	}
	out.MultiClusterService = err == nil && slices.Contains(service.Spec.Types,
		networkingv1alpha1.ExposureTypeCrossCluster)
	return out, nil
}
