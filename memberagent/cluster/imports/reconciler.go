// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// Reconciler materialises imports.
type Reconciler struct {
	client.Client
	// Families of this cluster's Services, primary first.
	Families func(context.Context) ([]corev1.IPFamily, error)
	// Reachability of the remote clusters.
	Reachability *Reachability
	// Limited is set where only v1alpha1 of the MCS API is served.
	Limited bool
	// Refusals are told what the API server refuses.
	Refusals *Refusals
	Events   record.EventRecorder
	// Written is called for each object written.
	Written func(kind, operation string)

	own       own
	announced announced
	// dropsNodeHints is set once the API server has dropped hints for nodes, a field that it may not know.
	dropsNodeHints atomic.Bool
}

// Reconcile gathers, decides and applies for one import.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	in, err := r.gather(ctx, req.NamespacedName)
	if err != nil || in == nil {
		if err == nil {
			r.Refusals.set(req.NamespacedName, Verdict{})
			r.announced.forget(req.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	decision := Decide(*in)
	err = r.apply(ctx, in, decision)
	verdict, refused := refusal(err)
	switch {
	case refused:
		if r.Refusals.set(req.NamespacedName, verdict) {
			log.FromContext(ctx).Info("import refused", "reason", verdict.Reason, "message", verdict.Message)
		}
		return ctrl.Result{RequeueAfter: retryRefused}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	r.Refusals.set(req.NamespacedName, Verdict{})
	r.announce(in, &decision)
	return ctrl.Result{RequeueAfter: decision.Again}, nil
}

// retryRefused is when to ask again for what was refused: no event tells of a quota that has room again.
const retryRefused = 15 * time.Second

// gather returns nil where nothing may be changed: what the broker wants is unknown or has not come yet, the namespace
// is missing or terminating, or the names belong to somebody else.
func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName) (*Input, error) {
	in := &Input{Key: key, Limited: r.Limited, NodeHints: !r.dropsNodeHints.Load(), Now: time.Now()}
	peering, err := index.SharedPeering(ctx, r)
	if err != nil || peering == nil {
		return nil, err
	}
	in.ClusterID, in.Leaving = peering.Spec.ClusterID, peering.Spec.Phase == v1alpha1.MemberLeaving
	wanted, known, err := index.CurrentImport(ctx, r, peering.Spec.Shards, key)
	if err != nil || (!known && !in.Leaving) {
		return nil, err
	}
	in.Import = wanted.DeepCopy()
	if alive, err := r.namespaceAlive(ctx, key.Namespace); err != nil || !alive {
		return nil, err
	}
	if in.Import != nil && in.Import.Withheld && !in.Leaving {
		return nil, nil
	}
	if err := r.observe(ctx, in); err != nil {
		return nil, err
	}
	if in.Import == nil && in.ServiceImport == nil && in.Service == nil && len(in.Slices) == 0 {
		return nil, nil
	}
	if err := r.circumstances(ctx, in); err != nil {
		return nil, err
	}
	return in, nil
}

func (r *Reconciler) namespaceAlive(ctx context.Context, name string) (bool, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Get(ctx, types.NamespacedName{Name: name}, ns); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("get namespace %s: %w", name, err)
	}
	return ns.DeletionTimestamp == nil, nil
}

// observe reads the objects of the import. A ServiceImport that is somebody else's stands in the way: the
// import is not made, and what is left of an earlier one goes.
func (r *Reconciler) observe(ctx context.Context, in *Input) error {
	imported := &mcs.ServiceImport{}
	err := r.Get(ctx, in.Key, imported)
	if apierrors.IsNotFound(err) {
		imported = nil
	} else if err != nil {
		return fmt.Errorf("get ServiceImport %s: %w", in.Key, err)
	}
	switch {
	case r.own.serviceImport(in.Key, imported):
		in.ServiceImport = imported
	case imported != nil:
		in.Import = nil
	}
	derived := types.NamespacedName{Namespace: in.Key.Namespace, Name: DerivedName(in.Key)}
	if in.Service, err = index.Service(ctx, r, derived); err != nil {
		return err
	}
	if in.Service != nil && !ours(in) {
		in.Service, in.Foreign = nil, true
	}
	if in.Slices, err = index.SlicesFor(ctx, r, in.Key); err != nil {
		return err
	}
	for i := range in.Slices {
		r.own.remember(&in.Slices[i])
	}
	found, err := index.SlicesOf(ctx, r, derived)
	if err != nil {
		return err
	}
	for i := range found {
		if !r.own.slice(&found[i]) {
			in.ForeignSlices = append(in.ForeignSlices, found[i].Name)
		}
	}
	slices.Sort(in.ForeignSlices)
	return nil
}

// ours is a Service of the derived name with either label, or with neither but the address of our own ServiceImport.
func ours(in *Input) bool {
	labels := in.Service.Labels
	return labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy || labels[v1alpha1.LabelImport] == in.Key.Name ||
		(in.ServiceImport != nil && len(in.ServiceImport.Spec.IPs) > 0 &&
			in.ServiceImport.Spec.IPs[0] == in.Service.Spec.ClusterIP)
}

// circumstances are what the choice of endpoints depends on.
func (r *Reconciler) circumstances(ctx context.Context, in *Input) error {
	reaches, err := r.Reachability.Current(ctx)
	if err != nil {
		return err
	}
	in.Connected = reaches.Connected
	if in.Families, err = r.Families(ctx); err != nil {
		return err
	}
	if in.Import == nil {
		return nil
	}
	for _, c := range in.Import.Clusters {
		if c.Cluster != in.ClusterID {
			continue
		}
		if in.LocalService, err = index.Service(ctx, r, in.Key); err != nil {
			return err
		}
		if in.LocalSlices, err = index.SlicesOf(ctx, r, in.Key); err != nil {
			return err
		}
	}
	return nil
}
