// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// A Bundle that is gone, and one that comes back without status, change nothing.
func TestMissingReportsChangeNothing(t *testing.T) {
	x := sample()
	b := bundle("sealane-0", headless("ss", withBackends("c1"), withBackends("c2", ready("10.9.1.4", "ss-0"))))
	made(x, b)
	const name = "ss-0.c1.ss.sample.svc.clusterset.local."
	if got := addressesOf(ask(t, serve(t, x), name, dns.TypeA)); got != "10.8.1.4" {
		t.Errorf("without status: %s is %q, want the last reported address", name, got)
	}
	b.Status.ObservedRevision = 2
	made(x, b)
	if got := ask(t, serve(t, x), name, dns.TypeA); got.Rcode != dns.RcodeNameError {
		t.Errorf("with an empty report: %s is %v, want no such name", name, got)
	}
}

// TestHalves: the shard's own Bundle says which Bundle answers for a name, in whatever order they come.
func TestHalves(t *testing.T) {
	at := func(ip string) v1alpha1.Import { return headless("hs", withBackends("c2", ready(ip, "hs-0"))) }
	own, half, left := bundle("sealane-0", at("10.9.1.1")), bundle("sealane-0-0", at("10.9.1.2")),
		bundle("sealane-0-01", at("10.9.1.3"))
	divided := bundle("sealane-0")
	divided.Spec.Halves = []string{"0", "1"}
	const name = "hs-0.c2.hs.sample.svc.clusterset.local."
	for i, order := range [][]*v1alpha1.Bundle{
		{own, half, left, divided}, {left, half, own, divided}, {divided, left, half}, {half, divided, left},
	} {
		x := sample()
		x.setServiceImport(&serviceImport{name: "hs", namespace: "sample", headless: true})
		for _, b := range order {
			x.setBundle(b)
			answer := addressesOf(ask(t, serve(t, x), name, dns.TypeA))
			want := ""
			switch at := x.bundles["sealane-0"]; {
			case len(at.halves) > 0 && x.bundles["sealane-0-0"].imports != nil:
				want = "10.9.1.2"
			case at.imports["hs.sample"] != nil:
				want = "10.9.1.1"
			}
			if answer != want {
				t.Errorf("order %d, with %s: %q, want %q", i, b.Name, answer, want)
			}
		}
		// Back in one: a half that was deleted meanwhile, and stays known here, means nothing.
		x.setBundle(own)
		if answer := addressesOf(ask(t, serve(t, x), name, dns.TypeA)); answer != "10.9.1.1" {
			t.Errorf("order %d, back in one: %q", i, answer)
		}
	}
}

// TestWhatIsWithheldStays: as long as there is its ServiceImport, names of an import that is withheld answer what they
// did, in a half that takes it over, too; and no more than that without one.
func TestWhatIsWithheldStays(t *testing.T) {
	const name, host = "hs.sample.svc.clusterset.local.", "hs-0.c2.hs.sample.svc.clusterset.local."
	full := headless("hs", withBackends("c2", ready("10.9.1.1", "hs-0")))
	withheld := headless("hs", v1alpha1.ImportCluster{Cluster: "c2"})
	withheld.Withheld = true
	half := func(i v1alpha1.Import) *v1alpha1.Bundle {
		bits := v1alpha1.HalfOf([]string{"0", "1"}, i.Namespace, i.Name)
		return bundle(v1alpha1.HalfName("sealane-0", bits), i)
	}
	again, divided := bundle("sealane-0", withheld), bundle("sealane-0")
	divided.Spec.Halves = []string{"0", "1"}
	for what, c := range map[string]struct {
		then []*v1alpha1.Bundle
		want string
	}{
		"withheld":                 {[]*v1alpha1.Bundle{again}, "10.9.1.1"},
		"twice":                    {[]*v1alpha1.Bundle{again, again}, "10.9.1.1"},
		"in a half":                {[]*v1alpha1.Bundle{half(withheld), divided}, "10.9.1.1"},
		"in a half, and back":      {[]*v1alpha1.Bundle{half(withheld), divided, again}, "10.9.1.1"},
		"withheld, then withdrawn": {[]*v1alpha1.Bundle{again, bundle("sealane-0")}, ""},
	} {
		x := sample()
		made(x, bundle("sealane-0", full))
		for _, b := range c.then {
			x.setBundle(b)
		}
		for _, n := range []string{name, host} {
			if got := addressesOf(ask(t, serve(t, x), n, dns.TypeA)); got != c.want {
				t.Errorf("%s: %s is %q, want %q", what, n, got, c.want)
			}
		}
		x.deleteServiceImport("hs", "sample")
		if m := ask(t, serve(t, x), name, dns.TypeA); len(m.Answer) > 0 {
			t.Errorf("%s: without a ServiceImport: %v", what, m.Answer)
		}
	}
}

// TestHalvesComeFirst: of a list of Bundles that one is taken over last which says what counts.
func TestHalvesComeFirst(t *testing.T) {
	x := sample()
	x.setServiceImport(&serviceImport{name: "hs", namespace: "sample", headless: true})
	at := func(ip string) v1alpha1.Import { return headless("hs", withBackends("c2", ready(ip, "hs-0"))) }
	x.setBundle(bundle("sealane-0", at("10.9.1.1")))
	divided := bundle("sealane-0")
	divided.Spec.Halves = []string{"0", "1"}
	for _, obj := range inOrder([]any{divided, bundle("sealane-0-0", at("10.9.1.2")), bundle("sealane-0-1")}) {
		x.setBundle(obj.(*v1alpha1.Bundle))
		if answer := addressesOf(ask(t, serve(t, x), "hs.sample.svc.clusterset.local.", dns.TypeA)); answer == "" {
			t.Errorf("with %s there is no answer", obj.(*v1alpha1.Bundle).Name)
		}
	}
}

// TestHalvesThatAreGone: one that is listed goes on answering, and of one that is not nothing is kept.
func TestHalvesThatAreGone(t *testing.T) {
	x := sample()
	x.setServiceImport(&serviceImport{name: "hs", namespace: "sample", headless: true})
	at := headless("hs", withBackends("c2", ready("10.9.1.2", "hs-0")))
	divided := bundle("sealane-0")
	divided.Spec.Halves = []string{"0", "1"}
	for _, b := range []*v1alpha1.Bundle{
		bundle("sealane-0-0", at), bundle("sealane-0-1"), bundle("sealane-0-01"), divided,
	} {
		x.setBundle(b)
	}
	for _, name := range []string{"sealane-0", "sealane-0-0", "sealane-0-01"} {
		x.forgetPart(name)
	}
	if got := slices.Sorted(maps.Keys(x.bundles)); !slices.Contains(got, "sealane-0") ||
		!slices.Contains(got, "sealane-0-0") || slices.Contains(got, "sealane-0-01") {
		t.Errorf("%v are kept", got)
	}
	if got := addressesOf(ask(t, serve(t, x), "hs.sample.svc.clusterset.local.", dns.TypeA)); got != "10.9.1.2" {
		t.Errorf("it is answered with %q", got)
	}
}

// TestTheBundleOfAName: an import counts where the agent finds it, and is found elsewhere only if it is not there.
func TestTheBundleOfAName(t *testing.T) {
	x := newIndex(nil)
	x.setServiceImport(&serviceImport{name: "hs", namespace: "sample", headless: true})
	x.setGateway(gateway("n1", map[string]v1alpha1.ConnectionStatus{"c2": v1alpha1.ConnectionConnected}))
	at := func(ip string) v1alpha1.Import { return headless("hs", withBackends("c2", ready(ip, "hs-0"))) }
	place := v1alpha1.Shard("sample", "hs", 4)
	other := v1alpha1.BundleName((place + 3) % 4)
	own := bundle(v1alpha1.BundleName(place), at("10.9.1.1"))
	divided := bundle(own.Name)
	divided.Spec.Halves = []string{"0", "1"}
	half := bundle(v1alpha1.BundleOf(divided, "sample", "hs"), at("10.9.1.3"))
	known := peering("c1", v1alpha1.DNSSpec{})
	known.Spec.Shards = 4
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"in another shard alone", func() { x.setBundle(bundle(other, at("10.9.1.2"))) }, "10.9.1.2"},
		{"in its own, too, with the number of shards unknown", func() { x.setBundle(own) }, min(own.Name, other)},
		{"with that number", func() { x.setPeering(known) }, "10.9.1.1"},
		{"in a half that is not listed", func() { x.setBundle(half) }, "10.9.1.1"},
		{"in a half that is listed", func() { x.setBundle(divided) }, "10.9.1.3"},
		{"in no half", func() { x.setBundle(bundle(half.Name)) }, "10.9.1.2"},
	} {
		step.do()
		want := step.want
		switch want {
		case own.Name:
			want = "10.9.1.1"
		case other:
			want = "10.9.1.2"
		}
		if got := addressesOf(ask(t, serve(t, x), "hs.sample.svc.clusterset.local.", dns.TypeA)); got != want {
			t.Errorf("%s: %q, want %q", step.what, got, want)
		}
	}
}

func TestServiceImportsComeAndGo(t *testing.T) {
	x := sample()
	const name = "byhand.other.svc.clusterset.local."
	x.deleteServiceImport("byhand", "other")
	l := serve(t, x)
	if got := ask(t, l, name, dns.TypeA); got.Rcode != dns.RcodeNameError {
		t.Errorf("deleted: %v", got)
	}
	if got := ask(t, l, "other.svc.clusterset.local.", dns.TypeA); got.Rcode != dns.RcodeNameError {
		t.Errorf("a namespace without services: %v", got)
	}
	x.replaceServiceImports([]*serviceImport{{name: "byhand", namespace: "other", ips: []string{"10.88.1.9"}}})
	l = serve(t, x)
	if got := addressesOf(ask(t, l, name, dns.TypeA)); got != "10.88.1.9" {
		t.Errorf("replaced: %q", got)
	}
	if got := ask(t, l, "cs.sample.svc.clusterset.local.", dns.TypeA); got.Rcode != dns.RcodeNameError {
		t.Errorf("an import of which the ServiceImport is gone: %v, want no such name", got)
	}
}

func TestThisClusterIsAlwaysConnected(t *testing.T) {
	x := sample()
	const name = "c3.both.sample.svc.clusterset.local."
	if got := addressesOf(ask(t, serve(t, x), name, dns.TypeA)); got != "" {
		t.Errorf("a disconnected cluster: %q", got)
	}
	x.setPeering(peering("c3", v1alpha1.DNSSpec{}))
	if got := addressesOf(ask(t, serve(t, x), name, dns.TypeA)); got != "10.66.0.9" {
		t.Errorf("this cluster: %q", got)
	}
}

func TestZonesOfTheCorefileStay(t *testing.T) {
	x := newIndex([]string{"one.example."})
	x.setPeering(peering("c1", v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}}))
	if s, _ := x.snapshot(time.Now(), true); !slices.Equal(s.zones, []string{"one.example."}) {
		t.Errorf("zones %v", s.zones)
	}
}

func TestMalformedEntriesAreLeftOut(t *testing.T) {
	x := newIndex(nil)
	good := clusterIP("cs", exporter("c2", "10.99.0.7"), exporter("Bad_Cluster", "10.99.0.8"), exporter("c3", "nonsense",
		"127.0.0.1"))
	bad := clusterIP("not.a.label", exporter("c2", "10.99.0.9"))
	hosts := headless("ss", withBackends("c2", ready("0.0.0.0", "a"), ready("169.254.169.254", "b"),
		ready("fe80::1%eth0", "c"),
		ready("224.0.0.1", "d"), ready("10.9.1.1", "x.y"), ready("::ffff:10.9.1.2", "Mixed")))
	if rejected := made(x, bundle("sealane-0", good, bad, hosts)); rejected != 8 {
		t.Errorf("%d entries rejected, want 8", rejected)
	}
	l := serve(t, x)
	for name, want := range map[string]string{
		"c2.cs.sample.svc.clusterset.local.":          "10.99.0.7",
		"c3.cs.sample.svc.clusterset.local.":          "",
		"10-9-1-1.c2.ss.sample.svc.clusterset.local.": "10.9.1.1",
		"mixed.c2.ss.sample.svc.clusterset.local.":    "10.9.1.2",
	} {
		if got := addressesOf(ask(t, l, name, dns.TypeA)); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// Whatever the order of changes, the Snapshot is the one made of the last objects at once, and no Snapshot
// published before has changed.
func TestRandomWalkOfChanges(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	x := newIndex(nil)
	bundles := map[string]*v1alpha1.Bundle{}
	imports := map[string]*serviceImport{}
	x.setPeering(peering("c1", v1alpha1.DNSSpec{}))
	states := map[string]v1alpha1.ConnectionStatus{}
	type published struct {
		s     *Snapshot
		names []string
	}
	var before []published
	for step := range 500 {
		name := fmt.Sprintf("s%d", rnd.IntN(8))
		switch rnd.IntN(5) {
		case 4:
			states["c2"] = []v1alpha1.ConnectionStatus{v1alpha1.ConnectionConnected, v1alpha1.ConnectionError}[rnd.IntN(2)]
			x.setGateway(gateway("n1", states))
		case 0, 1:
			shard := []string{"sealane-0", "sealane-1", "sealane-1-0", "sealane-1-1"}[rnd.IntN(4)]
			bundles[shard] = randomBundle(rnd, shard)
			if shard == "sealane-1" {
				bundles[shard].Spec.Halves = [][]string{nil, {"0", "1"}, {"1"}}[rnd.IntN(3)]
			}
			x.setBundle(bundles[shard])
		case 2:
			imports[name] = &serviceImport{name: name, namespace: "sample",
				ips: []string{fmt.Sprintf("10.88.0.%d", 1+rnd.IntN(3))}}
			x.setServiceImport(imports[name])
		case 3:
			delete(imports, name)
			x.deleteServiceImport(name, "sample")
		}
		got, _ := x.snapshot(time.Now(), true)
		fresh := newIndex(nil)
		fresh.setPeering(peering("c1", v1alpha1.DNSSpec{}))
		fresh.setGateway(gateway("n1", states))
		for _, b := range bundles {
			fresh.setBundle(b)
		}
		for _, i := range imports {
			fresh.setServiceImport(i)
		}
		want, _ := fresh.snapshot(time.Now(), true)
		if !maps.EqualFunc(got.services, want.services, sameAnswers) || !maps.Equal(got.namespaces, want.namespaces) {
			t.Fatalf("step %d: services %v, want %v", step, keysOf(got), keysOf(want))
		}
		before = append(before, published{got, keysOf(got)})
	}
	for i, p := range before {
		if !slices.Equal(p.names, keysOf(p.s)) {
			t.Fatalf("the Snapshot of step %d was changed after it was published", i)
		}
	}
}

// randomBundle returns a Bundle with some of the shard's services, each exported by some of two clusters.
func randomBundle(rnd *rand.Rand, shard string) *v1alpha1.Bundle {
	b := bundle(shard)
	for i := range 4 {
		if rnd.IntN(2) == 0 {
			continue
		}
		name := fmt.Sprintf("s%d", 2*i+int(shard[len(shard)-1]-'0'))
		imp := clusterIP(name, exporter("c2", fmt.Sprintf("10.99.0.%d", 1+rnd.IntN(3))))
		switch rnd.IntN(3) {
		case 0:
			imp = clusterIP(name, exporter("c1", "10.88.0.1"), exporter("c2", "10.99.0.1"), exporter("c3", "10.66.0.1"))
			imp.Mode = v1alpha1.ServiceModeClusterIP
			for j := range imp.Clusters {
				imp.Clusters[j].Backends = group(ready("10.9.0.1", ""))[:rnd.IntN(2)]
			}
		case 1:
			imp = headless(name, withBackends("c2", ready(fmt.Sprintf("10.9.0.%d", 1+rnd.IntN(3)), "h")), withBackends("c3"))
		}
		b.Spec.Imports = append(b.Spec.Imports, imp)
	}
	return b
}

// sameAnswers says whether two services answer the same, in whichever order they take turns.
func sameAnswers(a, b *service) bool {
	if !a.equal(b) || (a.balance == nil) != (b.balance == nil) {
		return false
	}
	return a.balance == nil || slices.Equal(a.balance.v4.turns, b.balance.v4.turns) &&
		slices.EqualFunc(a.balance.ports, b.balance.ports, func(a, b rotation) bool { return slices.Equal(a.turns, b.turns) })
}

func keysOf(s *Snapshot) []string {
	keys := slices.Sorted(maps.Keys(s.services))
	for i, key := range keys {
		keys[i] = fmt.Sprintf("%s %v", key, s.services[key].vips)
	}
	return keys
}

// Whatever a Bundle holds, it is parsed, and its names are answered with well-formed records.
func FuzzBundle(f *testing.F) {
	for _, b := range []*v1alpha1.Bundle{
		bundle("sealane-0", clusterIP("cs", exporter("c2", "10.99.0.7"))),
		bundle("sealane-0", headless("ss", withBackends("c2", ready("10.9.1.4", "ss-0"), ready("fd00:9::4", "")))),
		longest(),
		balancedBundle(nil, cluster1("http"), cluster2("http", "grpc"), cluster3("grpc")),
		balancedBundle(&v1alpha1.ClusterChoice{Weights: []v1alpha1.ClusterWeight{{Cluster: "c2", Weight: 3}}},
			cluster2("http"), cluster3("grpc")),
		balancedBundle(&v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"Local"},
			MinReadyBackends: 2}}, cluster1("http"), cluster3("grpc")),
	} {
		raw, err := json.Marshal(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	l := serve(f, newIndex(nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var b v1alpha1.Bundle
		if json.Unmarshal(raw, &b) != nil {
			t.Skip("not the JSON of a Bundle")
		}
		x := newIndex(nil)
		x.setPeering(peering("c1", v1alpha1.DNSSpec{}))
		made(x, &b)
		s, _ := x.snapshot(time.Now(), true)
		l.current.Store(s)
		for key, s := range l.current.Load().services {
			names := []string{key}
			for _, c := range s.clusters {
				names = append(names, c.name+"."+key)
				for _, h := range c.hosts {
					names = append(names, h.label+"."+c.name+"."+key)
				}
			}
			for _, name := range names {
				if !isName(name + ".svc.clusterset.local.") {
					continue // no query can ask for it
				}
				for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV} {
					m := ask(t, l, name+".svc.clusterset.local.", qtype)
					if _, err := m.Pack(); err != nil {
						t.Errorf("the answer for %q cannot be packed: %v", name, err)
					}
				}
			}
		}
	})
}

// A name exists exactly where its ServiceImport does: in a cluster that lacks the namespace there is none, whatever the
// Bundle holds.
func TestANameExistsWhereItsServiceImportDoes(t *testing.T) {
	mode := clusterIP("mode", exporter("c2", "10.99.0.8"))
	mode.Mode = v1alpha1.ServiceModeClusterIP
	b := bundle("sealane-0",
		clusterIP("cs", exporter("c2", "10.99.0.7")), mode,
		headless("ss", withBackends("c2", ready("10.9.1.4", "ss-0"))),
	)
	queries := map[string]uint16{
		"cs.sample": dns.TypeA, "mode.sample": dns.TypeA, "ss.sample": dns.TypeA,
		"c2.cs.sample": dns.TypeA, "c2.mode.sample": dns.TypeA, "c2.ss.sample": dns.TypeA, "ss-0.c2.ss.sample": dns.TypeA,
		"_http._tcp.cs.sample": dns.TypeSRV, "_http._tcp.mode.sample": dns.TypeSRV, "_http._tcp.ss.sample": dns.TypeSRV,
		"_http._tcp.c2.cs.sample": dns.TypeSRV, "_http._tcp.c2.ss.sample": dns.TypeSRV, "sample": dns.TypeA,
	}
	x := newIndex(nil)
	x.setBundle(b)
	expect := func(when string, want int) {
		t.Helper()
		l := serve(t, x)
		for name, qtype := range queries {
			if got := ask(t, l, name+".svc.clusterset.local.", qtype); got.Rcode != want {
				t.Errorf("%s, %s is %s, want %s", when, name, dns.RcodeToString[got.Rcode], dns.RcodeToString[want])
			}
		}
	}
	expect("without ServiceImports", dns.RcodeNameError)
	for _, s := range []*serviceImport{
		{name: "cs", namespace: "sample", ips: []string{"10.88.1.1"}}, {name: "mode", namespace: "sample"},
		{name: "ss", namespace: "sample", headless: true},
	} {
		x.setServiceImport(s)
	}
	expect("with ServiceImports", dns.RcodeSuccess)
	x.replaceServiceImports(nil)
	expect("with the ServiceImports gone", dns.RcodeNameError)
}

// Of ServiceImports only those count that Sealane wrote, by name and labels, and that Karmada did not take over.
func TestTheServiceImportIsSealanes(t *testing.T) {
	ours := ownLabels("cs")
	for name, c := range map[string]struct {
		labels map[string]string
		want   int
	}{
		"Sealane's": {ours, dns.RcodeSuccess},
		"a user's":  {nil, dns.RcodeNameError},
		"a user's with our label": {map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
			dns.RcodeNameError},
		"a user's with another's labels": {map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
			v1alpha1.LabelImport: "other"}, dns.RcodeNameError},
		"Karmada's": {map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: "cs", "karmada.io/managed": "true",
		}, dns.RcodeNameError},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(nil)
			x.setBundle(bundle("sealane-0", headless("cs", withBackends("c2", ready("10.9.1.4", "")))))
			m, err := newMeasures(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			w := &watcher{index: x, measures: m}
			feed := w.serviceImports()
			before := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "cs", Labels: ours}}
			after := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "cs", Labels: c.labels}}
			for _, step := range []func(){
				func() { feed.replace([]any{after}) },
				func() { feed.set(before); feed.set(after) },
			} {
				step()
				if got := ask(t, serve(t, x), "cs.sample.svc.clusterset.local.", dns.TypeA); got.Rcode != c.want {
					t.Errorf("got %s, want %s", dns.RcodeToString[got.Rcode], dns.RcodeToString[c.want])
				}
			}
		})
	}
}
