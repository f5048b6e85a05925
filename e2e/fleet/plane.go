// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/propagation"
)

// setName is that of the one ClusterSet.
const setName = "fleet"

// Fleet is a Karmada API and members that it takes for real.
type Fleet struct {
	Size   Size
	Tally  *Tally
	api    *apiserver.Server
	client client.Client
	// works that the API has, by what watches them.
	works   cache.Cache
	members map[string]*member
	// sites are the members with a real agent, by cluster.
	sites map[string]*site
	// ctx ends with stop, and with it all that is played.
	ctx      context.Context
	stop     context.CancelFunc
	reporter *reporter
	running  sync.WaitGroup

	mu      sync.Mutex
	answers answerings
	// away are the clusters that are not selected.
	away map[int]bool

	guard       *guard
	unpublished unpublished
}

// quota is how many bytes etcd may store: the most that it is made for, as the history of a large fleet is.
const quota = 8 << 30

// Launch starts the API, with the kinds of Karmada and Sealane and the broker's rights, and makes the members known to
// Karmada. The broker is not running yet.
func Launch(ctx context.Context, size Size) (*Fleet, error) {
	if err := size.Check(); err != nil {
		return nil, err
	}
	var crds []string
	for _, find := range []func() (string, error){apiserver.CRDs, apiserver.KarmadaCRDs, apiserver.ClusterCRD} {
		path, err := find()
		if err != nil {
			return nil, err
		}
		crds = append(crds, path)
	}
	api, err := apiserver.LaunchWith(ctx, apiserver.Options{Quota: quota, CRDs: crds})
	if err != nil {
		return nil, err
	}
	f := &Fleet{Size: size, Tally: newTally(), api: api, members: map[string]*member{}, stop: func() {},
		answers: answerings{}, away: map[int]bool{}}
	f.guard = newGuard(f)
	if err := f.populate(ctx); err != nil {
		f.Stop()
		return nil, err
	}
	return f, nil
}

// Stop ends everything. A broker is to be stopped before.
func (f *Fleet) Stop() {
	f.stop()
	f.running.Wait()
	for _, s := range f.sites {
		s.stop()
	}
	f.api.Stop()
}

func (f *Fleet) populate(ctx context.Context) error {
	scheme, err := controllers.Scheme()
	if err != nil {
		return err
	}
	config := *f.api.Config
	config.QPS = -1 // the simulation is not what is measured
	if f.client, err = client.New(&config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	f.reporter = newReporter(f.client, f.Size.Reports)
	if err := f.grant(ctx); err != nil {
		return err
	}
	var names []string
	for n := range f.Size.Clusters {
		name := f.Size.cluster(n)
		names = append(names, name)
		f.members[name] = newMember(f.Size, n)
		f.members[name].unpublished = &f.unpublished
		if err := f.join(ctx, name); err != nil {
			return err
		}
	}
	if err := f.bind(ctx, names); err != nil {
		return err
	}
	f.works, err = cache.New(&config, cache.Options{
		Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&workv1alpha1.Work{}: {Label: labels.SelectorFromSet(labels.Set{propagation.LabelManagedBy: v1alpha1.ManagedBy})},
		},
	})
	if err != nil {
		return fmt.Errorf("make a cache: %w", err)
	}
	return f.watch(ctx)
}

// grant creates the broker's identity and rights, and nothing beyond them.
func (f *Fleet) grant(ctx context.Context) error {
	return createArtifact(ctx, f.client, "artifacts/controller/karmada.yaml")
}

// join makes a cluster one of Karmada's.
func (f *Fleet) join(ctx context.Context, name string) error {
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "karmada-es-" + name}},
		&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: clusterv1alpha1.ClusterSpec{ID: "id-" + name, SyncMode: clusterv1alpha1.Push}},
	} {
		if err := f.client.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// bind says that the clusters have the CRDs of the wire.
func (f *Fleet) bind(ctx context.Context, clusters []string) error {
	for _, name := range propagation.WireBindings() {
		b := &workv1alpha2.ClusterResourceBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: workv1alpha2.ResourceBindingSpec{
				Resource: workv1alpha2.ObjectReference{APIVersion: "v1", Kind: "X", Name: "x"},
			},
		}
		if err := f.client.Create(ctx, b); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create the binding %s: %w", name, err)
		}
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := f.client.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
				return err
			}
			b.Status.AggregatedStatus = nil
			for _, c := range clusters {
				b.Status.AggregatedStatus = append(b.Status.AggregatedStatus,
					workv1alpha2.AggregatedStatusItem{ClusterName: c, Applied: true})
			}
			return f.client.Status().Update(ctx, b)
		})
		if err != nil {
			return fmt.Errorf("write the binding %s: %w", name, err)
		}
	}
	return nil
}

// watch the Works, of which each has a goroutine that answers as the member would.
func (f *Fleet) watch(ctx context.Context) error {
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.ctx = ctx
	f.running.Go(func() { _ = f.works.Start(ctx) })
	informer, err := f.works.GetInformer(ctx, &workv1alpha1.Work{})
	if err != nil {
		return fmt.Errorf("watch the Works: %w", err)
	}
	noticed := func(o any) {
		if work, ok := o.(*workv1alpha1.Work); ok {
			f.notice(ctx, work, time.Now())
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: noticed, UpdateFunc: func(_, o any) { noticed(o) },
		DeleteFunc: func(o any) {
			if work, ok := o.(*workv1alpha1.Work); ok {
				f.forget(work)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch the Works: %w", err)
	}
	if !f.works.WaitForCacheSync(ctx) {
		return errors.New("watch the Works: ended before the first were seen")
	}
	return nil
}

func (f *Fleet) notice(ctx context.Context, work *workv1alpha1.Work, now time.Time) {
	s := f.site(propagation.ClusterOf(work))
	if !work.DeletionTimestamp.IsZero() {
		f.running.Go(func() { f.release(ctx, s, work.DeepCopy()) })
		return
	}
	f.Tally.saw(work, now)
	f.guard.saw(work)
	if s != nil {
		s.notice(ctx, work)
		return
	}
	key := client.ObjectKeyFromObject(work)
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.answers.of(key)
	if a == nil {
		m := f.members[propagation.ClusterOf(work)]
		if m == nil {
			return
		}
		a = newAnswering(m, work)
		f.answers.add(key, a)
		f.running.Go(func() { a.run(ctx, f) })
	}
	a.arrived(work)
}

// site returns the real member of that name, if it is one.
func (f *Fleet) site(cluster string) *site {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sites[cluster]
}

func (f *Fleet) forget(work *workv1alpha1.Work) {
	key := client.ObjectKeyFromObject(work)
	f.Tally.forget(key)
	f.guard.forget(work)
	if s := f.site(propagation.ClusterOf(work)); s != nil {
		s.forget(key)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.answers.of(key); a != nil {
		a.end()
		delete(f.answers[key.Namespace], key.Name)
	}
}

// release lets a Work go, as Karmada does when the member has deleted what it carries.
func (f *Fleet) release(ctx context.Context, s *site, work *workv1alpha1.Work) {
	if s != nil {
		if err := s.takeBack(ctx, work); err != nil && ctx.Err() == nil {
			f.Tally.fail(fmt.Errorf("%s: %w", s.name, err))
			return
		}
	} else if m := f.members[propagation.ClusterOf(work)]; m != nil && !m.reached(ctx) {
		return
	}
	work.Finalizers = nil
	if err := f.client.Update(ctx, work); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) &&
		ctx.Err() == nil {
		f.Tally.fail(fmt.Errorf("release the Work %s: %w", work.Name, err))
	}
}

// API is what the API server has used since it started, and how much etcd stores, in KiB, as the API server sees it.
type API struct {
	CPU    time.Duration
	Stored int64
}

// API reads what the API server has used.
func (f *Fleet) API(ctx context.Context) (API, error) {
	body, err := f.raw(ctx, "/metrics")
	if err != nil {
		return API{}, err
	}
	families, err := parseMetrics(body)
	if err != nil {
		return API{}, err
	}
	value := func(name string) (sum float64, err error) {
		for _, m := range families[name].GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		if sum == 0 {
			return 0, fmt.Errorf("the API server has no metric %s", name)
		}
		return sum, nil
	}
	stored, err := value("apiserver_storage_size_bytes")
	if err != nil {
		return API{}, err
	}
	seconds, err := value("process_cpu_seconds_total")
	return API{time.Duration(seconds * float64(time.Second)), int64(stored) >> 10}, err
}

func (f *Fleet) raw(ctx context.Context, path string) ([]byte, error) {
	httpClient, err := rest.HTTPClientFor(f.api.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return get(ctx, httpClient, f.api.Config.Host+path)
}

// Profile takes a profile of the API server's processor time of so many seconds, for `go tool pprof`.
func (f *Fleet) Profile(ctx context.Context, path string, length time.Duration) error {
	body, err := f.raw(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", length.Seconds()))
	if err != nil {
		return err
	}
	return writeProfile(path, body)
}
