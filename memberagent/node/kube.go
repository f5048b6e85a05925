// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/redial"
)

// requestTimeout bounds every request but those of the caches, against a server that accepts it and never answers.
const requestTimeout = 10 * time.Second

// Kube is a Cluster behind a Kubernetes API server.
type Kube struct {
	names     KubeNames
	cache     cache.Cache
	client    client.Client
	informers []cache.Informer
	all       nodeNetworks
	// untold is why the nodes are not known, as it was last logged.
	untold   string
	events   record.EventBroadcaster
	recorder record.EventRecorder
	// dialled is the API server's address in the agent's configuration; invalid if that has a name.
	dialled netip.Addr
	// deleted says that the watch of the agent's own DaemonSet has last seen it go.
	deleted atomic.Bool
	// beats are the gateway's signs of life, and behind says that what it reported last is not written yet.
	beats  latest[metav1.ObjectMeta]
	behind atomic.Bool
}

// KubeNames are what the agent is called in its cluster.
type KubeNames struct {
	Namespace string
	DaemonSet string
	// Node is that of the agent.
	Node string
	// Pod may be empty; then the node's state is not told.
	Pod string
}

// NewKube prepares a cluster. changed is called when an object changes in a way that matters here.
func NewKube(config *rest.Config, names KubeNames, changed func()) (*Kube, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, discoveryv1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	// A fixed mapper needs no discovery: the agent starts while the API server is away.
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind, resource := range map[string]string{"Peering": "peering", "Gateway": "gateway",
		"ClusterGlobalEgressIP": "clusterglobalegressip", "GlobalAllocation": "globalallocation",
		"NodeNetwork": "nodenetwork", "NodeSlice": "nodeslice"} {
		mapper.AddSpecific(v1alpha1.GroupVersion.WithKind(kind), v1alpha1.GroupVersion.WithResource(resource+"s"),
			v1alpha1.GroupVersion.WithResource(resource), meta.RESTScopeRoot)
	}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Service"),
		appsv1.SchemeGroupVersion.WithKind("DaemonSet"), discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		coordinationv1.SchemeGroupVersion.WithKind("Lease"),
	} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	k := &Kube{names: names, events: record.NewBroadcaster(), dialled: dialled(config.Host),
		beats: newLatest[metav1.ObjectMeta]()}
	k.recorder = k.events.NewRecorder(scheme, corev1.EventSource{Component: names.DaemonSet})
	var err error
	config = rest.CopyConfig(config)
	redial.Notice(config)
	patient := rest.CopyConfig(config) // to watch
	patient.Wrap(redial.Transport)
	config.Timeout = requestTimeout
	options := cache.Options{Scheme: scheme, Mapper: mapper, DefaultTransform: cache.TransformStripManagedFields()}
	k.all.changed = changed
	if k.all.cache, err = cache.New(patient, options); err != nil {
		return nil, fmt.Errorf("make a cache of NodeNetworks: %w", err)
	}
	options.ByObject = ownAlone(names)
	if k.cache, err = cache.New(patient, options); err != nil {
		return nil, fmt.Errorf("make caches: %w", err)
	}
	if k.client, err = client.New(config, client.Options{Scheme: scheme, Mapper: mapper}); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for events: %w", err)
	}
	k.events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: core.Events("")})
	return k, errors.Join(k.inform(changed), k.watchDaemonSet())
}

// ownAlone says of which kinds the agent keeps a part: what has to do with it.
func ownAlone(names KubeNames) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&v1alpha1.NodeNetwork{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, names.Node)},
		&discoveryv1.EndpointSlice{}: {Namespaces: map[string]cache.Config{metav1.NamespaceDefault: {
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, apiServers),
		}}},
		&appsv1.DaemonSet{}: {Namespaces: map[string]cache.Config{names.Namespace: {
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, names.DaemonSet),
		}}},
	}
}

// inform starts to watch each kind.
func (k *Kube) inform(changed func()) error {
	for _, object := range []client.Object{
		&v1alpha1.Peering{}, &v1alpha1.Gateway{}, &v1alpha1.GlobalAllocation{}, &v1alpha1.ClusterGlobalEgressIP{},
		&v1alpha1.NodeNetwork{}, &v1alpha1.NodeSlice{}, &discoveryv1.EndpointSlice{},
	} {
		// Its context is used to wait for the informer only, which is asked not to.
		informer, err := k.cache.GetInformer(context.Background(), object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed() },
			DeleteFunc: func(any) { changed() },
			UpdateFunc: func(before, after any) {
				if matters(before, after) {
					changed()
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		k.informers = append(k.informers, informer)
	}
	return nil
}

// watchDaemonSet notices that the agent's own DaemonSet goes. An uninstallation may take the agent's rights,
// and even its ServiceAccount, before its pod; a watch that has begun outlives both.
func (k *Kube) watchDaemonSet() error {
	informer, err := k.cache.GetInformer(context.Background(), &appsv1.DaemonSet{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch the agent's DaemonSet: %w", err)
	}
	exists := func(object any) {
		if d, ok := object.(*appsv1.DaemonSet); ok {
			k.deleted.Store(d.DeletionTimestamp != nil)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    exists,
		UpdateFunc: func(_, after any) { exists(after) },
		DeleteFunc: func(any) { k.deleted.Store(true) },
	})
	if err != nil {
		return fmt.Errorf("watch the agent's DaemonSet: %w", err)
	}
	return nil
}

// matters leaves out what agents report, their own reports among it.
func matters(before, after any) bool {
	switch b := before.(type) {
	case *v1alpha1.Peering:
		a, ok := after.(*v1alpha1.Peering)
		return !ok || !equality.Semantic.DeepEqual(a.Spec, b.Spec)
	case *v1alpha1.Gateway:
		a, ok := after.(*v1alpha1.Gateway)
		return !ok || a.Spec != b.Spec || !equality.Semantic.DeepEqual(a.Status.Endpoint, b.Status.Endpoint) ||
			!slices.Equal(lowered(a.Status), lowered(b.Status))
	case *v1alpha1.GlobalAllocation:
		a, ok := after.(*v1alpha1.GlobalAllocation)
		return !ok || !equality.Semantic.DeepEqual(a.Spec, b.Spec)
	case *v1alpha1.ClusterGlobalEgressIP:
		a, ok := after.(*v1alpha1.ClusterGlobalEgressIP)
		return !ok || a.Status.CIDR != b.Status.CIDR || !equality.Semantic.DeepEqual(a.Status.Range, b.Status.Range)
	case *v1alpha1.NodeNetwork:
		a, ok := after.(*v1alpha1.NodeNetwork)
		return !ok || !slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs)
	case *discoveryv1.EndpointSlice:
		a, ok := after.(*discoveryv1.EndpointSlice)
		return !ok || !slices.Equal(addressesOf(a), addressesOf(b))
	case *v1alpha1.NodeSlice:
		a, ok := after.(*v1alpha1.NodeSlice)
		return !ok || !equality.Semantic.DeepEqual(a.Spec, b.Spec)
	}
	return true
}

// Run fills the caches until the context ends.
func (k *Kube) Run(ctx context.Context) error {
	defer k.events.Shutdown()
	// Right after installation the kinds and the agent's rights may take a moment longer than its pod,
	// and informers would double their wait up to 30 s.
	const every = 250 * time.Millisecond
	said := ""
	err := wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (bool, error) {
		err := k.readable(ctx)
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			logr.FromContextOrDiscard(ctx).Info("the cluster cannot be read yet", "why", said)
		}
		return err == nil, nil
	})
	if err != nil {
		return nil // the context has ended
	}
	go k.renew(ctx)
	caches, ctx := errgroup.WithContext(ctx)
	caches.Go(func() error { return k.cache.Start(ctx) })
	caches.Go(func() error { return k.all.cache.Start(ctx) })
	return caches.Wait()
}

// readable returns why not every kind can be listed.
func (k *Kube) readable(ctx context.Context) error {
	for _, list := range []client.ObjectList{&v1alpha1.PeeringList{}, &v1alpha1.GatewayList{},
		&v1alpha1.GlobalAllocationList{}, &v1alpha1.ClusterGlobalEgressIPList{}, &v1alpha1.NodeNetworkList{},
		&v1alpha1.NodeSliceList{}} {
		if err := k.client.List(ctx, list, client.Limit(1)); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
	}
	return nil
}

// Objects implements Cluster.
func (k *Kube) Objects(ctx context.Context) (Objects, bool, error) {
	for _, i := range k.informers {
		if !i.HasSynced() {
			return Objects{}, false, nil
		}
	}
	var o Objects
	peering := &v1alpha1.Peering{}
	switch err := k.cache.Get(ctx, client.ObjectKey{Name: v1alpha1.PeeringName}, peering); {
	case err == nil:
		o.Peering = peering
	case !apierrors.IsNotFound(err):
		return Objects{}, false, fmt.Errorf("read the peering: %w", err)
	}
	var gateways v1alpha1.GatewayList
	if err := k.cache.List(ctx, &gateways); err != nil {
		return Objects{}, false, fmt.Errorf("list gateways: %w", err)
	}
	o.Gateways = gateways.Items
	if known, err := k.nodes(ctx, &o); !known || err != nil {
		return Objects{}, false, err
	}
	if err := k.global(ctx, &o); err != nil {
		return Objects{}, false, err
	}
	if known, err := k.networks(ctx, &o); !known || err != nil {
		return Objects{}, false, err
	}
	slice := &discoveryv1.EndpointSlice{}
	err := k.cache.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: apiServers}, slice)
	if client.IgnoreNotFound(err) != nil {
		return Objects{}, false, fmt.Errorf("read the endpoints of the API server: %w", err)
	}
	o.APIServers = addressesOf(slice)
	if k.dialled.IsValid() {
		o.APIServers = append(o.APIServers, k.dialled)
	}
	return o, true, nil
}

// apiServers is the name of the EndpointSlice, in the namespace default, that the API servers keep of themselves.
const apiServers = "kubernetes"

// addressesOf returns the addresses of a slice, sorted. Those of a slice of names are none.
func addressesOf(s *discoveryv1.EndpointSlice) []netip.Addr {
	var out []netip.Addr
	for _, e := range s.Endpoints {
		for _, text := range e.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				out = append(out, a.Unmap())
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// dialled returns the address in an API server's URL; invalid if that has a name.
func dialled(host string) netip.Addr {
	u, err := url.Parse(host)
	if err != nil {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap()
}

// SetGatewayStatus implements Cluster.
func (k *Kube) SetGatewayStatus(ctx context.Context, gateway string, status v1alpha1.GatewayStatus) error {
	patch, err := statusPatch(status)
	if err != nil {
		return err
	}
	object := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: gateway}}
	k.behind.Store(true)
	err = k.client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	k.behind.Store(err != nil)
	return err
}

// SetNodeState implements Cluster.
func (k *Kube) SetNodeState(ctx context.Context, state NodeState) error {
	if k.names.Pod == "" {
		return nil
	}
	return k.setConditions(ctx, podConditions(state, metav1.Now()))
}

// SetTurn implements Cluster.
func (k *Kube) SetTurn(ctx context.Context, turn Turn) error {
	if k.names.Pod == "" {
		return nil
	}
	return k.setConditions(ctx, []corev1.PodCondition{turn.condition(metav1.Now())})
}

func (k *Kube) setConditions(ctx context.Context, conditions []corev1.PodCondition) error {
	// A strategic merge: conditions are a list by type, and the kubelet's stay.
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: k.names.Namespace, Name: k.names.Pod}}
	if err := k.client.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return fmt.Errorf("set conditions of pod %s: %w", k.names.Pod, err)
	}
	return nil
}

// podConditions are a state as it stands in the pod's status. Each has a message, for a merge keeps the old
// one where there is none.
func podConditions(s NodeState, now metav1.Time) []corev1.PodCondition {
	programmed := corev1.PodCondition{
		Type: v1alpha1.PodNodeProgrammed, Status: corev1.ConditionFalse, Reason: s.Programmed, LastTransitionTime: now,
		Message: s.Message,
	}
	switch s.Programmed {
	case v1alpha1.ReasonNodeProgrammed:
		programmed.Status, programmed.Message = corev1.ConditionTrue, "the node's network is as planned"
	case v1alpha1.ReasonNodeCleaned:
		programmed.Message = "nothing of Sealane is left on the node"
	}
	accepted := corev1.PodCondition{
		Type: v1alpha1.PodNetworksAccepted, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonNetworksAccepted,
		Message: "nothing was left out", LastTransitionTime: now,
	}
	if s.Refused != "" {
		accepted.Status, accepted.Reason, accepted.Message = corev1.ConditionFalse, v1alpha1.ReasonNetworksRefused, s.Refused
	}
	out := []corev1.PodCondition{programmed, accepted}
	if s.Key != (v1alpha1.NodeKey{}) {
		key, _ := json.Marshal(s.Key) // of text and a number, it cannot fail
		out = append(out, corev1.PodCondition{Type: v1alpha1.PodNodeKey, Status: corev1.ConditionTrue,
			Reason: v1alpha1.ReasonKeyPublished, Message: string(key), LastTransitionTime: now})
	}
	if s.NodesReached != "" {
		out = append(out, corev1.PodCondition{Type: v1alpha1.PodNodesReached, Status: corev1.ConditionTrue,
			Reason: v1alpha1.ReasonKeyPublished, Message: s.NodesReached, LastTransitionTime: now})
	}
	reached := corev1.PodCondition{Type: v1alpha1.PodGatewaysReached, Status: corev1.ConditionTrue,
		Reason: v1alpha1.ReasonGatewaysReached, Message: "every other gateway of the cluster answers, if there is one",
		LastTransitionTime: now}
	if s.Unreached != "" {
		reached.Status, reached.Reason, reached.Message = corev1.ConditionFalse, v1alpha1.ReasonGatewaysUnreached, s.Unreached
	}
	return append(out, reached)
}

// LoadBalancer implements Cluster.
func (k *Kube) LoadBalancer(ctx context.Context, service string) ([]string, error) {
	var s corev1.Service
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: k.names.Namespace, Name: service}, &s); err != nil {
		return nil, err
	}
	var out []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if at := cmp.Or(ingress.IP, ingress.Hostname); at != "" {
			out = append(out, at)
		}
	}
	return out, nil
}

// Uninstalled implements Cluster. Only an answer about the DaemonSet itself counts. That the agent is refused
// tells of its rights, and a 404 that is not the API server's tells of something on the way to it.
func (k *Kube) Uninstalled(ctx context.Context) (bool, error) {
	var d appsv1.DaemonSet
	err := k.client.Get(ctx, client.ObjectKey{Namespace: k.names.Namespace, Name: k.names.DaemonSet}, &d)
	switch {
	case err == nil:
		return d.DeletionTimestamp != nil, nil
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return true, nil
	case k.deleted.Load():
		return true, nil
	}
	return false, fmt.Errorf("read daemonset %s: %w", k.names.DaemonSet, err)
}

// Event implements Cluster.
func (k *Kube) Event(gateway *v1alpha1.Gateway, warning bool, reason, message string) {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	// Events on what is in no namespace go to "default", where the agent has no rights.
	about := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Gateway",
		Namespace: k.names.Namespace, Name: gateway.Name, UID: gateway.UID,
	}
	k.recorder.Event(about, kind, reason, message)
}
