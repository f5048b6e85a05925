// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/propagation"
)

// apis are the Karmada APIs that no test uses now: as many as there are tests at once.
var apis = make(chan *rest.Config, goruntime.GOMAXPROCS(0))

func TestMain(m *testing.M) {
	log.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	var crds []string
	for _, find := range []func() (string, error){apiserver.CRDs, apiserver.KarmadaCRDs, apiserver.ClusterCRD} {
		path, err := find()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		crds = append(crds, path)
	}
	os.Exit(runTests(m, crds))
}

func runTests(m *testing.M, crds []string) int {
	for range cap(apis) {
		s, err := apiserver.Launch(context.Background(), crds...)
		if err != nil {
			fmt.Fprintln(os.Stderr, "start an API server:", err)
			return 1
		}
		defer s.Stop()
		apis <- s.Config
	}
	return m.Run()
}

// fleet is a Karmada API with the broker on it. The test plays Karmada and the members' agents.
type fleet struct {
	t      testing.TB
	config *rest.Config
	client client.Client
	stop   func()
	// registry has the metrics of the broker that runs.
	registry *prometheus.Registry

	mu sync.Mutex
	// silent says that the API server does not say what there is of the Members, and asked how often it was asked that.
	silent bool
	asked  int
	writes map[string]int // PUT and POST of Works by cluster and name
	sent   int64          // bytes of them
	reads  int            // GET of a Work
	// recorded are the writes of Members' status, by cluster.
	recorded map[string]int
	// reports of the agents by cluster; a cluster without one is silent.
	reports map[string]v1alpha1.PeeringStatus
	exports map[string][]v1alpha1.Export
	// unusable are the problems with imports that an agent reports, by cluster.
	unusable map[string][]v1alpha1.ImportProblem
	// raw and rawBundle replace what an agent would write of its networks and exports, by cluster.
	raw, rawBundle map[string][]byte
}

// newFleet starts with an empty Karmada API: the objects of an earlier test are gone. Tests with one run beside each
// other, as most of the time they wait.
func newFleet(t testing.TB) *fleet {
	t.Helper()
	if t, isTest := t.(*testing.T); isTest {
		t.Parallel()
	}
	return newFleetAlone(t)
}

// newFleetAlone is for a test that looks at what all brokers of the process have in common.
func newFleetAlone(t testing.TB) *fleet {
	t.Helper()
	config := <-apis
	t.Cleanup(func() { apis <- config })
	scheme, err := controllers.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, config: config, client: c, writes: map[string]int{}, recorded: map[string]int{},
		reports:  map[string]v1alpha1.PeeringStatus{},
		exports:  map[string][]v1alpha1.Export{},
		unusable: map[string][]v1alpha1.ImportProblem{}, raw: map[string][]byte{}, rawBundle: map[string][]byte{}}
	f.grant()
	for _, name := range propagation.WireBindings() {
		f.must(c.Create(t.Context(), &workv1alpha2.ClusterResourceBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: workv1alpha2.ResourceBindingSpec{Resource: workv1alpha2.ObjectReference{APIVersion: "v1",
				Kind: "X", Name: "x"}},
		}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var agents sync.WaitGroup
	agents.Go(func() { f.playAgents(ctx) })
	f.start()
	t.Cleanup(func() {
		f.stop()
		f.removeAll()
		cancel()
		agents.Wait()
	})
	return f
}

// grant creates the broker's identity and rights on the Karmada API, and nothing beyond them.
func (f *fleet) grant() {
	data, err := fs.ReadFile(sealane.Artifacts, "artifacts/controller/karmada.yaml")
	f.must(err)
	for _, document := range strings.Split(string(data), "\n---\n") {
		o := new(unstructured.Unstructured)
		f.must(yaml.Unmarshal([]byte(document), &o.Object))
		f.must(client.IgnoreAlreadyExists(f.client.Create(f.t.Context(), o)))
	}
}

// start runs the broker, with the rights that it is installed with; stop ends it.
func (f *fleet) start() {
	options, err := controllers.Options()
	f.must(err)
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	options.Controller = config.Controller{SkipNameValidation: ptr.To(true)}
	broker := rest.CopyConfig(f.config)
	broker.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + v1alpha1.Namespace +
		":sealane-controller"}
	broker.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counter{next: next, fleet: f} })
	mgr, err := ctrl.NewManager(broker, options)
	f.must(err)
	f.registry = prometheus.NewRegistry()
	f.must(controllers.Setup(mgr, f.registry))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("manager: %v", err)
		}
	})
}

// set creates a ClusterSet that selects clusters by name.
func (f *fleet) set(name string, clusters ...string) *v1alpha1.ClusterSet {
	f.t.Helper()
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.ClusterAffinity.ClusterNames = clusters
	f.must(f.client.Create(f.t.Context(), set))
	return set
}

// choose makes a ClusterSet select other clusters.
func (f *fleet) choose(set string, clusters ...string) {
	f.t.Helper()
	f.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var s v1alpha1.ClusterSet
		if err := f.client.Get(f.t.Context(), client.ObjectKey{Name: set}, &s); err != nil {
			return err
		}
		s.Spec.ClusterAffinity.ClusterNames = clusters
		return f.client.Update(f.t.Context(), &s)
	}))
}

// karmadaJoin adds a Cluster to Karmada whose CRDs are applied.
func (f *fleet) karmadaJoin(names ...string) {
	f.t.Helper()
	for _, name := range names {
		f.must(client.IgnoreAlreadyExists(f.client.Create(f.t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "karmada-es-" + name}})))
		c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1alpha1.ClusterSpec{ID: "id-" +
			name, SyncMode: clusterv1alpha1.Push}}
		f.must(f.client.Create(f.t.Context(), c))
		f.applied(name)
	}
}

// applied says that a cluster has the CRDs of the wire.
func (f *fleet) applied(cluster string) {
	f.t.Helper()
	for _, name := range propagation.WireBindings() {
		f.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			var b workv1alpha2.ClusterResourceBinding
			if err := f.client.Get(f.t.Context(), client.ObjectKey{Name: name}, &b); err != nil {
				return err
			}
			b.Status.AggregatedStatus = append(b.Status.AggregatedStatus, workv1alpha2.AggregatedStatusItem{ClusterName: cluster,
				Applied: true})
			return f.client.Status().Update(f.t.Context(), &b)
		}))
	}
}

// report sets what the agent of a cluster reports from now on.
func (f *fleet) report(cluster string, status v1alpha1.PeeringStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports[cluster] = status
}

// silence makes a cluster's agent report nothing more.
func (f *fleet) silence(cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reports, cluster)
}

func (f *fleet) export(cluster string, exports ...v1alpha1.Export) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exports[cluster] = exports
}

// cannotUse sets what a cluster's agent reports of imports that it cannot make.
func (f *fleet) cannotUse(cluster string, problems ...v1alpha1.ImportProblem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unusable[cluster] = problems
}

// member returns the record of a cluster, nil if there is none.
func (f *fleet) member(name string) *v1alpha1.Member {
	var m v1alpha1.Member
	if err := f.client.Get(f.t.Context(), client.ObjectKey{Name: name}, &m); err != nil {
		return nil
	}
	return &m
}

// peering returns what a cluster was last told, nil if nothing.
func (f *fleet) peering(cluster string) *v1alpha1.PeeringSpec {
	var work workv1alpha1.Work
	spec := new(v1alpha1.PeeringSpec)
	if f.client.Get(f.t.Context(), propagation.PeeringKey(cluster), &work) != nil || propagation.Spec(&work, spec) != nil {
		return nil
	}
	return spec
}

// remotes names the clusters that a cluster was told of.
func (f *fleet) remotes(cluster string) string {
	spec := f.peering(cluster)
	if spec == nil {
		return "<none>"
	}
	var names []string
	for _, r := range spec.RemoteClusters {
		names = append(names, r.Name)
	}
	return strings.Join(names, ",")
}

// bundle returns the own Bundle of a service's shard, nil if there is none.
func (f *fleet) bundle(cluster, namespace, name string) *v1alpha1.BundleSpec {
	return f.half(cluster, v1alpha1.Shard(namespace, name, 4), "")
}

// half returns the Bundle of one half of a shard, or the shard's own, nil if there is none.
func (f *fleet) half(cluster string, shard int32, half string) *v1alpha1.BundleSpec {
	var work workv1alpha1.Work
	spec := new(v1alpha1.BundleSpec)
	if f.client.Get(f.t.Context(), propagation.HalfKey(cluster, shard, half), &work) != nil ||
		propagation.Spec(&work, spec) != nil {
		return nil
	}
	return spec
}

// eventually waits until a condition holds.
func (f *fleet) eventually(what string, ok func() bool) {
	f.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			f.t.Fatalf("not within 20 s: %s", what)
		case <-tick.C:
		}
	}
}

// settled waits until the agents have answered everything and the broker has written no Work for a while.
func (f *fleet) settled() {
	f.t.Helper()
	quiet := time.Now()
	f.counted()
	f.eventually("the broker is quiet", func() bool {
		if len(f.counted()) > 0 || !f.answered() {
			quiet = time.Now()
		}
		return time.Since(quiet) > 500*time.Millisecond
	})
}

// answered says whether every Work has the status that its member reports.
func (f *fleet) answered() bool {
	var works workv1alpha1.WorkList
	f.must(f.client.List(f.t.Context(), &works))
	for i := range works.Items {
		if raw := f.answer(&works.Items[i]); raw != nil && string(raw) != string(propagation.Status(&works.Items[i])) {
			return false
		}
	}
	return true
}

// never fails if a condition comes to hold within a second.
func (f *fleet) never(what string, bad func() bool) {
	f.t.Helper()
	deadline := time.After(time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-deadline:
			return
		case <-tick.C:
			if bad() {
				f.t.Fatal(what)
			}
		}
	}
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// removeAll empties the Karmada API for the next test.
func (f *fleet) removeAll() {
	ctx := context.Background()
	var sets v1alpha1.ClusterSetList
	f.must(f.client.List(ctx, &sets))
	for i := range sets.Items {
		set := &sets.Items[i]
		f.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the broker's last write may arrive after its end
			if err := f.client.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
				return client.IgnoreNotFound(err)
			}
			set.Finalizers = nil
			return client.IgnoreNotFound(f.client.Update(ctx, set))
		}))
	}
	for _, o := range []client.Object{&v1alpha1.ClusterSet{}, &v1alpha1.Member{}, &v1alpha1.ExportRecord{},
		&clusterv1alpha1.Cluster{}, &workv1alpha2.ClusterResourceBinding{}} {
		f.must(f.client.DeleteAllOf(ctx, o))
	}
	f.eventually("everything is gone", func() bool {
		var works workv1alpha1.WorkList
		f.must(f.client.List(ctx, &works))
		for i := range works.Items {
			err := f.client.Delete(ctx, &works.Items[i])
			if err != nil && !apierrors.IsNotFound(err) {
				f.t.Error(err)
			}
		}
		return len(works.Items) == 0
	})
}

// cluster returns a Karmada Cluster.
func (f *fleet) cluster(name string) *clusterv1alpha1.Cluster {
	f.t.Helper()
	c := new(clusterv1alpha1.Cluster)
	f.must(f.client.Get(f.t.Context(), client.ObjectKey{Name: name}, c))
	return c
}

// ready says that Karmada reaches a cluster.
func (f *fleet) ready(name string) {
	f.t.Helper()
	c := f.cluster(name)
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: metav1.ConditionTrue,
		Reason: "ClusterReady", LastTransitionTime: metav1.Unix(1, 0)}}
	f.must(f.client.Status().Update(f.t.Context(), c))
}

// serves says that Karmada has found ServiceExport in a cluster.
func (f *fleet) serves(name string) {
	f.t.Helper()
	c := f.cluster(name)
	c.Status.APIEnablements = []clusterv1alpha1.APIEnablement{{
		GroupVersion: "multicluster.x-k8s.io/v1alpha1", Resources: []clusterv1alpha1.APIResource{{Name: "serviceexports",
			Kind: "ServiceExport"}},
	}}
	f.must(f.client.Status().Update(f.t.Context(), c))
}
