// SPDX-License-Identifier: Apache-2.0

package propagation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/controllers/ctrlutil"
	"github.com/karmada-io/karmada/pkg/util"
	"github.com/karmada-io/karmada/pkg/util/names"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// LabelShard on a Bundle's Work is its shard, and LabelHalf which half of it the Bundle is, if any.
	LabelShard = "sealane.io/shard"
	LabelHalf  = "sealane.io/half"
	// LabelDelta on the Work of a Bundle of deltas is the number of that, and no shard is; on that of the Bundle with the
	// answers to them it is Answers.
	LabelDelta = "sealane.io/delta"
	Answers    = "answers"

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

// BundleKey returns the Work of a shard's own Bundle for a cluster.
func BundleKey(cluster string, shard int32) types.NamespacedName {
	return WorkKey(cluster, KindBundle, v1alpha1.BundleName(shard))
}

// HalfKey returns the Work of the Bundle of one half of a shard, or of the shard's own if half is empty.
func HalfKey(cluster string, shard int32, half string) types.NamespacedName {
	return WorkKey(cluster, KindBundle, bundleName(shard, half))
}

func bundleName(shard int32, half string) string {
	if half == "" {
		return v1alpha1.BundleName(shard)
	}
	return v1alpha1.HalfName(v1alpha1.BundleName(shard), half)
}

// DeltaKey returns the Work of a Bundle of deltas.
func DeltaKey(cluster string, n int32) types.NamespacedName {
	return WorkKey(cluster, KindBundle, v1alpha1.DeltaName(n))
}

// AnswersKey returns the Work of the Bundle that has the answers to deltas.
func AnswersKey(cluster string) types.NamespacedName {
	return WorkKey(cluster, KindBundle, v1alpha1.AnswersName)
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

// Writer writes Works, by what the cache of Client has of them.
type Writer struct {
	client.Client
	// Live reads from the API server. That is needed where a Work is no more as the cache has it, as Karmada updates its
	// status.
	Live client.Reader
}

// Written is what the API server has of a Work after a write.
type Written struct {
	UID types.UID
	// Generation that the Work has with it.
	Generation int64
	Manifest   []byte
	// Changed says that the spec in it is not the one that was sent.
	Changed bool
}

// ApplyPeering writes the Work of a cluster's Peering, given what was last written of it, if anything is known to be.
func (w Writer) ApplyPeering(ctx context.Context, cluster string, last Written,
	spec v1alpha1.PeeringSpec) (Written, error) {
	raw, err := Encode(spec)
	if err != nil {
		return Written{}, fmt.Errorf("encode the Peering for %s: %w", cluster, err)
	}
	return w.apply(ctx, cluster, KindPeering, v1alpha1.PeeringName, map[string]string{LabelKind: KindPeering}, last,
		raw)
}

// ApplyBundle writes the Work of one of a cluster's Bundles, a shard's own one or that of a half, given its spec in the
// form that Encode has, and what was last written of it, if anything is known to be.
func (w Writer) ApplyBundle(ctx context.Context, cluster string, shard int32, half string, last Written,
	spec []byte) (Written, error) {
	labels := map[string]string{LabelKind: KindBundle, LabelShard: fmt.Sprint(shard)}
	if half != "" {
		labels[LabelHalf] = half
	}
	return w.apply(ctx, cluster, KindBundle, bundleName(shard, half), labels, last, spec)
}

// ApplyDelta writes the Work of one of a cluster's Bundles of deltas, as ApplyBundle does.
func (w Writer) ApplyDelta(ctx context.Context, cluster string, n int32, last Written, spec []byte) (Written, error) {
	labels := map[string]string{LabelKind: KindBundle, LabelDelta: strconv.Itoa(int(n))}
	return w.apply(ctx, cluster, KindBundle, v1alpha1.DeltaName(n), labels, last, spec)
}

// ApplyAnswers writes the Work of the Bundle that has the answers to a cluster's deltas, as ApplyBundle does.
func (w Writer) ApplyAnswers(ctx context.Context, cluster string, spec []byte) (Written, error) {
	labels := map[string]string{LabelKind: KindBundle, LabelDelta: Answers}
	return w.apply(ctx, cluster, KindBundle, v1alpha1.AnswersName, labels, Written{}, spec)
}

// The indexes of Works: those of halves by their shard, and those of deltas.
const (
	fieldHalves = "halves"
	fieldDeltas = "deltas"
)

// Register adds the indexes that HalvesOf and DeltasOf go by; it must run before the caches start.
func Register(ctx context.Context, f client.FieldIndexer) error {
	for field, of := range Indexes() {
		if err := f.IndexField(ctx, &workv1alpha1.Work{}, field, of); err != nil {
			return fmt.Errorf("index the Works by %s: %w", field, err)
		}
	}
	return nil
}

// Indexes of Works, by field.
func Indexes() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{fieldHalves: ShardsOfHalf, fieldDeltas: isDelta}
}

// isDelta is "true" of the Work of a Bundle of deltas, as it is labelled, and nothing of any other object.
func isDelta(o client.Object) []string {
	if labels := o.GetLabels(); labels[LabelKind] != KindBundle || labels[LabelDelta] == "" {
		return nil
	}
	return []string{"true"}
}

// DeltasOf returns the Works of the Bundles of deltas that a cluster has, by their numbers, going by the cache. They
// are to be read only.
func (w Writer) DeltasOf(ctx context.Context, cluster string) (map[int32]*workv1alpha1.Work, error) {
	var works workv1alpha1.WorkList
	if err := w.List(ctx, &works, client.InNamespace(names.GenerateExecutionSpaceName(cluster)),
		client.MatchingFields{fieldDeltas: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Works of the deltas for %s: %w", cluster, err)
	}
	out := make(map[int32]*workv1alpha1.Work, len(works.Items))
	for i := range works.Items {
		n, err := strconv.ParseInt(works.Items[i].Labels[LabelDelta], 10, 32)
		// A pull member may give its own Works any label.
		if err == nil && works.Items[i].Name == DeltaKey(cluster, int32(n)).Name {
			out[int32(n)] = &works.Items[i]
		}
	}
	return out, nil
}

// ShardsOfHalf is the shard that the Work of a half is labelled with, none of any other object.
func ShardsOfHalf(o client.Object) []string {
	labels := o.GetLabels()
	if labels[LabelKind] != KindBundle || labels[LabelHalf] == "" {
		return nil
	}
	return []string{labels[LabelShard]}
}

// HalvesOf returns the Works of a shard's halves that a cluster has by what half each is, going by the cache. They are
// to be read only. What name the Work of a half has, which is HalfKey's, the caller may remember.
func (w Writer) HalvesOf(ctx context.Context, cluster string, shard int32,
	named func(half string) string) (map[string]*workv1alpha1.Work, error) {
	var works workv1alpha1.WorkList
	if err := w.List(ctx, &works, client.InNamespace(names.GenerateExecutionSpaceName(cluster)),
		client.MatchingFields{fieldHalves: strconv.Itoa(int(shard))}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Works of the halves of Bundle %d for %s: %w", shard, cluster, err)
	}
	if len(works.Items) == 0 {
		return nil, nil
	}
	out := make(map[string]*workv1alpha1.Work, len(works.Items))
	for i := range works.Items {
		half := works.Items[i].Labels[LabelHalf]
		_, bits, ok := v1alpha1.ParseBundleName(bundleName(shard, half))
		// A pull member may give its own Works any label.
		if ok && bits != "" && works.Items[i].Name == named(half) {
			out[half] = &works.Items[i]
		}
	}
	return out, nil
}

// DeleteHalf deletes the Work of one half of a shard, and with it what it carries.
func (w Writer) DeleteHalf(ctx context.Context, cluster string, shard int32, half string) error {
	key := HalfKey(cluster, shard, half)
	work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := w.Delete(ctx, work); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the Work of %s for %s: %w", bundleName(shard, half), cluster, err)
	}
	return nil
}

func (w Writer) apply(ctx context.Context, cluster, kind, name string, labels map[string]string, last Written,
	spec []byte) (Written, error) {
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
	carrier := &carrier{Writer: w, spec: spec, last: last}
	err := ctrlutil.CreateOrUpdateWork(ctx, carrier, objectMeta, envelope(kind, name))
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		// It came or went, and the cache did not show it yet.
		err = ctrlutil.CreateOrUpdateWork(ctx, carrier, objectMeta, envelope(kind, name))
	}
	if err != nil {
		return Written{}, fmt.Errorf("write the Work of %s %s for %s: %w", kind, name, cluster, err)
	}
	return carrier.written, nil
}

// carrier is the client by which Karmada's library writes one Work. The library sees neither spec nor status, which are
// large, and which it would copy and encode several times: the spec is added to what it sends.
type carrier struct {
	Writer
	spec []byte
	// last is what is known to have been written of the Work, which the cache may not show yet.
	last Written
	// found is the metadata that was read of the Work, current that nothing is known to have been written since, and read
	// that it was read before: it is not as the cache has it.
	found         metav1.ObjectMeta
	current, read bool
	written       Written
}

// Get implements client.Reader.
func (c *carrier) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	out, ok := obj.(*workv1alpha1.Work)
	if !ok {
		return c.Client.Get(ctx, key, obj, opts...)
	}
	from, cached := c.Live, !c.read
	if cached {
		from, c.read = c.Client, true
	}
	var found workv1alpha1.Work
	if err := from.Get(ctx, key, &found, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	*out = workv1alpha1.Work{ObjectMeta: *found.ObjectMeta.DeepCopy()}
	c.found, c.current = found.ObjectMeta, true
	// What is read live is so, be it older than what was written: Karmada was restored from a backup.
	if cached && c.last.UID == c.found.UID && c.last.Generation > c.found.Generation {
		c.found.Generation, c.current = c.last.Generation, false
	}
	return nil
}

// Create implements client.Writer.
func (c *carrier) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.send(obj, func() error { return c.Client.Create(ctx, obj, opts...) })
}

// Update implements client.Writer.
func (c *carrier) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.send(obj, func() error {
		work, ok := obj.(*workv1alpha1.Work)
		if !ok || !sameMetadata(&work.ObjectMeta, &c.found) {
			return c.Client.Update(ctx, obj, opts...)
		}
		if c.current {
			// This is what costs the API server least.
			sent := work.DeepCopy()
			if err := c.Client.Update(ctx, sent, opts...); !apierrors.IsConflict(err) {
				*work = *sent
				return err
			}
		}
		return c.replace(ctx, work)
	})
}

// replace writes the manifest of a Work whose metadata stays as it is, on condition that nobody has written its spec
// since. An update has the condition that nobody has written anything: while the member reports, that is a conflict,
// and to read the Work and write it again costs the API server twice as much as this.
func (c *carrier) replace(ctx context.Context, work *workv1alpha1.Work) error {
	patch, err := json.Marshal([]operation{
		{"test", "/metadata/uid", c.found.UID},
		{"test", "/metadata/generation", c.found.Generation},
		{"replace", "/spec/workload", work.Spec.Workload},
	})
	if err != nil {
		return err
	}
	err = c.Patch(ctx, work, client.RawPatch(types.JSONPatchType, patch))
	if !apierrors.IsInvalid(err) {
		return err
	}
	// That may be the conditions or the rest.
	var now workv1alpha1.Work
	if failed := c.Live.Get(ctx, client.ObjectKeyFromObject(work), &now); failed != nil {
		return failed
	}
	if now.UID == c.found.UID && now.Generation == c.found.Generation {
		return err
	}
	return apierrors.NewConflict(workv1alpha1.Resource("works"), work.Name, err)
}

// operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// sameMetadata compares what a client may write.
func sameMetadata(a, b *metav1.ObjectMeta) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.Equal(a.Finalizers, b.Finalizers)
}

func (c *carrier) send(obj client.Object, write func() error) error {
	work, ok := obj.(*workv1alpha1.Work)
	if !ok || len(work.Spec.Workload.Manifests) != 1 {
		return write()
	}
	manifest := &work.Spec.Workload.Manifests[0].Raw
	*manifest = withSpec(*manifest, c.spec)
	if err := write(); err != nil {
		return err
	}
	// What was sent has become what was answered.
	c.written = Written{UID: work.UID, Generation: work.Generation, Changed: true}
	if manifests := work.Spec.Workload.Manifests; len(manifests) == 1 {
		raw := manifests[0].Raw
		c.written.Manifest = raw
		c.written.Changed = !bytes.HasSuffix(raw, withSpec(nil, c.spec)) && !sameSpec(work, c.spec)
	}
	return nil
}

// withSpec adds the spec to an envelope in JSON, where it comes last of all keys.
func withSpec(envelope, spec []byte) []byte {
	out := make([]byte, 0, len(envelope)+len(`,"spec":`)+len(spec))
	out = append(out, bytes.TrimSuffix(envelope, []byte("}"))...)
	out = append(out, `,"spec":`...)
	out = append(out, spec...)
	return append(out, '}')
}

// sameSpec says whether a Work carries a spec, in whatever form an API server puts it.
func sameSpec(work *workv1alpha1.Work, spec []byte) bool {
	var got, want any
	return Spec(work, &got) == nil && json.Unmarshal(spec, &want) == nil && reflect.DeepEqual(got, want)
}

// Encode returns JSON as the API server has it: the keys of objects are sorted, which the fields of types are not.
func Encode(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var fields any
	if err := decoder.Decode(&fields); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// envelope is an object of ours without its spec, and without the status, which belongs to the member.
func envelope(kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       kind,
		"metadata": map[string]any{
			"name":   name,
			"labels": map[string]any{LabelManagedBy: v1alpha1.ManagedBy},
		},
	}}
}

// ErrNoManifest says that a Work does not carry what it should: it has no manifest, or several.
var ErrNoManifest = errors.New("the Work does not carry one manifest")

// Spec decodes the spec of the one object that a Work carries.
func Spec(work *workv1alpha1.Work, spec any) error {
	raw, err := Manifest(work)
	if err != nil {
		return fmt.Errorf("read %s/%s: %w", work.Namespace, work.Name, err)
	}
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
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
