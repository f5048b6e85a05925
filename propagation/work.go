// SPDX-License-Identifier: Apache-2.0

package propagation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/controllers/ctrlutil"
	"github.com/karmada-io/karmada/pkg/util"
	"github.com/karmada-io/karmada/pkg/util/names"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// LabelManagedBy marks every Work of ours; informers select by it.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelKind on a Work is the kind of its one manifest.
	LabelKind = "sealane.io/kind"
	// LabelShard on a Bundle's Work is its shard.
	LabelShard = "sealane.io/shard"

	// KindPeering and KindBundle are the kinds that travel.
	KindPeering = "Peering"
	KindBundle  = "Bundle"
)

// WorkKey returns the Work that carries a cluster-scoped object to a cluster. Karmada recreates a
// deleted object only if its Work has this name.
func WorkKey(cluster, kind, name string) types.NamespacedName {
	return types.NamespacedName{
		Namespace: names.GenerateExecutionSpaceName(cluster),
		Name:      names.GenerateWorkName(kind, name, ""),
	}
}

// PeeringKey returns the Work of a cluster's Peering.
func PeeringKey(cluster string) types.NamespacedName {
	return WorkKey(cluster, KindPeering, v1alpha1.PeeringName)
}

// BundleKey returns the Work of one of a cluster's Bundles.
func BundleKey(cluster string, shard int32) types.NamespacedName {
	return WorkKey(cluster, KindBundle, v1alpha1.BundleName(shard))
}

// ClusterOf returns the cluster that a Work belongs to, which is the identity of whatever its status
// says; "" for a Work outside the execution namespaces.
func ClusterOf(work client.Object) string {
	cluster, err := names.GetClusterName(work.GetNamespace())
	if err != nil {
		return ""
	}
	return cluster
}

// Writer writes Works. Get must read from the API server, not from a cache: Karmada updates the status
// of a Work often enough for a cached version to be refused.
type Writer struct {
	client.Client
	// Live reads from the API server.
	Live client.Reader
}

// Get implements client.Reader.
func (w Writer) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return w.Live.Get(ctx, key, obj, opts...)
}

// ApplyPeering writes the Work of a cluster's Peering.
func (w Writer) ApplyPeering(ctx context.Context, cluster string, spec v1alpha1.PeeringSpec) error {
	labels := map[string]string{LabelKind: KindPeering}
	_, err := w.apply(ctx, cluster, KindPeering, v1alpha1.PeeringName, labels, spec)
	return err
}

// ApplyBundle writes the Work of one of a cluster's Bundles, and returns its manifest as the API server has it.
func (w Writer) ApplyBundle(ctx context.Context, cluster string, spec v1alpha1.BundleSpec) ([]byte, error) {
	labels := map[string]string{LabelKind: KindBundle, LabelShard: fmt.Sprint(spec.Shard)}
	return w.apply(ctx, cluster, KindBundle, v1alpha1.BundleName(spec.Shard), labels, spec)
}

func (w Writer) apply(ctx context.Context, cluster, kind, name string, labels map[string]string,
	spec any) ([]byte, error) {
	manifest, err := Manifest(kind, name, spec)
	if err != nil {
		return nil, err
	}
	key := WorkKey(cluster, kind, name)
	labels[LabelManagedBy] = v1alpha1.ManagedBy
	objectMeta := metav1.ObjectMeta{
		Namespace: key.Namespace,
		Name:      key.Name,
		Labels:    labels,
		// What an earlier membership left behind is ours to take over.
		Annotations: map[string]string{
			workv1alpha2.ResourceConflictResolutionAnnotation: workv1alpha2.ResourceConflictResolutionOverwrite,
		},
		Finalizers: []string{util.ExecutionControllerFinalizer},
	}
	answered := &answered{Writer: w}
	if err := ctrlutil.CreateOrUpdateWork(ctx, answered, objectMeta, manifest); err != nil {
		return nil, fmt.Errorf("write the Work of %s %s for %s: %w", kind, name, cluster, err)
	}
	return answered.manifest, nil
}

// answered is a Writer of one Work that keeps the manifest with which the API server has answered last.
type answered struct {
	Writer
	manifest []byte
}

func (a *answered) keep(obj client.Object, err error) error {
	if work, ok := obj.(*workv1alpha1.Work); ok && err == nil && len(work.Spec.Workload.Manifests) == 1 {
		a.manifest = work.Spec.Workload.Manifests[0].Raw
	}
	return err
}

// Get implements client.Reader.
func (a *answered) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return a.keep(obj, a.Writer.Get(ctx, key, obj, opts...))
}

// Create implements client.Writer.
func (a *answered) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return a.keep(obj, a.Writer.Create(ctx, obj, opts...))
}

// Update implements client.Writer.
func (a *answered) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return a.keep(obj, a.Writer.Update(ctx, obj, opts...))
}

// Manifest renders an object of ours without the status, which belongs to the member.
func Manifest(kind, name string, spec any) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", kind, name, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", kind, name, err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       kind,
		"metadata": map[string]any{
			"name":   name,
			"labels": map[string]any{LabelManagedBy: v1alpha1.ManagedBy},
		},
		"spec": fields,
	}}, nil
}

// ErrNoManifest says that a Work does not carry what it should.
var ErrNoManifest = errors.New("the Work carries no manifest")

// Spec decodes the spec of the one object that a Work carries.
func Spec(work *workv1alpha1.Work, spec any) error {
	manifests := work.Spec.Workload.Manifests
	if len(manifests) != 1 {
		return ErrNoManifest
	}
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(manifests[0].Raw, &object); err != nil {
		return fmt.Errorf("decode the manifest of %s/%s: %w", work.Namespace, work.Name, err)
	}
	if err := json.Unmarshal(object.Spec, spec); err != nil {
		return fmt.Errorf("decode the spec in %s/%s: %w", work.Namespace, work.Name, err)
	}
	return nil
}

// Status returns the raw status that the member reports for the one object that a Work carries, nil if
// it reports none. It is whatever the member wrote.
func Status(work *workv1alpha1.Work) []byte {
	if len(work.Status.ManifestStatuses) != 1 || work.Status.ManifestStatuses[0].Status == nil {
		return nil
	}
	return work.Status.ManifestStatuses[0].Status.Raw
}

// Failed says that Karmada tried to write to the member what a Work carries, and could not.
func Failed(work *workv1alpha1.Work) bool {
	return meta.IsStatusConditionFalse(work.Status.Conditions, workv1alpha1.WorkApplied)
}
