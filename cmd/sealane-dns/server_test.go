// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// The second domain is so long that names of the longest parts in it have 253 octets.
func longDomain() string { return strings.Repeat("d", 38) + ".example.org" }

func label63(c string) string { return strings.Repeat(c, 63) }

// populate creates what c1 imports: services of every kind, c3 being disconnected.
func populate(t *testing.T) {
	t.Helper()
	balanced := imported("web", v1alpha1.ClusterSetIP,
		exporter("c2", "10.99.0.3", ready("10.99.0.3", "")), exporter("c3", "10.66.0.3", ready("10.66.0.3", "")))
	balanced.Mode = v1alpha1.ServiceModeClusterIP
	m := newMember(t)
	m.create(headlessImports("ss", "one", "big", "hostile", label63("s"))...)
	m.create(
		serviceImport("cs", "10.88.1.1 fd00:88::1"), serviceImport("both", "10.88.1.2"), serviceImport("web", ""),
		peering("clusterset.local", longDomain()),
		bundle(0,
			imported("cs", v1alpha1.ClusterSetIP, exporter("c2", "10.99.0.1 fd00:99::1")),
			imported("both", v1alpha1.ClusterSetIP, exporter("c2", "10.99.0.2"), exporter("c3", "10.66.0.2")),
			balanced,
			imported("ss", v1alpha1.Headless,
				exporter("c2", "", ready("10.9.1.4", "ss-0"), ready("10.9.2.4", "ss-1"), ready("fd00:9::4", "ss-1"),
					ready("10.9.3.4", ""),
					ready("fd00:9::5", ""), v1alpha1.Backend{IP: "10.9.4.4", Hostname: "ss-2"}),
				exporter("c3", "", ready("10.6.1.4", "ss-0"))),
			imported("one", v1alpha1.Headless, exporter("c2", "", ready("10.9.5.1", "shared"), ready("10.9.5.2", "shared"))),
			imported("big", v1alpha1.Headless, exporter("c2", "", pods("big", 1000)...)),
			imported("hostile", v1alpha1.Headless, exporter("c2", "", ready("10.9.6.1", "a.b"), ready("10.9.6.2", "*"),
				ready("10.9.6.3", "_tcp"), ready("10.9.6.4", "x y\x00"), ready("10.9.6.5", label63("h")+"h"),
				ready("10.9.6.6", "UPPER"))),
			imported(label63("s"), v1alpha1.Headless, exporter(label63("c"), "", ready("10.9.7.1", label63("h")))),
		))
	m.report(&v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		map[string]v1alpha1.ConnectionStatus{"c2": v1alpha1.ConnectionConnected, "c3": v1alpha1.ConnectionError})
}

// startServer runs the server with the Corefile that members get.
func startServer(t *testing.T) (r resolver, metrics string) {
	t.Helper()
	populate(t)
	port, readiness, metrics := freePort(t), freePort(t), freePort(t)
	serve(t, fmt.Sprintf(`.:%s {
    bind 127.0.0.1
    errors
    ready 127.0.0.1:%s
    prometheus 127.0.0.1:%s
    lighthouse {
        kubeconfig %s
    }
}
`, port, readiness, metrics, writeKubeconfig(t, server)))
	if body := get(t, "http://127.0.0.1:"+readiness+"/ready"); body != "OK" {
		t.Errorf("ready says %q", body)
	}
	r = resolver{t, "127.0.0.1:" + port}
	// What the API server lists first may be a moment old.
	until(t, "c3 is known to be disconnected", 10*time.Second,
		func() bool { return short(r.ask("c3."+both, dns.TypeA, 0)) == "NODATA" })
	return r, metrics
}

// row is a row of the DNS table: a query, and its answer in short, or what it is instead.
type row struct {
	says  string
	query string
	qtype uint16
	want  string
}

// The names that the rows ask for.
const (
	cs   = "cs.sample.svc.clusterset.local."
	both = "both.sample.svc.clusterset.local."
	web  = "web.sample.svc.clusterset.local."
	ss   = "ss.sample.svc.clusterset.local."
)

func rows() []row {
	long := strings.Join([]string{label63("h"), label63("c"), label63("s"), "sample.svc", longDomain(), ""}, ".")
	hostile := "hostile.sample.svc.clusterset.local."
	return []row{
		{"a ClusterSetIP", cs, dns.TypeA, "10.88.1.1"},
		{"a ClusterSetIP of IPv6", cs, dns.TypeAAAA, "fd00:88::1"},
		{"a ClusterSetIP of the other family", both, dns.TypeAAAA, "NODATA"},
		{"ClusterIP mode", web, dns.TypeA, "10.99.0.3"},
		{"ClusterIP mode by port", "_http._tcp." + web, dns.TypeSRV, "80 c2." + web},
		{"a cluster's ClusterIP", "c2." + cs, dns.TypeA, "10.99.0.1"},
		{"a cluster's ClusterIP of IPv6", "c2." + cs, dns.TypeAAAA, "fd00:99::1"},
		{"a cluster's ClusterIP in ClusterIP mode", "c2." + web, dns.TypeA, "10.99.0.3"},
		{"a disconnected cluster", "c3." + both, dns.TypeA, "NODATA"},
		{"a cluster that does not export", "c4." + both, dns.TypeA, "NXDOMAIN"},
		{"headless", ss, dns.TypeA, "10.9.1.4 10.9.2.4 10.9.3.4"},
		{"headless of IPv6", ss, dns.TypeAAAA, "fd00:9::4 fd00:9::5"},
		{"headless in a cluster", "c2." + ss, dns.TypeA, "10.9.1.4 10.9.2.4 10.9.3.4"},
		{"a pod by its hostname", "ss-0.c2." + ss, dns.TypeA, "10.9.1.4"},
		{"a pod of two families", "ss-1.c2." + ss, dns.TypeAAAA, "fd00:9::4"},
		{"a pod without hostname", "10-9-3-4.c2." + ss, dns.TypeA, "10.9.3.4"},
		{"a pod of IPv6 without hostname", "fd00-9--5.c2." + ss, dns.TypeAAAA, "fd00:9::5"},
		{"a pod that is not ready", "ss-2.c2." + ss, dns.TypeA, "NXDOMAIN"},
		{"a pod of a disconnected cluster", "ss-0.c3." + ss, dns.TypeA, "NODATA"},
		{"pods that share a hostname", "shared.c2.one.sample.svc.clusterset.local.", dns.TypeA, "10.9.5.1 10.9.5.2"},
		{"SRV", "_http._tcp." + cs, dns.TypeSRV, "80 " + cs},
		{"SRV in a cluster", "_http._tcp.c2." + cs, dns.TypeSRV, "80 c2." + cs},
		{"SRV without a port", cs, dns.TypeSRV, "80 " + cs},
		{"SRV of another port", "_dns._tcp." + cs, dns.TypeSRV, "NXDOMAIN"},
		{"SRV of another protocol", "_http._udp." + cs, dns.TypeSRV, "NXDOMAIN"},
		{"SRV headless", "_http._tcp." + ss, dns.TypeSRV,
			"8080 10-9-3-4.c2." + ss + " 8080 fd00-9--5.c2." + ss + " 8080 ss-0.c2." + ss + " 8080 ss-1.c2." + ss},
		{"SRV of a pod", "ss-1.c2." + ss, dns.TypeSRV, "8080 ss-1.c2." + ss},
		{"SRV with one target twice", "_http._tcp.one.sample.svc.clusterset.local.", dns.TypeSRV,
			"8080 shared.c2.one.sample.svc.clusterset.local."},
		{"the schema's version", "dns-version.clusterset.local.", dns.TypeTXT, "1.0.0"},
		{"an unknown service", "none.sample.svc.clusterset.local.", dns.TypeA, "NXDOMAIN"},
		{"an unknown namespace", "cs.none.svc.clusterset.local.", dns.TypeA, "NXDOMAIN"},
		{"a namespace", "sample.svc.clusterset.local.", dns.TypeA, "NODATA"},
		{"svc", "svc.clusterset.local.", dns.TypeA, "NODATA"},
		{"a protocol", "_tcp." + cs, dns.TypeSRV, "NODATA"},
		{"the zone", "clusterset.local.", dns.TypeA, "NODATA"},
		{"another type", cs, dns.TypeMX, "NODATA"},
		{"a type that nobody knows", cs, 65280, "NODATA"},
		{"ANY", cs, dns.TypeANY, "NODATA"},
		{"capitals", "CS.sAMPLE.Svc.ClusterSet.LOCAL.", dns.TypeA, "10.88.1.1"},
		{"the second domain", "cs.sample.svc." + longDomain() + ".", dns.TypeA, "10.88.1.1"},
		{"a name of 253 octets", long, dns.TypeA, "10.9.7.1"},
		{"SRV with a target of 253 octets", long, dns.TypeSRV, "8080 " + long},
		{"hostnames that are none", hostile, dns.TypeSRV, "8080 10-9-6-1.c2." + hostile + " 8080 10-9-6-2.c2." + hostile +
			" 8080 10-9-6-3.c2." + hostile + " 8080 10-9-6-4.c2." + hostile + " 8080 10-9-6-5.c2." + hostile +
			" 8080 upper.c2." + hostile},
		{"an escaped dot", `a\.b.c2.` + hostile, dns.TypeA, "NXDOMAIN"},
		{"another domain", "example.com.", dns.TypeA, "REFUSED"},
	}
}

// Every row of the table, over the wire from the API server on.
func TestServer(t *testing.T) {
	r, metrics := startServer(t)
	for _, row := range rows() {
		t.Run(row.says, func(t *testing.T) {
			m := resolver{t, r.address}.ask(row.query, row.qtype, 1232)
			if got := short(m); got != row.want {
				t.Errorf("%s %s: got %q, want %q\n%s", dns.TypeToString[row.qtype], row.query, got, row.want, m)
			}
			if m.Question[0].Name != row.query {
				t.Errorf("the question comes back as %q", m.Question[0].Name)
			}
			for _, rr := range m.Answer {
				if rr.Header().Name != row.query || rr.Header().Ttl != 5 {
					t.Errorf("not the name that was asked for, in its case, or not the TTL: %s", rr)
				}
			}
		})
	}
	t.Run("sizes", func(t *testing.T) { testSizes(t, resolver{t, r.address}) })
	t.Run("odd queries", func(t *testing.T) { testOddQueries(t, resolver{t, r.address}) })
	body := get(t, "http://127.0.0.1:"+metrics+"/metrics")
	for _, want := range []string{
		`sealane_dns_queries_total{result="success",type="A"} [1-9]`,
		`sealane_dns_queries_total{result="nxdomain",type="SRV"} [1-9]`,
		`sealane_dns_queries_total{result="nodata",type="other"} [1-9]`, "sealane_dns_services 8",
		"sealane_dns_disconnected_clusters 1",
	} {
		if !regexp.MustCompile(want).MatchString(body) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// short puts an answer in short: the records' data, sorted, or what it is instead.
func short(m *dns.Msg) string {
	var out []string
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			out = append(out, rr.A.String())
		case *dns.AAAA:
			out = append(out, rr.AAAA.String())
		case *dns.SRV:
			out = append(out, fmt.Sprintf("%d %s", rr.Port, rr.Target))
		case *dns.TXT:
			out = append(out, rr.Txt...)
		default:
			out = append(out, rr.String())
		}
	}
	slices.Sort(out)
	if len(out) > 0 {
		return strings.Join(out, " ")
	}
	denied := len(m.Ns) == 1 && m.Ns[0].Header().Rrtype == dns.TypeSOA
	switch {
	case m.Rcode == dns.RcodeSuccess && denied && m.Authoritative:
		return "NODATA"
	case m.Rcode == dns.RcodeNameError && denied && m.Authoritative:
		return "NXDOMAIN"
	case m.Rcode == dns.RcodeRefused:
		return "REFUSED"
	}
	return m.String()
}

// A thousand endpoints do not fit a datagram of any size asked for; a stream has them all.
func testSizes(t *testing.T, r resolver) {
	for _, name := range []string{"big.sample.svc.clusterset.local.", "_http._tcp.big.sample.svc.clusterset.local."} {
		qtype := dns.TypeA
		if name[0] == '_' {
			qtype = dns.TypeSRV
		}
		for _, size := range []uint16{0, 100, 512, 1232, 4096} {
			m := r.ask(name, qtype, size)
			fits := int(max(size, dns.MinMsgSize))
			m.Compress = true
			if m.Len() > fits || !m.Truncated || len(m.Answer) == 0 || (m.IsEdns0() != nil) != (size > 0) {
				t.Errorf("%s in %d octets: %d records in %d, truncated %v, EDNS %v", name, size, len(m.Answer), m.Len(),
					m.Truncated, m.IsEdns0())
			}
		}
		m := r.exchange("tcp", new(dns.Msg).SetQuestion(name, qtype))
		if len(m.Answer) != 1000 || m.Truncated {
			t.Errorf("%s over TCP: %d records, truncated %v", name, len(m.Answer), m.Truncated)
		}
	}
}

// Queries that no resolver makes get an error and harm nobody.
func testOddQueries(t *testing.T, r resolver) {
	change := map[string]struct {
		change func(*dns.Msg)
		want   int
	}{
		"the class CHAOS": {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		"any class":       {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }, dns.RcodeRefused},
		"two questions":   {func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, dns.RcodeFormatError},
		"no question":     {func(m *dns.Msg) { m.Question = nil }, dns.RcodeFormatError},
		"a transfer":      {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }, dns.RcodeRefused},
		"a notification":  {func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, dns.RcodeRefused},
		"an update":       {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		"EDNS version 1":  {func(m *dns.Msg) { m.SetEdns0(1232, false).IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
	}
	for name, c := range change {
		t.Run(name, func(t *testing.T) {
			query := new(dns.Msg).SetQuestion(cs, dns.TypeA)
			c.change(query)
			m := exchangeRaw(t, r.address, query)
			if m.Rcode != c.want {
				t.Errorf("%s, want %s", dns.RcodeToString[m.Rcode], dns.RcodeToString[c.want])
			}
		})
	}
	if got := short(r.ask(cs, dns.TypeA, 0)); got != "10.88.1.1" {
		t.Errorf("afterwards: %s", got)
	}
}

// exchangeRaw sends a message as it is: the client would mend it.
func exchangeRaw(t *testing.T, address string, query *dns.Msg) *dns.Msg {
	t.Helper()
	raw, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(raw); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, dns.MaxMsgSize)
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg)
	if err := m.Unpack(buffer[:n]); err != nil {
		t.Fatal(err)
	}
	return m
}
