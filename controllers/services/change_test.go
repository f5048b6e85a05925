// SPDX-License-Identifier: Apache-2.0

package services

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/metrics"
	"github.com/sealane-io/sealane/propagation"
)

// played is a controller with members that answer when they are told to.
type played struct {
	t testing.TB
	*Reconciler
	shelf   *shelf
	members []Member
	shards  int32
	now     time.Time
}

// play starts with a ClusterSet of which everything in the shard is written and answered. No agent reads halves.
func play(t testing.TB, in Input) *played {
	t.Helper()
	return playWith(t, in, false)
}

func playWith(t testing.TB, in Input, readsParts bool) *played {
	t.Helper()
	s := newShelf()
	p := &played{t: t, shelf: s, members: in.Members, shards: in.Shards, now: now}
	p.Reconciler = &Reconciler{Client: s, Works: propagation.Writer{Client: s, Live: s},
		Metrics: metrics.New(prometheus.NewRegistry()), Problems: NewProblemIndex(), Now: func() time.Time { return p.now }}
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	set.Spec.Shards = in.Shards
	s.put(set)
	for _, name := range propagation.WireBindings() {
		s.put(&workv1alpha2.ClusterResourceBinding{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, m := range in.Members {
		p.join(m, readsParts, time.Time{})
	}
	for round := range 10 {
		p.now = p.now.Add(time.Minute) // each member is called once
		before := s.version
		p.decide(in.Shard)
		for i := range p.members {
			p.answerHalves(i, in.Shard)
		}
		if s.version == before && round > 1 {
			return p
		}
	}
	t.Fatal("the controller does not come to rest")
	return nil
}

// join makes a cluster known that was accepted at a time, and has applied the wire.
func (p *played) join(m Member, readsParts bool, accepted time.Time) {
	p.t.Helper()
	for _, name := range propagation.WireBindings() {
		var binding workv1alpha2.ClusterResourceBinding
		if err := p.shelf.Get(context.Background(), client.ObjectKey{Name: name}, &binding); err != nil {
			p.t.Fatal(err)
		}
		binding.Status.AggregatedStatus = append(binding.Status.AggregatedStatus,
			workv1alpha2.AggregatedStatusItem{ClusterName: m.Cluster, Applied: true})
		p.shelf.put(&binding)
	}
	text := func(prefixes ...string) []string { return prefixes }
	record := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: m.Cluster, UID: types.UID("uid-" + m.Cluster)}}
	record.Spec = v1alpha1.MemberSpec{ClusterSet: "blue", Phase: v1alpha1.MemberActive}
	record.Status.Conditions = []metav1.Condition{{Type: v1alpha1.MemberAccepted, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(accepted)}}
	record.Status.Networks = v1alpha1.Networks{PodCIDRs: text(m.Pods[0].String(), m.Pods[1].String()),
		ServiceCIDRs: text(m.Services[0].String(), m.Services[1].String())}
	record.Status.NodeCIDRs = text(m.Nodes[0].String())
	record.Status.ReadsParts, record.Status.ReadsText = readsParts, true
	p.shelf.put(record)
	c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: m.Cluster}}
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: metav1.ConditionTrue}}
	p.shelf.put(c)
}

func (p *played) decide(shard int32) {
	p.t.Helper()
	if _, err := p.Reconcile(context.Background(), Shard{"blue", shard}); err != nil {
		p.t.Fatal(err)
	}
}

// answerHalves has member i report on the halves of a shard, too.
func (p *played) answerHalves(i int, shard int32) {
	p.t.Helper()
	cluster := p.members[i].Cluster
	halves, err := p.Works.HalvesOf(context.Background(), cluster, shard, func(half string) string {
		return propagation.HalfKey(cluster, shard, half).Name
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, half := range append(slices.Sorted(maps.Keys(halves)), "") {
		p.answerBundle(i, shard, half)
	}
}

// answer has member i report on a shard, if it has something to say.
func (p *played) answer(i int, shard int32) {
	p.t.Helper()
	p.answerBundle(i, shard, "")
}

func (p *played) answerBundle(i int, shard int32, half string) {
	p.t.Helper()
	m := p.members[i]
	var work workv1alpha1.Work
	if err := p.shelf.Get(context.Background(), propagation.HalfKey(m.Cluster, shard, half), &work); err != nil {
		p.t.Fatal(err)
	}
	var spec v1alpha1.BundleSpec
	if err := propagation.Spec(&work, &spec); err != nil {
		p.t.Fatal(err)
	}
	status := v1alpha1.BundleStatus{ObservedRevision: spec.Revision, Imports: m.Unusable}
	for _, e := range m.Exports {
		if half == "" && v1alpha1.Shard(e.Namespace, e.Name, p.shards) == shard {
			status.Exports = append(status.Exports, e)
		}
	}
	data, err := json.Marshal(status)
	if err != nil {
		p.t.Fatal(err)
	}
	if string(data) == string(propagation.Status(&work)) {
		return
	}
	work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{Status: &runtime.RawExtension{Raw: data}}}
	p.shelf.put(&work)
}

// replacePod gives the first export of member i another pod.
func (p *played) replacePod(i, round int) {
	e := &p.members[i].Exports[0]
	e.Backends = []v1alpha1.Backends{pods(1+(i+1)%100, 3, e.Backends[0].Ports...)}
	e.Backends[0].Addresses[0].IP = fmt.Sprintf("10.%d.%d.%d", 1+(i+1)%100, 10+round/200%200, 1+round%200)
}

// processor is what this process has used of the processors.
func processor(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// forget has the controller read and decide everything anew, as after a start.
func (p *played) forget() {
	p.decided = nil
	for _, mem := range p.seen {
		mem.held, mem.kept, mem.halves, mem.parted = held{}, nil, nil, parted{}
	}
}

// BenchmarkOneEndpoint takes what one changed endpoint costs the controller: the decision; the making of its writes,
// without their way to an API server; when all members have answered, the look at their answers; and what that look
// costs where nothing of before is known.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, c := range []struct {
		clusters int
		halves   bool
	}{{10, false}, {10, true}, {100, false}, {100, true}} {
		clusters := c.clusters
		p := playWith(b, manyServices(clusters, 1000, 4), c.halves)
		for _, what := range []string{"change", "writes", "answers", "anew"} {
			b.Run(fmt.Sprintf("services=1000/clusters=%d/halves=%t/%s", clusters, c.halves, what), func(b *testing.B) {
				b.ReportAllocs()
				round := 0
				var used time.Duration
				timed := func(is bool, do func()) {
					if is {
						before := processor(b)
						b.StartTimer()
						defer func() {
							b.StopTimer()
							used += processor(b) - before
						}()
					}
					do()
				}
				for b.Loop() {
					b.StopTimer()
					round++
					p.now = p.now.Add(time.Minute)
					p.replacePod(0, round)
					p.answer(0, 0)
					var got plan
					timed(what == "change", func() {
						var err error
						if got, err = p.plan(b.Context(), Shard{"blue", 0}); err != nil {
							b.Fatal(err)
						}
					})
					if len(got.writes) < clusters-1 {
						b.Fatalf("%d writes for %d importers", len(got.writes), clusters-1)
					}
					timed(what == "writes", func() {
						if _, err := p.carryOut(b.Context(), got.writes); err != nil {
							b.Fatal(err)
						}
					})
					for i := range p.members {
						p.answerHalves(i, 0)
					}
					if what == "anew" {
						p.forget()
					}
					timed(what == "answers" || what == "anew", func() {
						var err error
						if got, err = p.plan(b.Context(), Shard{"blue", 0}); err != nil {
							b.Fatal(err)
						}
					})
					if len(got.writes) > 0 {
						b.Fatalf("%d writes for answers", len(got.writes))
					}
					b.StartTimer()
				}
				b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// TestWhatWasReadOnceIsNotReadAgain: a Work that says what was written, and a report that says what it did, are not
// decoded, and where nothing is new nothing is decided.
func TestWhatWasReadOnceIsNotReadAgain(t *testing.T) {
	p := play(t, manyServices(3, 40, 4))
	p.replacePod(0, 1)
	p.answer(0, 0)
	p.decide(0)
	for i := range p.members {
		p.answer(i, 0)
	}
	p.decide(0)
	last := p.last(Shard{"blue", 0})
	decided := last.d.Bundles
	for _, m := range last.in.Members {
		mem := p.seen[seenKey{string(m.UID), 0}]
		if mem.held.spec == nil || mem.held.spec != mem.held.sent {
			t.Errorf("%s: what was written is read from its Work", m.Cluster)
		}
		if len(mem.held.report.exports) == 0 || !identical(m.Exports, mem.held.report.exports) {
			t.Errorf("%s: its report is read again", m.Cluster)
		}
	}
	p.decide(0)
	if !reflect.DeepEqual(reflect.ValueOf(decided).Pointer(), reflect.ValueOf(last.d.Bundles).Pointer()) {
		t.Error("it is decided again though nothing is new")
	}
}

// TestAnUnknownMemberKeepsTheDecision: a member that says nothing has its shard decided anew no more than others, and
// what it is told of its exports does.
func TestAnUnknownMemberKeepsTheDecision(t *testing.T) {
	p := play(t, manyServices(3, 40, 4))
	key := propagation.BundleKey("c2", 0)
	change := func(do func(*workv1alpha1.Work)) {
		t.Helper()
		var work workv1alpha1.Work
		if err := p.shelf.Get(t.Context(), key, &work); err != nil {
			t.Fatal(err)
		}
		do(&work)
		p.shelf.put(&work)
		p.decide(0)
	}
	change(func(w *workv1alpha1.Work) { w.Status = workv1alpha1.WorkStatus{} })
	kept := func() uintptr { return reflect.ValueOf(p.last(Shard{"blue", 0}).d.Bundles).Pointer() }
	before := kept()
	for range 3 {
		p.now = p.now.Add(time.Second)
		p.decide(0)
		if kept() != before {
			t.Fatal("it is decided again though nothing is new")
		}
	}
	change(func(w *workv1alpha1.Work) {
		var spec v1alpha1.BundleSpec
		if err := propagation.Spec(w, &spec); err != nil || len(spec.ExportConditions) == 0 {
			t.Fatalf("%v, %d conditions", err, len(spec.ExportConditions))
		}
		spec.ExportConditions[0].Message = "forged"
		raw, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		w.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
	})
	if kept() == before {
		t.Error("it is not decided again though what was said of the exports has changed")
	}
}

// TestAManifestIsBounded: of a Work whose manifest takes far more memory than it has bytes nothing is kept.
func TestAManifestIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		kept bool
	}{
		"ours":            {`{"revision":3,"shard":0,"imports":[],"exportConditions":[]}`, true},
		"empty imports":   {`{"revision":3,"shard":0,"imports":[{}` + strings.Repeat(",{}", 10_000) + `]}`, false},
		"a large text":    {`{"revision":3,"shard":0,"imports":[],"x":"` + strings.Repeat("x", maxReport) + `"}`, false},
		"a high revision": {`{"revision":9007199254740993,"shard":0,"imports":[]}`, false},
	} {
		work := &workv1alpha1.Work{}
		work.Spec.Workload.Manifests = []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{
			Raw: []byte(`{"spec":` + c.spec + `}`)}}}
		var h held
		if h.read(work); (h.spec != nil) != c.kept {
			t.Errorf("%s: kept %v, want %v", name, h.spec != nil, c.kept)
		}
	}
}

// labelling is a client of an API server that gives every export of a record a label, and decodes the answer into what
// was sent as a real one does.
type labelling struct{ *shelf }

func (l labelling) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return l.answer(o, func() error { return l.shelf.Create(ctx, o, opts...) })
}

func (l labelling) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return l.answer(o, func() error { return l.shelf.Update(ctx, o, opts...) })
}

func (l labelling) answer(o client.Object, write func() error) error {
	if record, ok := o.(*v1alpha1.ExportRecord); ok {
		answer := record.DeepCopy()
		for i := range answer.Spec.Exports {
			answer.Spec.Exports[i].Settings.Labels = map[string]string{"foreign": "true"}
		}
		data, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, o); err != nil {
			return err
		}
	}
	return write()
}

// TestTheAnswerToARecordIsItsOwn: what the API server answers to a record's write changes nothing that was decided, nor
// what a member was read to report.
func TestTheAnswerToARecordIsItsOwn(t *testing.T) {
	for _, created := range []bool{true, false} {
		p := play(t, manyServices(3, 40, 4))
		p.Client = labelling{p.shelf}
		if created {
			delete(p.shelf.objects, reflect.TypeFor[*v1alpha1.ExportRecord]())
			for _, mem := range p.seen {
				mem.record = propagation.WriteBehind[v1alpha1.ExportRecord]{}
			}
		}
		for i := range p.members[0].Exports {
			p.members[0].Exports[i].Settings.Labels = map[string]string{"own": "true"}
		}
		p.replacePod(0, 1)
		p.answer(0, 0)
		p.now = p.now.Add(time.Minute)
		p.decide(0)
		foreign := func(what string, exports []v1alpha1.Export) {
			t.Helper()
			if len(exports) == 0 {
				t.Errorf("created %v: %s has no exports", created, what)
			}
			for _, e := range exports {
				if e.Settings.Labels["foreign"] != "" {
					t.Errorf("created %v: %s has a label of the API server's answer", created, what)
					return
				}
			}
		}
		foreign("the decision", p.last(Shard{"blue", 0}).d.Records["c1"].Exports)
		foreign("what is to be known again", p.records[v1alpha1.ExportRecordName("c1", 0)].Exports)
		foreign("the report", p.seen[seenKey{"uid-c1", 0}].held.report.exports)
		for _, i := range p.last(Shard{"blue", 0}).d.Bundles["c2"].Imports {
			if i.Settings.Labels["foreign"] != "" {
				t.Errorf("created %v: an import has a label of the API server's answer", created)
				break
			}
		}
	}
}

// altering is a client of an API server with a webhook that gives every import of a Work another name.
type altering struct{ *shelf }

func (a altering) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if work, ok := o.(*workv1alpha1.Work); ok {
		raw := &work.Spec.Workload.Manifests[0].Raw
		*raw = bytes.ReplaceAll(*raw, []byte(`"name":"web-`), []byte(`"name":"bew-`))
	}
	return a.shelf.Update(ctx, o, opts...)
}

func (a altering) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	raw, err := patch.Data(o)
	if err != nil {
		return err
	}
	raw = bytes.ReplaceAll(raw, []byte(`"name":"web-`), []byte(`"name":"bew-`))
	return a.shelf.Patch(ctx, o, client.RawPatch(patch.Type(), raw), opts...)
}

// TestAWebhookThatChangesWorksIsTold: with each write, and the Work is not written again and again.
func TestAWebhookThatChangesWorksIsTold(t *testing.T) {
	p := play(t, manyServices(3, 40, 4))
	p.Works.Client = altering{p.shelf}
	for round := range 3 {
		p.replacePod(0, 1+round)
		p.answer(0, 0)
		p.now = p.now.Add(time.Minute)
		if _, err := p.Reconcile(t.Context(), Shard{"blue", 0}); err == nil ||
			!strings.Contains(err.Error(), "has another spec than was sent") {
			t.Errorf("round %d: %v, want that the Work was changed", round, err)
		}
		before := p.shelf.writes["Work"]
		p.decide(0)
		if n := p.shelf.writes["Work"] - before; n > 0 {
			t.Errorf("round %d: %d Works are written again", round, n)
		}
	}
}

// TestWhatIsGoneIsForgotten: of a member that has left, and of a ClusterSet that was deleted, nothing is kept.
func TestWhatIsGoneIsForgotten(t *testing.T) {
	p := play(t, manyServices(3, 40, 4))
	shard := Shard{"blue", 0}
	if len(p.seen) != 3 || p.decided[shard] == nil {
		t.Fatalf("%d members are remembered, and of the shard %v", len(p.seen), p.decided[shard])
	}
	gone := types.NamespacedName{Name: p.members[2].Cluster}
	delete(p.shelf.objects[reflect.TypeOf(&v1alpha1.Member{})], gone)
	p.decide(0)
	if len(p.seen) != 2 {
		t.Errorf("%d members are remembered of two", len(p.seen))
	}
	delete(p.shelf.objects[reflect.TypeOf(&v1alpha1.ClusterSet{})], types.NamespacedName{Name: "blue"})
	p.decide(0)
	if len(p.decided) != 0 || len(p.unlabelled) != 0 {
		t.Errorf("of a ClusterSet that is gone there are %d decisions and %d notes", len(p.decided), len(p.unlabelled))
	}
}
