// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/coarse"
	"github.com/sealane-io/sealane/internal/raced"
	"github.com/sealane-io/sealane/internal/reach"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
	gatewayset "github.com/sealane-io/sealane/memberagent/cluster/gateways"
	"github.com/sealane-io/sealane/memberagent/cluster/hijack"
	"github.com/sealane-io/sealane/memberagent/cluster/imports"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
	"github.com/sealane-io/sealane/memberagent/cluster/nodenetworks"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// Peering writes Peering.status.
type Peering struct {
	client.Client
	// Live reads what is not cached.
	Live      client.Reader
	Discovery *discovery.Discovery
	// DNS is the state of the cluster's DNS.
	DNS *clusterdns.State
	// Routed is whether all pods are routed.
	Routed *nodenetworks.State
	// Underlay is whether pods of an underlay are routed.
	Underlay *hijack.State
	Version  string
	Limited  bool
	// Refusals of imports.
	Refusals *imports.Refusals
	// Written is called for each write.
	Written func()
	// Now is the clock.
	Now func() time.Time

	pacer *pacer
	// making has the imports that were not made yet when last looked at, and since when. One worker reconciles.
	making map[types.NamespacedName]time.Time
}

// SetupWithManager registers the controller.
func (r *Peering) SetupWithManager(m ctrl.Manager, o controller.Options) error {
	r.pacer, r.making = newPacer(), map[types.NamespacedName]time.Time{}
	report := reconcile.Request{NamespacedName: types.NamespacedName{Name: v1alpha1.PeeringName}}
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{report}
	})
	soon := later(report)
	return ctrl.NewControllerManagedBy(m).Named("peering").
		Watches(&v1alpha1.Peering{}, one).
		Watches(&v1alpha1.Gateway{}, one).
		Watches(&v1alpha1.GlobalAllocation{}, one, builder.WithPredicates(gone())).
		Watches(&v1alpha1.ClusterGlobalEgressIP{}, one, builder.WithPredicates(gone())).
		Watches(&corev1.Node{}, one, builder.WithPredicates(addresses())).
		Watches(&v1alpha1.Bundle{}, one, builder.WithPredicates(otherImports())).
		Watches(&mcs.ServiceExport{}, one).
		Watches(&mcs.ServiceImport{}, soon, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
			predicate.LabelChangedPredicate{}))).
		Watches(&corev1.Service{}, soon, builder.WithPredicates(
			predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelImport] != "" }))).
		Watches(metadataOf("Namespace"), one).
		WatchesRawSource(source.Channel(r.Refusals.Changed(), one)).
		WatchesRawSource(source.Channel(r.DNS.Changed(), one)).
		WatchesRawSource(source.Channel(r.Routed.Changed(), one)).
		WatchesRawSource(source.Channel(r.Underlay.Changed(), one)).
		Watches(&corev1.Pod{}, one, builder.WithPredicates(pods.Own(), agentConditions())).
		Watches(&v1alpha1.NodeNetwork{}, one, builder.WithPredicates(existence())).
		Watches(&v1alpha1.NodeSlice{}, one, builder.WithPredicates(existence())).
		WithOptions(o).Complete(raced.Reconciler(r))
}

// gatherImports is how long what has happened to an import may wait for what happens to others: the report looks at all
// of them, and there may be ten thousand that are being made.
const gatherImports = 500 * time.Millisecond

// later adds a request after that time, whatever happens.
func later(r reconcile.Request) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { q.AddAfter(r, gatherImports) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q queue) { q.AddAfter(r, gatherImports) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { q.AddAfter(r, gatherImports) },
	}
}

func metadataOf(kind string) client.Object {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return o
}

// addresses passes node events that concern networks, whether the node is ready, and whether it is to be a gateway;
// heartbeats do not.
func addresses() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return !slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) || !slices.Equal(a.Status.Addresses, b.Status.Addresses) ||
			gatewayset.Ready(a) != gatewayset.Ready(b) ||
			a.Labels[v1alpha1.LabelGateway] != b.Labels[v1alpha1.LabelGateway]
	}}
}

// gone passes what disappears.
func gone() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}

// Reconcile writes the report if it differs. Every read waits until its cache is synced, so there is no
// half report.
func (r *Peering) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil || peering.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	in, again, err := r.gather(ctx, peering)
	if err != nil {
		return ctrl.Result{}, err
	}
	status := PeeringStatus(in)
	if equality.Semantic.DeepEqual(peering.Status, status) {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	if wait := r.pacer.waitFor(peering.Name, paceOf(peering.Status, status), r.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: reach.Sooner(wait, again)}, nil
	}
	if err := replaceStatus(ctx, r, peering, status); err != nil {
		return ctrl.Result{}, err
	}
	r.pacer.wrote(peering.Name, r.Now())
	r.Written()
	return ctrl.Result{RequeueAfter: again}, nil
}

// rollOutPace is how often the DaemonSet of the node agents is looked at while it replaces them.
const rollOutPace = 10 * time.Second

// paceOf a report: where only nodes come and go, as they do one after the other in an upgrade, there is no hurry, and
// even less where only what is measured of connections is another, or where gateways are seen.
func paceOf(before, after v1alpha1.PeeringStatus) time.Duration {
	worse := worsened(before.Connections, after.Connections) || moved(before, after)
	before.Connections, after.Connections = coarse.Without(before.Connections), coarse.Without(after.Connections)
	switch {
	case !equality.Semantic.DeepEqual(before, after):
	case worse:
		return worsePace
	default:
		return measuredPace
	}
	counting := countingPace(len(after.NodeCIDRs))
	if fell(before.Conditions, after.Conditions) {
		counting = nodesPace
	}
	before.Conditions, after.Conditions = slices.Clone(before.Conditions), slices.Clone(after.Conditions)
	before.RollOut, after.RollOut = nil, nil
	before.NodeCIDRs, after.NodeCIDRs = nil, nil
	before.Connections, after.Connections = uncounted(before.Connections), uncounted(after.Connections)
	for _, t := range []string{v1alpha1.PeeringNodesProgrammed, v1alpha1.PeeringAgentsRunning,
		v1alpha1.PeeringNetworksAccepted, v1alpha1.PeeringGatewaysReady, v1alpha1.PeeringPodsRouted,
		v1alpha1.PeeringUnderlayRouted} {
		meta.RemoveStatusCondition(&before.Conditions, t)
		meta.RemoveStatusCondition(&after.Conditions, t)
	}
	if equality.Semantic.DeepEqual(before, after) {
		return counting
	}
	return pace
}

// fell says that a condition which was true is so no more.
func fell(before, after []metav1.Condition) bool {
	return slices.ContainsFunc(after, func(c metav1.Condition) bool {
		return c.Status != metav1.ConditionTrue && meta.IsStatusConditionTrue(before, c.Type)
	})
}

func (r *Peering) gather(ctx context.Context, peering *v1alpha1.Peering) (in Input, again time.Duration, err error) {
	in = Input{Peering: peering, Version: r.Version, Limited: r.Limited, Now: r.Now()}
	if in.Found, again, err = r.Discovery.Find(ctx); err != nil {
		return in, 0, err
	}
	gateways, nodes := &v1alpha1.GatewayList{}, &corev1.NodeList{}
	if err := r.List(ctx, gateways); err != nil {
		return in, 0, fmt.Errorf("list Gateways: %w", err)
	}
	if err := r.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return in, 0, fmt.Errorf("list Nodes: %w", err)
	}
	exists := map[string]bool{}
	for i := range nodes.Items {
		exists[nodes.Items[i].Name] = true
	}
	in.Gateways, in.NodeExists = gateways.Items, func(name string) bool { return exists[name] }
	in.DNS = r.DNS.Condition(peering)
	if peering.Spec.Phase == v1alpha1.MemberLeaving {
		again = time.Second
		in.Remaining, err = r.remaining(ctx, in.DNS)
		return in, again, err
	}
	agents, desired, outdated, err := nodeAgents(ctx, r, r.Live)
	if err != nil {
		return in, 0, err
	}
	if in.Agents = agentsRunning(agents, outdated); outdated > 0 {
		again = reach.Sooner(again, rollOutPace) // the DaemonSet's status is not watched
	}
	ready, later := gatewayset.Condition(nodes.Items, gateways.Items, in.Now)
	again = reach.Sooner(again, later)
	in.FailedRevisions = failedRevisions(agents)
	in.Ready = withoutIPsec(ready, peering.Spec.RemoteClusters, gateways.Items, speaking(agents))
	networks := &v1alpha1.NodeNetworkList{}
	if err := r.List(ctx, networks, client.UnsafeDisableDeepCopy); err != nil {
		return in, 0, fmt.Errorf("list NodeNetworks: %w", err)
	}
	in.Underlay, in.UnderlayKnown = r.Underlay.Condition()
	in.Elsewhere, in.Routed = len(networks.Items) > 0, r.Routed.Condition(peering)
	in.Members, in.Keys, in.RollOut = nodes.Items, keysOf(agents), rollOut(agents, nodes.Items)
	agents = speaking(agents)
	in.Reached = reached(agents)
	in.Nodes, in.Accepted = nodesProgrammed(agents, desired), networksAccepted(agents)
	exports := &mcs.ServiceExportList{}
	if err := r.List(ctx, exports, client.UnsafeDisableDeepCopy); err != nil {
		return in, 0, fmt.Errorf("list ServiceExports: %w", err)
	}
	in.RefusedExports = refused(exports.Items)
	if in.ImportProblems, later, err = r.problems(ctx); err != nil {
		return in, 0, err
	}
	again = reach.Sooner(again, later)
	return in, reach.Sooner(again, reach.Expiry(existing(in), in.Now)), nil
}

// refused names the ServiceExports that need a person. One without a Service, or pending, does not.
func refused(exports []mcs.ServiceExport) []string {
	var out []string
	for i := range exports {
		var reasons []string
		for _, c := range exports[i].Status.Conditions {
			switch {
			case c.Type == string(mcs.ServiceExportConditionConflict) && c.Status == metav1.ConditionTrue,
				c.Type == string(mcs.ServiceExportConditionValid) && c.Status == metav1.ConditionFalse &&
					c.Reason != string(mcs.ServiceExportReasonNoService),
				c.Type == string(mcs.ServiceExportConditionReady) && c.Status == metav1.ConditionFalse &&
					c.Reason != string(mcs.ServiceExportReasonPending) && !slices.Contains(reasons, c.Reason):
				reasons = append(reasons, c.Reason)
			}
		}
		if len(reasons) > 0 {
			out = append(out, fmt.Sprintf("%s (%s)", client.ObjectKeyFromObject(&exports[i]), strings.Join(reasons, ", ")))
		}
	}
	slices.Sort(out)
	return out
}

// problems with imports. What is only being made counts from its second look, five seconds later.
func (r *Peering) problems(ctx context.Context) (problems []v1alpha1.ImportProblem, again time.Duration, err error) {
	bundles := &v1alpha1.BundleList{}
	if err := r.List(ctx, bundles, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("list Bundles: %w", err)
	}
	around, err := ofAll(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	verdicts, err := judge(around, r.Refusals, r.Limited, v1alpha1.InForce(bundles.Items)...)
	if err != nil {
		return nil, 0, err
	}
	again = beingMade(verdicts, r.making, r.Now())
	return imports.Problems(verdicts), again, nil
}

// beingMade takes from the verdicts those on imports that are only being made, and not for too long. making says since
// when they are; again is when that has been too long for the first of them, 0 is never.
func beingMade(verdicts map[types.NamespacedName]imports.Verdict, making map[types.NamespacedName]time.Time,
	now time.Time) (again time.Duration) {
	maps.DeleteFunc(making, func(key types.NamespacedName, _ time.Time) bool {
		return !verdicts[key].BeingMade()
	})
	for key, v := range verdicts {
		if !v.BeingMade() {
			continue
		}
		if _, ok := making[key]; !ok {
			making[key] = now
		}
		if left := makingGrace - now.Sub(making[key]); left > 0 {
			delete(verdicts, key)
			again = reach.Sooner(again, left)
		}
	}
	return again
}

// makingGrace is how long an import may take to be made before it counts as a problem.
const makingGrace = 5 * time.Second
