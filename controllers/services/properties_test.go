// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// random returns members whose exports agree, differ and are refused, and policies that steer some of them.
func random(r *rand.Rand) Input {
	in := Input{Shards: 1, Now: now}
	in.Services.Mode = pick(r, v1alpha1.ServiceMode(""), v1alpha1.ServiceModeClusterSetIP, v1alpha1.ServiceModeClusterIP)
	in.Services.Endpoints = pick(r, v1alpha1.EndpointMode(""), v1alpha1.EndpointModePods, v1alpha1.EndpointModeClusterIP)
	for n := 1; n <= 4; n++ {
		m := cluster(n)
		m.Labels = map[string]string{"zone": fmt.Sprint(n % 2)}
		for i := range 8 {
			if r.IntN(3) == 0 {
				continue
			}
			e := web(n)
			e.Name, e.CreatedAt = fmt.Sprintf("web-%d", i), at(r.IntN(4))
			for range r.IntN(3) {
				change(r, &e, n)
			}
			m.Exports = append(m.Exports, e)
		}
		in.Members = append(in.Members, m)
	}
	for i := range 8 {
		if r.IntN(3) == 0 {
			in.Policies = append(in.Policies, randomPolicy(r, fmt.Sprintf("web-%d", i)))
		}
	}
	return in
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func randomScope(r *rand.Rand) *v1alpha1.ImportScope {
	return pick(r, nil, &v1alpha1.ImportScope{}, scopeOf("c1"), scopeOf("c2", "c3"), labelled("zone", "1"),
		labelled("zone", "0"))
}

func randomPolicy(r *rand.Rand, name string) v1alpha1.ServicePolicy {
	return servicePolicy(name, pick(r,
		nil,
		&v1alpha1.ClusterChoice{},
		&v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"Local", "c3"}}},
		&v1alpha1.ClusterChoice{Weights: []v1alpha1.ClusterWeight{{Cluster: "c1", Weight: 3}, {Cluster: "c2", Weight: 1}}},
	), randomScope(r))
}

func change(r *rand.Rand, e *v1alpha1.Export, n int) {
	changes := []func(*v1alpha1.Export){
		headless,
		withPorts(port("", 80)),
		withPorts(port("http", 8080), port("tcp-80", 9)),
		withPorts(port("web", 80), port("b", 81)),
		func(e *v1alpha1.Export) { e.Settings.SessionAffinity = corev1.ServiceAffinityClientIP },
		func(e *v1alpha1.Export) { e.Settings.Labels = map[string]string{"n": fmt.Sprint(n)} },
		func(e *v1alpha1.Export) { e.Settings.IPFamilies = []corev1.IPFamily{"IPv6", "IPv4"} },
		func(e *v1alpha1.Export) { e.Settings.IPFamilies = nil },
		func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "192.168.1.1" },
		func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].IP = "8.8.8.8" },
		func(e *v1alpha1.Export) { e.Backends = []v1alpha1.Backends{pods(n, 150, e.Backends[0].Ports...)} },
		func(e *v1alpha1.Export) { e.Backends[0].Addresses[0].Ready = false },
		func(e *v1alpha1.Export) {
			e.Mode = pick(r, v1alpha1.ServiceModeClusterIP, v1alpha1.ServiceModeClusterSetIP)
		},
		func(e *v1alpha1.Export) { e.Scope = randomScope(r) },
		func(e *v1alpha1.Export) { e.Scope = randomScope(r) },
	}
	changes[r.IntN(len(changes))](e)
}

func TestOrderOfInputDoesNotMatter(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := random(r)
		want := Decide(in)
		shuffled := in
		shuffled.Members, shuffled.Policies = slices.Clone(in.Members), slices.Clone(in.Policies)
		r.Shuffle(len(shuffled.Policies), func(i, j int) {
			shuffled.Policies[i], shuffled.Policies[j] = shuffled.Policies[j], shuffled.Policies[i]
		})
		members := shuffled.Members
		r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		for i := range members {
			e := slices.Clone(members[i].Exports)
			r.Shuffle(len(e), func(i, j int) { e[i], e[j] = e[j], e[i] })
			members[i].Exports = e
		}
		got := Decide(shuffled)
		if text(t, got) != text(t, want) || !slices.Equal(got.Problems, want.Problems) {
			t.Fatalf("seed %d: the decision depends on the order of its input", seed)
		}
	}
}

// A controller that restarts while members cannot be heard must not change a thing.
func TestUnknownMembersKeepEverything(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		in := random(r)
		want := Decide(in)
		for round := range 3 {
			for i := range in.Members {
				m := &in.Members[i]
				m.Last, m.Record = written(t, want, m.Cluster)
				if m.Known = r.IntN(2) == 0; round == 2 {
					m.Known = false
				}
			}
			got := Decide(in)
			if a, b := text(t, got), text(t, want); a != b {
				x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
				for k := range min(len(x), len(y)) {
					if x[k] != y[k] {
						t.Fatalf("seed %d, round %d: now %s, before %s, after\n%s", seed, round, x[k], y[k],
							strings.Join(y[max(0, k-30):k], "\n"))
					}
				}
				t.Fatalf("seed %d, round %d: the length changed", seed, round)
			}
		}
	}
}

func encodedMembers(t *testing.T, in Input) string {
	t.Helper()
	data, err := json.Marshal(in.Members)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What is decided step by step, where nothing is decided again that is known, is what is decided anew, whatever happens
// in whichever order.
func TestADecisionThatIsKeptIsTheSame(t *testing.T) {
	kept, steps := 0, 0
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 5))
		in, last := random(r), new(latest)
		in.Scheduled, in.Placed = map[string][]string{}, map[string][]string{}
		for step := range 25 {
			m := &in.Members[r.IntN(len(in.Members))]
			switch r.IntN(12) {
			case 0: // an export goes, comes or changes
				m.Exports = slices.Clone(m.Exports)
				if len(m.Exports) > 0 && r.IntN(2) == 0 {
					m.Exports = m.Exports[1:]
				}
				for i := range m.Exports {
					if r.IntN(4) == 0 {
						m.Exports[i].Backends = slices.Clone(m.Exports[i].Backends)
						change(r, &m.Exports[i], 1)
					}
				}
			case 1:
				m.Known = !m.Known
			case 2:
				m.Labels = map[string]string{"zone": fmt.Sprint(r.IntN(2))}
			case 3:
				in.Policies = append(slices.Clone(in.Policies[:min(1, len(in.Policies))]),
					randomPolicy(r, fmt.Sprintf("web-%d", r.IntN(8))))
			case 4:
				in.Services.Mode = pick(r, v1alpha1.ServiceModeClusterSetIP, v1alpha1.ServiceModeClusterIP)
			case 5:
				in.Scheduled = map[string][]string{fmt.Sprintf("sample/web-%d", r.IntN(8)): {"c1"}}
			case 6:
				m.Unusable = []v1alpha1.ImportProblem{{Namespace: "sample", Names: []string{"web-1"}, Reason: "NamespaceMissing"}}
			case 7:
				m.Pods = slices.Clone(m.Pods[:1])
			case 8, 9: // nobody exports a service any more
				name := fmt.Sprintf("web-%d", r.IntN(8))
				for i := range in.Members {
					in.Members[i].Exports = slices.DeleteFunc(slices.Clone(in.Members[i].Exports),
						func(e v1alpha1.Export) bool { return e.Name == name })
				}
			}
			// The last is longer than anything is kept that was withdrawn.
			in.Now = in.Now.Add(pick(r, 0, time.Second, 3*time.Second, 11*time.Second))
			before, members := last.d.Bundles, encodedMembers(t, in)
			got, want := last.decide(in), Decide(in)
			if encodedMembers(t, in) != members {
				t.Fatalf("seed %d, step %d: a decision changes what it is made of", seed, step)
			}
			steps++
			if reflect.ValueOf(before).Pointer() == reflect.ValueOf(got.Bundles).Pointer() {
				kept++
			}
			records := func(d Decision) string {
				data, err := json.Marshal(d.Records)
				if err != nil {
					t.Fatal(err)
				}
				return string(data)
			}
			if text(t, got) != text(t, want) || records(got) != records(want) || got.Again != want.Again ||
				!slices.Equal(got.Problems, want.Problems) || got.Services != want.Services || got.Conflicts != want.Conflicts {
				t.Fatalf("seed %d, step %d: what was kept is not what is decided anew (again %s and %s):\n%s\n%s", seed, step,
					got.Again, want.Again, records(got), records(want))
			}
			// A controller that restarts has what was written; one that does not finds its records as it wrote them.
			in.Members = slices.Clone(in.Members)
			for i := range in.Members {
				m := &in.Members[i]
				if r.IntN(3) > 0 {
					m.Last, m.Record = written(t, got, m.Cluster)
				} else if bundle, record := got.Bundles[m.Cluster], got.Records[m.Cluster]; true {
					m.Last, m.Record = &bundle, &record
				}
			}
		}
	}
	if kept < steps/10 {
		t.Errorf("of %d decisions %d were kept: this shows nothing", steps, kept)
	}
}

// Nobody imports what neither scope nor policy admits it to, whatever else members report, and whether
// or not the exporter can be heard.
func TestNobodyImportsWhatIsNotForIt(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := random(r)
		exports := map[place]v1alpha1.Export{}
		for _, m := range in.Members {
			for _, e := range m.Exports {
				exports[place{m.Cluster, key{e.Namespace, e.Name}}] = e
			}
		}
		first := Decide(in)
		checkScopes(t, in, exports, first)
		for i := range in.Members {
			in.Members[i].Known = r.IntN(2) == 0
			in.Members[i].Last, in.Members[i].Record = written(t, first, in.Members[i].Cluster)
		}
		// Narrower than before.
		for i := range in.Policies {
			in.Policies[i].Spec.Importers = scopeOf("c1")
		}
		checkScopes(t, in, exports, Decide(in))
	}
}

func checkScopes(t *testing.T, in Input, exports map[place]v1alpha1.Export, d Decision) {
	t.Helper()
	admitted := func(s *v1alpha1.ImportScope, m Member) bool {
		return s == nil || slices.Contains(s.ClusterNames, m.Cluster) ||
			s.ClusterSelector != nil && s.ClusterSelector.MatchLabels["zone"] == m.Labels["zone"]
	}
	for _, m := range in.Members {
		for _, i := range d.Bundles[m.Cluster].Imports {
			for _, c := range i.Clusters {
				e := exports[place{c.Cluster, key{i.Namespace, i.Name}}]
				allowed := admitted(e.Scope, m)
				for _, p := range in.Policies {
					allowed = allowed && (p.Name != i.Name || admitted(p.Spec.Importers, m))
				}
				if c.Cluster != m.Cluster && !allowed {
					t.Errorf("%s imports %s of %s", m.Cluster, i.Name, c.Cluster)
				}
			}
		}
	}
}

func TestUnknownMemberWithoutItsOwnBundle(t *testing.T) {
	before := decide(cluster(1, web(1)), cluster(2))
	lost := cluster(1)
	lost.Known = false
	_, lost.Record = written(t, before, "c1")
	if now := decide(lost, cluster(2)); text(t, now) != text(t, before) {
		t.Errorf("now\n%s\nbefore\n%s", text(t, now), text(t, before))
	}
}

// A pull member can write its own Works, from which nothing is restored but the verdicts on its own exports.
func TestABundleThatAMemberRewroteRestoresNothing(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 4))
		in := random(r)
		want := Decide(in)
		forged, other := random(r), &Bundle{}
		other.Imports = Decide(forged).Bundles["c1"].Imports
		for i := range in.Members {
			m := &in.Members[i]
			m.Last, m.Record = written(t, want, m.Cluster)
			m.Known = i > 1
			if i == 0 {
				m.Last.Imports = other.Imports
			}
		}
		if got := Decide(in); text(t, got) != text(t, want) {
			t.Fatalf("seed %d: a Work of c1 changed a Bundle", seed)
		}
	}
}

// manyServices is a shard of a ClusterSet, each of whose services two clusters export with three pods each.
func manyServices(clusters, services int, shards int32) Input {
	in := Input{Shards: shards, Now: now}
	for n := 1; n <= clusters; n++ {
		// Networks of two clusters may be the same here: nobody compares them.
		m := cluster(1 + n%100)
		m.Cluster = fmt.Sprintf("c%d", n)
		for i := range services {
			e := web(1 + n%100)
			e.Name = fmt.Sprintf("web-%d", i)
			if (i%clusters == n%clusters || (i+1)%clusters == n%clusters) &&
				v1alpha1.Shard(e.Namespace, e.Name, shards) == 0 {
				m.Exports = append(m.Exports, e)
			}
		}
		in.Members = append(in.Members, m)
	}
	return in
}

func BenchmarkDecide(b *testing.B) {
	for _, x := range []struct {
		clusters int
		shards   int32
	}{{10, 1}, {10, 4}, {100, 4}, {200, 4}} {
		b.Run(fmt.Sprintf("services=1000/clusters=%d/shards=%d", x.clusters, x.shards), func(b *testing.B) {
			in := manyServices(x.clusters, 1000, x.shards)
			b.ReportAllocs()
			for b.Loop() {
				Decide(in)
			}
		})
	}
}

// FuzzDecide feeds whatever a member can write into its status.
func FuzzDecide(f *testing.F) {
	for _, e := range []v1alpha1.Export{web(1), web(1, headless), web(1, withPorts(port("", 80)))} {
		data, err := json.Marshal([]v1alpha1.Export{e, e})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var exports []v1alpha1.Export
		if json.Unmarshal(data, &exports) != nil {
			t.Skip("not the JSON of an export")
		}
		d := decide(cluster(1, exports...), cluster(2, web(2)))
		checkBounds(t, d)
	})
}
