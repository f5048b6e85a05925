// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/util/names"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

const (
	// patience is when to look again at an export that is not settled: Karmada gathers what the
	// members say of its Valid condition in its own time, and no watch of ours sees it.
	patience = 2 * time.Second
	// maxStatus is the largest status of a member's ServiceExport that is read, in bytes.
	maxStatus = 64 << 10
)

// Reconciler keeps the conditions of the ServiceExports on the Karmada API.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server what is not worth a cache.
	Live client.Reader
	// Now is the clock.
	Now func() time.Time
}

// Reconcile brings the conditions of one ServiceExport up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var export mcsv1alpha1.ServiceExport
	if err := r.Client.Get(ctx, req.NamespacedName, &export); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	clusters, err := r.gather(ctx, &export)
	if err != nil {
		return ctrl.Result{}, err
	}
	updated := export.DeepCopy()
	settled := true
	for _, c := range Summarise(clusters) {
		c.ObservedGeneration, c.LastTransitionTime = export.Generation, metav1.NewTime(r.Now())
		meta.SetStatusCondition(&updated.Status.Conditions, c)
		settled = settled && c.Reason != reasonPending
	}
	if !equality.Semantic.DeepEqual(export.Status, updated.Status) {
		if err := r.Client.Status().Update(ctx, updated); err != nil {
			if apierrors.IsConflict(err) {
				return ctrl.Result{RequeueAfter: 20 * time.Millisecond}, nil
			}
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if settled {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: patience}, nil
}

// gather reads what is known of an export in the clusters that it is scheduled to.
func (r *Reconciler) gather(ctx context.Context, export *mcsv1alpha1.ServiceExport) ([]Cluster, error) {
	var binding workv1alpha2.ResourceBinding
	key := client.ObjectKey{Namespace: export.Namespace, Name: names.GenerateBindingName("ServiceExport", export.Name)}
	if err := r.Live.Get(ctx, key, &binding); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read the ResourceBinding of ServiceExport %s/%s: %w", export.Namespace, export.Name, err)
	}
	var clusters []Cluster
	for _, target := range binding.Spec.Clusters {
		c := Cluster{Name: target.Name}
		if valid := validIn(&binding, target.Name); valid != nil {
			c.Conditions = append(c.Conditions, *valid)
		}
		said, reported, err := r.bundle(ctx, target.Name, export.Namespace, export.Name)
		if err != nil {
			return nil, err
		}
		// Only a valid export is reported, and the report is faster than Karmada.
		if reported {
			meta.SetStatusCondition(&c.Conditions, metav1.Condition{Type: Valid, Status: metav1.ConditionTrue, Reason: string(mcsv1beta1.ServiceExportReasonValid)})
		}
		c.Conditions = append(c.Conditions, said...)
		clusters = append(clusters, c)
	}
	return clusters, nil
}

// validIn is what the member itself says in its ServiceExport, nil if that is nothing to go by.
func validIn(binding *workv1alpha2.ResourceBinding, cluster string) *metav1.Condition {
	for _, item := range binding.Status.AggregatedStatus {
		if item.ClusterName != cluster || item.Status == nil || len(item.Status.Raw) > maxStatus {
			continue
		}
		var status mcsv1alpha1.ServiceExportStatus
		if json.Unmarshal(item.Status.Raw, &status) != nil {
			return nil
		}
		c := meta.FindStatusCondition(status.Conditions, Valid)
		if c == nil || !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,99}$`).MatchString(c.Reason) {
			return nil
		}
		if c.Status != metav1.ConditionTrue && c.Status != metav1.ConditionFalse {
			return nil
		}
		return &metav1.Condition{Type: Valid, Status: c.Status, Reason: c.Reason, Message: strings.ToValidUTF8(c.Message, "?")}
	}
	return nil
}

// bundle returns what the broker said to a cluster about its export, and whether the cluster reports it.
func (r *Reconciler) bundle(ctx context.Context, cluster, namespace, name string) ([]metav1.Condition, bool, error) {
	shards, err := r.shards(ctx, cluster)
	if err != nil {
		return nil, false, client.IgnoreNotFound(err)
	}
	var work workv1alpha1.Work
	if err := r.Client.Get(ctx, propagation.BundleKey(cluster, v1alpha1.Shard(namespace, name, shards)), &work); err != nil {
		return nil, false, client.IgnoreNotFound(err)
	}
	var spec v1alpha1.BundleSpec
	if err := propagation.Spec(&work, &spec); err != nil {
		return nil, false, err
	}
	var said []metav1.Condition
	for _, c := range spec.ExportConditions {
		if c.Namespace == namespace && c.Name == name {
			said = append(said, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	// A condition on Ready is said of every export that was reported, refused ones included.
	return said, meta.FindStatusCondition(said, Ready) != nil, nil
}

// shards is the number of Bundles of a member.
func (r *Reconciler) shards(ctx context.Context, cluster string) (int32, error) {
	var member v1alpha1.Member
	if err := r.Client.Get(ctx, client.ObjectKey{Name: cluster}, &member); err != nil {
		return 0, err
	}
	var set v1alpha1.ClusterSet
	if err := r.Client.Get(ctx, client.ObjectKey{Name: member.Spec.ClusterSet}, &set); err != nil {
		return 0, err
	}
	return set.Spec.Shards, nil
}

// SetupWithManager starts the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("exports").
		For(&mcsv1alpha1.ServiceExport{}).
		Watches(&workv1alpha1.Work{}, handler.EnqueueRequestsFromMapFunc(r.exportsOf)).
		Complete(r)
}

// exportsOf are the ServiceExports on the Karmada API in the shard of a Bundle. One that has left the
// Bundle is concerned as much as one that is in it.
func (r *Reconciler) exportsOf(ctx context.Context, o client.Object) []reconcile.Request {
	work, ok := o.(*workv1alpha1.Work)
	if !ok || work.Labels[propagation.LabelKind] != propagation.KindBundle {
		return nil
	}
	shards, err := r.shards(ctx, propagation.ClusterOf(work))
	if err != nil {
		return nil
	}
	var templates mcsv1alpha1.ServiceExportList
	if r.Client.List(ctx, &templates) != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range templates.Items {
		t := &templates.Items[i]
		if strconv.Itoa(int(v1alpha1.Shard(t.Namespace, t.Name, shards))) == work.Labels[propagation.LabelShard] {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(t)})
		}
	}
	return requests
}
