// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"
	"strings"

	networkingv1alpha1 "github.com/karmada-io/karmada/pkg/apis/networking/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/util/names"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// Reasons of a conflict with what Karmada itself offers for the same service, beside those of the MCS API.
const (
	// ReasonDerivedService says that a ServiceImport on the Karmada API makes Karmada import the service, too.
	ReasonDerivedService = "DerivedServiceConflict"
	// ReasonMultiClusterService says that a MultiClusterService makes Karmada write other clusters' endpoints
	// behind the Service itself.
	ReasonMultiClusterService = "MultiClusterServiceConflict"
)

// KarmadaServices are what Karmada's own controllers act on for the same service.
type KarmadaServices struct {
	ServiceImport, MultiClusterService bool
}

// Conflict returns a Conflict condition that says so, too, and what to do. A condition that says it already
// stays as it is.
func (r KarmadaServices) Conflict(conflict metav1.Condition, namespace, name string) metav1.Condition {
	var reasons, texts []string
	if r.ServiceImport && !strings.Contains(conflict.Reason, ReasonDerivedService) {
		reasons = append(reasons, ReasonDerivedService)
		texts = append(texts, fmt.Sprintf("a ServiceImport on the Karmada API has Karmada import the service as "+
			"derived-%s, beside the ServiceImport of every member: delete it there with kubectl -n %s delete serviceimport %s",
			name, namespace, name))
	}
	if r.MultiClusterService && !strings.Contains(conflict.Reason, ReasonMultiClusterService) {
		reasons = append(reasons, ReasonMultiClusterService)
		texts = append(texts, fmt.Sprintf("a MultiClusterService on the Karmada API has Karmada put pods of other clusters "+
			"behind the Service itself: delete it there with kubectl -n %s delete multiclusterservice %s, or stop exporting "+
			"the service",
			namespace, name))
	}
	if len(reasons) == 0 {
		return conflict
	}
	if conflict.Status == metav1.ConditionTrue {
		reasons, texts = append([]string{conflict.Reason}, reasons...), append([]string{conflict.Message}, texts...)
	}
	conflict.Status, conflict.Reason, conflict.Message = metav1.ConditionTrue, strings.Join(reasons, ","),
		strings.Join(texts, ". ")
	return conflict
}

// gatherKarmada reads what Karmada's own controllers act on in the shard.
func (r *Reconciler) gatherKarmada(ctx context.Context, in *Input) error {
	var imports mcsv1alpha1.ServiceImportList
	var services networkingv1alpha1.MultiClusterServiceList
	for _, list := range []client.ObjectList{&imports, &services} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
	}
	in.Karmada = map[string]KarmadaServices{}
	for i := range imports.Items {
		k := key{imports.Items[i].Namespace, imports.Items[i].Name}.String()
		karmada := in.Karmada[k]
		karmada.ServiceImport = true
		in.Karmada[k] = karmada
	}
	for i := range services.Items {
		k := key{services.Items[i].Namespace, services.Items[i].Name}.String()
		karmada := in.Karmada[k]
		karmada.MultiClusterService = slices.Contains(services.Items[i].Spec.Types,
			networkingv1alpha1.ExposureTypeCrossCluster)
		in.Karmada[k] = karmada
	}
	return nil
}

// gatherScheduled reads where Karmada places services, "<namespace>/<name>", and their ServiceExports.
func (r *Reconciler) gatherScheduled(ctx context.Context, in *Input, services []string) error {
	for _, s := range services {
		for kind, clusters := range map[string]map[string][]string{"ServiceExport": in.Scheduled, "Service": in.Placed} {
			namespace, name, _ := strings.Cut(s, "/")
			var binding workv1alpha2.ResourceBinding
			err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: names.GenerateBindingName(kind, name)},
				&binding)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read the ResourceBinding of %s %s: %w", kind, s, err)
			}
			clusters[s] = make([]string, 0, len(binding.Spec.Clusters))
			for _, target := range binding.Spec.Clusters {
				clusters[s] = append(clusters[s], target.Name)
			}
		}
	}
	return nil
}
