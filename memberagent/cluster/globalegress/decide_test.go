// SPDX-License-Identifier: Apache-2.0

package globalegress

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a cluster with one gateway, and what the agent has written so far.
type world struct {
	t *testing.T
	input
	made int
}

func newWorld(t *testing.T, block string) *world {
	t.Helper()
	return &world{t: t, input: input{block: netip.MustParsePrefix(block), now: began,
		gateways: []v1alpha1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: "gw"}}}}}
}

// add makes a GlobalEgressIP "<namespace>/<name>" of so many addresses, with a selector app=<app> if there is one.
func (w *world) add(owner, app string, size int32) {
	namespace, name, _ := strings.Cut(owner, "/")
	w.made++
	o := v1alpha1.GlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		CreationTimestamp: metav1.NewTime(began.Add(time.Duration(w.made) * time.Second))}}
	o.Spec.NumberOfIPs = size
	if app != "" {
		o.Spec.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	w.objects = append(w.objects, o)
}

func (w *world) object(owner string) *v1alpha1.GlobalEgressIP {
	w.t.Helper()
	i := slices.IndexFunc(w.objects, func(o v1alpha1.GlobalEgressIP) bool { return ownerOf(o) == owner })
	if i < 0 {
		w.t.Fatalf("no %s", owner)
	}
	return &w.objects[i]
}

func (w *world) remove(owner string) {
	w.objects = slices.DeleteFunc(w.objects, func(o v1alpha1.GlobalEgressIP) bool { return ownerOf(o) == owner })
}

func (w *world) pod(namespace, name, app, ip string) *corev1.Pod {
	w.pods = append(w.pods, corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
		Status:     corev1.PodStatus{PodIP: ip, Phase: corev1.PodRunning}})
	return &w.pods[len(w.pods)-1]
}

// step decides, and writes.
func (w *world) step() {
	d := decide(w.input)
	w.cluster.Status, w.allocations, w.objects = d.cluster, d.cluster.Allocations, d.objects
}

// expect compares who has which addresses, and the reasons of conditions: "1-4 Allocated, a/x 5-6 Allocated
// [10.7.0.1]".
func (w *world) expect(want string) {
	w.t.Helper()
	w.step()
	text := func(r *v1alpha1.EgressRange, conditions []metav1.Condition) string {
		c := meta.FindStatusCondition(conditions, v1alpha1.GlobalIPAllocated)
		if r == nil {
			return "- " + c.Reason
		}
		return fmt.Sprintf("%d-%d %s", r.First, r.Last, c.Reason)
	}
	parts := []string{text(w.cluster.Status.Range, w.cluster.Status.Conditions)}
	for _, o := range w.objects {
		parts = append(parts, strings.TrimSuffix(fmt.Sprintf("%s %s %v", ownerOf(o),
			text(o.Status.Range, o.Status.Conditions),
			o.Status.Pods), " []"))
	}
	if got := strings.Join(parts, ", "); got != want {
		w.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestPriority: a pod has the addresses of what selects it, or else of its namespace, and of two the older's.
func TestPriority(t *testing.T) {
	w := newWorld(t, "120.1.0.0/20")
	w.add("a/all", "", 1)
	w.add("a/all-again", "", 1)
	w.add("a/db", "db", 2)
	w.add("a/db-again", "db", 1)
	w.add("b/all", "", 1)
	w.pod("a", "p1", "web", "10.7.0.1")
	w.pod("a", "p2", "db", "10.7.0.2")
	w.pod("b", "p3", "db", "10.7.0.3")
	w.pod("c", "p4", "db", "10.7.0.4")
	w.pod("a", "on-host", "db", "172.31.0.1").Spec.HostNetwork = true
	w.pod("a", "done", "db", "10.7.0.5").Status.Phase = corev1.PodSucceeded
	w.pod("a", "no-address", "db", "")
	w.pod("a", "six", "db", "fd00::6")
	w.pod("a", "both", "db", "fd00::7").Status.PodIPs = []corev1.PodIP{{IP: "fd00::7"}, {IP: "10.7.0.7"}}
	w.pod("b", "follows", "", "10.7.0.2").CreationTimestamp = metav1.NewTime(began)
	w.pod("c", "first", "", "10.7.0.8")
	w.pod("b", "second", "", "10.7.0.8").CreationTimestamp = metav1.NewTime(began)
	w.expect("1-8 Allocated, a/all 9-9 Allocated [10.7.0.1], a/all-again 10-10 Allocated, a/db 11-12 Allocated " +
		"[10.7.0.2 10.7.0.7], " +
		"a/db-again 13-13 Allocated, b/all 14-14 Allocated [10.7.0.3]")
	w.pods[1].DeletionTimestamp = &metav1.Time{Time: began}
	w.object("a/db").Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}
	w.expect("1-8 Allocated, a/all 9-9 Allocated [10.7.0.1], a/all-again 10-10 Allocated, a/db 11-12 " +
		"InvalidPodSelector, " +
		"a/db-again 13-13 Allocated [10.7.0.7], b/all 14-14 Allocated [10.7.0.2 10.7.0.3]")
	if got := fmt.Sprint(w.object("a/db-again").Status.Addresses); got != "[{gw 120.1.8.13 120.1.8.13  }]" {
		t.Errorf("addresses %s", got)
	}
}

// TestPodsOfBothFamilies: where the block has something of IPv6 pods are known by that, too, and count once.
func TestPodsOfBothFamilies(t *testing.T) {
	w := newWorld(t, "120.1.0.0/20")
	w.ipv6 = netip.MustParsePrefix("fd5e:a1a4:e242:7801::/116")
	w.add("a/all", "", 2)
	w.pod("a", "six", "db", "fd00::6")
	w.pod("a", "both", "db", "fd00::7").Status.PodIPs = []corev1.PodIP{{IP: "fd00::7"}, {IP: "10.7.0.7"}, {IP: "fd00::8"}}
	w.expect("1-8 Allocated, a/all 9-10 Allocated [10.7.0.7 fd00::6 fd00::7]")
	o := w.object("a/all")
	const want = "[{gw 120.1.8.9 120.1.8.10 fd5e:a1a4:e242:7801::809 fd5e:a1a4:e242:7801::80a}]"
	if got := fmt.Sprint(o.Status.Addresses); got != want {
		t.Errorf("addresses %s, want %s", got, want)
	}
	if got := o.Status.Conditions[0].Message; !strings.Contains(got, "of 2 pods") {
		t.Error(got)
	}
}

// TestRanges: addresses stay with whoever has them, what goes is kept, and where none is left it is said.
func TestRanges(t *testing.T) {
	w := newWorld(t, "120.1.0.0/24") // each gateway has 7, of which 4 are the cluster's
	w.add("a/x", "", 2)
	w.add("a/y", "y", 2)
	w.expect("1-4 Allocated, a/x 5-6 Allocated, a/y - GlobalEgressExhausted")
	message := w.object("a/y").Status.Conditions[0].Message
	for _, part := range []string{"no 2 addresses", "7 that each gateway has of 120.1.0.0/24", "wider block"} {
		if !strings.Contains(message, part) {
			t.Errorf("no %q in %q", part, message)
		}
	}
	t.Log("fewer, and more")
	w.object("a/y").Spec.NumberOfIPs = 1
	w.expect("1-4 Allocated, a/x 5-6 Allocated, a/y 7-7 Allocated")
	w.object("a/x").Spec.NumberOfIPs = 3
	w.expect("1-4 Allocated, a/x 5-6 GlobalEgressExhausted, a/y 7-7 Allocated")
	w.object("a/x").Spec.NumberOfIPs = 1
	w.expect("1-4 Allocated, a/x 5-5 Allocated, a/y 7-7 Allocated")
	w.object("a/x").Spec.NumberOfIPs = 2
	w.expect("1-4 Allocated, a/x 5-6 Allocated, a/y 7-7 Allocated")
	w.cluster.Spec.NumberOfIPs = 5
	w.expect("1-4 GlobalEgressExhausted, a/x 5-6 Allocated, a/y 7-7 Allocated")
	w.cluster.Spec.NumberOfIPs = 2
	w.expect("1-2 Allocated, a/x 5-6 Allocated, a/y 7-7 Allocated")
	t.Log("what goes is kept for whoever had it")
	w.remove("a/y")
	w.expect("1-2 Allocated, a/x 5-6 Allocated")
	w.add("a/z", "", 1)
	w.expect("1-2 Allocated, a/x 5-6 Allocated, a/z - GlobalEgressExhausted")
	w.add("a/y", "y", 1)
	w.expect("1-2 Allocated, a/x 5-6 Allocated, a/z - GlobalEgressExhausted, a/y 7-7 Allocated")
	w.remove("a/y")
	w.expect("1-2 Allocated, a/x 5-6 Allocated, a/z - GlobalEgressExhausted")
	w.now = w.now.Add(Least)
	w.expect("1-2 Allocated, a/x 5-6 Allocated, a/z 7-7 Allocated")
	t.Log("no block")
	w.block = netip.Prefix{}
	w.expect("- NoGlobalCIDR, a/x - NoGlobalCIDR, a/z - NoGlobalCIDR")
}

// TestKeptForAnHour: as long as there are others, nobody gets what another had lately.
func TestKeptForAnHour(t *testing.T) {
	w := newWorld(t, "120.1.0.0/20")
	w.add("a/x", "", 2)
	w.expect("1-8 Allocated, a/x 9-10 Allocated")
	w.remove("a/x")
	w.add("a/y", "", 1)
	w.expect("1-8 Allocated, a/y 11-11 Allocated")
	w.now = w.now.Add(Grace)
	w.add("a/z", "", 1)
	w.expect("1-8 Allocated, a/y 11-11 Allocated, a/z 9-9 Allocated")
}

// TestKeptForTheOthers: a tenant that uses up the gateways' shares does not get what another namespace has given up,
// and may come back to; one that has little does, where nothing else is left.
func TestKeptForTheOthers(t *testing.T) {
	w := newWorld(t, "120.1.0.0/22")
	w.add("victim/x", "", 2)
	w.add("greedy/a", "", 21)
	w.expect("1-8 Allocated, victim/x 9-10 Allocated, greedy/a 11-31 Allocated")
	w.remove("victim/x")
	w.add("greedy/b", "b", 1)
	w.step()
	w.now = w.now.Add(Grace - time.Second)
	w.expect("1-8 Allocated, greedy/a 11-31 Allocated, greedy/b - GlobalEgressExhausted")
	w.add("victim/x", "", 2)
	w.expect("1-8 Allocated, greedy/a 11-31 Allocated, greedy/b - GlobalEgressExhausted, victim/x 9-10 Allocated")
	w.remove("victim/x")
	w.add("modest/m", "", 1)
	w.step()
	w.now = w.now.Add(Least)
	w.expect("1-8 Allocated, greedy/a 11-31 Allocated, greedy/b - GlobalEgressExhausted, modest/m 9-9 Allocated")
}

// TestRestart: what was written in part leads to what would have been written.
func TestRestart(t *testing.T) {
	w := newWorld(t, "120.1.0.0/20")
	w.add("a/gone", "", 3)
	w.step()
	w.remove("a/gone")
	w.add("a/x", "", 2)
	w.add("b/y", "", 1)
	const want = "1-8 Allocated, a/x 12-13 Allocated, b/y 14-14 Allocated"
	w.expect(want)
	t.Log("the objects are not written yet")
	for i := range w.objects {
		w.objects[i].Status = v1alpha1.GlobalEgressIPStatus{}
	}
	w.allocations = recovered(w.cluster.Status.Allocations, nil)
	w.expect(want)
	t.Log("the ClusterGlobalEgressIP was deleted, and tenants write what they like")
	var ledger []v1alpha1.GlobalAllocation
	for i := range w.objects {
		ledger = append(ledger, *allocationOf(w.objects[i]))
		w.objects[i].Status.Range = &v1alpha1.EgressRange{First: 20, Last: 20}
	}
	w.allocations = recovered(nil, ledger)
	w.expect(want)
	t.Log("what is written cannot be")
	w.allocations = []v1alpha1.EgressAllocation{{EgressRange: v1alpha1.EgressRange{First: -1, Last: 2}, Owner: "a/x"},
		{EgressRange: v1alpha1.EgressRange{First: 9, Last: 100000}, Owner: "a/x"},
		{EgressRange: v1alpha1.EgressRange{First: 7, Last: 9}, Owner: "a/x"},
		{EgressRange: v1alpha1.EgressRange{First: 14, Last: 14}, Owner: "b/y"},
		{EgressRange: v1alpha1.EgressRange{First: 14, Last: 15}, Owner: "a/x"}}
	w.expect("1-8 Allocated, a/x 9-10 Allocated, b/y 14-14 Allocated")
}

// TestEgressWalk: whatever comes and goes, no address is two owners', and none is reused within the time that it is
// kept; what is decided twice is the same.
func TestEgressWalk(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 9))
		w := newWorld(t, []string{"120.1.0.0/24", "120.1.0.0/22", "120.1.0.0/18"}[random.IntN(3)])
		last := map[int]number{} // who had an address last, and until when
		for step := range 300 {
			owner := fmt.Sprintf("ns/%d", random.IntN(12))
			exists := slices.ContainsFunc(w.objects, func(o v1alpha1.GlobalEgressIP) bool { return ownerOf(o) == owner })
			switch {
			case random.IntN(8) == 0:
				w.cluster.Spec.NumberOfIPs = int32(random.IntN(12))
			case !exists:
				w.add(owner, []string{"", "db"}[random.IntN(2)], int32(1+random.IntN(4)))
			case random.IntN(2) == 0:
				w.remove(owner)
			default:
				w.object(owner).Spec.NumberOfIPs = int32(1 + random.IntN(4))
			}
			w.now = w.now.Add(time.Duration(random.IntN(90)) * time.Second)
			w.step()
			before := fmt.Sprint(w.allocations)
			w.step()
			if after := fmt.Sprint(w.allocations); after != before {
				t.Fatalf("seed %d, step %d: decided twice:\n%s\n%s", seed, step, before, after)
			}
			w.check(last)
			if t.Failed() {
				t.Fatalf("seed %d, step %d: %s", seed, step, before)
			}
		}
	}
}

// check compares with who had what.
func (w *world) check(last map[int]number) {
	now := map[int]string{}
	has := func(owner string, r *v1alpha1.EgressRange) {
		if r == nil {
			return
		}
		for n := int(r.First); n <= int(r.Last); n++ {
			if other, taken := now[n]; taken || n < 1 || n > globalnet.EgressSize(w.block) {
				w.t.Errorf("%d is that of %q and of %q", n, owner, other)
			}
			now[n] = owner
		}
	}
	has(theCluster, w.cluster.Status.Range)
	for _, o := range w.objects {
		has(ownerOf(o), o.Status.Range)
	}
	for n, owner := range now {
		if was, ok := last[n]; ok && was.owner != owner && (was.owned || w.now.Sub(was.released) < Least) {
			w.t.Errorf("%d was that of %q, until %s, and is that of %q at %s", n, was.owner, was.released, owner, w.now)
		}
		last[n] = number{owner: owner, owned: true}
	}
	for n, was := range last {
		if _, ok := now[n]; !ok && was.owned {
			last[n] = number{owner: was.owner, released: w.now.Truncate(time.Second)}
		}
	}
}
