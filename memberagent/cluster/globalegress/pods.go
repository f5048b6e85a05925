// SPDX-License-Identifier: Apache-2.0

package globalegress

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// batch is for how long changes are gathered: a namespace that is scaled up is written a few times, not once for each
// of its pods.
const batch = 50 * time.Millisecond

// soon asks for the one pass over everything, shortly.
func soon() handler.EventHandler {
	add := func(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		q.AddAfter(reconcile.Request{}, batch)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(q)
		},
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(q)
		},
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(q)
		},
		GenericFunc: func(_ context.Context, _ event.GenericEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(q)
		},
	}
}

// pods are those of the cluster, which are not watched before somebody asks for them.
type pods struct {
	cache   cache.Cache
	changed chan<- event.GenericEvent
	watched bool
}

func newPods(m ctrl.Manager, changed chan<- event.GenericEvent) (*pods, error) {
	c, err := cache.New(m.GetConfig(), cache.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(),
		Mapper: m.GetRESTMapper(), DefaultTransform: essential})
	if err != nil {
		return nil, fmt.Errorf("make a cache of pods: %w", err)
	}
	return &pods{cache: c, changed: changed}, m.Add(c)
}

// essential is what is read of a pod.
func essential(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Labels: p.Labels,
			ResourceVersion: p.ResourceVersion, CreationTimestamp: p.CreationTimestamp},
		Spec:   corev1.PodSpec{HostNetwork: p.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs},
	}, nil
}

// of returns the pods of the namespaces of objects.
func (p *pods) of(ctx context.Context, objects []v1alpha1.GlobalEgressIP) ([]corev1.Pod, error) {
	if len(objects) == 0 {
		return nil, nil
	}
	if err := p.watch(ctx); err != nil {
		return nil, err
	}
	namespaces := map[string]bool{}
	var out []corev1.Pod
	for _, o := range objects {
		if namespaces[o.Namespace] {
			continue
		}
		namespaces[o.Namespace] = true
		var list corev1.PodList
		if err := p.cache.List(ctx, &list, client.InNamespace(o.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		out = append(out, list.Items...)
	}
	return out, nil
}

// watch begins to watch pods, and waits until all are known.
func (p *pods) watch(ctx context.Context) error {
	if p.watched {
		return nil
	}
	informer, err := p.cache.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	// One event that waits stands for all.
	tell := func() {
		select {
		case p.changed <- event.GenericEvent{Object: &corev1.Pod{}}:
		default:
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { tell() },
		DeleteFunc: func(any) { tell() },
		UpdateFunc: func(before, after any) {
			if matters(before, after) {
				tell()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	p.watched = true
	return nil
}

// matters says whether an update may change what a pod's connections come from.
func matters(before, after any) bool {
	b, ok := before.(*corev1.Pod)
	a, too := after.(*corev1.Pod)
	if !ok || !too {
		return true
	}
	was, had := addressOf(*b)
	is, has := addressOf(*a)
	return was != is || had != has || fmt.Sprint(a.Labels) != fmt.Sprint(b.Labels)
}
