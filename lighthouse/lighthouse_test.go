// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/pkg/fall"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// sample is c1's index: c2 exports cs and, with c1, both; c1, c2 and c3 export the headless ss; c3 is
// disconnected.
func sample() *index {
	x := newIndex(nil)
	x.setPeering(peering("c1", v1alpha1.DNSSpec{Domains: []string{"clusterset.local", "mesh.example.org"}}))
	b := bundle("sealane-0",
		clusterIP("cs", exporter("c2", "10.99.0.7", "fd00:99::7")),
		clusterIP("both", exporter("c1", "10.88.0.9"), exporter("c2", "10.99.0.9"), exporter("c3", "10.66.0.9")),
		clusterIP("waiting", exporter("c2", "10.99.0.10")),
		headless("ss",
			withBackends("c1"),
			withBackends("c2", ready("10.9.1.4", "ss-0"), ready("10.9.2.4", "ss-1"), ready("fd00:9::4", "ss-0"),
				v1alpha1.Backend{IP: "10.9.3.4", Hostname: "ss-2"}, ready("10.9.4.4", "")),
			withBackends("c3", ready("10.6.1.4", "ss-0")),
		),
		headless("empty", withBackends("c2")),
	)
	b.Status = v1alpha1.BundleStatus{ObservedRevision: 1, Exports: []v1alpha1.Export{{
		Namespace: "sample", Name: "ss",
		Settings: headless("ss").Settings,
		Backends: group(ready("10.8.1.4", "ss-0")),
	}}}
	made(x, b)
	x.setServiceImport(&serviceImport{name: "cs", namespace: "sample", ips: []string{"10.88.1.1", "fd00:88::1"}})
	x.setServiceImport(&serviceImport{name: "both", namespace: "sample", ips: []string{"10.88.1.2"}})
	x.setServiceImport(&serviceImport{name: "byhand", namespace: "other", ips: []string{"10.88.1.3"}})
	x.setServiceImport(&serviceImport{name: "ss", namespace: "sample", headless: true})
	x.setServer([]string{"10.88.0.53", "fd00:88::53"})
	x.setGateway(gateway("n1", map[string]v1alpha1.ConnectionStatus{
		"c2": v1alpha1.ConnectionConnected, "c3": v1alpha1.ConnectionError, "c1": v1alpha1.ConnectionError,
	}))
	return x
}

const sampleSOA = "clusterset.local. 5 IN SOA ns.dns.clusterset.local. hostmaster.clusterset.local. 1 7200 1800 86400 5"

func TestAnswers(t *testing.T) {
	l := serve(t, sample())
	for _, c := range append(addressCases(), srvCases()...) {
		t.Run(dns.TypeToString[c.Qtype]+" "+c.Qname, func(t *testing.T) {
			rec := dnstest.NewRecorder(&test.ResponseWriter{})
			query := c.Msg()
			query.Question[0].Name = c.Qname
			code, err := l.ServeDNS(t.Context(), rec, query)
			if err != nil {
				t.Fatal(err)
			}
			if c.Rcode == dns.RcodeRefused {
				if code != dns.RcodeRefused || rec.Msg != nil {
					t.Fatalf("code %s and message %v, want REFUSED and none", dns.RcodeToString[code], rec.Msg)
				}
				return
			}
			if rec.Msg == nil {
				t.Fatalf("no reply, code %s", dns.RcodeToString[code])
			}
			if !rec.Msg.Authoritative || !rec.Msg.Response {
				t.Errorf("the reply is not authoritative: %v", rec.Msg)
			}
			for _, rr := range append(rec.Msg.Answer, rec.Msg.Ns...) {
				if soa, ok := rr.(*dns.SOA); ok {
					soa.Serial = 1
				}
				if rr.Header().Ttl != defaultTTL {
					t.Errorf("TTL %d, want %d: %s", rr.Header().Ttl, defaultTTL, rr)
				}
			}
			if len(rec.Msg.Answer) == 0 && len(c.Ns) == 0 {
				c.Ns = []dns.RR{test.SOA(sampleSOA)}
			}
			if err := test.SortAndCheck(rec.Msg, c); err != nil {
				t.Errorf("%v\n%s", err, rec.Msg)
			}
		})
	}
}

// The names that the cases ask for, and short forms of what they expect.
const (
	cs   = "cs.sample.svc.clusterset.local."
	both = "both.sample.svc.clusterset.local."
	ss   = "ss.sample.svc.clusterset.local."

	A, AAAA, SRV = dns.TypeA, dns.TypeAAAA, dns.TypeSRV
	NX           = dns.RcodeNameError
)

func a(name string, ips ...string) (rrs []dns.RR) {
	for _, ip := range ips {
		rrs = append(rrs, test.A(fmt.Sprintf("%s 5 IN A %s", name, ip)))
	}
	return rrs
}

func aaaa(name, ip string) []dns.RR {
	return []dns.RR{test.AAAA(fmt.Sprintf("%s 5 IN AAAA %s", name, ip))}
}

// reverseOfIPv6 is the reverse name of fd00:88::1.
const reverseOfIPv6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.8.0.0.0.0.d.f.ip6.arpa."

func ptrs(name string, targets ...string) (rrs []dns.RR) {
	for _, target := range targets {
		rrs = append(rrs, test.PTR(fmt.Sprintf("%s 5 IN PTR %s", name, target)))
	}
	return rrs
}

func srv(name string, portsAndTargets ...string) (rrs []dns.RR) {
	for _, rest := range portsAndTargets {
		rrs = append(rrs, test.SRV(fmt.Sprintf("%s 5 IN SRV 0 100 %s", name, rest)))
	}
	return rrs
}

// addressCases are the rows of the DNS table without SRV. A case without records expects the SOA.
func addressCases() []test.Case {
	return []test.Case{
		{Qname: cs, Qtype: A, Answer: a(cs, "10.88.1.1")},
		{Qname: cs, Qtype: AAAA, Answer: aaaa(cs, "fd00:88::1")},
		{Qname: "CS.Sample.svc.ClusterSet.Local.", Qtype: A, Answer: a("CS.Sample.svc.ClusterSet.Local.", "10.88.1.1")},
		{Qname: "cs.sample.svc.mesh.example.org.", Qtype: A, Answer: a("cs.sample.svc.mesh.example.org.", "10.88.1.1")},
		{Qname: "byhand.other.svc.clusterset.local.", Qtype: A, Answer: a("byhand.other.svc.clusterset.local.", "10.88.1.3")},
		{Qname: both, Qtype: A, Answer: a(both, "10.88.1.2")},
		{Qname: both, Qtype: AAAA},
		{Qname: both, Qtype: dns.TypeMX},
		{Qname: both, Qtype: dns.TypeTXT},
		{Qname: both, Qtype: dns.TypeANY},
		{Qname: "waiting.sample.svc.clusterset.local.", Qtype: A},
		{Qname: "c1." + both, Qtype: A, Answer: a("c1."+both, "10.88.0.9")},
		{Qname: "c2." + both, Qtype: A, Answer: a("c2."+both, "10.99.0.9")},
		{Qname: "C2." + cs, Qtype: AAAA, Answer: aaaa("C2."+cs, "fd00:99::7")},
		{Qname: "c2." + both, Qtype: AAAA},
		{Qname: "c3." + both, Qtype: A},
		{Qname: "c4." + both, Qtype: A, Rcode: NX},
		{Qname: "x.c2." + both, Qtype: A, Rcode: NX},
		{Qname: ss, Qtype: A, Answer: a(ss, "10.8.1.4", "10.9.1.4", "10.9.2.4", "10.9.4.4")},
		{Qname: ss, Qtype: AAAA, Answer: aaaa(ss, "fd00:9::4")},
		{Qname: "c2." + ss, Qtype: A, Answer: a("c2."+ss, "10.9.1.4", "10.9.2.4", "10.9.4.4")},
		{Qname: "ss-0.c2." + ss, Qtype: A, Answer: a("ss-0.c2."+ss, "10.9.1.4")},
		{Qname: "ss-0.c2." + ss, Qtype: AAAA, Answer: aaaa("ss-0.c2."+ss, "fd00:9::4")},
		{Qname: "ss-0.c1." + ss, Qtype: A, Answer: a("ss-0.c1."+ss, "10.8.1.4")},
		{Qname: "ss-1.c2." + ss, Qtype: AAAA},
		{Qname: "ss-2.c2." + ss, Qtype: A, Rcode: NX},
		{Qname: "10-9-4-4.c2." + ss, Qtype: A, Answer: a("10-9-4-4.c2."+ss, "10.9.4.4")},
		{Qname: "ss-0.c3." + ss, Qtype: A},
		{Qname: "c3." + ss, Qtype: A},
		{Qname: "empty.sample.svc.clusterset.local.", Qtype: A},
		{Qname: "none.sample.svc.clusterset.local.", Qtype: A, Rcode: NX},
		{Qname: "cs.none.svc.clusterset.local.", Qtype: A, Rcode: NX},
		{Qname: "sample.svc.clusterset.local.", Qtype: A},
		{Qname: "none.svc.clusterset.local.", Qtype: A, Rcode: NX},
		{Qname: "svc.clusterset.local.", Qtype: A},
		{Qname: "pod.clusterset.local.", Qtype: A, Rcode: NX},
		{Qname: "dns-version.clusterset.local.", Qtype: dns.TypeTXT,
			Answer: []dns.RR{test.TXT(`dns-version.clusterset.local. 5 IN TXT "1.0.0"`)}},
		{Qname: "dns-version.clusterset.local.", Qtype: A},
		{Qname: "clusterset.local.", Qtype: dns.TypeSOA, Answer: []dns.RR{test.SOA(sampleSOA)}},
		{Qname: "clusterset.local.", Qtype: dns.TypeNS,
			Answer: []dns.RR{test.NS("clusterset.local. 5 IN NS ns.dns.clusterset.local.")},
			Extra:  append(a(nameServerName, "10.88.0.53"), aaaa(nameServerName, "fd00:88::53")...)},
		{Qname: nameServerName, Qtype: A, Answer: a(nameServerName, "10.88.0.53")},
		{Qname: nameServerName, Qtype: AAAA, Answer: aaaa(nameServerName, "fd00:88::53")},
		{Qname: nameServerName, Qtype: SRV},
		{Qname: "ns.dns.mesh.example.org.", Qtype: A, Answer: a("ns.dns.mesh.example.org.", "10.88.0.53")},
		{Qname: "dns.clusterset.local.", Qtype: A},
		{Qname: "x.dns.clusterset.local.", Qtype: A, Rcode: NX},
		{Qname: "1.1.88.10.in-addr.arpa.", Qtype: dns.TypePTR, Answer: ptrs("1.1.88.10.in-addr.arpa.", cs)},
		{Qname: "1.1.88.10.IN-ADDR.Arpa.", Qtype: dns.TypePTR, Answer: ptrs("1.1.88.10.IN-ADDR.Arpa.", cs)},
		{Qname: reverseOfIPv6, Qtype: dns.TypePTR, Answer: ptrs(reverseOfIPv6, cs)},
		{Qname: "1.1.88.10.in-addr.arpa.", Qtype: A, Rcode: dns.RcodeRefused},
		{Qname: "9.9.88.10.in-addr.arpa.", Qtype: dns.TypePTR, Rcode: dns.RcodeRefused},
		{Qname: "x.1.1.88.10.in-addr.arpa.", Qtype: dns.TypePTR, Rcode: dns.RcodeRefused},
		{Qname: "clusterset.local.", Qtype: A},
		{Qname: "clusterset.local.", Qtype: dns.TypeAXFR, Rcode: dns.RcodeRefused},
		{Qname: "example.com.", Qtype: A, Rcode: dns.RcodeRefused},
	}
}

// srvCases are the rows of the DNS table with ports.
func srvCases() []test.Case {
	return []test.Case{
		{Qname: "_tcp." + cs, Qtype: SRV},
		{Qname: "_udp." + cs, Qtype: SRV, Rcode: NX},
		{Qname: "_dns._tcp." + cs, Qtype: SRV, Rcode: NX},
		{Qname: "_http._tcp." + cs, Qtype: A},
		{Qname: "_http._udp." + cs, Qtype: SRV, Rcode: NX},
		{Qname: "_HTTP._tcp." + cs, Qtype: SRV, Answer: srv("_HTTP._tcp."+cs, "80 "+cs),
			Extra: append(a(cs, "10.88.1.1"), aaaa(cs, "fd00:88::1")...)},
		{Qname: both, Qtype: SRV, Answer: srv(both, "80 "+both), Extra: a(both, "10.88.1.2")},
		{Qname: "_http._tcp.c2." + both, Qtype: SRV, Answer: srv("_http._tcp.c2."+both, "80 c2."+both),
			Extra: a("c2."+both, "10.99.0.9")},
		{Qname: "_http._tcp.c3." + both, Qtype: SRV},
		{Qname: "_http._tcp.c4." + both, Qtype: SRV, Rcode: NX},
		{Qname: "_http._tcp.waiting.sample.svc.clusterset.local.", Qtype: SRV},
		{Qname: "_http._tcp." + ss, Qtype: SRV,
			Answer: srv("_http._tcp."+ss, "8080 10-9-4-4.c2."+ss, "8080 ss-0.c1."+ss, "8080 ss-0.c2."+ss, "8080 ss-1.c2."+ss),
			Extra: slices.Concat(a("10-9-4-4.c2."+ss, "10.9.4.4"), a("ss-0.c1."+ss, "10.8.1.4"), a("ss-0.c2."+ss, "10.9.1.4"),
				aaaa("ss-0.c2."+ss, "fd00:9::4"), a("ss-1.c2."+ss, "10.9.2.4"))},
		{Qname: "_http._tcp.c1." + ss, Qtype: SRV, Answer: srv("_http._tcp.c1."+ss, "8080 ss-0.c1."+ss),
			Extra: a("ss-0.c1."+ss, "10.8.1.4")},
		{Qname: "ss-1.c2." + ss, Qtype: SRV, Answer: srv("ss-1.c2."+ss, "8080 ss-1.c2."+ss),
			Extra: a("ss-1.c2."+ss, "10.9.2.4")},
	}
}

func TestClusterNamesCanBeTurnedOff(t *testing.T) {
	x := sample()
	x.setPeering(peering("c1", v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}, ClusterNames: ptr.To(false)}))
	l := serve(t, x)
	for name, want := range map[string]int{
		"c2.both.sample.svc.clusterset.local.":    dns.RcodeNameError,
		"ss-0.c2.ss.sample.svc.clusterset.local.": dns.RcodeSuccess,
		"both.sample.svc.clusterset.local.":       dns.RcodeSuccess,
	} {
		if got := ask(t, l, name, dns.TypeA); got.Rcode != want {
			t.Errorf("%s: %s, want %s", name, dns.RcodeToString[got.Rcode], dns.RcodeToString[want])
		}
	}
}

func TestWrongClassIsRefused(t *testing.T) {
	l := serve(t, sample())
	query := new(dns.Msg).SetQuestion("cs.sample.svc.clusterset.local.", dns.TypeA)
	query.Question[0].Qclass = dns.ClassCHAOS
	if code, _ := l.ServeDNS(t.Context(), &test.ResponseWriter{}, query); code != dns.RcodeRefused {
		t.Errorf("code %s, want REFUSED", dns.RcodeToString[code])
	}
}

func TestNoAnswerBeforeEverythingWasRead(t *testing.T) {
	x := newIndex(nil)
	l := serve(t, x)
	l.current.Store(newIndex(nil).current)
	if l.Ready() {
		t.Error("ready before everything was read")
	}
	query := new(dns.Msg).SetQuestion("cs.sample.svc.clusterset.local.", dns.TypeA)
	if code, _ := l.ServeDNS(t.Context(), &test.ResponseWriter{}, query); code != dns.RcodeServerFailure {
		t.Errorf("code %s, want SERVFAIL", dns.RcodeToString[code])
	}
}

func TestFallthrough(t *testing.T) {
	l := serve(t, sample())
	l.next = test.NextHandler(dns.RcodeNotImplemented, nil)
	ask := func(name string) int {
		code, _ := l.ServeDNS(t.Context(), &test.ResponseWriter{}, new(dns.Msg).SetQuestion(name, dns.TypeA))
		return code
	}
	if code := ask("none.sample.svc.clusterset.local."); code != dns.RcodeSuccess {
		t.Errorf("without fallthrough: code %d, want a reply", code)
	}
	if code := ask("example.com."); code != dns.RcodeNotImplemented {
		t.Errorf("outside the zones: code %d, want the next plugin's", code)
	}
	l.fall = fall.Root
	if code := ask("none.sample.svc.clusterset.local."); code != dns.RcodeNotImplemented {
		t.Errorf("with fallthrough: code %d, want the next plugin's", code)
	}
	if code := ask("cs.sample.svc.clusterset.local."); code != dns.RcodeSuccess {
		t.Errorf("a known name: code %d, want a reply", code)
	}
}

// A thousand endpoints do not fit a datagram: it is truncated, and a stream has them all.
func TestLargeAnswers(t *testing.T) {
	var backends []v1alpha1.Backend
	for i := range 1000 {
		backends = append(backends, ready(fmt.Sprintf("10.9.%d.%d", i/250, 1+i%250), fmt.Sprintf("big-%d", i)))
	}
	x := newIndex(nil)
	made(x, bundle("sealane-0", headless("big", withBackends("c2", backends...))))
	l := serve(t, x)
	const name = "big.sample.svc.clusterset.local."
	for _, c := range []struct {
		tcp       bool
		size      uint16
		truncated bool
	}{{false, 512, true}, {false, 1232, true}, {true, 0, false}} {
		query := new(dns.Msg).SetQuestion(name, dns.TypeA)
		if c.size > 512 {
			query.SetEdns0(c.size, false)
		}
		rec := dnstest.NewRecorder(&test.ResponseWriter{TCP: c.tcp})
		if _, err := l.ServeDNS(t.Context(), request.NewScrubWriter(query, rec), query); err != nil {
			t.Fatal(err)
		}
		wire, err := rec.Msg.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if rec.Msg.Truncated != c.truncated || !c.tcp && len(wire) > int(c.size) {
			t.Errorf("tcp %v, size %d: %d octets, truncated %v", c.tcp, c.size, len(wire), rec.Msg.Truncated)
		}
		if n := len(rec.Msg.Answer); n == 0 || c.tcp && n != 1000 {
			t.Errorf("tcp %v, size %d: %d records", c.tcp, c.size, n)
		}
	}
}

// longest returns a Bundle with a service of which every label has 63 octets, and one endpoint with a short
// hostname.
func longest() *v1alpha1.Bundle {
	label := func(c string) string { return strings.Repeat(c, maxLabel) }
	imp := headless(label("s"), withBackends(label("c"), ready("10.9.1.4", label("h")), ready("10.9.1.5", "short")))
	imp.Namespace = label("n")
	return bundle("sealane-0", imp)
}

// A target that no message can hold is left out, and does not take the others with it.
func TestTargetsThatAreTooLongAreLeftOut(t *testing.T) {
	b := longest()
	x := newIndex(nil)
	made(x, b)
	m := ask(t, serve(t, x), b.Spec.Imports[0].Name+"."+b.Spec.Imports[0].Namespace+".svc.clusterset.local.", SRV)
	if len(m.Answer) != 1 || !strings.HasPrefix(m.Answer[0].(*dns.SRV).Target, "short.") {
		t.Errorf("got %v", m)
	}
	if _, err := m.Pack(); err != nil {
		t.Errorf("the answer cannot be packed: %v", err)
	}
}

// Additional records are given as long as all of them fit: some would mark the answer as truncated.
func TestAdditionalRecordsDoNotTruncate(t *testing.T) {
	for hosts, extra := range map[int]bool{4: true, 7: false} {
		var backends []v1alpha1.Backend
		for i := range hosts {
			backends = append(backends, ready(fmt.Sprintf("10.9.0.%d", i+1), fmt.Sprintf("h-%d", i)))
		}
		x := newIndex(nil)
		made(x, bundle("sealane-0", headless("ss", withBackends("c2", backends...))))
		query := new(dns.Msg).SetQuestion("_http._tcp."+ss, SRV)
		rec := dnstest.NewRecorder(&test.ResponseWriter{})
		if _, err := serve(t, x).ServeDNS(t.Context(), request.NewScrubWriter(query, rec), query); err != nil {
			t.Fatal(err)
		}
		if rec.Msg.Truncated || len(rec.Msg.Answer) != hosts || (len(rec.Msg.Extra) == hosts) != extra || !extra &&
			len(rec.Msg.Extra) > 0 {
			t.Errorf("%d hosts: %d records and %d more, truncated %v", hosts, len(rec.Msg.Answer), len(rec.Msg.Extra),
				rec.Msg.Truncated)
		}
	}
}

func TestSeveralTargetsBeginWithAnyOfThem(t *testing.T) {
	l := serve(t, sample())
	first := map[string]bool{}
	for range 1000 {
		first[ask(t, l, "_http._tcp."+ss, SRV).Answer[0].(*dns.SRV).Target] = true
	}
	if len(first) != 4 {
		t.Errorf("the first of four targets is one of %v, want any of four", first)
	}
}

// A truncated answer leaves out others each time: in the end every endpoint is used.
func TestTruncatedAnswersHaveEveryAddressInTurn(t *testing.T) {
	var backends []v1alpha1.Backend
	for i := range 200 {
		backends = append(backends, ready(fmt.Sprintf("10.9.0.%d", 1+i), ""))
	}
	x := newIndex(nil)
	made(x, bundle("sealane-0", headless("ss", withBackends("c2", backends...))))
	l := serve(t, x)
	for _, qtype := range []uint16{A, SRV} {
		seen := map[string]bool{}
		for range 2000 {
			query := new(dns.Msg).SetQuestion(ss, qtype)
			rec := dnstest.NewRecorder(&test.ResponseWriter{})
			if _, err := l.ServeDNS(t.Context(), request.NewScrubWriter(query, rec), query); err != nil {
				t.Fatal(err)
			}
			if !rec.Msg.Truncated || rec.Msg.Len() > dns.MinMsgSize {
				t.Fatalf("%d octets, truncated %v", rec.Msg.Len(), rec.Msg.Truncated)
			}
			for _, rr := range rec.Msg.Answer {
				switch rr := rr.(type) {
				case *dns.A:
					seen[rr.A.String()] = true
				case *dns.SRV:
					seen[rr.Target] = true
				}
			}
		}
		if len(seen) != len(backends) {
			t.Errorf("%s: %d of %d endpoints", dns.TypeToString[qtype], len(seen), len(backends))
		}
	}
}

func TestSeveralAddressesBeginWithAnyOfThem(t *testing.T) {
	l := serve(t, sample())
	first := map[string]bool{}
	for range 1000 {
		m := ask(t, l, "ss.sample.svc.clusterset.local.", dns.TypeA)
		first[m.Answer[0].(*dns.A).A.String()] = true
	}
	if len(first) != 4 {
		t.Errorf("the first of four addresses is one of %v, want any of four", first)
	}
}

func TestReplyAllocatesOnce(t *testing.T) {
	l := serve(t, sample())
	query := new(dns.Msg).SetQuestion("cs.sample.svc.clusterset.local.", dns.TypeA)
	w := &test.ResponseWriter{}
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() { _, _ = l.ServeDNS(ctx, w, query) }); n > 1 {
		t.Errorf("a reply takes %v allocations, want 1: the message", n)
	}
}

// ask returns the reply to one query.
func ask(t testing.TB, l *Lighthouse, name string, qtype uint16) *dns.Msg {
	t.Helper()
	rec := dnstest.NewRecorder(&test.ResponseWriter{})
	if _, err := l.ServeDNS(context.Background(), rec, new(dns.Msg).SetQuestion(name, qtype)); err != nil {
		t.Fatal(err)
	}
	if rec.Msg == nil {
		t.Fatalf("no reply to %s", name)
	}
	return rec.Msg
}

// addressesOf returns the addresses in an answer, sorted by the order of the reply.
func addressesOf(m *dns.Msg) string {
	var ips []string
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			ips = append(ips, net.IP.String(rr.A))
		case *dns.AAAA:
			ips = append(ips, net.IP.String(rr.AAAA))
		}
	}
	return strings.Join(ips, " ")
}

// The TTL of the Peering is in force at once, and that of the directive before it.
func TestTheTTLIsApplied(t *testing.T) {
	x := sample()
	const known, unknown = "cs.sample.svc.clusterset.local.", "nothing.sample.svc.clusterset.local."
	l := serve(t, x)
	expect := func(when string, want uint32) {
		t.Helper()
		s, _ := x.snapshot(time.Now(), true)
		l.current.Store(s)
		if got := ask(t, l, known, dns.TypeA).Answer[0].Header().Ttl; got != want {
			t.Errorf("%s: an answer lives %d s, want %d", when, got, want)
		}
		soa, ok := ask(t, l, unknown, dns.TypeA).Ns[0].(*dns.SOA)
		if !ok || soa.Hdr.Ttl != want || soa.Minttl != want {
			t.Errorf("%s: a denial lives %v, want %d", when, soa, want)
		}
	}
	set := func(ttl *int32) {
		x.setPeering(peering("c1", v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}, TTLSeconds: ttl}))
	}
	expect("by default", 5)
	set(ptr.To[int32](60))
	expect("set", 60)
	set(ptr.To[int32](0))
	expect("none", 0)
	set(ptr.To[int32](-1))
	expect("impossible", 5)
	l.ttl = ptr.To[uint32](7)
	set(ptr.To[int32](60))
	expect("set in the directive", 7)
}
