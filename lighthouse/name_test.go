// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

func TestParseName(t *testing.T) {
	const zone = "clusterset.local."
	zones := []string{zone, "b.example.org.", "a.b.example.org."}
	label63 := strings.Repeat("a", 63)
	in := func(q queryName) queryName {
		if q.zone == "" {
			q.zone = zone
		}
		return q
	}
	tests := map[string]queryName{
		"clusterset.local.":               in(queryName{kind: nameApex}),
		"ClusterSet.LOCAL.":               in(queryName{kind: nameApex}),
		"dns-version.clusterset.local.":   in(queryName{kind: nameVersion}),
		"dns.clusterset.local.":           in(queryName{kind: nameServers}),
		"NS.dns.clusterset.local.":        in(queryName{kind: nameServer}),
		"x.ns.dns.clusterset.local.":      in(queryName{kind: nameInvalid}),
		"x.dns.clusterset.local.":         in(queryName{kind: nameInvalid}),
		"x.dns-version.clusterset.local.": in(queryName{kind: nameInvalid}),
		"svc.clusterset.local.":           in(queryName{kind: nameServices}),
		"ns.svc.clusterset.local.":        in(queryName{kind: nameNamespace, namespace: "ns"}),
		"svc.svc.clusterset.local.":       in(queryName{kind: nameNamespace, namespace: "svc"}),
		"web.ns.svc.clusterset.local.": in(queryName{kind: nameService, namespace: "ns",
			service: "web.ns"}),
		"WEB.Ns.sVc.clusterset.local.": in(queryName{kind: nameService, namespace: "ns",
			service: "web.ns"}),
		"c2.web.ns.svc.clusterset.local.": in(queryName{kind: nameCluster, namespace: "ns", service: "web.ns",
			cluster: "c2"}),
		"web-0.c2.web.ns.svc.clusterset.local.": in(queryName{kind: nameHost, namespace: "ns", service: "web.ns",
			cluster: "c2", host: "web-0"}),
		"x.web-0.c2.web.ns.svc.clusterset.local.": in(queryName{kind: nameInvalid, namespace: "ns", service: "web.ns",
			cluster: "c2"}),
		"_tcp.web.ns.svc.clusterset.local.": in(queryName{kind: namePort, namespace: "ns", service: "web.ns",
			protocol: "tcp"}),
		"_http._tcp.web.ns.svc.clusterset.local.": in(queryName{kind: namePort, namespace: "ns", service: "web.ns",
			protocol: "tcp", port: "http"}),
		"_http._tcp.c2.web.ns.svc.clusterset.local.": in(queryName{kind: namePort, namespace: "ns", service: "web.ns",
			cluster: "c2", protocol: "tcp", port: "http"}),
		"_tcp.c2.web.ns.svc.clusterset.local.": in(queryName{kind: namePort, namespace: "ns", service: "web.ns",
			cluster: "c2", protocol: "tcp"}),
		"http._tcp.web.ns.svc.clusterset.local.": in(queryName{kind: nameInvalid, namespace: "ns", service: "web.ns",
			protocol: "tcp"}),
		"_x._http._tcp.c2.web.ns.svc.clusterset.local.": in(queryName{kind: nameInvalid, namespace: "ns", service: "web.ns",
			cluster: "c2", protocol: "tcp"}),
		"_._tcp.web.ns.svc.clusterset.local.": in(queryName{kind: nameInvalid, namespace: "ns", service: "web.ns",
			protocol: "tcp"}),
		"web.ns.pod.clusterset.local.": in(queryName{kind: nameInvalid}),
		"web..svc.clusterset.local.":   in(queryName{kind: nameInvalid}),
		".clusterset.local.":           in(queryName{kind: nameInvalid}),
		label63 + ".ns.svc.clusterset.local.": in(queryName{kind: nameService, namespace: "ns",
			service: label63 + ".ns"}),
		label63 + "a.ns.svc.clusterset.local.": in(queryName{kind: nameInvalid}),
		strings.Repeat(label63+".", 4) + zone:  in(queryName{kind: nameInvalid}),
		`we\.b.ns.svc.clusterset.local.`:       in(queryName{kind: nameInvalid}),
		`web.ns.svc\.clusterset.local.`:        {kind: nameOutside},
		"web.ns.svc.cluster.local.":            {kind: nameOutside},
		"notclusterset.local.":                 {kind: nameOutside},
		"local.":                               {kind: nameOutside},
		".":                                    {kind: nameOutside},
		"":                                     {kind: nameOutside},
		"web.ns.svc.b.example.org.": in(queryName{kind: nameService, zone: "b.example.org.",
			namespace: "ns", service: "web.ns"}),
		"web.ns.svc.a.b.example.org.": in(queryName{kind: nameService, zone: "a.b.example.org.",
			namespace: "ns", service: "web.ns"}),
		"_http._tcp.web.ns.svc.A.B.example.org.": in(queryName{kind: namePort, zone: "a.b.example.org.",
			namespace: "ns", service: "web.ns", protocol: "tcp", port: "http"}),
		"\u212aubernetes.ns.svc.clusterset.local.": in(queryName{kind: nameService, namespace: "ns",
			service: "\u212aubernetes.ns"}),
		"_http._tcp.h.c2.web.ns.svc.clusterset.local.": in(queryName{kind: nameInvalid, namespace: "ns", service: "web.ns",
			cluster: "c2"}),
		"10-9-1-4.c2.web.ns.svc.clusterset.local.": in(queryName{kind: nameHost, namespace: "ns", service: "web.ns",
			cluster: "c2", host: "10-9-1-4"}),
		"fd00-2--1.c2.web.ns.svc.clusterset.local.": in(queryName{kind: nameHost, namespace: "ns", service: "web.ns",
			cluster: "c2", host: "fd00-2--1"}),
		"_http._tcp.web.ns.svc.clusterset.local.invalid": {kind: nameOutside},
	}
	for name, want := range tests {
		got := parseName(name, zones)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(queryName{})); diff != "" {
			t.Errorf("parseName(%q): (-want +got)\n%s", name, diff)
		}
	}
}

func TestParseNameTakesTheLongestName(t *testing.T) {
	const zone = "clusterset.local."
	// 253 octets: three labels of 63, one that fills up, and the zone.
	full := strings.Repeat(strings.Repeat("a", 63)+".", 3)
	full += strings.Repeat("b", 253-len(full)-len(".svc.clusterset.local")) + ".svc." + zone
	if len(full) != 254 {
		t.Fatalf("the name has %d characters with the dot, want 254", len(full))
	}
	if _, ok := dns.IsDomainName(full); !ok {
		t.Fatal("the name is not valid")
	}
	if got := parseName(full, []string{zone}); got.kind != namePort && got.kind != nameHost {
		t.Errorf("kind = %d, want a host", got.kind)
	}
	if got := parseName("a"+full[1:63]+"a"+full[63:], []string{zone}); got.kind != nameInvalid {
		t.Errorf("one octet more: kind = %d, want invalid", got.kind)
	}
}

func TestParseNameAllocatesNothing(t *testing.T) {
	zones := []string{"clusterset.local."}
	if n := testing.AllocsPerRun(100, func() {
		parseName("_http._tcp.c2.web.ns.svc.clusterset.local.", zones)
	}); n != 0 {
		t.Errorf("parseName makes %v allocations, want none", n)
	}
}

func FuzzParseName(f *testing.F) {
	for _, seed := range []string{
		"web.ns.svc.clusterset.local.", "_http._tcp.c2.web.ns.svc.clusterset.local.", "a.b.c.d.svc.clusterset.local.",
		`a\.b.svc.clusterset.local.`, `\\.clusterset.local.`, "..svc.clusterset.local.", "dns-version.clusterset.local.",
	} {
		f.Add(seed)
	}
	zones := []string{"clusterset.local.", "example.org."}
	f.Fuzz(func(t *testing.T, name string) {
		q := parseName(name, zones)
		if again := parseName(strings.ToUpper(lower(name)), zones); isASCII(name) && again != q {
			t.Errorf("parseName depends on case: %+v and %+v", q, again)
		}
		if q.kind == nameOutside {
			return
		}
		if want := dns.IsSubDomain(q.zone, name); want != true && isName(name) {
			t.Errorf("%q is not in the zone %q", name, q.zone)
		}
		back := q.String()
		if back != "" && back != lower(name) {
			t.Errorf("parseName(%q) stands for %q", name, back)
		}
		if s := q.service; s != "" && q.kind != nameInvalid && strings.Count(s, ".") != 1 {
			t.Errorf("the service of %q is %q", name, s)
		}
	})
}

// String puts a parsed name together again. Invalid names have no parts.
func (q queryName) String() string {
	tail := "svc." + q.zone
	switch q.kind {
	case nameApex:
		return q.zone
	case nameVersion:
		return "dns-version." + q.zone
	case nameServices:
		return tail
	case nameNamespace:
		return q.namespace + "." + tail
	case nameService:
		return q.service + "." + tail
	case nameCluster:
		return q.cluster + "." + q.service + "." + tail
	case nameHost:
		return q.host + "." + q.cluster + "." + q.service + "." + tail
	case namePort:
		s := "_" + q.protocol + "."
		if q.port != "" {
			s = "_" + q.port + "." + s
		}
		if q.cluster != "" {
			s += q.cluster + "."
		}
		return s + q.service + "." + tail
	}
	return ""
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
}

func isName(s string) bool {
	_, ok := dns.IsDomainName(s)
	return ok
}
