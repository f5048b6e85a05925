// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/util/names"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// verbExported is said of an export that was waited for, verbToBe of one that was not.
	verbExported = "exported"
	verbToBe     = "to be exported"
)

// failedFor is how long an export must have failed unchanged to be given up: a Service that Karmada brings with its
// ServiceExport may arrive after it.
const failedFor = 5 * time.Second

// await waits until the clusters export the service, and returns the verb to say so with.
func (e *export) await(ctx context.Context, target *api) (verb string, err error) {
	if !e.wait {
		return verbToBe, nil
	}
	look, err := e.lookout(ctx, target)
	if err != nil || look == nil {
		return verbToBe, err
	}
	var last exportProgress
	since := time.Now()
	err = until(ctx, func(ctx context.Context) (bool, error) {
		now, err := look(ctx)
		if err != nil {
			return false, err
		}
		if !slices.Equal(now.missing, last.missing) {
			since = time.Now()
		}
		last = now
		return now.done() || now.failed && time.Since(since) > failedFor, nil
	})
	if last.done() {
		return verbExported, nil
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return "", err
	}
	if len(last.missing) == 0 {
		last.missing = []string{"Karmada has scheduled the ServiceExport to no cluster yet"}
	}
	if e.allowMissing && last.failed {
		e.note("created, and not exported yet: %s", strings.Join(last.missing, "\n"))
		return verbToBe, nil
	}
	return "", &finding{
		expected: fmt.Sprintf("%s in %s to be exported", e.service, e.namespace),
		found:    strings.Join(last.missing, "\n"),
		remedy: fmt.Sprintf("follow it with %s show services -n %s; what was created stays, and --wait=false does not "+
			"wait for it",
			e.invocation, e.namespace),
	}
}

// exportProgress is how far an export has come.
type exportProgress struct {
	// exported counts the clusters that do, missing says of each other one what is in its way.
	exported int
	missing  []string
	// failed says that what is missing needs a person.
	failed bool
}

func (p exportProgress) done() bool { return p.exported > 0 && len(p.missing) == 0 }

// lookout returns what looks how far the export has come; nil where nobody can tell.
func (e *export) lookout(ctx context.Context, target *api) (func(context.Context) (exportProgress, error), error) {
	if e.member != "" {
		found, err := target.find(ctx, client.ObjectKey{Name: v1alpha1.PeeringName}, &v1alpha1.Peering{})
		if err != nil || !found {
			e.note("the cluster of context %s is no member: nothing exports the service until it is one", e.member)
			return nil, err
		}
		return func(ctx context.Context) (exportProgress, error) { return e.progressInMember(ctx, target) }, nil
	}
	var sets v1alpha1.ClusterSetList
	if err := target.List(ctx, &sets, client.Limit(1)); gone(err) || err == nil && len(sets.Items) == 0 {
		e.note("no ClusterSet on the Karmada API: nothing exports the service until Sealane is installed")
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list clustersets: %w", err)
	}
	clusters, err := e.karmadaClusters(ctx, target)
	if err != nil {
		return nil, err
	}
	lost := notReady(clusters)
	for _, name := range e.clusters {
		if slices.Contains(lost, name) {
			e.note("%s is not ready on the Karmada API: the export arrives there when it is", name)
		}
	}
	if len(e.clusters) > 0 && len(withoutAll(e.clusters, lost)) == 0 {
		return nil, nil
	}
	return func(ctx context.Context) (exportProgress, error) { return e.progressInFleet(ctx, target, lost) }, nil
}

func notReady(clusters []clusterv1alpha1.Cluster) []string {
	var out []string
	for i := range clusters {
		if !clusterReady(&clusters[i]) {
			out = append(out, clusters[i].Name)
		}
	}
	return out
}

func withoutAll(names, drop []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(drop, n) })
}

// progressInMember reads the conditions of the ServiceExport there.
func (e *export) progressInMember(ctx context.Context, member *api) (exportProgress, error) {
	object, err := e.serviceExport(member)
	if err != nil {
		return exportProgress{}, err
	}
	if err := member.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return exportProgress{}, fmt.Errorf("get %s: %w", describe(object), err)
	}
	var own mcsv1beta1.ServiceExport
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &own); err != nil {
		return exportProgress{}, fmt.Errorf("decode %s: %w", describe(object), err)
	}
	ready := meta.FindStatusCondition(own.Status.Conditions, exportReady)
	valid := meta.FindStatusCondition(own.Status.Conditions, exportValid)
	switch {
	case valid != nil && valid.Status == metav1.ConditionFalse:
		return exportProgress{missing: []string{reasoned(valid)}, failed: true}, nil
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return exportProgress{exported: 1}, nil
	case ready != nil:
		return exportProgress{missing: []string{reasoned(ready)}, failed: ready.Reason != exportPending}, nil
	}
	return exportProgress{missing: []string{"the cluster agent has not looked at the ServiceExport yet"}}, nil
}

// progressInFleet reads what the broker says of each cluster that Karmada puts the ServiceExport in, but for those
// that Karmada has lost. Without -C it is for each cluster that has the Service to export it.
func (e *export) progressInFleet(ctx context.Context, karmada *api, lost []string) (exportProgress, error) {
	f, err := e.gather(ctx, karmada, subjects{bundles: true, exports: true},
		scope{namespace: e.namespace, service: e.service})
	if err != nil {
		return exportProgress{}, err
	}
	var row serviceRow
	for _, r := range serviceRows(f) {
		if r.Name == e.service {
			row = r
		}
	}
	return fleetProgress(row.Clusters, e.clusters, lost), nil
}

// fleetProgress judges the rows of a service: each cluster wanted must export it. With none wanted every cluster that
// is listed counts, and it is enough that one exports while the others have no such Service.
func fleetProgress(rows []exportRow, wanted, lost []string) exportProgress {
	p := exportProgress{failed: true}
	seen := map[string]bool{}
	for _, row := range rows {
		if slices.Contains(lost, row.Cluster) || len(wanted) > 0 && !slices.Contains(wanted, row.Cluster) {
			continue
		}
		seen[row.Cluster] = true
		noService := row.State == stateFailed &&
			strings.HasPrefix(row.Message, string(mcsv1beta1.ServiceExportReasonNoService))
		switch {
		case row.State == stateExported:
			p.exported++
		case len(wanted) > 0 || !noService:
			p.missing = append(p.missing, row.Cluster+": "+row.Message)
			p.failed = p.failed && row.State == stateFailed
		}
	}
	for _, name := range withoutAll(wanted, lost) {
		if !seen[name] {
			p.missing, p.failed = append(p.missing, name+": Karmada has not scheduled the ServiceExport there yet"), false
		}
	}
	if p.exported == 0 && len(p.missing) == 0 {
		for _, row := range rows {
			p.missing = append(p.missing, row.Cluster+": "+row.Message)
		}
	}
	p.failed = p.failed && len(p.missing) > 0
	return p
}

// awaitWithdrawn waits until Karmada has deleted the ServiceExport in every cluster that it reaches: binding and
// Works are gone, and no such cluster reports the export any more.
func (e *export) awaitWithdrawn(ctx context.Context, karmada *api) error {
	clusters, err := e.karmadaClusters(ctx, karmada)
	if err != nil {
		return err
	}
	lost := notReady(clusters)
	var left, skipped []string
	var had []string
	err = until(ctx, func(ctx context.Context) (bool, error) {
		holds, scheduled, err := karmada.holders(ctx, e.namespace, e.service)
		if err != nil {
			return false, err
		}
		for _, name := range holds {
			if !slices.Contains(had, name) {
				had = append(had, name)
			}
		}
		left, skipped = withoutAll(holds, lost), nil
		for _, name := range holds {
			if slices.Contains(lost, name) {
				skipped = append(skipped, name)
			}
		}
		if scheduled && len(skipped) == 0 {
			left = append(left, "the ResourceBinding on the Karmada API")
		}
		if len(left) > 0 {
			return false, nil
		}
		left, err = e.reporting(ctx, karmada, withoutAll(had, lost))
		return len(left) == 0, err
	})
	if err != nil {
		return &finding{
			expected: fmt.Sprintf("Karmada to delete ServiceExport %s/%s in the clusters within %s", e.namespace,
				e.service, e.timeout),
			found:  fmt.Sprintf("it is still in: %s (%v)", strings.Join(left, ", "), err),
			remedy: "see that Karmada's controllers run and reach these clusters; --wait=false does not wait for them",
		}
	}
	for _, name := range skipped {
		e.note("%s is not ready on the Karmada API: it goes on exporting until Karmada reaches it", name)
	}
	return nil
}

// holders are the clusters for which Karmada has a Work of the ServiceExport, and whether it has a binding.
func (a *api) holders(ctx context.Context, namespace, service string) (clusters []string, scheduled bool, err error) {
	var works workv1alpha1.WorkList
	name := names.GenerateWorkName("ServiceExport", service, namespace)
	if err := a.List(ctx, &works, client.MatchingFields{"metadata.name": name}); err != nil && !gone(err) {
		return nil, false, fmt.Errorf("list works %s: %w", name, err)
	}
	for i := range works.Items {
		if cluster, err := names.GetClusterName(works.Items[i].Namespace); err == nil {
			clusters = append(clusters, cluster)
		}
	}
	key := client.ObjectKey{Namespace: namespace, Name: names.GenerateBindingName("ServiceExport", service)}
	scheduled, err = a.find(ctx, key, &workv1alpha2.ResourceBinding{})
	return clusters, scheduled, err
}

// reporting are those of the clusters that report the export to the broker.
func (e *export) reporting(ctx context.Context, karmada *api, clusters []string) ([]string, error) {
	if len(clusters) == 0 {
		return nil, nil
	}
	f, err := e.gather(ctx, karmada, subjects{bundles: true},
		scope{clusters: clusters, namespace: e.namespace, service: e.service})
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range f.members {
		if f.members[i].export(e.namespace, e.service) != nil {
			out = append(out, f.members[i].Name)
		}
	}
	return out, nil
}

// awaitUnreported waits until a member's ServiceExport is gone and its agent reports none.
func (e *export) awaitUnreported(ctx context.Context, member *api, object *unstructured.Unstructured) error {
	if err := e.waitDeleted(ctx, member, object); err != nil {
		return err
	}
	var peering v1alpha1.Peering
	if found, err := member.find(ctx, client.ObjectKey{Name: v1alpha1.PeeringName}, &peering); err != nil || !found {
		return err
	}
	key := client.ObjectKey{Name: v1alpha1.BundleName(v1alpha1.Shard(e.namespace, e.service, peering.Spec.Shards))}
	err := until(ctx, func(ctx context.Context) (bool, error) {
		var m fleetMember
		m.bundles = make([]v1alpha1.Bundle, 1)
		found, err := member.find(ctx, key, &m.bundles[0])
		return !found || m.export(e.namespace, e.service) == nil, err
	})
	if err != nil {
		return &finding{
			expected: fmt.Sprintf("the cluster agent of context %s to report no export %s in %s within %s", e.member, e.service,
				e.namespace, e.timeout),
			found: err.Error(),
			remedy: "see the logs of deploy/" + clusterAgentName + " in " + v1alpha1.Namespace +
				" there; --wait=false does not wait for it",
		}
	}
	return nil
}

// waitDeleted waits until an object that is being deleted is gone. One that stays is not waited for.
func (e *export) waitDeleted(ctx context.Context, target *api, object client.Object) error {
	err := until(ctx, func(ctx context.Context) (bool, error) {
		found, err := target.find(ctx, client.ObjectKeyFromObject(object), object)
		return !found || object.GetDeletionTimestamp() == nil, err
	})
	if err != nil {
		return &finding{
			expected: fmt.Sprintf("%s, which is being deleted, to be gone within %s", describe(object), e.timeout),
			found:    fmt.Sprintf("its finalizers: %s (%v)", strings.Join(object.GetFinalizers(), ", "), err),
			remedy:   "see who holds it by these finalizers",
		}
	}
	return nil
}
