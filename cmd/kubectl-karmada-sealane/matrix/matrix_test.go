// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"encoding/xml"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/internal/probe"
)

// clusterset of two clusters, c1 of IPv4 with two nodes, c2 of both families with a gateway alone.
func clusterset() Clusterset {
	at := func(cluster string, kind Kind, role Role) Place {
		return Place{Cluster: cluster, Kind: kind, Role: role, Node: cluster + "-" + string(role)}
	}
	server := func(cluster string, role Role, addresses ...string) Server {
		s := Server{Place: at(cluster, Pod, role), Service: string(role) + "-" + cluster,
			Headless: string(role) + "-" + cluster + "-pods"}
		for i, a := range addresses {
			s.PodIPs = append(s.PodIPs, netip.MustParseAddr(a))
			s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr([]string{"10.99.0.1", "fd99::1"}[i]))
		}
		return s
	}
	return Clusterset{
		Clients: []Client{{Place: at("c1", Pod, Worker)}, {Place: at("c2", Host, Gateway)}},
		Servers: []Server{server("c1", Gateway, "10.8.0.2"), server("c1", Worker, "10.8.1.2"),
			server("c2", Gateway, "10.9.0.2", "fd09::2")},
		Namespace: "ns", Domain: "clusterset.local", ClusterNames: true,
		Global: func(string, string) bool { return false },
	}
}

// waysPerLane is how many checks a client makes of a server in one family: 5 targets, TCP and UDP, small and large.
const waysPerLane = 5 * 2 * 2

func TestTheMatrixIsWhole(t *testing.T) {
	m := clusterset().Build()
	// From c1's client to c2's one server, and from c2's to both of c1.
	if len(m.Checks) != 3*waysPerLane || m.Count(Pending) != len(m.Checks) {
		t.Fatalf("%d checks, %d pending", len(m.Checks), m.Count(Pending))
	}
	names := map[string]bool{}
	addresses := map[string]bool{}
	for i := range m.Checks {
		c := &m.Checks[i]
		names[c.String()] = true
		if c.From.Cluster == "c1" {
			addresses[string(c.Target)+" "+c.Address] = true
		}
		if c.From.Cluster == c.To.Cluster || c.Family != IPv4 {
			t.Errorf("%s is checked", c)
		}
	}
	if len(names) != len(m.Checks) {
		t.Errorf("%d checks have %d names", len(m.Checks), len(names))
	}
	want := []string{
		"ClusterIP 10.99.0.1:8460", "ClusterSetIP gateway-c2.ns.svc.clusterset.local.:8460",
		"by-cluster c2.gateway-c2.ns.svc.clusterset.local.:8460",
		"headless gateway-c2-pods.ns.svc.clusterset.local.:8460", "pod 10.9.0.2:8460",
	}
	if got := slices.Sorted(maps.Keys(addresses)); !slices.Equal(got, want) {
		t.Errorf("c1 asks for\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBothFamiliesWhereBothClustersHaveThem(t *testing.T) {
	s := clusterset()
	s.Servers[0].PodIPs = append(s.Servers[0].PodIPs, netip.MustParseAddr("fd08::2"))
	m := s.Build()
	families := map[string]int{}
	for _, c := range m.Checks {
		if c.From.Cluster == "c1" {
			families[string(c.Family)]++
		}
	}
	if families["IPv4"] != waysPerLane || families["IPv6"] != waysPerLane {
		t.Errorf("c1 asks %v", families)
	}
	asked := m.Asked(s.Clients[0].Place)
	if !slices.ContainsFunc(asked, func(c probe.Check) bool {
		return c.Network == "udp6" && c.Address == "[fd09::2]:8460" && c.Large && c.Server == "c2/gateway"
	}) {
		t.Errorf("no large datagram to the pod by IPv6 among %v", asked)
	}
}

func TestWhatDoesNotExistIsSkipped(t *testing.T) {
	s := clusterset()
	s.ClusterNames = false
	s.Global = func(cluster, to string) bool { return cluster == "c2" && to == "c1" }
	m := s.Build()
	skipped := map[Target]int{}
	for _, c := range m.Checks {
		if c.Verdict == Skipped {
			skipped[c.Target]++
			if c.Reason == "" || c.Address != "" {
				t.Errorf("%s: %q, %q", &c, c.Reason, c.Address)
			}
		}
	}
	// c2 is behind global addresses for c1; no cluster's name is answered to anybody.
	if want := map[Target]int{TargetPod: 4, TargetClusterIP: 4, TargetByCluster: 12}; !maps.Equal(skipped, want) {
		t.Errorf("skipped are %v, want %v", skipped, want)
	}
	if n := len(m.Asked(s.Clients[0].Place)); n != 8 {
		t.Errorf("c1 asks %d things, want 8", n)
	}
}

func TestWhatCouldNotBeStartedFails(t *testing.T) {
	s := clusterset()
	s.Clients[1].Failure = "c2 gateway host: ErrImagePull"
	s.Servers[2].Failure, s.Servers[2].PodIPs = "c2 gateway pod: Unschedulable", nil
	m := s.Build()
	if m.Count(Failed) != len(m.Checks) || len(m.Asked(s.Clients[0].Place))+len(m.Asked(s.Clients[1].Place)) > 0 {
		t.Errorf("%d of %d checks fail", m.Count(Failed), len(m.Checks))
	}
	if got := strings.Join(m.Reasons(), "\n"); !strings.Contains(got, "ErrImagePull") ||
		!strings.Contains(got, "Unschedulable") {
		t.Errorf("reasons:\n%s", got)
	}
}

func TestAClientSpeaksForItsOwnChecksOnce(t *testing.T) {
	s := clusterset()
	m := s.Build()
	own, other := s.Clients[0].Place, s.Clients[1].Place
	for _, tc := range []struct {
		from Place
		id   int
		want bool
	}{{own, -1, false}, {own, len(m.Checks), false}, {other, 0, false}, {own, 0, true}, {own, 0, false}} {
		if got := m.Settle(tc.from, probe.Result{ID: tc.id, OK: true, Tries: 1, Took: -5}); got != tc.want {
			t.Errorf("%s settles %d: %v", tc.from, tc.id, got)
		}
	}
	if m.Count(OK) != 1 || m.Checks[0].Took != 0 {
		t.Errorf("%d are ok; %+v", m.Count(OK), m.Checks[0])
	}
	m.Settle(own, probe.Result{ID: 1, Error: "timeout\x1b[31m\n" + strings.Repeat("x", 5000)})
	if r := m.Checks[1].Reason; m.Checks[1].Verdict != Failed || strings.ContainsAny(r, "\x1b\n") || len(r) > 400 {
		t.Errorf("%d bytes: %q", len(r), r)
	}
	m.Abandon(own, "the pod ended")
	if got := m.Count(Failed); got != waysPerLane-1 {
		t.Errorf("%d fail, want %d", got, waysPerLane-1)
	}
}

// settled has everything ok but UDP from c1, and the large datagrams of c2's node to c1's worker.
func settled() Matrix {
	s := clusterset()
	s.ClusterNames = false
	m := s.Build()
	for i := range m.Checks {
		c := &m.Checks[i]
		r := probe.Result{ID: i, OK: true, Tries: 1, Took: 1500 * time.Microsecond}
		if c.Protocol == "udp" && (c.From.Cluster == "c1" || c.Large && c.To.Role == Worker) {
			r.OK, r.Error = false, "no answer <within> 3s"
		}
		m.Settle(c.From, r)
	}
	return m
}

func TestTheTableTellsWhatFails(t *testing.T) {
	want := [][]string{
		{"c1 worker pod", "c2 gateway pod", "IPv4", "FAIL UDP,UDP-large", "FAIL UDP,UDP-large", "FAIL UDP,UDP-large",
			"FAIL UDP,UDP-large", "-"},
		{"c2 gateway host", "c1 gateway pod", "IPv4", "ok", "ok", "ok", "ok", "-"},
		{"c2 gateway host", "c1 worker pod", "IPv4", "FAIL UDP-large", "FAIL UDP-large", "FAIL UDP-large",
			"FAIL UDP-large", "-"},
	}
	m := settled()
	if got := m.Cells(); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	if got := len(Columns()); got != len(want[0]) {
		t.Errorf("%d columns", got)
	}
	reasons := []string{
		"c1 worker pod → c2 gateway pod: pod UDP IPv4; pod UDP-large IPv4; ClusterIP UDP IPv4; and 5 more: " +
			"no answer <within> 3s",
		"c2 gateway host → c1 worker pod: pod UDP-large IPv4; ClusterIP UDP-large IPv4; ClusterSetIP UDP-large IPv4; " +
			"headless UDP-large IPv4: no answer <within> 3s",
	}
	if got := m.Reasons(); !slices.Equal(got, reasons) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(reasons, "\n"))
	}
	fresh := clusterset().Build()
	fresh.Settle(fresh.Checks[0].From, probe.Result{ID: 0, OK: true})
	if got := fresh.Cells()[0][3]; got != "1/4" {
		t.Errorf("a cell under way is %q", got)
	}
	fresh.Abandon(fresh.Checks[0].From, "gone")
	if got := fresh.Cells()[0][4]; got != "FAIL" {
		t.Errorf("a cell without any answer is %q", got)
	}
}

// element is any element of an XML document.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
}

// schema of the JUnit reports that CI systems read: the children of each element, and its attributes.
var schema = map[string]struct{ children, attributes string }{
	"testsuites": {"testsuite", "name tests failures errors time"},
	"testsuite":  {"testcase", "name tests failures errors skipped time timestamp"},
	"testcase":   {"failure skipped", "name classname time"},
	"failure":    {"", "message type"},
	"skipped":    {"", "message"},
}

func (e element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (e element) count(name string) int {
	n := 0
	if e.XMLName.Local == name {
		n = 1
	}
	for _, child := range e.Children {
		n += child.count(name)
	}
	return n
}

func (e element) check(t *testing.T) {
	t.Helper()
	s, ok := schema[e.XMLName.Local]
	if !ok {
		t.Fatalf("element %s is not of the schema", e.XMLName.Local)
	}
	for _, name := range strings.Fields(s.attributes) {
		if e.attr(name) == "" {
			t.Errorf("%s %q has no attribute %s", e.XMLName.Local, e.attr("name"), name)
		}
	}
	if len(e.Attrs) != len(strings.Fields(s.attributes)) {
		t.Errorf("%s has attributes %v", e.XMLName.Local, e.Attrs)
	}
	for attribute, counted := range map[string]string{"tests": "testcase", "failures": "failure", "skipped": "skipped"} {
		want := e.attr(attribute)
		if got := fmt.Sprint(e.count(counted)); want != "" && got != want {
			t.Errorf("%s says %s=%s, and has %s", e.XMLName.Local, attribute, want, got)
		}
	}
	for _, child := range e.Children {
		if !slices.Contains(strings.Fields(s.children), child.XMLName.Local) {
			t.Errorf("%s in %s", child.XMLName.Local, e.XMLName.Local)
		}
		child.check(t)
	}
}

func TestTheJUnitReportIsOne(t *testing.T) {
	m := settled()
	m.Checks[1].Reason = "a reason with \x00 and <tags> & \"quotes\""
	report, err := m.JUnit(time.Unix(1700000000, 0), 42*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var root element
	if err := xml.Unmarshal(report, &root); err != nil {
		t.Fatalf("%v in\n%s", err, report)
	}
	root.check(t)
	if root.XMLName.Local != "testsuites" || len(root.Children) != 2 || root.attr("time") != "42.000000" {
		t.Errorf("root %s with %d suites in %s s", root.XMLName.Local, len(root.Children), root.attr("time"))
	}
	if n := root.count("failure"); n != m.Count(Failed) || n == 0 {
		t.Errorf("%d failures, %d checks fail", n, m.Count(Failed))
	}
	if n := root.count("skipped"); n != m.Count(Skipped) || n == 0 {
		t.Errorf("%d skipped, %d checks are", n, m.Count(Skipped))
	}
}
