// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/client-go/util/workqueue"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestDeltasAreNotReadForAWhile: an agent of before comes, as after a roll-back, and goes again, and so does a
// controller of before, that knows of no deltas. What the first is told is right at rest, and nothing the others are
// told is taken back.
func TestDeltasAreNotReadForAWhile(t *testing.T) {
	for seed := range uint64(4) {
		for _, agent := range []bool{true, false} {
			c := newChurning(t, seed, 60)
			for round := range 4 {
				c.churn(20, 60, 0.02)
				old := round%2 == 0
				if c.early = old && !agent; agent {
					c.deltas = !old
				}
				if c.tell(); c.early {
					c.restart()
				}
				if agent { // which reads halves at once, and these may be behind
					clear(c.told)
					c.look()
					clear(c.told)
				}
				c.rest(0)
				c.check(fmt.Sprintf("seed %d, round %d, agent %t", seed, round, agent), 60)
			}
		}
	}
}

// TestDeltasOfAnOlderKarmada: Karmada is restored from a backup, with what the member has left as it is, or with the
// member as old; and the clock of the next controller is behind. All is right at rest, and stays.
func TestDeltasOfAnOlderKarmada(t *testing.T) {
	for seed := range uint64(4) {
		c := newChurning(t, seed, 60)
		c.churn(30, 60, 0)
		works, bundles := c.works(), maps.Clone(c.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()])
		c.churn(40, 60, 0)
		c.rest(0)
		c.left = map[string]bool{}
		for _, w := range c.works() {
			if !slices.ContainsFunc(works, func(o workv1alpha1.Work) bool { return o.Name == w.Name }) {
				c.left[c.object(&w).Name] = seed%2 == 0
				_ = c.shelf.Delete(t.Context(), &w)
			}
		}
		for i := range works {
			works[i].ResourceVersion = ""
			c.shelf.put(&works[i])
		}
		if seed%2 == 1 {
			c.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()] = bundles
		}
		if seed%4 > 1 {
			c.now = c.now.Add(-time.Hour)
		}
		clear(c.told)
		c.restart()
		c.rest(0)
		c.look()
		c.check(fmt.Sprintf("seed %d, restored", seed), 60)
		c.churn(30, 60, 0.02)
		c.rest(0)
		c.check(fmt.Sprintf("seed %d, after that", seed), 60)
		c.still(fmt.Sprintf("seed %d", seed))
	}
}

// still checks that nothing is written any more, as time goes on.
func (c *churning) still(what string) {
	c.t.Helper()
	for range 20 {
		c.now = c.now.Add(recordPace)
		c.rest(0)
	}
	before := c.generations()
	for range 60 {
		c.now = c.now.Add(10 * time.Second)
		c.rest(0)
	}
	if n := c.generations() - before; n > 0 {
		c.t.Errorf("%s: %d writes in ten minutes in which nothing changes", what, n)
	}
}

// TestDeltasThatSomebodyElseWrites: Works of deltas that are deleted, or changed to whatever a pull member may write
// into its own, come to be right, and cost no write for ever.
func TestDeltasThatSomebodyElseWrites(t *testing.T) {
	for name, change := range map[string]func(c *churning, spec *v1alpha1.BundleSpec){
		"another endpoint": func(_ *churning, spec *v1alpha1.BundleSpec) {
			for i := range spec.Imports {
				spec.Imports[i].Clusters[0].Backends[0].Addresses[0].IP = "10.1.0.99"
			}
		},
		"from the future": func(_ *churning, spec *v1alpha1.BundleSpec) {
			spec.Sequence += int64(time.Hour / time.Millisecond)
			for i := range spec.Imports {
				spec.Imports[i].Clusters[0].Backends[0].Addresses[0].IP = "10.1.0.99"
			}
		},
		"the last sequence": func(_ *churning, spec *v1alpha1.BundleSpec) {
			spec.Sequence = maxRevision
			for i := range spec.Imports {
				spec.Imports[i].Clusters[0].Backends[0].Addresses[0].IP = "10.1.0.99"
			}
		},
		"nothing":       func(_ *churning, spec *v1alpha1.BundleSpec) { spec.Imports = []v1alpha1.Import{} },
		"of the past":   func(_ *churning, spec *v1alpha1.BundleSpec) { spec.Sequence = 1 },
		"another name":  func(_ *churning, spec *v1alpha1.BundleSpec) { spec.Imports[0].Name = "a-name" },
		"no sequence":   func(_ *churning, spec *v1alpha1.BundleSpec) { spec.Sequence = 0 },
		"deleted":       nil,
		"all are there": func(_ *churning, spec *v1alpha1.BundleSpec) { spec.Deltas = v1alpha1.MaxDeltas },
	} {
		for _, restart := range []bool{false, true} {
			c := newChurning(t, 7, 60)
			c.churn(40, 60, 0)
			c.rest(0)
			works, err := c.Works.DeltasOf(t.Context(), importing)
			if err != nil || len(works) == 0 {
				t.Fatalf("%d Bundles of deltas, %v", len(works), err)
			}
			for _, found := range works {
				work := found.DeepCopy()
				b := c.object(work)
				if len(b.Spec.Imports) == 0 {
					continue
				}
				if change == nil {
					_ = c.shelf.Delete(t.Context(), work)
					continue
				}
				change(c, &b.Spec)
				if b.Spec.Deltas > 0 {
					own := c.works()[0]
					b, work = c.object(&own), &own
					b.Spec.Deltas = v1alpha1.MaxDeltas
				}
				raw, err := json.Marshal(b)
				if err != nil {
					t.Fatal(err)
				}
				work.Spec.Workload.Manifests[0].Raw = raw
				c.shelf.put(work)
			}
			if restart {
				c.restart()
			}
			clear(c.told)
			c.now = c.now.Add(time.Minute)
			c.rest(0)
			c.look()
			clear(c.told)
			c.check(name, 60)
			c.still(name)
		}
	}
}

// TestShardsLookAtForeignDeltas: what somebody else has put into deltas is nothing to write by before all shards were
// decided on anew.
func TestShardsLookAtForeignDeltas(t *testing.T) {
	c := newChurning(t, 3, 60)
	c.churn(30, 60, 0)
	c.rest(0)
	works, err := c.Works.DeltasOf(t.Context(), importing)
	if err != nil || works[0] == nil {
		t.Fatalf("%d Bundles of deltas, %v", len(works), err)
	}
	work := works[0].DeepCopy()
	b := c.object(work)
	b.Spec.Imports = nil
	raw, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	work.Spec.Workload.Manifests[0].Raw = raw
	c.shelf.put(work)
	queue := workqueue.NewTyped[Shard]()
	defer queue.ShutDown()
	c.shardQueue = queue
	writes, _, err := c.delivery(t.Context(), importing, parallelWrites)
	if err != nil || len(writes) > 0 || queue.Len() != int(c.shards) {
		t.Errorf("%d writes, %d shards to look at, %v", len(writes), queue.Len(), err)
	}
}
