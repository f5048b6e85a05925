// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// cluster returns member c<n> with pods 10.<n>.0.0/16, services 10.<100+n>.0.0/16 and nodes 192.168.<n>.0/24.
func cluster(n int, exports ...v1alpha1.Export) Member {
	p := netip.MustParsePrefix
	return Member{
		Cluster:  fmt.Sprintf("c%d", n),
		Pods:     []netip.Prefix{p(fmt.Sprintf("10.%d.0.0/16", n)), p(fmt.Sprintf("fd00:%d::/64", n))},
		Services: []netip.Prefix{p(fmt.Sprintf("10.%d.0.0/16", 100+n)), p(fmt.Sprintf("fd00:%d:1::/112", n))},
		Nodes:    []netip.Prefix{p(fmt.Sprintf("192.168.%d.0/24", n))},
		Known:    true, Exports: exports,
	}
}

// web returns cluster n's export of sample/web, made at minute n, on port http:80/TCP with three backends.
func web(n int, changes ...func(*v1alpha1.Export)) v1alpha1.Export {
	e := v1alpha1.Export{
		Namespace: "sample", Name: "web", CreatedAt: at(n),
		Settings: v1alpha1.ServiceSettings{
			Type: v1alpha1.ClusterSetIP, Ports: []v1alpha1.ServicePort{port("http", 80)},
			SessionAffinity: corev1.ServiceAffinityNone, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
		ClusterIPs: []string{fmt.Sprintf("10.%d.0.10", 100+n)},
		Backends:   []v1alpha1.Backends{pods(n, 3, v1alpha1.BackendPort{Name: "http", Protocol: "TCP", Port: 8080})},
	}
	for _, change := range changes {
		change(&e)
	}
	return e
}

func at(minute int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))
}

func port(name string, number int32) v1alpha1.ServicePort {
	return v1alpha1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number}
}

func pods(n, count int, ports ...v1alpha1.BackendPort) v1alpha1.Backends {
	g := v1alpha1.Backends{Ports: ports}
	for i := range count {
		g.Addresses = append(g.Addresses, v1alpha1.Backend{IP: fmt.Sprintf("10.%d.%d.%d", n, i/200, 1+i%200), Ready: true,
			Serving: true, Node: "n1"})
	}
	return g
}

func withPorts(ports ...v1alpha1.ServicePort) func(*v1alpha1.Export) {
	return func(e *v1alpha1.Export) {
		addresses := e.Backends[0].Addresses
		e.Settings.Ports, e.Backends = ports, []v1alpha1.Backends{{Addresses: addresses}}
		for _, p := range ports {
			e.Backends[0].Ports = append(e.Backends[0].Ports, v1alpha1.BackendPort{Name: p.Name, Protocol: p.Protocol,
				Port: 8000 + p.Port})
		}
	}
}

func headless(e *v1alpha1.Export) { e.Settings.Type, e.ClusterIPs = v1alpha1.Headless, nil }

// now is long after every export was made.
var now = at(24 * 60).Time

func decide(members ...Member) Decision {
	return Decide(Input{Shards: 1, Now: now, Members: members})
}

// written returns what the decision has of a member as it comes back from the API server.
func written(t *testing.T, d Decision, cluster string) (*Bundle, *v1alpha1.ExportRecordSpec) {
	t.Helper()
	bundle, record := new(v1alpha1.BundleSpec), new(v1alpha1.ExportRecordSpec)
	for _, x := range []struct{ from, into any }{{specOf(d.Bundles[cluster]), bundle}, {d.Records[cluster], record}} {
		data, err := json.Marshal(x.from)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, x.into); err != nil {
			t.Fatal(err)
		}
	}
	return bundleOf(bundle), record
}

// specOf is what a Bundle says as the API has it.
func specOf(b Bundle) v1alpha1.BundleSpec {
	out := v1alpha1.BundleSpec{Revision: b.Revision, Shard: b.Shard, Imports: []v1alpha1.Import{}, Halves: b.Halves,
		Deltas: b.Deltas, Sequence: b.Sequence, AnswerApart: b.AnswerApart, ExportConditions: b.ExportConditions}
	for _, i := range b.Imports {
		out.Imports = append(out.Imports, *i)
	}
	return out
}

func text(t *testing.T, d Decision) string {
	t.Helper()
	bundles := map[string]v1alpha1.BundleSpec{}
	for cluster, b := range d.Bundles {
		bundles[cluster] = specOf(b)
	}
	data, err := json.MarshalIndent(bundles, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// condition returns "<status> <reason>" of a condition.
func condition(d Decision, cluster, kind string) string {
	for _, c := range d.Bundles[cluster].ExportConditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return "absent"
}

// summary of an import: its ports, and what each cluster serves.
func summary(i *v1alpha1.Import) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s:", i.Settings.Type, portsText(&i.Settings))
	for _, c := range i.Clusters {
		n := 0
		for _, g := range c.Backends {
			n += len(g.Addresses)
		}
		fmt.Fprintf(&b, " %s%q×%d", c.Cluster, c.Ports, n)
	}
	return b.String()
}

func TestMerge(t *testing.T) {
	clientIP := func(e *v1alpha1.Export) { e.Settings.SessionAffinity = corev1.ServiceAffinityClientIP }
	lasting := func(seconds int32) func(*v1alpha1.Export) {
		return func(e *v1alpha1.Export) {
			clientIP(e)
			e.Settings.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds},
			}
		}
	}
	local := corev1.ServiceInternalTrafficPolicyLocal
	near := "PreferClose"
	tests := []struct {
		name               string
		c1, c2             []func(*v1alpha1.Export) // c1 is the older
		imported, conflict string
	}{
		{"identical exports do not conflict", nil, nil, `ClusterSetIP http:80/TCP: c1["http"]×3 c2["http"]×3`,
			"False NoConflicts"},
		{"ports are the union, and a cluster serves those it exposes",
			nil, []func(*v1alpha1.Export){withPorts(port("http", 80), port("https", 443))},
			`ClusterSetIP http:80/TCP,https:443/TCP: c1["http"]×3 c2["http" "https"]×3`, "True PortConflict"},
		{"of two ports with one name the oldest wins, and the other is left out",
			nil, []func(*v1alpha1.Export){withPorts(port("http", 8080), port("https", 443))},
			`ClusterSetIP http:80/TCP,https:443/TCP: c1["http"]×3 c2["https"]×3`, "True PortConflict"},
		{"a port with another name and the same number is the same port",
			nil, []func(*v1alpha1.Export){withPorts(port("web", 80))},
			`ClusterSetIP http:80/TCP: c1["http"]×3 c2["http"]×3`, "True PortConflict"},
		{"one unnamed port stays unnamed",
			[]func(*v1alpha1.Export){withPorts(port("", 80))}, []func(*v1alpha1.Export){withPorts(port("", 80))},
			`ClusterSetIP 80/TCP: c1[""]×3 c2[""]×3`, "False NoConflicts"},
		{"unnamed ports are named in a union, and no name twice",
			[]func(*v1alpha1.Export){withPorts(port("", 80))}, []func(*v1alpha1.Export){withPorts(port("tcp-80", 81),
				port("x", 80))},
			`ClusterSetIP tcp-80-2:80/TCP,tcp-80:81/TCP: c1["tcp-80-2"]×3 c2["tcp-80" "tcp-80-2"]×3`, "True PortConflict"},
		{"the order of ports is no conflict",
			[]func(*v1alpha1.Export){withPorts(port("a", 1), port("b", 2))}, []func(*v1alpha1.Export){withPorts(port("b", 2),
				port("a", 1))},
			`ClusterSetIP a:1/TCP,b:2/TCP: c1["a" "b"]×3 c2["a" "b"]×3`, "False NoConflicts"},
		{"a cluster whose type lost contributes nothing",
			nil, []func(*v1alpha1.Export){headless}, `ClusterSetIP http:80/TCP: c1["http"]×3 c2[]×0`, "True TypeConflict"},
		{"session affinity", nil, []func(*v1alpha1.Export){clientIP}, `ClusterSetIP http:80/TCP: c1["http"]×3 c2["http"]×3`,
			"True SessionAffinityConflict"},
		{"session affinity timeout", []func(*v1alpha1.Export){clientIP}, []func(*v1alpha1.Export){lasting(60)},
			`ClusterSetIP http:80/TCP: c1["http"]×3 c2["http"]×3`, "True SessionAffinityConfigConflict"},
		{"the default timeout is no conflict", []func(*v1alpha1.Export){clientIP}, []func(*v1alpha1.Export){lasting(10800)},
			`ClusterSetIP http:80/TCP: c1["http"]×3 c2["http"]×3`, "False NoConflicts"},
		{"several fields at once", nil, []func(*v1alpha1.Export){func(e *v1alpha1.Export) {
			e.Settings.Labels = map[string]string{"a": "b"}
			e.Settings.Annotations = map[string]string{"a": "b"}
			e.Settings.InternalTrafficPolicy = &local
			e.Settings.TrafficDistribution = &near
			e.Settings.IPFamilies = append(e.Settings.IPFamilies, corev1.IPv6Protocol)
		}}, `ClusterSetIP http:80/TCP: c1["http"]×3 c2["http"]×3`,
			"True LabelsConflict,AnnotationsConflict,InternalTrafficPolicyConflict,TrafficDistributionConflict," +
				"IPFamilyConflict"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := decide(cluster(1, web(1, tt.c1...)), cluster(2, web(2, tt.c2...)), cluster(3))
			if got := summary(d.Bundles["c3"].Imports[0]); got != tt.imported {
				t.Errorf("imported\n %s, want\n %s", got, tt.imported)
			}
			for _, c := range []string{"c1", "c2"} {
				if got := condition(d, c, "Conflict"); got != tt.conflict {
					t.Errorf("Conflict in %s is %s, want %s", c, got, tt.conflict)
				}
				if got := condition(d, c, "Ready"); got != "True Exported" {
					t.Errorf("Ready in %s is %s", c, got)
				}
			}
			if len(d.Problems) > 0 {
				t.Errorf("problems: %v", d.Problems)
			}
		})
	}
}

// TestGroupsThatBecomeOneLeaveTheExportAsItIs: where a port is not merged, two groups of backends have the same ports
// in an import, and still are two in the record.
func TestGroupsThatBecomeOneLeaveTheExportAsItIs(t *testing.T) {
	older, younger := web(1, withPorts(port("a", 80), port("b", 90))), web(2, withPorts(port("a", 80), port("b", 90)))
	older.Settings.Ports[1].Port = 91
	a := v1alpha1.BackendPort{Name: "a", Protocol: "TCP", Port: 8080}
	b := v1alpha1.BackendPort{Name: "b", Protocol: "TCP", Port: 8090}
	first, ninth := v1alpha1.Backend{IP: "10.2.0.1", Ready: true}, v1alpha1.Backend{IP: "10.2.0.9", Ready: true}
	younger.Backends = []v1alpha1.Backends{
		{Ports: []v1alpha1.BackendPort{a}, Addresses: []v1alpha1.Backend{ninth, ninth, ninth}},
		{Ports: []v1alpha1.BackendPort{a, b}, Addresses: []v1alpha1.Backend{first}},
	}
	d := decide(cluster(1, older), cluster(2, younger), cluster(3))
	imported := d.Bundles["c3"].Imports[0].Clusters[1].Backends
	if len(imported) != 1 || !slices.Equal(imported[0].Addresses, []v1alpha1.Backend{first, ninth}) {
		t.Errorf("c3 imports %v", imported)
	}
	recorded := d.Records["c2"].Exports[0].Backends
	if len(recorded) != 2 || !slices.Equal(recorded[0].Addresses, []v1alpha1.Backend{ninth}) ||
		!slices.Equal(recorded[1].Addresses, []v1alpha1.Backend{first}) {
		t.Errorf("the record of c2 has %v", recorded)
	}
}

func TestConflictMessageNamesFieldClustersAndWinner(t *testing.T) {
	d := decide(cluster(1, web(2, func(e *v1alpha1.Export) { *e = web(1); e.CreatedAt = at(5) })),
		cluster(2, web(2, withPorts(port("http", 8080)))))
	got := d.Bundles["c1"].ExportConditions[0].Message
	const want = "ports: c1 (http:80/TCP) differs from c2 (http:8080/TCP); all are imported, and where they clash those " +
		"of the oldest export, of c2"
	if got != want {
		t.Errorf("message\n %s, want\n %s", got, want)
	}
}

func TestIPFamiliesAreTheUnion(t *testing.T) {
	six := func(e *v1alpha1.Export) { e.Settings.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }
	d := decide(cluster(1, web(1, six)), cluster(2, web(2)))
	if got := d.Bundles["c1"].Imports[0].Settings.IPFamilies; !slices.Equal(got, []corev1.IPFamily{corev1.IPv6Protocol,
		corev1.IPv4Protocol}) {
		t.Errorf("families %v", got)
	}
}

func TestEveryMemberImportsAndNobodyItsOwnBackends(t *testing.T) {
	d := decide(cluster(1, web(1)), cluster(2, web(2)), cluster(3))
	want := map[string]string{
		"c1": `ClusterSetIP http:80/TCP: c1["http"]×0 c2["http"]×3`,
		"c2": `ClusterSetIP http:80/TCP: c1["http"]×3 c2["http"]×0`,
		"c3": `ClusterSetIP http:80/TCP: c1["http"]×3 c2["http"]×3`,
	}
	for c, w := range want {
		if got := summary(d.Bundles[c].Imports[0]); got != w {
			t.Errorf("%s imports %s, want %s", c, got, w)
		}
	}
	if got := d.Bundles["c1"].Imports[0].Clusters[0].ClusterIPs; !slices.Equal(got, []string{"10.101.0.10"}) {
		t.Errorf("c1 knows its own ClusterIPs as %v", got)
	}
}

func TestMoreThanAHundredPodsAreOneClusterIP(t *testing.T) {
	many := func(e *v1alpha1.Export) { e.Backends = []v1alpha1.Backends{pods(1, 101, e.Backends[0].Ports...)} }
	c := decide(cluster(1, web(1, many)), cluster(2)).Bundles["c2"].Imports[0].Clusters[0]
	want := []v1alpha1.Backends{{
		Ports:     []v1alpha1.BackendPort{{Name: "http", Protocol: "TCP", Port: 80}},
		Addresses: []v1alpha1.Backend{{IP: "10.101.0.10", Ready: true, Serving: true}},
	}}
	if !reflect.DeepEqual(c.Backends, want) {
		t.Errorf("backends %+v", c.Backends)
	}
	c = decide(cluster(1, web(1, many, headless)), cluster(2)).Bundles["c2"].Imports[0].Clusters[0]
	if n := len(c.Backends[0].Addresses); n != 101 {
		t.Errorf("a headless service has %d backends", n)
	}
}

func TestBundleFull(t *testing.T) {
	var all []v1alpha1.Export
	for i := range 40 {
		e := web(1, headless)
		e.Name, e.CreatedAt = fmt.Sprintf("web-%02d", i), at(i)
		e.Backends = []v1alpha1.Backends{pods(1, 300, e.Backends[0].Ports...)}
		if i == 39 {
			e.Backends = []v1alpha1.Backends{pods(1, 1, e.Backends[0].Ports...)}
		}
		all = append(all, e)
	}
	d := decide(cluster(1, all...), cluster(2))
	for c, b := range d.Bundles {
		if data, _ := json.Marshal(b); len(data) > maxBundle {
			t.Errorf("the Bundle of %s has %d bytes", c, len(data))
		}
	}
	var full []string
	for _, c := range d.Bundles["c1"].ExportConditions {
		if c.Reason == v1alpha1.ReasonBundleFull {
			full = append(full, c.Name)
		}
	}
	imports := d.Bundles["c2"].Imports
	if len(full) == 0 || len(full)+len(imports) != 40 || imports[0].Name != "web-00" ||
		imports[len(imports)-1].Name != "web-39" || full[len(full)-1] != "web-38" {
		t.Errorf("imported %d, full %v", len(imports), full)
	}
	unknown := cluster(1)
	unknown.Known = false
	unknown.Last, unknown.Record = written(t, d, "c1")
	second := cluster(2)
	second.Last, second.Record = written(t, d, "c2")
	if again := decide(unknown, second); text(t, again) != text(t, d) {
		t.Error("the decision changed when c1 became unknown")
	}
}
