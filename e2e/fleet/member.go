// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/reportpace"
	"github.com/sealane-io/sealane/propagation"
)

// Karmada needs oneWay to write to a member what a Work says, and as long again to write the member's status back.
const (
	oneWayLeast = 80 * time.Millisecond
	oneWayMost  = 100 * time.Millisecond
)

// answersPace is the least time between two answers to deltas, as an agent's.
const answersPace = 100 * time.Millisecond

func oneWay() time.Duration { return oneWayLeast + rand.N(oneWayMost-oneWayLeast) }

// member is a cluster that exists on the wire alone.
type member struct {
	size   Size
	number int
	has    map[string]bool // namespaces
	// unpublished services are exported by no member.
	unpublished *unpublished

	mu sync.Mutex
	// pods of each service that it exports, as offsets in its pods' network; next is the first that no pod had.
	pods  map[int][]int
	next  int
	facts v1alpha1.PeeringStatus
	// moves counts the addresses that its gateway has had.
	moves int
	// deltas are the revisions of those that it has and answers apart, by their numbers.
	deltas []int64
	// back is closed when Karmada reaches the member again, nil while it does.
	back chan struct{}
}

func newMember(size Size, number int) *member {
	m := &member{size: size, number: number, has: size.present(number), pods: map[int][]int{}, next: 256,
		facts: facts(number), moves: 1}
	for i := range size.Services {
		if size.exports(number, i) {
			for range size.Backends {
				m.pods[i] = append(m.pods[i], m.next)
				m.next++
			}
		}
	}
	return m
}

// replacePod replaces one pod of a service, and returns the address of the new one.
func (m *member) replacePod(service int) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	offsets := m.pods[service]
	if len(offsets) == 0 {
		return "", fmt.Errorf("cluster %d has no pod of service %d", m.number, service)
	}
	if m.next++; m.next >= 1<<16 {
		m.next = 256
	}
	// The oldest goes.
	m.pods[service] = append(slices.Clone(offsets[1:]), m.next)
	return at(pods(m.number), m.next).String(), nil
}

// withdrawPods takes the pods of all services away, or brings new ones, and returns the services.
func (m *member) withdrawPods(away bool) (services []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.pods {
		services = append(services, i)
		m.pods[i] = nil
		for range m.size.Backends {
			if away {
				break
			}
			m.pods[i] = append(m.pods[i], m.next)
			m.next++
		}
	}
	return services
}

// offsets of the pods of a service that is exported.
func (m *member) offsets(service int) []int {
	if m.unpublished.has(service) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.pods[service])
}

// hasDelta notes that the member has a Bundle of deltas that it answers apart.
func (m *member) hasDelta(n int, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.deltas) <= n {
		m.deltas = append(m.deltas, 0)
	}
	m.deltas[n] = revision
}

// addresses of the pods of a service that is exported.
func (m *member) addresses(service int) []string {
	var out []string
	for _, offset := range m.offsets(service) {
		out = append(out, at(pods(m.number), offset).String())
	}
	slices.Sort(out)
	return out
}

// silence has Karmada not reach the member, or reach it again.
func (m *member) silence(silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case silent && m.back == nil:
		m.back = make(chan struct{})
	case !silent && m.back != nil:
		close(m.back)
		m.back = nil
	}
}

// silent says that Karmada does not reach the member.
func (m *member) silent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.back != nil
}

// reached waits until Karmada reaches the member. It is false if the context has ended before.
func (m *member) reached(ctx context.Context) bool {
	m.mu.Lock()
	back := m.back
	m.mu.Unlock()
	if back == nil {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-back:
		return true
	}
}

// carried is what a Work carries, as far as it concerns the report of it.
type carried struct {
	kind  string
	shard int32
	// half of the shard, empty where it is the shard's own Bundle, which is divided where that lists halves.
	half    string
	divided bool
	// delta has imports of all shards, which their own Bundles answer for; apart says that it is to be answered in the
	// Bundle for answers, which answers is.
	delta, apart, answers bool
	revision              int64
	leaves                bool // the cluster is told to
}

// report is what the member's agent writes into the status of what a Work carries.
func (m *member) report(c carried) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.kind == propagation.KindPeering {
		status := m.facts
		status.ObservedRevision, status.Cleaned, status.ReadsParts = c.revision, c.leaves, true
		status.ReadsText, status.ReadsDeltas = true, !m.size.Halves
		return json.Marshal(status)
	}
	status := v1alpha1.BundleStatus{ObservedRevision: c.revision}
	if c.answers {
		status.Deltas = m.deltas
	}
	if c.delta || c.answers {
		return json.Marshal(status)
	}
	services := m.size.catalogue()
	for _, i := range services.inShard[c.shard] {
		n := services.services[i]
		if c.half != "" && v1alpha1.HalfOf([]string{c.half}, n.namespace, n.name) == "" || m.unpublished.has(i) {
			continue
		}
		if offsets, exported := m.pods[i]; exported && c.half == "" {
			status.Exports = append(status.Exports, m.size.export(m.number, i, offsets))
		}
		if m.has[n.namespace] || c.revision <= 1 || c.divided {
			continue
		}
		last := len(status.Imports) - 1
		if last < 0 || status.Imports[last].Namespace != n.namespace {
			status.Imports = append(status.Imports, v1alpha1.ImportProblem{Namespace: n.namespace,
				Reason: "NamespaceMissing", Message: "the namespace does not exist"})
			last++
		}
		status.Imports[last].Names = append(status.Imports[last].Names, n.name)
	}
	return json.Marshal(status)
}

// answering is one Work as Karmada and the member treat it.
type answering struct {
	member *member
	key    client.ObjectKey
	id     workv1alpha1.ResourceIdentifier
	// down is poked when the Work has changed, up when the member has, and aside when it has deltas to answer here; ended
	// ends all.
	down, up, aside, ended chan struct{}
	// number of a Bundle of deltas.
	number int

	// changes are told of as fast as an agent does, and answers no sooner than answersPace after what was answered last.
	changes  *rate.Limiter
	answered time.Time

	mu sync.Mutex
	carried
	said []byte
}

// answerings by the namespaces of their Works, which are those of clusters, and their names.
type answerings map[string]map[string]*answering

// of returns that of a Work, nil if there is none.
func (a answerings) of(work client.ObjectKey) *answering { return a[work.Namespace][work.Name] }

func (a answerings) add(work client.ObjectKey, of *answering) {
	if a[work.Namespace] == nil {
		a[work.Namespace] = map[string]*answering{}
	}
	a[work.Namespace][work.Name] = of
}

func newAnswering(m *member, work *workv1alpha1.Work) *answering {
	kind := work.Labels[propagation.LabelKind]
	shard, _ := strconv.ParseInt(work.Labels[propagation.LabelShard], 10, 32)
	number, noNumber := strconv.Atoi(work.Labels[propagation.LabelDelta])
	return &answering{
		member: m, key: client.ObjectKeyFromObject(work), changes: reportpace.Exports(),
		carried: carried{kind: kind, shard: int32(shard), half: work.Labels[propagation.LabelHalf],
			delta: noNumber == nil, answers: work.Labels[propagation.LabelDelta] == propagation.Answers},
		id: workv1alpha1.ResourceIdentifier{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version,
			Kind: kind, Name: work.Name},
		down: make(chan struct{}, 1), up: make(chan struct{}, 1), aside: make(chan struct{}, 1),
		ended: make(chan struct{}), number: number,
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (a *answering) end() { close(a.ended) }

// arrived notes what the broker has written. What Karmada wrote is no news.
func (a *answering) arrived(work *workv1alpha1.Work) {
	revision := revisionOf(work)
	says := func(text string) bool {
		manifests := work.Spec.Workload.Manifests
		return len(manifests) == 1 && bytes.Contains(manifests[0].Raw, []byte(text))
	}
	a.mu.Lock()
	news := revision != a.revision
	a.revision, a.divided = revision, a.kind == propagation.KindBundle && says(`"halves":[`)
	a.leaves = a.kind == propagation.KindPeering && says(`"phase":"Leaving"`)
	a.apart = a.delta && says(`"answerApart":true`)
	a.mu.Unlock()
	if news {
		poke(a.down)
	}
}

// revisionOf reads the revision of what a Work carries, without decoding the rest.
func revisionOf(work *workv1alpha1.Work) int64 {
	if len(work.Spec.Workload.Manifests) != 1 {
		return 0
	}
	return numberIn(work.Spec.Workload.Manifests[0].Raw, `"revision":`)
}

// numberIn reads the number after the last of a label in JSON, 0 where there is none.
func numberIn(raw []byte, label string) (out int64) {
	at := bytes.LastIndex(raw, []byte(label))
	if at < 0 {
		return 0
	}
	for _, c := range raw[at+len(label):] {
		if c < '0' || c > '9' {
			break
		}
		out = 10*out + int64(c-'0')
	}
	return out
}

// run answers each change after the time that Karmada takes; several within it are answered at once.
func (a *answering) run(ctx context.Context, f *Fleet) {
	for {
		wait := oneWay()
		select {
		case <-ctx.Done():
			return
		case <-a.ended:
			return
		case <-a.down:
			if !a.isApart(f) {
				wait += oneWay()
			}
		case <-a.aside:
			wait += max(answersPace-time.Since(a.answered), 0)
		case <-a.up:
			select {
			case <-ctx.Done():
				return
			case <-a.ended:
				return
			case <-a.down: // an answer, which tells of the change, too
				wait += oneWay()
			case <-time.After(a.changes.Reserve().Delay()):
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if !a.member.reached(ctx) {
			return
		}
		if a.isApart(f) {
			a.answerApart(f)
			continue
		}
		if err := a.answer(ctx, f); err != nil && ctx.Err() == nil {
			f.Tally.fail(err)
			poke(a.up) // once more
		}
	}
}

// isApart says that the answer is in another Bundle, as soon as there is that.
func (a *answering) isApart(f *Fleet) bool {
	a.mu.Lock()
	apart := a.apart
	a.mu.Unlock()
	if !apart {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answersOf(a.member) != nil
}

// answerApart has the member's Bundle for answers say that it has the deltas.
func (a *answering) answerApart(f *Fleet) {
	a.mu.Lock()
	revision := a.revision
	a.mu.Unlock()
	a.member.hasDelta(a.number, revision)
	f.mu.Lock()
	defer f.mu.Unlock()
	if in := f.answersOf(a.member); in != nil {
		poke(in.aside)
	}
}

// answersOf a member are in what this returns, nil if it has no such Bundle. The fleet is locked.
func (f *Fleet) answersOf(m *member) *answering {
	return f.answers.of(propagation.AnswersKey(f.Size.cluster(m.number)))
}

func (a *answering) answer(ctx context.Context, f *Fleet) (err error) {
	a.answered = time.Now()
	a.said, err = f.reporter.report(ctx, a.key, a.id, a.said, func(context.Context) ([]byte, error) {
		a.mu.Lock()
		now := a.carried
		a.mu.Unlock()
		return a.member.report(now)
	})
	return err
}

// changed has a member tell of services whose pods have changed.
func (f *Fleet) changed(cluster string, services ...int) {
	if s := f.site(cluster); s != nil {
		s.podsChanged(services...)
		return
	}
	concerned := map[int32]bool{}
	for _, i := range services {
		concerned[f.Size.shard(i)] = true
	}
	f.poke(cluster, func(a *answering) bool {
		return a.kind == propagation.KindBundle && !a.delta && concerned[a.shard]
	})
}

// poke lets a member report anew: all its shards, or one.
func (f *Fleet) poke(cluster string, concerns func(a *answering) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.answers[propagation.PeeringKey(cluster).Namespace] {
		if concerns(a) {
			poke(a.up)
		}
	}
}
