// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1alpha1 "github.com/karmada-io/karmada/pkg/apis/apps/v1alpha1"
	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/util/names"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
	"github.com/sealane-io/sealane/controllers/takeover"
	"github.com/sealane-io/sealane/internal/installation"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/propagation"
)

// Reconciler keeps the membership of all ClusterSets.
type Reconciler struct {
	Client client.Client
	Events record.EventRecorder
	// Templates of the install bundle, of which names and kinds count.
	Templates []*unstructured.Unstructured
	// asked is when Karmada's scheduler was first to look at the exports for a cluster that has come to serve them;
	// last is when it was to, for whichever.
	asked map[string]time.Time
	last  time.Time
}

const (
	// schedulerLag is how long Karmada's scheduler may take, at most, to know what kinds a cluster serves: it reads
	// Clusters from a cache of its own.
	schedulerLag = 10 * time.Second
	// maxRescheduled is how many ServiceExports one WorkloadRebalancer names.
	maxRescheduled = 500
	// rescheduledFor is how many seconds a WorkloadRebalancer that is done can be looked at.
	rescheduledFor = int32(60)
)

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
		return ctrl.Result{}, err
	}
	return r.reschedule(ctx, state, d.Serving)
}

// reschedule has Karmada's scheduler look at every ServiceExport again for clusters that have come to serve them: of
// the kinds that a cluster serves it takes note only when it places something. It does so twice, in case that the
// scheduler had not heard of the cluster's kinds at the first, and records that on the Member. However often clusters
// change what they serve, it asks once in schedulerLag.
func (r *Reconciler) reschedule(ctx context.Context, state fleet.State, serving []string) (ctrl.Result, error) {
	maps.DeleteFunc(r.asked, func(cluster string, _ time.Time) bool { return !slices.Contains(serving, cluster) })
	if len(serving) == 0 {
		return ctrl.Result{}, nil
	}
	now := time.Now()
	if wait := r.last.Add(schedulerLag).Sub(now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if err := r.rebalance(ctx); err != nil {
		return ctrl.Result{}, err
	}
	r.last = now
	if r.asked == nil {
		r.asked = map[string]time.Time{}
	}
	for _, cluster := range serving {
		if _, before := r.asked[cluster]; !before {
			r.asked[cluster] = now
			continue
		}
		m := state.Member(cluster).DeepCopy()
		m.Spec.ServesExports = true
		if err := r.Client.Update(ctx, m); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return ctrl.Result{}, fmt.Errorf("update Member %s: %w", cluster, err)
		}
	}
	return ctrl.Result{RequeueAfter: schedulerLag}, nil
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
		if was := state.Member(m.Name); was != nil && was.Spec.Phase == m.Spec.Phase {
			continue
		}
		log.FromContext(ctx).Info("member changes phase", "cluster", m.Name, "phase", m.Spec.Phase)
		r.Events.Eventf(&m, corev1.EventTypeNormal, string(m.Spec.Phase), "member of ClusterSet %s is now %s",
			m.Spec.ClusterSet, m.Spec.Phase)
	}
	for _, cluster := range d.Withdraw {
		if err := r.withdraw(ctx, cluster); err != nil {
			return err
		}
	}
	if err := r.propagate(ctx, d.Spread); err != nil {
		return err
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

// propagate has Karmada carry the install bundle to the clusters named, and to no other. What would take clusters away,
// add others or add objects is put back; what else a policy says, Karmada's defaults among it, stays.
func (r *Reconciler) propagate(ctx context.Context, clusters []string) error {
	for _, want := range installation.Policies(r.Templates, clusters) {
		var have policyv1alpha1.ClusterPropagationPolicy
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(want), &have)
		switch {
		case apierrors.IsNotFound(err) && len(clusters) == 0:
			continue
		case apierrors.IsNotFound(err):
			if err := r.Client.Create(ctx, want); err != nil {
				return fmt.Errorf("create ClusterPropagationPolicy %s: %w", want.Name, err)
			}
			continue
		case err != nil:
			return fmt.Errorf("get ClusterPropagationPolicy %s: %w", want.Name, err)
		}
		spec := have.Spec.DeepCopy()
		spec.ResourceSelectors = want.Spec.ResourceSelectors
		spec.Placement.ClusterAffinity = want.Spec.Placement.ClusterAffinity
		spec.Placement.ClusterAffinities, spec.Placement.SpreadConstraints = nil, nil
		spec.PropagateDeps, spec.Suspension, spec.ActivationPreference = false, nil, ""
		spec.ConflictResolution = want.Spec.ConflictResolution
		spec.PreserveResourcesOnDeletion = want.Spec.PreserveResourcesOnDeletion
		if equality.Semantic.DeepEqual(&have.Spec, spec) || !have.DeletionTimestamp.IsZero() {
			continue
		}
		have.Spec = *spec
		if err := r.Client.Update(ctx, &have); err != nil {
			return fmt.Errorf("update ClusterPropagationPolicy %s: %w", want.Name, err)
		}
	}
	return nil
}

// rebalance creates the WorkloadRebalancers that name every ServiceExport.
func (r *Reconciler) rebalance(ctx context.Context) error {
	var exports mcsv1alpha1.ServiceExportList
	if err := r.Client.List(ctx, &exports); err != nil {
		return fmt.Errorf("list the ServiceExports: %w", err)
	}
	for some := range slices.Chunk(exports.Items, maxRescheduled) {
		rebalancer := &appsv1alpha1.WorkloadRebalancer{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "sealane-", Labels: map[string]string{propagation.LabelManagedBy: v1alpha1.ManagedBy},
		}}
		rebalancer.Spec.TTLSecondsAfterFinished = ptr.To(rescheduledFor)
		for i := range some {
			rebalancer.Spec.Workloads = append(rebalancer.Spec.Workloads, appsv1alpha1.ObjectReference{
				APIVersion: mcsv1alpha1.GroupVersion.String(), Kind: "ServiceExport",
				Namespace: some[i].Namespace, Name: some[i].Name,
			})
		}
		if err := r.Client.Create(ctx, rebalancer); err != nil {
			return fmt.Errorf("create a WorkloadRebalancer of %d ServiceExports: %w", len(some), err)
		}
	}
	return nil
}

func (r *Reconciler) hold(ctx context.Context, state fleet.State, names []string) error {
	for _, name := range names {
		set := state.Set(name)
		if err := r.setFinalizers(ctx, set, append(slices.Clone(set.Finalizers), Finalizer)); err != nil {
			return fmt.Errorf("add the finalizer to ClusterSet %s: %w", name, err)
		}
	}
	return nil
}

// setFinalizers changes nothing else of what a user has written: an update writes it as this version spells it, with
// what was left out as "{}" and without what it does not know.
func (r *Reconciler) setFinalizers(ctx context.Context, set *v1alpha1.ClusterSet, finalizers []string) error {
	changed := set.DeepCopy()
	changed.Finalizers = finalizers
	return r.Client.Patch(ctx, changed, client.MergeFromWithOptions(set, client.MergeFromWithOptimisticLock{}))
}

func (r *Reconciler) release(ctx context.Context, state fleet.State, d Decision) error {
	for _, name := range d.Release {
		set := state.Set(name)
		left := slices.DeleteFunc(slices.Clone(set.Finalizers), func(f string) bool { return f == Finalizer })
		if err := r.setFinalizers(ctx, set, left); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove the finalizer from ClusterSet %s: %w", name, err)
		}
		log.FromContext(ctx).Info("clusterset released", "clusterSet", name)
	}
	return nil
}

// SetupWithManager starts the controller, once the caches show what was written before.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, before *takeover.Caches) error {
	one := func(context.Context, client.Object) []string { return []string{"all"} }
	return ctrl.NewControllerManagedBy(mgr).Named("membership").
		Watches(&v1alpha1.ClusterSet{}, fleet.ToSet(one)).
		Watches(&v1alpha1.Member{}, fleet.ToSet(one), builder.WithPredicates(fleet.Unmeasured())).
		Watches(&clusterv1alpha1.Cluster{}, fleet.ToSet(one), builder.WithPredicates(fleet.Decisive())).
		Watches(&policyv1alpha1.ClusterPropagationPolicy{}, fleet.ToSet(one), builder.WithPredicates(
			predicate.NewPredicateFuncs(func(o client.Object) bool {
				return o.GetName() == installation.PolicyName || o.GetName() == installation.CRDPolicyName
			}), predicate.GenerationChangedPredicate{})).
		Watches(&workv1alpha2.ClusterResourceBinding{}, fleet.ToSet(one), builder.WithPredicates(fleet.Wire())).
		Watches(&workv1alpha1.Work{}, fleet.ToSet(func(ctx context.Context, o client.Object) []string {
			var m v1alpha1.Member
			err := r.Client.Get(ctx, client.ObjectKey{Name: propagation.ClusterOf(o)}, &m)
			if err != nil || m.Spec.Phase != v1alpha1.MemberLeaving {
				return nil
			}
			return []string{"all"}
		})).
		WatchesRawSource(takeover.Shown[ctrl.Request](before)).
		Complete(raced.Reconciler(r))
}
