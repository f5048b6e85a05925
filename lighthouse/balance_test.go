// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// web is the name of the balanced service.
const web = "web.sample.svc.clusterset.local."

// part is what one cluster contributes to the balanced service.
type part struct {
	cluster string
	ips     []string
	// backed are the ports that have ready backends; serves, where it differs, those that the cluster exposes.
	backed, serves []string
	// reported is the number of ready backends that the broker reports.
	reported int32
}

// balanced returns c1's index of web in ClusterIP mode, with the ports http and grpc. c1's own part stands in
// its report.
func balanced(policy *v1alpha1.ClusterChoice, parts ...part) *index {
	x := newIndex(nil)
	x.setPeering(peering("c1", v1alpha1.DNSSpec{}))
	made(x, balancedBundle(policy, parts...))
	x.setServiceImport(&serviceImport{name: "web", namespace: "sample"})
	return x
}

func balancedBundle(policy *v1alpha1.ClusterChoice, parts ...part) *v1alpha1.Bundle {
	imp := clusterIP("web")
	imp.Mode, imp.Choice = v1alpha1.ServiceModeClusterIP, policy
	imp.Settings.Ports = servicePorts()
	b := bundle("sealane-0")
	b.Status.ObservedRevision = 1
	for _, p := range parts {
		c := exporter(p.cluster, p.ips...)
		c.Ports = p.serves
		if p.serves == nil {
			c.Ports = []string{"grpc", "http"}
		}
		backends := p.backends()
		if p.cluster == "c1" {
			b.Status.Exports = []v1alpha1.Export{{
				Namespace: "sample", Name: "web", Settings: imp.Settings, ClusterIPs: p.ips, Backends: backends,
			}}
			backends = nil
		}
		if p.reported > 0 {
			c.ReadyBackends = &p.reported
		}
		c.Backends = backends
		imp.Clusters = append(imp.Clusters, c)
	}
	b.Spec.Imports = []v1alpha1.Import{imp}
	return b
}

func servicePorts() []v1alpha1.ServicePort {
	return []v1alpha1.ServicePort{
		{Name: "grpc", Protocol: corev1.ProtocolTCP, Port: 90},
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
	}
}

// backends of the ports that have some: the ClusterIPs themselves, as the broker reports them.
func (p part) backends() []v1alpha1.Backends {
	if len(p.backed) == 0 {
		return nil
	}
	b := v1alpha1.Backends{}
	for _, name := range p.backed {
		b.Ports = append(b.Ports, v1alpha1.BackendPort{Name: name, Protocol: corev1.ProtocolTCP, Port: 8080})
	}
	for _, ip := range p.ips {
		b.Addresses = append(b.Addresses, ready(ip, ""))
	}
	return []v1alpha1.Backends{b}
}

func allPorts() []string { return []string{"grpc", "http"} }

func cluster1(backed ...string) part {
	return part{cluster: "c1", ips: []string{"10.88.0.1"}, backed: backed}
}

func cluster2(backed ...string) part {
	return part{cluster: "c2", ips: []string{"10.99.0.2"}, backed: backed}
}

func cluster3(backed ...string) part {
	return part{cluster: "c3", ips: []string{"10.66.0.3", "fd00:66::3"}, backed: backed}
}

// tally asks 1,200 times and returns how often each answer came, per hundred: "10.99.0.2*50 10.66.0.3*50".
func tally(t *testing.T, l *Lighthouse, name string, qtype uint16) string {
	t.Helper()
	const asked = 1200
	count := map[string]int{}
	for range asked {
		m := ask(t, l, name, qtype)
		if m.Rcode != dns.RcodeSuccess {
			t.Fatalf("%s %s: %s", dns.TypeToString[qtype], name, dns.RcodeToString[m.Rcode])
		}
		got := addressesOf(m)
		for _, rr := range m.Answer {
			if s, ok := rr.(*dns.SRV); ok {
				got = fmt.Sprintf("%d %s", s.Port, s.Target)
			}
		}
		if got == "" && len(m.Ns) != 1 {
			t.Fatalf("an answer of nothing lacks the SOA: %v", m)
		}
		if len(m.Answer) > 1 {
			t.Fatalf("%d answers, want one: %v", len(m.Answer), m)
		}
		count[got]++
	}
	var out []string
	for got, n := range count {
		out = append(out, fmt.Sprintf("%s*%d", got, (n*100+asked/2)/asked))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestClusterIPMode(t *testing.T) {
	weights := func(c2, c3 int32) *v1alpha1.ClusterChoice {
		return &v1alpha1.ClusterChoice{Weights: []v1alpha1.ClusterWeight{{Cluster: "c2", Weight: c2},
			{Cluster: "c3", Weight: c3}}}
	}
	failover := func(enough int32, clusters ...string) *v1alpha1.ClusterChoice {
		return &v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: clusters, MinReadyBackends: enough}}
	}
	few := cluster2(allPorts()...)
	few.reported = 3
	many := cluster3(allPorts()...)
	many.reported = 9
	unlisted := cluster2("http", "grpc")
	unlisted.serves = []string{"http"}
	tests := []struct {
		name   string
		policy *v1alpha1.ClusterChoice
		parts  []part
		down   string
		want   string
	}{
		{"the local cluster alone", nil, []part{cluster1(allPorts()...), cluster2(allPorts()...)}, "", "10.88.0.1*100"},
		{"it counts with any port", nil, []part{cluster1("grpc"), cluster2(allPorts()...)}, "", "10.88.0.1*100"},
		{"it has no ready backends", nil, []part{cluster1(), cluster2(allPorts()...)}, "", "10.99.0.2*100"},
		{"it counts as connected", nil, []part{cluster1(allPorts()...), cluster2(allPorts()...)}, "c1", "10.88.0.1*100"},
		{"all others evenly", nil, []part{cluster2("http"), cluster3("grpc")}, "", "10.66.0.3*50 10.99.0.2*50"},
		{"one is disconnected", nil, []part{cluster2("http"), cluster3("http")}, "c2", "10.66.0.3*100"},
		{"one has no ready backends", nil, []part{cluster2(), cluster3("http")}, "", "10.66.0.3*100"},
		{"one has backends of a port that lost a conflict", nil, []part{unlisted, cluster3("http")}, "",
			"10.66.0.3*50 10.99.0.2*50"},
		{"nobody has", nil, []part{cluster1(), cluster2(), cluster3()}, "", "*100"},
		{"by weight", weights(3, 1), []part{cluster1(allPorts()...), cluster2("http"), cluster3("http")}, "",
			"10.66.0.3*25 10.99.0.2*75"},
		{"weight 0 is nothing", weights(0, 1), []part{cluster2("http"), cluster3("http")}, "c3", "*100"},
		{"the first in order", failover(1, "c3", "c2"), []part{cluster1(allPorts()...), few, many}, "", "10.66.0.3*100"},
		{"the next in order", failover(1, "c3", "c2"), []part{cluster1(allPorts()...), few, many}, "c3", "10.99.0.2*100"},
		{"spilling over below the threshold", failover(4, "c2", "c3"), []part{few, many}, "", "10.66.0.3*75 10.99.0.2*25"},
		{"enough backends", failover(3, "c2", "c3"), []part{few, many}, "", "10.99.0.2*100"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := balanced(tt.policy, tt.parts...)
			x.setGateway(gateway("n1", map[string]v1alpha1.ConnectionStatus{tt.down: v1alpha1.ConnectionError}))
			if got := tally(t, serve(t, x), web, dns.TypeA); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestClusterIPModeByPort(t *testing.T) {
	x := balanced(nil, cluster1("grpc"), cluster2("http"), cluster3(allPorts()...))
	l := serve(t, x)
	for _, tt := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{web, dns.TypeA, "10.88.0.1*100"},
		{web, dns.TypeAAAA, "fd00:66::3*100"}, // the local cluster has no address of that family
		{"_grpc._tcp." + web, dns.TypeSRV, "90 c1." + web + "*100"},
		{"_http._tcp." + web, dns.TypeSRV, "80 c2." + web + "*50 80 c3." + web + "*50"},
		{"_http._tcp.c3." + web, dns.TypeSRV, "80 c3." + web + "*100"},
		{"c2." + web, dns.TypeA, "10.99.0.2*100"},
		{"c3." + web, dns.TypeAAAA, "fd00:66::3*100"},
	} {
		if got := tally(t, l, tt.name, tt.qtype); got != tt.want {
			t.Errorf("%s %s: got %q, want %q", dns.TypeToString[tt.qtype], tt.name, got, tt.want)
		}
	}
	if m := ask(t, l, web, dns.TypeSRV); len(m.Answer) != 2 || len(m.Extra) < 2 {
		t.Errorf("a record for each port, and addresses: %v", m)
	}
	x.setPeering(peering("c1", v1alpha1.DNSSpec{ClusterNames: ptr.To(false)}))
	m := ask(t, serve(t, x), "_grpc._tcp."+web, dns.TypeSRV)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.SRV).Target != web || len(m.Extra) != 1 ||
		m.Extra[0].(*dns.A).A.String() != "10.88.0.1" {
		t.Errorf("without names of clusters: %v", m)
	}
}

// Of the clusters that share a service those are asked for an IPv6 address that have one.
func TestClusterIPModeByFamily(t *testing.T) {
	l := serve(t, balanced(nil, cluster2("http"), cluster3("http")))
	if got := tally(t, l, web, dns.TypeAAAA); got != "fd00:66::3*100" {
		t.Errorf("AAAA: %s", got)
	}
	if got := tally(t, l, web, dns.TypeA); got != "10.66.0.3*50 10.99.0.2*50" {
		t.Errorf("A: %s", got)
	}
}

// A client that asks for both families gets every cluster of either.
func TestFamiliesTakeTurnsOnTheirOwn(t *testing.T) {
	other := cluster2("http")
	other.ips = append(other.ips, "fd00:99::2")
	l := serve(t, balanced(nil, other, cluster3("http")))
	seen := map[string]bool{}
	for range 2 {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			seen[addressesOf(ask(t, l, web, qtype))] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("two queries for each family answered %v, want two addresses of each", seen)
	}
}

// The local export may name its ports differently from the merged service.
func TestClusterIPModeFollowsTheMergedPorts(t *testing.T) {
	b := balancedBundle(nil, cluster1("http"), cluster2(allPorts()...))
	e := &b.Status.Exports[0]
	e.Settings.Ports = []v1alpha1.ServicePort{{Name: "", Protocol: corev1.ProtocolTCP, Port: 80}}
	e.Backends[0].Ports = []v1alpha1.BackendPort{{Protocol: corev1.ProtocolTCP, Port: 8080}}
	b.Spec.Imports[0].Clusters[0].Ports = []string{"http"}
	x := balanced(nil)
	made(x, b)
	l := serve(t, x)
	if got, want := tally(t, l, "_http._tcp."+web, dns.TypeSRV), "80 c1."+web+"*100"; got != want {
		t.Errorf("a port with a generated name: got %q, want %q", got, want)
	}
	if got, want := tally(t, l, "_grpc._tcp."+web, dns.TypeSRV), "90 c2."+web+"*100"; got != want {
		t.Errorf("a port that the local cluster lacks: got %q, want %q", got, want)
	}
}

// A rotation goes on where it was, whatever changes around it.
func TestTurnsGoOnAcrossSnapshots(t *testing.T) {
	parts := []part{cluster2("http"), cluster3("http")}
	x := balanced(nil, parts...)
	l := serve(t, x)
	count := map[string]int{}
	for i := range 100 {
		count[addressesOf(ask(t, l, web, dns.TypeA))]++
		parts[0].reported = int32(i + 1)
		made(x, balancedBundle(nil, parts...))
		status := v1alpha1.ConnectionConnected
		if i%2 == 0 {
			status = v1alpha1.ConnectionError
		}
		x.setGateway(gateway("n1", map[string]v1alpha1.ConnectionStatus{"c9": status}))
		s, _ := x.snapshot(moment(), true)
		l.current.Store(s)
	}
	if count["10.99.0.2"] != 50 || count["10.66.0.3"] != 50 {
		t.Errorf("100 queries with a change between each: %v, want 50 each", count)
	}
}

func TestTurnsAreExactUnderConcurrency(t *testing.T) {
	l := serve(t, balanced(&v1alpha1.ClusterChoice{Weights: []v1alpha1.ClusterWeight{{Cluster: "c2", Weight: 1},
		{Cluster: "c3", Weight: 3}}},
		cluster2("http"), cluster3("http")))
	var mu sync.Mutex
	count := map[string]int{}
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 100 {
				got := addressesOf(ask(t, l, web, dns.TypeA))
				mu.Lock()
				count[got]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	if count["10.99.0.2"] != 200 || count["10.66.0.3"] != 600 {
		t.Errorf("800 queries: %v, want 200 and 600", count)
	}
}

func TestTurns(t *testing.T) {
	for want, weights := range map[string][]int{
		"":        nil,
		"0":       {7},
		"01":      {100, 100},
		"012":     {1, 1, 1},
		"0010":    {3, 1},
		"0102010": {4, 2, 1},
	} {
		var shares []share
		for i, w := range weights {
			shares = append(shares, share{place: int32(i), weight: w})
		}
		var got strings.Builder
		for _, place := range turns(shares) {
			fmt.Fprintf(&got, "%d", place)
		}
		if got.String() != want {
			t.Errorf("turns of %v: %s, want %s", weights, got.String(), want)
		}
	}
}

// However large the weights are, the rotation is bounded, and nobody with a weight is left out.
func TestTurnsAreBounded(t *testing.T) {
	var shares []share
	for i := range 100 {
		shares = append(shares, share{place: int32(i), weight: 1 + 9*i})
	}
	shares = append(shares, share{place: 100, weight: 100_000})
	got := turns(shares)
	if len(got) > maxTurns+len(shares) {
		t.Errorf("%d turns", len(got))
	}
	for _, s := range shares {
		if !slices.Contains(got, s.place) {
			t.Errorf("a share of weight %d is left out", s.weight)
		}
	}
}

func TestClusterIPModeAllocatesTheReply(t *testing.T) {
	l := serve(t, balanced(nil, cluster2("http"), cluster3("http")))
	query := new(dns.Msg).SetQuestion(web, dns.TypeA)
	w := &test.ResponseWriter{}
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() { _, _ = l.ServeDNS(ctx, w, query) }); n > 1 {
		t.Errorf("a reply takes %v allocations, want 1: the message", n)
	}
}

// The mode of a service changes while the derived Service of the other mode is still there.
func TestModeChanges(t *testing.T) {
	x := balanced(nil, cluster2("http"))
	x.setServiceImport(&serviceImport{name: "web", namespace: "sample", ips: []string{"10.88.1.1"}})
	if got := addressesOf(ask(t, serve(t, x), web, dns.TypeA)); got != "10.99.0.2" {
		t.Errorf("in ClusterIP mode: %q", got)
	}
	b := balancedBundle(nil, cluster2("http"))
	b.Spec.Imports[0].Mode = v1alpha1.ServiceModeClusterSetIP
	made(x, b)
	if got := addressesOf(ask(t, serve(t, x), web, dns.TypeA)); got != "10.88.1.1" {
		t.Errorf("in ClusterSetIP mode: %q", got)
	}
}
