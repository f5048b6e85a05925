// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// padded are exports of cluster n made as large as they may be, and dated 1970.
func padded(n, count int) []v1alpha1.Export {
	var ports []v1alpha1.ServicePort
	for i := range maxPorts {
		ports = append(ports, port(fmt.Sprintf("%s-%d", strings.Repeat("p", 55), i), int32(1000+i)))
	}
	var out []v1alpha1.Export
	for i := range count {
		e := web(n, withPorts(ports...), created(time.Unix(0, 0)))
		e.Name = fmt.Sprintf("bulk-%03d", i)
		e.Settings.Annotations = map[string]string{"a": strings.Repeat("x", 1000), "b": strings.Repeat("x", 1000)}
		out = append(out, e)
	}
	return out
}

func honest(n, count int) []v1alpha1.Export {
	var out []v1alpha1.Export
	for i := range count {
		e := web(n)
		e.Name = fmt.Sprintf("web-%03d", i)
		out = append(out, e)
	}
	return out
}

func fullOf(d Decision, cluster string) int {
	n := 0
	for _, c := range d.Bundles[cluster].ExportConditions {
		if c.Reason == v1alpha1.ReasonBundleFull {
			n++
		}
	}
	return n
}

// Padded and backdated exports of one member cost the others nothing, whether they have names of their own or join
// the services of others, and the offender is named.
func TestOneMemberCannotStarveTheOthers(t *testing.T) {
	joined := padded(1, 100)
	for i := range joined {
		joined[i].Name = fmt.Sprintf("web-%03d", i)
	}
	for name, hostile := range map[string][]v1alpha1.Export{"names of its own": padded(1, 150),
		"names of others": joined} {
		t.Run(name, func(t *testing.T) {
			d := decide(cluster(1, hostile...), cluster(2, honest(2, 100)...), cluster(3, honest(3, 100)...))
			for _, c := range []string{"c2", "c3"} {
				if n := fullOf(d, c); n > 0 {
					t.Errorf("%d honest exports of %s have no room", n, c)
				}
				if size := sizeOf(d.Bundles[c]); size > maxBundle {
					t.Errorf("the Bundle of %s has %d bytes", c, size)
				}
			}
			if fullOf(d, "c1") == 0 {
				t.Error("the offender is not told")
			}
			named := false
			for _, p := range fleetWide(&Input{}, &d) {
				if p.Cluster != "c1" {
					t.Errorf("a problem with %s: %s", p.Cluster, p.Message)
				}
				named = named || strings.Contains(p.Message, "exceed")
			}
			if !named {
				t.Error("no problem names the offender")
			}
			entries := 0
			for _, i := range d.Bundles["c2"].Imports {
				for _, c := range i.Clusters {
					if c.Cluster == "c3" && len(c.Backends) > 0 {
						entries++
					}
				}
			}
			if entries != 100 {
				t.Errorf("c2 imports %d of the 100 services of c3", entries)
			}
		})
	}
}

func TestFairShares(t *testing.T) {
	for name, c := range map[string]struct {
		room   int
		demand map[string]int
		want   string
	}{
		"room for all":                  {100, map[string]int{"a": 10, "b": 20}, "map[a:10 b:20]"},
		"equal parts":                   {100, map[string]int{"a": 90, "b": 80}, "map[a:50 b:50]"},
		"who needs less gets all of it": {100, map[string]int{"a": 10, "b": 500, "c": 60}, "map[a:10 b:45 c:45]"},
		"no room":                       {-5, map[string]int{"a": 10}, "map[a:0]"},
		"nobody":                        {100, nil, "map[]"},
	} {
		if got := fmt.Sprint(fairShares(c.demand, c.room)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Whatever the others do, an exporter that asks for no more than its equal part of every Bundle is imported whole.
func TestAnEqualPartIsAlwaysFree(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		modest := honest(4, 1+r.IntN(80))
		in := Input{Shards: 1, Now: now, Members: []Member{cluster(4, modest...)}}
		for n := 1; n <= 3; n++ {
			m := cluster(n, padded(n, r.IntN(120))...)
			for i := range m.Exports {
				e := &m.Exports[i]
				e.CreatedAt = metav1.NewTime(time.Unix(int64(r.IntN(1000)), 0))
				e.Settings.Ports = e.Settings.Ports[:1+r.IntN(maxPorts)]
				if r.IntN(2) == 0 {
					e.Name = fmt.Sprintf("web-%03d", i)
				}
			}
			in.Members = append(in.Members, m)
		}
		d := Decide(in)
		if n := fullOf(d, "c4"); n > 0 {
			t.Errorf("seed %d: %d of %d modest exports have no room", seed, n, len(modest))
		}
		for c, b := range d.Bundles {
			if size := sizeOf(b); size > maxBundle {
				t.Errorf("seed %d: the Bundle of %s has %d bytes", seed, c, size)
			}
		}
	}
}
