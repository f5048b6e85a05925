// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/transitions"
)

// Objects are created and updated whole rather than applied: an apply would leave in place what somebody
// added to them, such as a selector or a port.

// apply makes the objects what they should be. The Service comes first, for its address; then the rest at
// once. What is gone already is not an error. Where the API server refuses an object, the ServiceImport says so; see
// refusal.
func (r *Reconciler) apply(ctx context.Context, in *Input, d Decision) error {
	service, err := r.applyService(ctx, in, d.Service)
	verdict, refused := refusal(err)
	if err != nil && !refused {
		return err
	}
	if refused {
		// The address that a Service still has goes on working.
		service = in.Service
		d.notReady(verdict)
	}
	if rest := r.applyRest(ctx, in, d, service); rest != nil {
		verdict, refused := refusal(rest)
		if !refused {
			return rest
		}
		if d.ServiceImport != nil && err == nil {
			d.notReady(verdict)
			rest = errors.Join(rest, r.tell(ctx, d.ServiceImport))
		}
		return errors.Join(err, rest)
	}
	return err
}

// notReady makes the ServiceImport say what is wrong.
func (d *Decision) notReady(v Verdict) {
	if d.ServiceImport == nil {
		return
	}
	for i := range d.ServiceImport.Status.Conditions {
		if c := &d.ServiceImport.Status.Conditions[i]; c.Type == string(mcs.ServiceImportConditionReady) {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, v.Reason, v.Message
		}
	}
}

// tell writes the status of a ServiceImport that is there.
func (r *Reconciler) tell(ctx context.Context, want *mcs.ServiceImport) error {
	have := &mcs.ServiceImport{}
	if err := r.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
		return client.IgnoreNotFound(err)
	}
	return r.applyImportStatus(ctx, have, want.Status)
}

// applyRest makes everything but the derived Service, which is nil where there is none.
func (r *Reconciler) applyRest(ctx context.Context, in *Input, d Decision, service *corev1.Service) error {
	if d.ServiceImport != nil && service != nil && service.Annotations[annotationOrphaned] == "" {
		d.ServiceImport.Spec.IPs = service.Spec.ClusterIPs
		if in.Limited && len(d.ServiceImport.Spec.IPs) > 1 {
			d.ServiceImport.Spec.IPs = d.ServiceImport.Spec.IPs[:1]
		}
	}
	have := map[string]*discoveryv1.EndpointSlice{}
	for i := range in.Slices {
		have[in.Slices[i].Name] = &in.Slices[i]
	}
	// What is new is there before what it replaces goes: between the two kube-proxy would refuse connections, for a
	// second with its default minSyncPeriod. What is to go goes even where the new cannot be made.
	made, makeCtx := errgroup.WithContext(ctx)
	made.Go(func() error { return r.applyServiceImport(makeCtx, in.ServiceImport, d.ServiceImport) })
	for i := range d.Slices {
		want := &d.Slices[i]
		was := have[want.Name]
		delete(have, want.Name)
		made.Go(func() error { return r.applySlice(makeCtx, was, want) })
	}
	err := made.Wait()
	removed, removeCtx := errgroup.WithContext(ctx)
	for _, s := range have {
		removed.Go(func() error {
			r.own.forget(s)
			return r.remove(removeCtx, "EndpointSlice", s)
		})
	}
	return errors.Join(err, removed.Wait())
}

func (r *Reconciler) applyService(ctx context.Context, in *Input, want *corev1.Service) (*corev1.Service, error) {
	have := in.Service
	if want != nil && in.Foreign {
		return nil, &taken{fmt.Sprintf("the Service %s exists and was not made by Sealane; delete or rename it",
			client.ObjectKeyFromObject(want))}
	}
	switch {
	case want == nil && have == nil:
		return nil, nil
	case want == nil:
		return nil, r.remove(ctx, "Service", have)
	case have == nil:
		return want, r.createService(ctx, want)
	case want.UID != have.UID:
		if err := r.remove(ctx, "Service", have); err != nil {
			return nil, err
		}
		return want, r.createService(ctx, want)
	case equality.Semantic.DeepEqual(have.Spec, want.Spec) && sameMeta(have, want):
		return want, nil
	}
	err := r.update(ctx, "Service", want)
	if refusesClusterIP(err) {
		// Somebody took the address out of it, and it does not take it back.
		return nil, errors.Join(err, r.remove(ctx, "Service", have))
	}
	return want, err
}

// reclaim is how long to insist on the address of a Service that was deleted. The API server frees it a
// moment after the Service is gone.
const reclaim = 2 * time.Second

// createService asks for the address that the import had. If that has gone to somebody else meanwhile, the
// import gets another.
func (r *Reconciler) createService(ctx context.Context, want *corev1.Service) error {
	if len(want.Spec.ClusterIPs) == 0 {
		return r.create(ctx, "Service", want)
	}
	asked := want.DeepCopy()
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, reclaim, true, func(ctx context.Context) (bool, error) {
		asked.DeepCopyInto(want)
		err := r.create(ctx, "Service", want)
		if refusesClusterIP(err) {
			return false, nil
		}
		return true, err
	})
	if !wait.Interrupted(err) || ctx.Err() != nil {
		return err
	}
	asked.Spec.ClusterIP, asked.Spec.ClusterIPs = "", nil
	asked.DeepCopyInto(want)
	return r.create(ctx, "Service", want)
}

func refusesClusterIP(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if strings.HasPrefix(cause.Field, "spec.clusterIP") {
			return true
		}
	}
	return false
}

func (r *Reconciler) applySlice(ctx context.Context, have, want *discoveryv1.EndpointSlice) error {
	hinted := nodeHints(want)
	switch {
	case have == nil:
		if err := r.createSlice(ctx, want); err != nil {
			return err
		}
	case equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) &&
		equality.Semantic.DeepEqual(have.Ports, want.Ports) && sameMeta(have, want):
		return nil
	default:
		want.ResourceVersion, want.UID = have.ResourceVersion, have.UID
		if err := r.update(ctx, "EndpointSlice", want); err != nil {
			return err
		}
	}
	if hinted && !nodeHints(want) {
		r.dropsNodeHints.Store(true)
	}
	return nil
}

func nodeHints(s *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		return e.Hints != nil &&
			len(e.Hints.ForNodes) > 0
	})
}

// createSlice makes a slice. One of that name from which somebody removed the labels is in the way and is replaced;
// one that was never Sealane's is left alone.
func (r *Reconciler) createSlice(ctx context.Context, want *discoveryv1.EndpointSlice) error {
	err := r.create(ctx, "EndpointSlice", want)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there := &discoveryv1.EndpointSlice{}
	if r.Get(ctx, client.ObjectKeyFromObject(want), there) != nil || v1alpha1.ImportOfSlice(there) != "" {
		return err
	}
	if !r.own.slice(there) {
		return &taken{fmt.Sprintf("the EndpointSlice %s exists and was not made by Sealane; delete or rename it",
			client.ObjectKeyFromObject(there))}
	}
	if err := r.remove(ctx, "EndpointSlice", there); err != nil {
		return err
	}
	return r.create(ctx, "EndpointSlice", want)
}

func (r *Reconciler) applyServiceImport(ctx context.Context, have, want *mcs.ServiceImport) error {
	switch {
	case want == nil && have == nil:
		return nil
	case want == nil:
		return r.remove(ctx, "ServiceImport", have)
	}
	status := want.Status
	switch {
	case have == nil:
		if err := r.create(ctx, "ServiceImport", want); err != nil {
			return err
		}
	case !equality.Semantic.DeepEqual(have.Spec, want.Spec) || !sameMeta(have, want):
		want.ResourceVersion, want.UID = have.ResourceVersion, have.UID
		if err := r.update(ctx, "ServiceImport", want); err != nil {
			return err
		}
	default:
		want = have.DeepCopy()
	}
	return r.applyImportStatus(ctx, want, status)
}

// applyImportStatus keeps conditions that are not ours.
func (r *Reconciler) applyImportStatus(ctx context.Context, have *mcs.ServiceImport,
	status mcs.ServiceImportStatus) error {
	want := have.DeepCopy()
	want.Status.Clusters, want.Status.EndpointSliceObjects = status.Clusters, status.EndpointSliceObjects
	for _, c := range status.Conditions {
		c.ObservedGeneration = have.Generation
		meta.SetStatusCondition(&want.Status.Conditions, c)
	}
	if equality.Semantic.DeepEqual(have.Status, want.Status) {
		return nil
	}
	told := slices.Clone(want.Status.Conditions)
	// With the lock, for a merge patch replaces all conditions, and what was told of these once is not told again.
	patch := client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, want, patch); err != nil {
		return fmt.Errorf("write the status of ServiceImport %s: %w", client.ObjectKeyFromObject(have), err)
	}
	r.Written("ServiceImport", "status")
	transitions.Tell(r.Events, want, have.Status.Conditions, told)
	return nil
}

// sameMeta compares what Sealane writes of an object's metadata.
func sameMeta(have, want client.Object) bool {
	return equality.Semantic.DeepEqual(have.GetLabels(), want.GetLabels()) &&
		equality.Semantic.DeepEqual(have.GetAnnotations(), want.GetAnnotations())
}

func (r *Reconciler) create(ctx context.Context, kind string, o client.Object) error {
	if err := r.Create(ctx, o); err != nil {
		return fmt.Errorf("create %s %s: %w", kind, client.ObjectKeyFromObject(o), err)
	}
	r.Written(kind, "create")
	return nil
}

func (r *Reconciler) update(ctx context.Context, kind string, o client.Object) error {
	if err := r.Update(ctx, o); err != nil {
		return fmt.Errorf("update %s %s: %w", kind, client.ObjectKeyFromObject(o), err)
	}
	r.Written(kind, "update")
	return nil
}

func (r *Reconciler) remove(ctx context.Context, kind string, o client.Object) error {
	uid := o.GetUID()
	err := r.Delete(ctx, o, &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s %s: %w", kind, client.ObjectKeyFromObject(o), err)
	}
	r.Written(kind, "delete")
	return nil
}
