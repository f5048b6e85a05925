// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// random returns members whose exports agree, differ and are refused.
func random(r *rand.Rand) []Member {
	var members []Member
	for n := 1; n <= 4; n++ {
		m := cluster(n)
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
		members = append(members, m)
	}
	return members
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
	}
	changes[r.IntN(len(changes))](e)
}

func TestOrderOfInputDoesNotMatter(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		members := random(r)
		want := decide(members...)
		shuffled := slices.Clone(members)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for i := range shuffled {
			e := slices.Clone(shuffled[i].Exports)
			r.Shuffle(len(e), func(i, j int) { e[i], e[j] = e[j], e[i] })
			shuffled[i].Exports = e
		}
		got := decide(shuffled...)
		if text(t, got) != text(t, want) || !slices.Equal(got.Problems, want.Problems) {
			t.Fatalf("seed %d: the decision depends on the order of its input", seed)
		}
	}
}

// A controller that restarts while members cannot be heard must not change a thing.
func TestUnknownMembersKeepEverything(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		members := random(r)
		want := decide(members...)
		for round := range 3 {
			for i := range members {
				members[i].Last = written(t, want, members[i].Cluster)
				if members[i].Known = r.IntN(2) == 0; round == 2 {
					members[i].Known = false
				}
			}
			got := decide(members...)
			if a, b := text(t, got), text(t, want); a != b {
				x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
				for k := range min(len(x), len(y)) {
					if x[k] != y[k] {
						t.Fatalf("seed %d, round %d: now %s, before %s, after\n%s", seed, round, x[k], y[k], strings.Join(y[max(0, k-30):k], "\n"))
					}
				}
				t.Fatalf("seed %d, round %d: the length changed", seed, round)
			}
		}
	}
}

func TestUnknownMemberWithoutItsOwnBundle(t *testing.T) {
	before := decide(cluster(1, web(1)), cluster(2))
	lost := cluster(1)
	lost.Known = false
	second := cluster(2)
	second.Last = written(t, before, "c2")
	if now := decide(lost, second); text(t, now) != text(t, before) {
		t.Errorf("now\n%s\nbefore\n%s", text(t, now), text(t, before))
	}
}

func TestKnownAndEmptyIsUnexported(t *testing.T) {
	before := decide(cluster(1, web(1)), cluster(2))
	first, second := cluster(1), cluster(2)
	first.Last, second.Last = written(t, before, "c1"), written(t, before, "c2")
	if got := decide(first, second).Bundles["c2"]; len(got.Imports) != 0 {
		t.Errorf("imports %v", got.Imports)
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, shards := range []int32{1, 4} {
		b.Run(fmt.Sprintf("services=1000/clusters=10/shards=%d", shards), func(b *testing.B) {
			in := Input{Shards: shards}
			for n := 1; n <= 10; n++ {
				m := cluster(n)
				for i := range 1000 {
					e := web(n)
					e.Name = fmt.Sprintf("web-%d", i)
					// Every service is exported by two clusters.
					if (i%10 == n%10 || (i+1)%10 == n%10) && v1alpha1.Shard(e.Namespace, e.Name, shards) == 0 {
						m.Exports = append(m.Exports, e)
					}
				}
				in.Members = append(in.Members, m)
			}
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
		if len(d.Bundles) != 2 || len(d.Problems) > 2*maxProblems {
			t.Fatalf("%d Bundles, %d Problems", len(d.Bundles), len(d.Problems))
		}
		mine, m := newPrefixSet(cluster(1).Pods), d.Bundles["c2"]
		if spec, err := json.Marshal(m); err != nil || len(spec) > maxBundle {
			t.Fatalf("%d bytes, %v", len(spec), err)
		}
		if !slices.ContainsFunc(m.Imports, func(i v1alpha1.Import) bool { return i.Name == "web" && i.Namespace == "sample" }) {
			t.Fatal("the export of another cluster is gone")
		}
		for _, i := range m.Imports {
			if validPorts(i.Settings.Ports) != nil {
				t.Fatalf("ports %v", i.Settings.Ports)
			}
			for _, c := range i.Clusters {
				for _, g := range c.Backends {
					for _, b := range g.Addresses {
						ip, ok := parseIP(b.IP)
						if c.Cluster == "c1" && (!ok || !mine.contain(ip)) && !slices.Contains(c.ClusterIPs, b.IP) {
							t.Fatalf("c1 contributes %s", b.IP)
						}
					}
				}
			}
		}
	})
}
