// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"fmt"
	"slices"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/util/names"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/propagation"
)

// Reconciler keeps the membership of all ClusterSets.
type Reconciler struct {
	Client client.Client
	Events record.EventRecorder
}

// Reconcile brings the membership of all ClusterSets up to date; there is one request for all.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	state, err := fleet.Gather(ctx, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	wire, err := r.gatherWire(ctx, state)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := Decide(state, wire)
	if err := r.apply(ctx, state, d); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return ctrl.Result{RequeueAfter: 20 * time.Millisecond}, nil
		}
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, nil
}

func (r *Reconciler) gatherWire(ctx context.Context, state fleet.State) (map[string]Wire, error) {
	wires := map[string]Wire{}
	for _, m := range state.Members {
		if m.Spec.Phase != v1alpha1.MemberLeaving {
			continue
		}
		var works workv1alpha1.WorkList
		if err := r.Client.List(ctx, &works, client.InNamespace(names.GenerateExecutionSpaceName(m.Name))); err != nil {
			return nil, fmt.Errorf("list the Works of %s: %w", m.Name, err)
		}
		wire := Wire{Works: len(works.Items)}
		for i := range works.Items {
			if works.Items[i].DeletionTimestamp.IsZero() {
				wire.Live++
			}
		}
		wires[m.Name] = wire
	}
	return wires, nil
}

func (r *Reconciler) apply(ctx context.Context, state fleet.State, d Decision) error {
	if err := r.hold(ctx, state, d.Hold); err != nil {
		return err
	}
	for _, m := range d.Create {
		if err := r.Client.Create(ctx, &m); err != nil {
			return fmt.Errorf("create Member %s: %w", m.Name, err)
		}
		log.FromContext(ctx).Info("cluster joins", "cluster", m.Name, "clusterSet", m.Spec.ClusterSet)
		r.Events.Eventf(&m, corev1.EventTypeNormal, "Joining", "cluster joins ClusterSet %s", m.Spec.ClusterSet)
	}
	for _, m := range d.Update {
		if err := r.Client.Update(ctx, &m); err != nil {
			return fmt.Errorf("update Member %s: %w", m.Name, err)
		}
		log.FromContext(ctx).Info("member changes phase", "cluster", m.Name, "phase", m.Spec.Phase)
		r.Events.Eventf(&m, corev1.EventTypeNormal, string(m.Spec.Phase), "member of ClusterSet %s is now %s", m.Spec.ClusterSet, m.Spec.Phase)
	}
	for _, cluster := range d.Withdraw {
		if err := r.withdraw(ctx, cluster); err != nil {
			return err
		}
	}
	for cluster, labels := range d.Labels {
		if err := r.label(ctx, state.Cluster(cluster), labels); err != nil {
			return err
		}
	}
	for _, m := range d.Drop {
		if err := r.Client.Delete(ctx, &m); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Member %s: %w", m.Name, err)
		}
		log.FromContext(ctx).Info("member dropped", "cluster", m.Name)
	}
	return r.release(ctx, state, d)
}

// withdraw deletes the Works of a cluster, and with them what they carried.
func (r *Reconciler) withdraw(ctx context.Context, cluster string) error {
	var works workv1alpha1.WorkList
	if err := r.Client.List(ctx, &works, client.InNamespace(names.GenerateExecutionSpaceName(cluster))); err != nil {
		return fmt.Errorf("list the Works of %s: %w", cluster, err)
	}
	for i := range works.Items {
		if !works.Items[i].DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.Client.Delete(ctx, &works.Items[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete a Work of %s: %w", cluster, err)
		}
	}
	return nil
}

// label sets and removes labels of a Karmada Cluster; "" removes.
func (r *Reconciler) label(ctx context.Context, c *clusterv1alpha1.Cluster, labels map[string]string) error {
	labelled := c.DeepCopy()
	if labelled.Labels == nil {
		labelled.Labels = map[string]string{}
	}
	for key, value := range labels {
		if value == "" {
			delete(labelled.Labels, key)
		} else {
			labelled.Labels[key] = value
		}
	}
	if err := r.Client.Patch(ctx, labelled, client.MergeFrom(c)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("label Cluster %s: %w", c.Name, err)
	}
	return nil
}

func (r *Reconciler) hold(ctx context.Context, state fleet.State, names []string) error {
	for _, name := range names {
		set := state.Set(name).DeepCopy()
		set.Finalizers = append(set.Finalizers, Finalizer)
		if err := r.Client.Update(ctx, set); err != nil {
			return fmt.Errorf("add the finalizer to ClusterSet %s: %w", name, err)
		}
	}
	return nil
}

func (r *Reconciler) release(ctx context.Context, state fleet.State, d Decision) error {
	for _, name := range d.Release {
		set := state.Set(name).DeepCopy()
		set.Finalizers = slices.DeleteFunc(set.Finalizers, func(f string) bool { return f == Finalizer })
		if err := r.Client.Update(ctx, set); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove the finalizer from ClusterSet %s: %w", name, err)
		}
		log.FromContext(ctx).Info("clusterset released", "clusterSet", name)
	}
	return nil
}

// SetupWithManager starts the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := func(context.Context, client.Object) []string { return []string{"all"} }
	return ctrl.NewControllerManagedBy(mgr).Named("membership").
		Watches(&v1alpha1.ClusterSet{}, fleet.ToSet(one)).
		Watches(&v1alpha1.Member{}, fleet.ToSet(one)).
		Watches(&clusterv1alpha1.Cluster{}, fleet.ToSet(one)).
		Watches(&workv1alpha2.ClusterResourceBinding{}, fleet.ToSet(func(_ context.Context, o client.Object) []string {
			if !slices.Contains(propagation.WireBindings(), o.GetName()) {
				return nil
			}
			return []string{"all"}
		})).
		Watches(&workv1alpha1.Work{}, fleet.ToSet(func(ctx context.Context, o client.Object) []string {
			var m v1alpha1.Member
			err := r.Client.Get(ctx, client.ObjectKey{Name: propagation.ClusterOf(o)}, &m)
			if err != nil || m.Spec.Phase != v1alpha1.MemberLeaving {
				return nil
			}
			return []string{"all"}
		})).
		Complete(r)
}
