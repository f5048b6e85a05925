// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/propagation"
)

// fieldOwner of what is applied on the Karmada API.
const fieldOwner = "sealane-controller"

// install applies the install bundle and the policies that spread it to exactly these clusters. What
// was applied before and has not changed is not written again, but every reinstall anew.
func (r *Reconciler) install(ctx context.Context, clusters []string, keepCRDs bool) error {
	if now := r.Now(); now.Sub(r.renewed) >= reinstall {
		r.installed, r.renewed = map[string]string{}, now
	}
	policies, err := propagation.Policies(r.Templates, clusters, keepCRDs)
	if err != nil {
		return err
	}
	for _, objects := range [][]*unstructured.Unstructured{r.Templates, policies} {
		for _, o := range objects {
			if err := r.applyObject(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Reconciler) applyObject(ctx context.Context, o *unstructured.Unstructured) error {
	key, hash := o.GetKind()+"/"+o.GetName(), o.GetAnnotations()[propagation.AnnotationApplied]
	if r.installed[key] == hash {
		return nil
	}
	err := r.Client.Patch(ctx, o.DeepCopy(), client.Apply, client.FieldOwner(fieldOwner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	log.FromContext(ctx).V(1).Info("applied", "kind", o.GetKind(), "name", o.GetName())
	r.installed[key] = hash
	return nil
}

// uninstall removes the workloads' templates. The Namespace stays, the controller runs from it; the CRDs
// and policies stay for whoever removes the controller, since Karmada still acts on them.
func (r *Reconciler) uninstall(ctx context.Context) error {
	for i := len(r.Templates) - 1; i >= 0; i-- {
		o := r.Templates[i]
		if o.GetKind() == propagation.KindCRD || o.GetKind() == "Namespace" {
			continue
		}
		if err := r.Client.Delete(ctx, o.DeepCopy()); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	r.installed = nil
	r.renewed = r.Now().Add(-reinstall)
	return nil
}
