// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// mailboxes is a cache of Bundles by their names, and of what was made of the imports in them.
type mailboxes struct {
	client.Client // nothing else is called
	shards        int32
	bundles       map[string]*v1alpha1.Bundle
	made          map[types.NamespacedName]string
}

func (m *mailboxes) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *v1alpha1.Peering:
		o.Spec.Shards = m.shards
	case *v1alpha1.Bundle:
		b := m.bundles[key.Name]
		if b == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "bundles"}, key.Name)
		}
		*o = *b
	}
	return nil
}

func (m *mailboxes) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.BundleList:
		for _, b := range m.bundles {
			list.Items = append(list.Items, *b)
		}
	case *mcs.ServiceImportList:
		for key := range m.made {
			i := mcs.ServiceImport{}
			i.Namespace, i.Name = key.Namespace, key.Name
			list.Items = append(list.Items, i)
		}
	}
	return nil
}

// version is a Bundle that has imports, "web=a", each with a choice of one cluster.
func version(name string, sequence int64, deltas int32, imports ...string) *v1alpha1.Bundle {
	b := &v1alpha1.Bundle{}
	b.Name, b.Spec.Sequence, b.Spec.Deltas = name, sequence, deltas
	slices.Sort(imports)
	for _, text := range imports {
		service, cluster, _ := strings.Cut(text, "=")
		b.Spec.Imports = append(b.Spec.Imports, v1alpha1.Import{Namespace: "sample", Name: service,
			Clusters: []v1alpha1.ImportCluster{{Cluster: cluster}}})
	}
	return b
}

// set puts a version of a Bundle into the cache, nil deletes it, and returns what tells the handler of that.
func (m *mailboxes) set(t *testing.T, r *Reconciler, name string, b *v1alpha1.Bundle) func(queue) {
	h, before := r.bundleHandler(), m.bundles[name]
	if b == nil {
		delete(m.bundles, name)
		return func(q queue) {
			if before != nil {
				h.Delete(t.Context(), event.DeleteEvent{Object: before}, q)
			}
		}
	}
	m.bundles[name] = b
	if before == nil {
		return func(q queue) { h.Create(t.Context(), event.CreateEvent{Object: b}, q) }
	}
	b.Generation = before.Generation + 1
	return func(q queue) { h.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: b}, q) }
}

// told returns the keys that are enqueued.
func told(tell ...func(queue)) []types.NamespacedName {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	for _, f := range tell {
		f(q)
	}
	q.ShutDown()
	var out []types.NamespacedName
	for {
		r, down := q.Get()
		if down {
			return out
		}
		out = append(out, r.NamespacedName)
	}
}

// TestDeltasCostWhatChanged: of all imports only those are looked at that may be others now.
func TestDeltasCostWhatChanged(t *testing.T) {
	const own, first, second = "sealane-0", "sealane-delta-0", "sealane-delta-1"
	for what, c := range map[string]struct {
		there  []*v1alpha1.Bundle
		name   string
		change *v1alpha1.Bundle
		want   string
	}{
		"one changed delta": {[]*v1alpha1.Bundle{version(own, 5, 1, "a=1", "b=1", "c=1"), version(first, 6, 0, "a=2", "b=2")},
			first, version(first, 7, 0, "a=2", "b=3"), "[b]"},
		"one delta more": {[]*v1alpha1.Bundle{version(own, 5, 1, "a=1", "b=1", "c=1"), version(first, 6, 0, "a=2")},
			first, version(first, 7, 0, "a=2", "c=2"), "[c]"},
		"one endpoint of a base": {[]*v1alpha1.Bundle{version(own, 5, 1, "a=1", "b=1", "c=1"), version(first, 4, 0, "a=2")},
			own, version(own, 6, 1, "a=1", "b=1", "c=2"), "[c]"},
		"a base that outdates deltas": {[]*v1alpha1.Bundle{version(own, 5, 1, "a=1", "b=1", "c=1"),
			version(first, 6, 0, "a=2")}, own, version(own, 7, 1, "a=1", "b=1", "c=2"), "[a c]"},
		"deltas that outdate a base": {[]*v1alpha1.Bundle{version(own, 7, 1, "a=1", "b=1", "c=1"),
			version(first, 6, 0, "a=2", "b=2")}, first, version(first, 8, 0, "a=2", "b=2"), "[a b]"},
		"deltas that outdate deltas": {[]*v1alpha1.Bundle{version(own, 5, 2, "a=1", "b=1"), version(first, 6, 0, "a=2",
			"b=2"), version(second, 7, 0, "b=3")}, first, version(first, 8, 0, "a=2", "b=2"), "[b]"},
		"others are listed": {[]*v1alpha1.Bundle{version(own, 5, 1, "a=1", "b=1", "c=1"), version(first, 6, 0, "a=2"),
			version(second, 7, 0, "b=2")}, own, version(own, 5, 2, "a=1", "b=1", "c=1"), "[a b]"},
		"one is listed no more that was missing": {[]*v1alpha1.Bundle{version(own, 5, 2, "a=1", "b=1"),
			version(first, 6, 0, "a=2")}, own, version(own, 5, 1, "a=1", "b=1"), "[a b made]"},
		"one that was missing": {[]*v1alpha1.Bundle{version(own, 5, 1, "a=1", "b=1")},
			first, version(first, 6, 0, "a=2"), "[a b made]"},
		"one that is not listed": {[]*v1alpha1.Bundle{version(own, 5, 0, "a=1", "b=1")},
			first, version(first, 6, 0, "a=2"), "[a]"},
		"the one that lists them": {[]*v1alpha1.Bundle{version(first, 6, 0, "b=2")},
			own, version(own, 5, 1, "a=1"), "[a b made]"},
		"a base without a sequence": {[]*v1alpha1.Bundle{version(own, 5, 1, "a=1", "b=1"), version(first, 6, 0, "a=2")},
			own, version(own, 0, 1, "a=1", "b=1"), "[a b]"},
		"one that goes": {[]*v1alpha1.Bundle{version(own, 5, 1, "a=1"), version(first, 6, 0, "a=2")}, first, nil, "[]"},
	} {
		m := &mailboxes{shards: 1, bundles: map[string]*v1alpha1.Bundle{},
			made: map[types.NamespacedName]string{{Namespace: "sample", Name: "made"}: ""}}
		r := &Reconciler{Client: m}
		for _, b := range c.there {
			m.bundles[b.Name] = b
		}
		tell := m.set(t, r, c.name, c.change)
		var got []string
		for _, key := range told(tell) {
			got = append(got, key.Name)
		}
		if slices.Sort(got); fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v are looked at, want %s", what, got, c.want)
		}
	}
}

// TestDeltasOfAnyHistory: whatever becomes of a member's Bundles, once the imports are looked at that a change is told
// to be of, all are what they are to be, or what they were where that is not known.
func TestDeltasOfAnyHistory(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		m := &mailboxes{shards: 2, bundles: map[string]*v1alpha1.Bundle{}, made: map[types.NamespacedName]string{}}
		r := &Reconciler{Client: m}
		var history []string
		for range 60 {
			var tell []func(queue)
			// Several changes are in the cache before the first of them is told of.
			for range 1 + random.IntN(3) {
				name, b := anyVersion(random)
				history = append(history, saying(name, b))
				tell = append(tell, m.set(t, r, name, b))
			}
			for _, key := range told(tell...) {
				if value, known := m.current(t, key); known {
					if m.made[key] = value; value == "" {
						delete(m.made, key)
					}
				}
			}
			for n := range services {
				key := types.NamespacedName{Namespace: "sample", Name: fmt.Sprintf("web-%d", n)}
				if want, known := m.current(t, key); known && m.made[key] != want {
					t.Fatalf("seed %d: %s is %q, want %q after\n%s", seed, key.Name, m.made[key], want, strings.Join(history, "\n"))
				}
			}
		}
	}
}

// services is how many there are in any history.
const services = 6

// anyVersion returns a Bundle of any name with anything in it, nil for one that is deleted.
func anyVersion(random *rand.Rand) (name string, b *v1alpha1.Bundle) {
	names := []string{"sealane-0", "sealane-0", "sealane-1", "sealane-1-0", "sealane-1-1", "sealane-1-10",
		"sealane-delta-0", "sealane-delta-0", "sealane-delta-1", "sealane-delta-2"}
	name = names[random.IntN(len(names))]
	if random.IntN(6) == 0 {
		return name, nil
	}
	var imports []string
	for n := range services {
		if random.IntN(3) > 0 {
			imports = append(imports, fmt.Sprintf("web-%d=c%d", n, random.IntN(2)))
		}
	}
	b = version(name, random.Int64N(1<<40)*int64(min(random.IntN(6), 1)), int32(random.IntN(4)), imports...)
	if name == "sealane-1" {
		b.Spec.Halves = [][]string{nil, {"0", "1"}, {"0", "10"}}[random.IntN(3)]
	}
	return name, b
}

func saying(name string, b *v1alpha1.Bundle) string {
	if b == nil {
		return name + " is deleted"
	}
	out := fmt.Sprintf("%s sequence %d deltas %d halves %v:", name, b.Spec.Sequence, b.Spec.Deltas, b.Spec.Halves)
	for _, i := range b.Spec.Imports {
		out += " " + i.Name + "=" + i.Clusters[0].Cluster
	}
	return out
}

// current returns the cluster of an import as it is now, "" where there is to be none.
func (m *mailboxes) current(t *testing.T, key types.NamespacedName) (cluster string, known bool) {
	t.Helper()
	found, known, err := index.CurrentImport(t.Context(), m, m.shards, key)
	if err != nil {
		t.Fatal(err)
	}
	if found == nil {
		return "", known
	}
	return found.Clusters[0].Cluster, known
}
