// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// retryFirst and retryMost bound the wait before a failed list or watch is tried again: a CRD that
	// does not exist yet is normal while a cluster joins.
	retryFirst = 200 * time.Millisecond
	retryMost  = 3 * time.Second
	// publishInterval is the least time between two Snapshots. The first change is published at once.
	publishInterval = 10 * time.Millisecond
)

// watcher keeps an index in step with the API server and publishes its Snapshots.
type watcher struct {
	config *rest.Config
	// service whose addresses ns.dns.<zone> has; without a name it has none.
	service  types.NamespacedName
	scheme   *runtime.Scheme
	index    *index
	log      clog.P
	measures *measures
	// publish takes every new Snapshot.
	publish func(*Snapshot)
	// poke wakes the publisher; it holds one.
	poke chan struct{}
	// unsynced counts the resources that were not listed yet.
	unsynced atomic.Int32
	// synced is closed once a Snapshot of all resources is published.
	synced chan struct{}
}

// feed is one watched resource.
type feed struct {
	resource string
	// one object of the resource; without a name, all.
	one types.NamespacedName
	// optional says that names are answered before it was listed.
	optional bool
	// version to read, which may depend on what is served.
	version func(ctx context.Context) (schema.GroupVersion, error)
	// set takes over an object that is there, remove forgets one that is gone, replace takes over all.
	set     func(obj any)
	remove  func(obj any)
	replace func(objs []any)
	listed  sync.Once
}

// newWatcher returns a watcher of the cluster that config leads to.
func newWatcher(config *rest.Config, service types.NamespacedName, x *index, m *measures, log clog.P,
	publish func(*Snapshot),
) (*watcher, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(
		corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), mcsv1alpha1.Install(scheme), mcsv1beta1.Install(scheme),
	); err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	return &watcher{
		config: config, service: service, scheme: scheme, index: x, measures: m, log: log, publish: publish,
		poke: make(chan struct{}, 1), synced: make(chan struct{}),
	}, nil
}

// run watches until the context ends.
func (w *watcher) run(ctx context.Context) {
	feeds := []*feed{w.bundles(), w.peerings(), w.gateways(), w.serviceImports()}
	w.unsynced.Store(int32(len(feeds)))
	if w.service.Name != "" {
		feeds = append(feeds, w.services())
	}
	var running sync.WaitGroup
	for _, f := range feeds {
		running.Go(func() { w.follow(ctx, f) })
	}
	w.publishAll(ctx)
	running.Wait()
}

// publishAll publishes a Snapshot whenever something changed or became due.
func (w *watcher) publishAll(ctx context.Context) {
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.poke:
		case <-due.C:
		}
		complete := w.unsynced.Load() == 0
		start := time.Now()
		s, next := w.index.snapshot(start, complete)
		w.publish(s)
		w.measures.build.Observe(time.Since(start).Seconds())
		w.measures.services.Set(float64(len(s.services)))
		w.measures.down.Set(float64(len(s.down)))
		if complete && !w.isSynced() {
			close(w.synced)
		}
		due.Reset(time.Hour)
		if !next.IsZero() {
			due.Reset(max(time.Until(next), 0) + time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(publishInterval):
		}
	}
}

// isSynced says whether a Snapshot of all resources was published.
func (w *watcher) isSynced() bool {
	select {
	case <-w.synced:
		return true
	default:
		return false
	}
}

// changed wakes the publisher.
func (w *watcher) changed() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// follow lists and watches one resource until the context ends. What was read stays while the API server
// cannot be reached.
func (w *watcher) follow(ctx context.Context, f *feed) {
	wait := retryFirst
	for ctx.Err() == nil {
		start := time.Now()
		err := w.listAndWatch(ctx, f)
		if time.Since(start) > retryMost {
			wait = retryFirst
		}
		if err != nil && ctx.Err() == nil {
			w.measures.watchErrors.WithLabelValues(f.resource).Inc()
			if apierrors.IsNotFound(err) {
				w.log.Debugf("waiting for %s to be served: %v", f.resource, err)
			} else {
				w.log.Warningf("watch %s: %v", f.resource, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, retryMost)
		}
	}
}

// listAndWatch follows one resource until the watch ends or fails.
func (w *watcher) listAndWatch(ctx context.Context, f *feed) error {
	gv, err := f.version(ctx)
	if err != nil {
		return err
	}
	client, err := w.client(gv)
	if err != nil {
		return err
	}
	only := fields.Everything()
	if f.one.Name != "" {
		only = fields.OneTermEqualSelector(metav1.ObjectNameField, f.one.Name)
	}
	lw := cache.NewListWatchFromClient(client, f.resource, f.one.Namespace, only)
	r := cache.NewReflectorWithOptions(lw, nil, &sink{w, f}, cache.ReflectorOptions{Name: f.resource})
	return r.ListAndWatchWithContext(ctx)
}

// client returns a client for one group and version.
func (w *watcher) client(gv schema.GroupVersion) (*rest.RESTClient, error) {
	config := rest.CopyConfig(w.config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(w.scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", gv, err)
	}
	return client, nil
}

// sink hands what a reflector reads to a feed. It keeps no object.
type sink struct {
	w *watcher
	f *feed
}

// Add implements cache.ReflectorStore.
func (s *sink) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *sink) Update(obj any) error {
	s.f.set(obj)
	s.w.changed()
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *sink) Delete(obj any) error {
	s.f.remove(obj)
	s.w.changed()
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *sink) Replace(objs []any, _ string) error {
	s.f.replace(objs)
	if !s.f.optional {
		s.f.listed.Do(func() { s.w.unsynced.Add(-1) })
	}
	s.w.changed()
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *sink) Resync() error { return nil }
