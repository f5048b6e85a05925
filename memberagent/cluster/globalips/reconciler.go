// SPDX-License-Identifier: Apache-2.0

package globalips

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/memberagent/cluster/exports"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// Reconciler keeps the GlobalIngressIP of every exported service, named as the service: it holds the
// service's address or, if it is headless, those of its pods.
type Reconciler struct {
	client.Client
	// Live reads past the caches: what the leader before wrote last may not be in them.
	Live client.Reader
	// Now is the clock.
	Now func() time.Time

	mu        sync.Mutex
	allocator *Allocator
}

// SetupWithManager registers the controller. One service is looked at at a time.
func (r *Reconciler) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	o.MaxConcurrentReconciles = 1
	return ctrl.NewControllerManagedBy(m).Named("globalingressip").
		For(&v1alpha1.GlobalIngressIP{}).
		Watches(&mcs.ServiceExport{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.exported)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.exportedSlice)).
		Watches(&v1alpha1.Peering{}, handler.EnqueueRequestsFromMapFunc(r.all),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(o).Complete(r)
}

func (r *Reconciler) exported(ctx context.Context, o client.Object) []reconcile.Request {
	return r.ifExported(ctx, client.ObjectKeyFromObject(o))
}

func (r *Reconciler) exportedSlice(ctx context.Context, o client.Object) []reconcile.Request {
	if key, ok := index.ServiceOfSlice(o); ok {
		return r.ifExported(ctx, key)
	}
	return nil
}

func (r *Reconciler) ifExported(ctx context.Context, key types.NamespacedName) []reconcile.Request {
	if r.Get(ctx, key, &mcs.ServiceExport{}) != nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// all are the services that are exported, and those that have an address.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var list mcs.ServiceExportList
	var ips v1alpha1.GlobalIngressIPList
	if r.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil || r.List(ctx, &ips, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	for i := range ips.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&ips.Items[i])})
	}
	return out
}

// Reconcile makes, updates or removes the GlobalIngressIP of one service. An address is in an object's status before
// anybody is told of it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil {
		return ctrl.Result{}, err // nothing is known, so nothing changes
	}
	allocator, err := r.addresses(ctx, peering.Spec.GlobalCIDR)
	if err != nil {
		return ctrl.Result{}, err
	}
	object, err := r.object(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted, err := r.wanted(ctx, req.NamespacedName, peering.Spec.Networks.PodCIDRs)
	if err != nil {
		return ctrl.Result{}, err
	}
	leaving := peering.Spec.Phase == v1alpha1.MemberLeaving
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case object == nil && (!wanted.exported || leaving || !allocator.Block().IsValid()):
		allocator.ReleaseAll(req.NamespacedName, r.Now())
		return ctrl.Result{}, nil
	case object == nil:
		object = &v1alpha1.GlobalIngressIP{
			ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name,
				Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
			Spec: v1alpha1.GlobalIngressIPSpec{Service: req.Name},
		}
		if err := r.Create(ctx, object); err != nil {
			return ctrl.Result{}, ignoreGone(fmt.Errorf("create GlobalIngressIP %s: %w", req.NamespacedName, err), err)
		}
	case leaving, !wanted.exported && r.graceOver(object):
		allocator.ReleaseAll(req.NamespacedName, r.Now())
		return ctrl.Result{}, client.IgnoreNotFound(r.Delete(ctx, object))
	}
	status, again := r.status(allocator, object, wanted)
	if equality.Semantic.DeepEqual(object.Status, status) {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	changed := object.DeepCopy()
	changed.Status = status
	if err := r.Status().Patch(ctx, changed, client.MergeFrom(object)); err != nil {
		return ctrl.Result{}, ignoreGone(fmt.Errorf("write the status of GlobalIngressIP %s: %w", req.NamespacedName, err),
			err)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// ignoreGone returns what an error means, but nothing where the object or its namespace is gone, or going.
func ignoreGone(meaning, err error) error {
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return meaning
}

// addresses returns the allocator of the cluster's block, which is made anew when the block is another.
func (r *Reconciler) addresses(ctx context.Context, cidr string) (*Allocator, error) {
	block, err := netfacts.ParseGlobal(cidr)
	if err != nil {
		block = netip.Prefix{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.allocator != nil && r.allocator.Block() == block {
		return r.allocator, nil
	}
	var list v1alpha1.GlobalIngressIPList
	if err := r.Live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list GlobalIngressIPs: %w", err)
	}
	r.allocator = NewAllocator(block, list.Items)
	return r.allocator, nil
}

func (r *Reconciler) object(ctx context.Context, key types.NamespacedName) (*v1alpha1.GlobalIngressIP, error) {
	o := &v1alpha1.GlobalIngressIP{}
	if err := r.Get(ctx, key, o); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get GlobalIngressIP %s: %w", key, err)
	}
	return o, nil
}

// wanted is what a service is to have.
type wanted struct {
	// exported says that it has an address, or that its pods have.
	exported, headless bool
	ports              []v1alpha1.GlobalPort
	pods               []v1alpha1.GlobalPod
}

func (r *Reconciler) wanted(ctx context.Context, key types.NamespacedName, podCIDRs []string) (wanted, error) {
	export := &mcs.ServiceExport{}
	if err := r.Get(ctx, key, export); apierrors.IsNotFound(err) {
		return wanted{}, nil
	} else if err != nil {
		return wanted{}, fmt.Errorf("get ServiceExport %s: %w", key, err)
	}
	service, err := index.Service(ctx, r, key)
	if err != nil || export.DeletionTimestamp != nil || !exports.Exportable(export, service) {
		return wanted{}, err
	}
	endpoints, err := index.SlicesOf(ctx, r, key)
	if err != nil {
		return wanted{}, err
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		return wanted{exported: true, headless: true, pods: Pods(endpoints, podCIDRs)}, nil
	}
	return wanted{exported: true, ports: Ports(service, endpoints)}, nil
}

func (r *Reconciler) graceOver(o *v1alpha1.GlobalIngressIP) bool {
	return o.Status.IP == "" && len(o.Status.Pods) == 0 ||
		o.Status.ReleasedAt != nil && r.Now().Sub(o.Status.ReleasedAt.Time) >= Grace
}

// status returns what an object should say, and after how long to look again.
func (r *Reconciler) status(allocator *Allocator, o *v1alpha1.GlobalIngressIP,
	w wanted) (v1alpha1.GlobalIngressIPStatus, time.Duration) {
	now, service := r.Now(), types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	status := v1alpha1.GlobalIngressIPStatus{IP: o.Status.IP, Conditions: slices.Clone(o.Status.Conditions)}
	set := func(ok metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1alpha1.GlobalIPAllocated, Status: ok,
			Reason: reason, Message: message, ObservedGeneration: o.Generation,
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))})
	}
	if !allocator.Block().IsValid() {
		status.IP = ""
		set(metav1.ConditionFalse, v1alpha1.ReasonNoBlock, "the cluster has no block of global addresses")
		return status, 0
	}
	pods, without, again, why := assignPods(allocator, service, o.Status.Pods, w.pods, now)
	status.Pods = pods
	switch {
	case !w.exported:
		status.ReleasedAt = o.Status.ReleasedAt
		if status.ReleasedAt == nil {
			at := metav1.NewTime(now.Truncate(time.Second))
			status.ReleasedAt = &at
		}
		allocator.Release(service, status.ReleasedAt.Time)
		if !allocator.keeps(status.IP, service) {
			status.IP = "" // another has it, where none was left
		}
		again = max(Grace-now.Sub(status.ReleasedAt.Time), time.Second)
		set(metav1.ConditionFalse, v1alpha1.ReasonReleased, fmt.Sprintf(
			"the service is not exported; for %s it gets the same address again", Grace))
	case w.headless:
		allocator.Release(service, now)
		status.IP = ""
		if without > 0 {
			message := fmt.Sprintf("%d of %d pods have no global address", without, len(w.pods))
			if why == nil {
				why = fmt.Errorf("at most %d pods of a service have one", maxPods)
			}
			set(metav1.ConditionFalse, v1alpha1.ReasonBlockExhausted, message+": "+why.Error())
			return status, time.Minute
		}
		set(metav1.ConditionTrue, v1alpha1.ReasonAllocated, "other clusters reach each pod by its address")
	default:
		ip, err := allocator.Assign(service, now)
		if err != nil {
			status.IP = ""
			set(metav1.ConditionFalse, v1alpha1.ReasonBlockExhausted, err.Error())
			return status, time.Minute
		}
		status.IP, status.Ports = ip.String(), w.ports
		set(metav1.ConditionTrue, v1alpha1.ReasonAllocated, "other clusters reach the service by the address")
	}
	return status, again
}

// Tell adds to an export the global address of its service or, if it is headless, those of its pods: those that are
// in the cluster's block.
func Tell(ctx context.Context, c client.Reader, e *v1alpha1.Export, cidr string) error {
	if cidr == "" {
		return nil
	}
	o := &v1alpha1.GlobalIngressIP{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: e.Name}, o); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("get GlobalIngressIP %s/%s: %w", e.Namespace, e.Name, err)
	}
	if o.Status.ReleasedAt != nil {
		return nil
	}
	block, noBlock := netfacts.ParseGlobal(cidr)
	inBlock := func(text string) bool {
		ip, err := netip.ParseAddr(text)
		if noBlock != nil || err != nil {
			return false
		}
		_, ok := globalnet.Number(block, ip)
		return ok
	}
	if e.Settings.Type == v1alpha1.ClusterSetIP {
		if inBlock(o.Status.IP) {
			e.GlobalIP = o.Status.IP
		}
		return nil
	}
	of := make(map[string]string, len(o.Status.Pods))
	for _, p := range o.Status.Pods {
		if p.ReleasedAt == nil && inBlock(p.GlobalIP) {
			of[p.IP] = p.GlobalIP
		}
	}
	for i := range e.Backends {
		for j := range e.Backends[i].Addresses {
			b := &e.Backends[i].Addresses[j]
			b.GlobalIP = of[b.IP]
		}
	}
	return nil
}
