// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// told returns a Bundle with a sequence that lists so many Bundles of deltas.
func told(name string, sequence int64, deltas int32, imports ...v1alpha1.Import) *v1alpha1.Bundle {
	b := bundle(name, imports...)
	b.Spec.Sequence, b.Spec.Deltas = sequence, deltas
	return b
}

// TestDeltas: the newest of the Bundles that have an import answers for its name, and while it is not known which that
// is, the name is answered as it was.
func TestDeltas(t *testing.T) {
	at := func(ip string) v1alpha1.Import { return headless("hs", withBackends("c2", ready(ip, "hs-0"))) }
	withheld := headless("hs", v1alpha1.ImportCluster{Cluster: "c2"})
	withheld.Withheld = true
	base := func(sequence int64, deltas int32, imports ...v1alpha1.Import) *v1alpha1.Bundle {
		return told("sealane-0", sequence, deltas, imports...)
	}
	delta := func(n int32, sequence int64, imports ...v1alpha1.Import) *v1alpha1.Bundle {
		return told(v1alpha1.DeltaName(n), sequence, 0, imports...)
	}
	half := told(v1alpha1.HalfName("sealane-0", v1alpha1.HalfOf([]string{"0", "1"}, "sample", "hs")), 8, 0, at("10.9.1.9"))
	divided := base(8, 1)
	divided.Spec.Halves = []string{"0", "1"}
	for what, c := range map[string]struct {
		bundles []*v1alpha1.Bundle
		want    string // after each of them, the last octets
	}{
		"newer":      {[]*v1alpha1.Bundle{base(5, 1, at("10.9.1.1")), delta(0, 6, at("10.9.1.2"))}, "1 2"},
		"older":      {[]*v1alpha1.Bundle{base(5, 1, at("10.9.1.1")), delta(0, 4, at("10.9.1.2"))}, "1 1"},
		"not listed": {[]*v1alpha1.Bundle{base(5, 0, at("10.9.1.1")), delta(0, 6, at("10.9.1.2"))}, "1 1"},
		"then listed": {[]*v1alpha1.Bundle{delta(0, 6, at("10.9.1.2")),
			base(5, 0, at("10.9.1.1")), base(5, 1, at("10.9.1.1"))}, "- 1 2"},
		"without a base": {[]*v1alpha1.Bundle{base(5, 1), delta(0, 6, at("10.9.1.2"))}, "- -"},
		"base of before": {[]*v1alpha1.Bundle{base(0, 1, at("10.9.1.1")), delta(0, 6, at("10.9.1.2"))}, "1 1"},
		"newest of three": {[]*v1alpha1.Bundle{base(5, 2, at("10.9.1.1")),
			delta(0, 8, at("10.9.1.2")), delta(1, 7, at("10.9.1.3"))}, "1 1 2"},
		"a base that is newer and says what it did": {[]*v1alpha1.Bundle{base(5, 1, at("10.9.1.1")),
			delta(0, 6, at("10.9.1.2")), base(7, 1, at("10.9.1.1"))}, "1 2 1"},
		"deltas that are newer and say what they did": {[]*v1alpha1.Bundle{base(5, 1, at("10.9.1.1")),
			delta(0, 4, at("10.9.1.2")), delta(0, 6, at("10.9.1.2"))}, "1 1 2"},
		"one is missing": {[]*v1alpha1.Bundle{base(5, 1, at("10.9.1.1")), delta(0, 6, at("10.9.1.2")),
			base(5, 2, at("10.9.1.1")), delta(0, 7, at("10.9.1.3")), base(8, 2, at("10.9.1.4")),
			delta(1, 9, at("10.9.1.5"))}, "1 2 2 2 2 5"},
		"one is missing, and then not listed": {[]*v1alpha1.Bundle{base(5, 0, at("10.9.1.1")), base(6, 1, at("10.9.1.2")),
			base(6, 0, at("10.9.1.2"))}, "1 1 2"},
		"withdrawn from deltas": {[]*v1alpha1.Bundle{base(5, 1, at("10.9.1.1")), delta(0, 6, at("10.9.1.2")), delta(0, 7)},
			"1 2 1"},
		"withdrawn": {[]*v1alpha1.Bundle{base(5, 1, at("10.9.1.1")), delta(0, 6, at("10.9.1.2")), base(7, 1)}, "1 2 -"},
		"withheld": {[]*v1alpha1.Bundle{base(5, 1, at("10.9.1.1")), delta(0, 6, at("10.9.1.2")), base(7, 1, withheld),
			delta(0, 8, at("10.9.1.3")), base(9, 1, withheld), base(10, 1, at("10.9.1.4"))}, "1 2 2 2 2 4"},
		"in a half": {[]*v1alpha1.Bundle{base(5, 1, at("10.9.1.1")), delta(0, 7, at("10.9.1.2")), half, divided,
			delta(0, 9, at("10.9.1.3"))}, "1 2 2 9 3"},
	} {
		x := sample()
		x.setServiceImport(&serviceImport{name: "hs", namespace: "sample", headless: true})
		known := peering("c1", v1alpha1.DNSSpec{})
		known.Spec.Shards = 1
		x.setPeering(known)
		var got []string
		for _, b := range c.bundles {
			x.setBundle(b)
			_, last, _ := strings.Cut(addressesOf(ask(t, serve(t, x), "hs.sample.svc.clusterset.local.", dns.TypeA)), "10.9.1.")
			if got = append(got, last); last == "" {
				got[len(got)-1] = "-"
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", what, got, c.want)
		}
	}
}

// TestDeltasComeLast: whatever has happened while nothing was read, no name is answered as it was before that on the
// way.
func TestDeltasComeLast(t *testing.T) {
	at := func(ip string) v1alpha1.Import { return headless("hs", withBackends("c2", ready(ip, "hs-0"))) }
	shard := v1alpha1.Shard("sample", "hs", 2)
	own := func(sequence int64, deltas int32, imports ...v1alpha1.Import) []any {
		out := []any{told("sealane-0", sequence, deltas), told("sealane-1", sequence, 0)}
		out[shard].(*v1alpha1.Bundle).Spec.Imports = imports
		return out
	}
	before := append(own(5, 1, at("10.9.1.1")), told("sealane-delta-0", 6, 0, at("10.9.1.2")))
	for what, c := range map[string]struct {
		list []any
		want string
	}{
		"taken over by the base": {append(own(8, 1, at("10.9.1.2")), told("sealane-delta-0", 9, 0)), "10.9.1.2"},
		"and listed no more":     {own(8, 0, at("10.9.1.2")), "10.9.1.2"},
		"in another": {append(own(5, 2, at("10.9.1.1")), told("sealane-delta-0", 9, 0),
			told("sealane-delta-1", 8, 0, at("10.9.1.2"))), "10.9.1.2"},
	} {
		x := sample()
		x.setServiceImport(&serviceImport{name: "hs", namespace: "sample", headless: true})
		known := peering("c1", v1alpha1.DNSSpec{})
		known.Spec.Shards = 2
		x.setPeering(known)
		read := func(list []any) (answers []string) {
			for _, obj := range inOrder(list) {
				x.setBundle(obj.(*v1alpha1.Bundle))
				answers = append(answers, addressesOf(ask(t, serve(t, x), "hs.sample.svc.clusterset.local.", dns.TypeA)))
			}
			return answers
		}
		read(before)
		if got := slices.Compact(read(c.list)); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %v, want %s throughout", what, got, c.want)
		}
	}
}

// TestDeltasThatAreGone: those that are listed go on answering, and of others nothing is kept.
func TestDeltasThatAreGone(t *testing.T) {
	x := sample()
	at := func(ip string) v1alpha1.Import { return headless("hs", withBackends("c2", ready(ip, "hs-0"))) }
	made(x, told("sealane-0", 5, 1, at("10.9.1.1")))
	for _, name := range []string{"sealane-delta-0", "sealane-delta-1"} {
		x.setBundle(told(name, 6, 0, at("10.9.1.2")))
		x.forgetPart(name)
		if got := addressesOf(ask(t, serve(t, x), "hs.sample.svc.clusterset.local.", dns.TypeA)); got != "10.9.1.2" {
			t.Errorf("without %s it is answered with %q", name, got)
		}
	}
	if got := slices.Sorted(maps.Keys(x.bundles)); !slices.Contains(got, "sealane-delta-0") ||
		slices.Contains(got, "sealane-delta-1") {
		t.Errorf("%v are kept", got)
	}
}

// TestDeltasOfAnyHistory: names are those of the imports as the agent makes them, by the same Bundles.
func TestDeltasOfAnyHistory(t *testing.T) {
	const shards, services = 2, 6
	names := []string{"sealane-0", "sealane-0", "sealane-1", "sealane-1-0", "sealane-1-1", "sealane-1-10",
		"sealane-delta-0", "sealane-delta-0", "sealane-delta-1", "sealane-delta-2"}
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		x, there, last := newIndex(nil), map[string]*v1alpha1.Bundle{}, map[string]string{}
		known := peering("c1", v1alpha1.DNSSpec{})
		known.Spec.Shards = shards
		x.setPeering(known)
		for n := range services {
			x.setServiceImport(&serviceImport{name: fmt.Sprintf("s%d", n), namespace: "sample", headless: true})
		}
		for step := range 60 {
			for range 1 + random.IntN(2) {
				name := names[random.IntN(len(names))]
				b := told(name, random.Int64N(1<<40)*int64(min(random.IntN(6), 1)), int32(random.IntN(4)))
				for n := range services {
					if random.IntN(4) > 0 {
						b.Spec.Imports = append(b.Spec.Imports, headless(fmt.Sprintf("s%d", n),
							withBackends(fmt.Sprintf("c%d", 2+random.IntN(2)), ready("10.9.1.1", ""))))
					}
				}
				if name == "sealane-1" {
					b.Spec.Halves = [][]string{nil, {"0", "1"}, {"0", "10"}}[random.IntN(3)]
				}
				x.setBundle(b)
				there[name] = b
			}
			s, _ := x.snapshot(time.Now(), true)
			for n := range services {
				name := fmt.Sprintf("s%d", n)
				cluster := ""
				if of := s.services[name+".sample"].clusters; len(of) > 0 {
					cluster = of[0].name
				}
				found, known, _ := v1alpha1.CurrentImport("sample", name, shards, func(name string) (*v1alpha1.Bundle, error) {
					return there[name], nil
				})
				base := there[v1alpha1.BundleName(v1alpha1.Shard("sample", name, shards))]
				if base != nil {
					base = there[v1alpha1.BundleOf(base, "sample", name)]
				}
				has := base != nil && base.Spec.Import("sample", name) != nil
				switch was := last[name]; {
				case known && found != nil && cluster != found.Clusters[0].Cluster:
					t.Fatalf("seed %d, step %d: %s is of %q, want %q", seed, step, name, cluster, found.Clusters[0].Cluster)
				case !known && has && was != "" && cluster != was:
					t.Fatalf("seed %d, step %d: %s is of %q and was of %q, without being known", seed, step, name, cluster, was)
				}
				last[name] = cluster
			}
		}
	}
}
