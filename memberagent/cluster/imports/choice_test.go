// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// run of n addresses, "10.9.0.1,10.9.0.2,…".
func run(prefix string, n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s.%d.%d", prefix, i/250, i%250+1))
	}
	return strings.Join(out, ",")
}

func weights(all ...v1alpha1.ClusterWeight) *v1alpha1.ClusterChoice {
	return &v1alpha1.ClusterChoice{Weights: all}
}

// listed returns how many addresses of each cluster are listed.
func listed(list []discoveryv1.EndpointSlice) map[string][]string {
	out := map[string][]string{}
	for _, s := range list {
		for _, e := range s.Endpoints {
			out[s.Labels[mcs.LabelSourceCluster]] = append(out[s.Labels[mcs.LabelSourceCluster]], e.Addresses[0])
		}
	}
	return out
}

func TestPolicyChoosesClusters(t *testing.T) {
	ready := int32(50)
	for _, c := range []struct {
		name   string
		choice *v1alpha1.ClusterChoice
		change func(in *Input)
		want   string
	}{
		{"the first in order, though this cluster could",
			&v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"c3", "c2"}}}, nil, "c1=0 c2=0 c3=4"},
		{"the threshold counts backends of the port",
			&v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"c3", "c2"}, MinReadyBackends: 5}},
			nil, "c1=0 c2=8 c3=4"},
		{"a ClusterIP counts with the backends behind it",
			&v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"c3", "c2"}, MinReadyBackends: 5}},
			func(in *Input) {
				c3 := &in.Import.Clusters[2]
				c3.ClusterIPs, c3.Backends, c3.ReadyBackends = []string{"10.99.0.3"},
					[]v1alpha1.Backends{backends("http:80=10.99.0.3")}, &ready
			}, "c1=0 c2=0 c3=1"},
		{"a cluster out of reach is passed over",
			&v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"c3", "c2"}}},
			func(in *Input) { in.Connected = func(cluster string) bool { return cluster != "c3" } }, "c1=0 c2=8 c3=0"},
		{"weights are numbers of pods", weights(v1alpha1.ClusterWeight{Cluster: "c2", Weight: 3},
			v1alpha1.ClusterWeight{Cluster: "c3", Weight: 1}, v1alpha1.ClusterWeight{Cluster: "c1", Weight: 1}), nil,
			"c1=2 c2=6 c3=2"},
		{"weight 0 is nothing", weights(v1alpha1.ClusterWeight{Cluster: "c2", Weight: 1},
			v1alpha1.ClusterWeight{Cluster: "c3", Weight: 0}), nil, "c1=0 c2=8 c3=0"},
		{"a ClusterIP is one address and limits nobody", weights(v1alpha1.ClusterWeight{Cluster: "c2", Weight: 1},
			v1alpha1.ClusterWeight{Cluster: "c3", Weight: 1}),
			func(in *Input) {
				c3 := &in.Import.Clusters[2]
				c3.ClusterIPs, c3.Backends = []string{"10.99.0.3"}, []v1alpha1.Backends{backends("http:80=10.99.0.3")}
			}, "c1=0 c2=8 c3=1"},
		{"without a policy this cluster", nil, nil, "c1=2 c2=0 c3=0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(map[string][]string{"c1": nil, "c2": {"http:8080=" + run("10.9", 8)},
				"c3": {"http:8080=" + run("10.7", 4)}})
			local(&in, []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, "http:8080="+run("10.8", 2))
			in.Import.Choice = c.choice
			if c.change != nil {
				c.change(&in)
			}
			got := listed(Decide(in).Slices)
			if text := fmt.Sprintf("c1=%d c2=%d c3=%d", len(got["c1"]), len(got["c2"]), len(got["c3"])); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
		})
	}
}

// TestWeightsMoveLittle: importers that list some of the pods list different ones, and one pod less in the
// exporting cluster moves one.
func TestWeightsMoveLittle(t *testing.T) {
	in := input(map[string][]string{"c2": {"http:8080=" + run("10.9", 90)}, "c3": {"http:8080=" + run("10.7", 10)}})
	in.Import.Choice = weights(v1alpha1.ClusterWeight{Cluster: "c2", Weight: 1},
		v1alpha1.ClusterWeight{Cluster: "c3", Weight: 1})
	before := listed(Decide(in).Slices)["c2"]
	if len(before) != 10 {
		t.Fatalf("%d listed, want 10", len(before))
	}
	seen := map[string]bool{}
	for i := range 20 {
		in.ClusterID = fmt.Sprintf("importer-%d", i)
		for _, a := range listed(Decide(in).Slices)["c2"] {
			seen[a] = true
		}
	}
	if len(seen) < 60 {
		t.Errorf("20 importers use %d of 90 pods between them", len(seen))
	}
	in.ClusterID = "c1"
	pool := &in.Import.Clusters[0].Backends[0]
	all := pool.Addresses
	for i := range all {
		pool.Addresses = slices.Delete(slices.Clone(all), i, i+1)
		after := listed(Decide(in).Slices)["c2"]
		kept := 0
		for _, a := range before {
			if slices.Contains(after, a) {
				kept++
			}
		}
		if len(after) != 10 || kept < 9 {
			t.Fatalf("without %s: %d listed, %d of them as before", all[i].IP, len(after), kept)
		}
	}
}

func TestTerminatingBackends(t *testing.T) {
	for _, c := range []struct {
		name  string
		input func() Input
		want  string
	}{
		{"listed beside ready ones",
			func() Input { return input(map[string][]string{"c2": {"http:8080=10.9.0.1,10.9.0.2~,10.9.0.3!"}}) },
			"c2 http:8080 10.9.0.1 10.9.0.2~"},
		{"do not make a cluster chosen", func() Input {
			in := input(map[string][]string{"c1": nil, "c2": {"http:8080=10.9.0.1"}})
			local(&in, []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, "http:8080=10.8.0.1~")
			return in
		}, "c2 http:8080 10.9.0.1"},
		{"serve while nothing is ready anywhere, here first", func() Input {
			in := input(map[string][]string{"c1": nil, "c2": {"http:8080=10.9.0.1~"}})
			local(&in, []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, "http:8080=10.8.0.1~")
			return in
		}, "c1 http:8080 10.8.0.1~@n"},
		{"of a headless service", func() Input {
			in := input(map[string][]string{"c2": {"http:8080=10.9.0.1,10.9.0.2~"}})
			in.Import.Settings.Type = v1alpha1.Headless
			return in
		}, "c2 http:8080 10.9.0.1 10.9.0.2~"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := text(Decide(c.input()).Slices); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestHeadlessWithoutPortsOrSelector(t *testing.T) {
	in := input(map[string][]string{"c1": nil, "c2": nil})
	in.Import.Settings.Type, in.Import.Settings.Ports = v1alpha1.Headless, nil
	in.Import.Clusters[1].Ports, in.Import.Clusters[0].Ports = nil, nil
	b := backends("=10.9.0.1,10.9.0.2")
	b.Ports, b.Addresses[0].Hostname, b.Addresses[1].Hostname = nil, "db-0", "Not_A_Name"
	in.Import.Clusters[1].Backends = []v1alpha1.Backends{b}
	local(&in, nil, "by-hand:5432=10.8.0.9")
	d := Decide(in)
	if got, want := text(d.Slices), "c1  10.8.0.9@n\nc2  10.9.0.1 10.9.0.2"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var names []string
	for _, s := range d.Slices {
		for _, e := range s.Endpoints {
			if e.Hostname != nil {
				names = append(names, *e.Hostname)
			}
		}
	}
	if fmt.Sprint(names) != "[db-0]" {
		t.Errorf("hostnames %v", names)
	}
}

func TestModeClusterIP(t *testing.T) {
	in := input(map[string][]string{"c1": nil, "c2": {"dns:53,http:8080=10.9.0.1"}, "c3": {"http:8080=10.7.0.1!"},
		"down": {"http:8080=10.6.0.1"}})
	local(&in, []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, "http:8080=10.8.0.1")
	in.LocalService.Spec.ClusterIPs = []string{"10.88.0.1", "fd00:88::1"}
	for i := range in.Import.Clusters {
		in.Import.Clusters[i].ClusterIPs = []string{fmt.Sprintf("10.99.0.%d", i+1)}
	}
	in.Service = Decide(in).Service
	in.Service.UID, in.Service.Spec.ClusterIPs = "u", []string{"10.96.0.7"}

	in.Import.Mode = v1alpha1.ServiceModeClusterIP
	d := Decide(in)
	const behind = "\nc1 http:8080 10.8.0.1@n\nc2 dns:53 10.9.0.1"
	want := " dns:53 10.9.0.1\n http:8080 10.8.0.1@n\nc1 http:80 10.88.0.1\nc2 dns:53,http:80 10.99.0.2"
	if got := text(d.Slices); got != want {
		t.Errorf("in use: got\n%s\nwant\n%s", got, want)
	}
	if d.Service == nil || d.Again != Outlive || d.ServiceImport.Spec.Type != mcs.ClusterSetIP {
		t.Errorf("the Service lives on for a while: %+v, again %s", d.Service, d.Again)
	}
	in.Service, in.Now = d.Service, in.Now.Add(Outlive/2)
	if d := Decide(in); d.Service == nil || d.Again != Outlive/2 {
		t.Errorf("after half a minute: %+v, again %s", d.Service, d.Again)
	}

	back := in
	imported := *in.Import
	imported.Mode, back.Import = v1alpha1.ServiceModeClusterSetIP, &imported
	d = Decide(back)
	if d.Service == nil || d.Service.Spec.ClusterIP != "10.96.0.7" || d.Service.Annotations[annotationOrphaned] != "" ||
		"\n"+text(d.Slices) != behind {
		t.Errorf("back again: %+v\n%s", d.Service, text(d.Slices))
	}

	in.Now = in.Now.Add(Outlive)
	d = Decide(in)
	if got, want := text(d.Slices), "c1 http:80 10.88.0.1\nc2 dns:53,http:80 10.99.0.2"; got != want || d.Service != nil {
		t.Errorf("at last: %+v, got\n%s\nwant\n%s", d.Service, got, want)
	}
	for _, s := range d.Slices {
		if s.Labels[discoveryv1.LabelServiceName] != "" || s.Labels[mcs.LabelServiceName] != "web" {
			t.Errorf("labels %v", s.Labels)
		}
	}
}

func TestTopologyHints(t *testing.T) {
	distribution := func(s string) func(*Input) { return func(in *Input) { in.Import.Settings.TrafficDistribution = &s } }
	for _, c := range []struct {
		name    string
		remote  string
		local   string
		change  func(*Input)
		noNodes bool
		want    string
	}{
		{"not asked for", "10.9.0.1@a", "", func(*Input) {}, false, "-"},
		{"another wish", "10.9.0.1@a", "", distribution("example.org/Closest"), false, "-"},
		{"the same zone", "10.9.0.1@a,10.9.0.2@b", "", distribution("PreferClose"), false, "a b"},
		{"the same zone, by its new name", "10.9.0.1@a,10.9.0.2@b", "", distribution("PreferSameZone"), false, "a b"},
		{"one has no zone", "10.9.0.1@a,10.9.0.2", "", distribution("PreferClose"), false, "- -"},
		{"one that is not ready has no zone", "10.9.0.1@a,10.9.0.2~", "", distribution("PreferClose"), false, "a -"},
		{"a zone that is no label", "10.9.0.1@a,10.9.0.2@no/label", "", distribution("PreferClose"), false, "- -"},
		{"the same node, all of them here", "10.9.0.1@a", "10.8.0.1@a", distribution("PreferSameNode"), false, "a/n"},
		{"the same node, some elsewhere", "10.9.0.1@a", "", distribution("PreferSameNode"), false, "a"},
		{"the same node, and no zones", "10.9.0.1", "10.8.0.1", distribution("PreferSameNode"), false, "/n"},
		{"the same node, unknown to the API server", "10.9.0.1@a", "10.8.0.1@a", distribution("PreferSameNode"), true, "a"},
		{"headless", "10.9.0.1@a", "", func(in *Input) {
			distribution("PreferClose")(in)
			in.Import.Settings.Type = v1alpha1.Headless
		}, false, "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(map[string][]string{"c1": nil, "c2": {"http:8080=" + c.remote}})
			in.NodeHints = !c.noNodes
			if c.local != "" {
				local(&in, []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, "http:8080="+c.local)
			}
			c.change(&in)
			var got []string
			for _, s := range Decide(in).Slices {
				for _, e := range s.Endpoints {
					got = append(got, hints(e))
				}
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}

func hints(e discoveryv1.Endpoint) string {
	if e.Hints == nil {
		return "-"
	}
	out := ""
	for _, z := range e.Hints.ForZones {
		out += z.Name
	}
	for _, n := range e.Hints.ForNodes {
		out += "/" + n.Name
	}
	return out
}

func TestFamiliesAreChosenEachOnItsOwn(t *testing.T) {
	in := input(map[string][]string{"c1": nil, "c2": {"http:8080=10.9.0.1,fd00:9::1"}})
	in.Families = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	local(&in, []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, "http:8080=10.8.0.1")
	if got, want := text(Decide(in).Slices), "c1 http:8080 10.8.0.1@n\nc2 http:8080 fd00:9::1"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAddressesStay(t *testing.T) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	in := input(map[string][]string{"c2": {"http:8080=10.9.0.1"}})
	in.Families = []corev1.IPFamily{v4, v6}
	in.Service = Decide(in).Service
	in.Service.UID, in.Service.Spec.ClusterIPs = "u", []string{"10.96.0.7", "fd00:96::7"}
	check := func(what, want string, again bool) {
		t.Helper()
		s := Decide(in).Service
		if got := fmt.Sprint(s.Spec.IPFamilies, s.Spec.ClusterIPs); got != want || (s.UID == "") != again {
			t.Errorf("%s: got %s, want %s; made anew is %t", what, got, want, s.UID == "")
		}
	}
	check("both", "[IPv4 IPv6] [10.96.0.7 fd00:96::7]", false)
	in.Import.Settings.IPFamilies = []corev1.IPFamily{v6, v4}
	check("the oldest export prefers the other", "[IPv4 IPv6] [10.96.0.7 fd00:96::7]", false)
	in.Import.Settings.IPFamilies = []corev1.IPFamily{v4}
	check("the second is lost", "[IPv4] [10.96.0.7]", false)
	in.Import.Settings.IPFamilies = []corev1.IPFamily{v6}
	check("the first is lost", "[IPv6] [fd00:96::7]", true)
	in.ServiceImport = &mcs.ServiceImport{Spec: mcs.ServiceImportSpec{IPs: []string{"fd00:96::7", "10.96.0.7"},
		IPFamilies: []corev1.IPFamily{v6, v4}}}
	in.Import.Settings.IPFamilies, in.Service = []corev1.IPFamily{v4, v6}, nil
	check("the Service was deleted", "[IPv6 IPv4] [fd00:96::7 10.96.0.7]", true)
}

func TestHostileImport(t *testing.T) {
	seconds, policy, protocol := int32(1<<30), corev1.ServiceInternalTrafficPolicy("Nowhere"), "not a name"
	in := input(map[string][]string{"c2": {"http:8080,http:9090,-:1=10.9.0.1"}})
	s := &in.Import.Settings
	s.Ports = append(s.Ports, v1alpha1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8443},
		v1alpha1.ServicePort{Name: "again", Protocol: corev1.ProtocolTCP, Port: 80},
		v1alpha1.ServicePort{Protocol: corev1.ProtocolTCP, Port: 99}, v1alpha1.ServicePort{Name: "big",
			Protocol: corev1.ProtocolTCP, Port: 70000}, v1alpha1.ServicePort{Name: "ICMP", Protocol: "ICMP", Port: 1})
	s.Ports[0].AppProtocol = &protocol
	s.SessionAffinity, s.InternalTrafficPolicy = corev1.ServiceAffinityClientIP, &policy
	s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	s.Labels = map[string]string{"ok": "yes", "bad key!": "x", "worse": "no good value!", "sealane.io/import": "other",
		"propagation.karmada.io/x": "y"}
	before := in.Import.DeepCopy()
	d := Decide(in)
	var ports []string
	for _, p := range d.Service.Spec.Ports {
		ports = append(ports, fmt.Sprintf("%s:%d", p.Name, p.Port))
	}
	if fmt.Sprint(ports) != "[http:80 dns:53]" || d.Service.Spec.Ports[0].AppProtocol != nil {
		t.Errorf("ports %v", d.Service.Spec.Ports)
	}
	if *d.Service.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != 10800 ||
		*d.Service.Spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster {
		t.Errorf("%+v", d.Service.Spec)
	}
	if got := text(d.Slices); got != "c2 http:8080 10.9.0.1" {
		t.Errorf("slices %s", got)
	}
	if got, want := fmt.Sprint(d.ServiceImport.Labels), "map[app.kubernetes.io/managed-by:sealane.io ok:yes "+
		"sealane.io/import:web]"; got != want {
		t.Errorf("labels %s, want %s", got, want)
	}
	if !reflect.DeepEqual(before, in.Import) {
		t.Error("the cached import was changed")
	}
	in.Import.Settings.Ports = nil
	if d := Decide(in); d.Service != nil || len(d.Slices) > 0 {
		t.Errorf("without ports: %+v", d)
	}
}

func TestStatusOfAnImport(t *testing.T) {
	in := input(map[string][]string{"c1": nil, "c2": {"http:8080=10.9.0.1"}})
	in.ServiceImport = &mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
	s := Decide(in).ServiceImport.Status
	if s.EndpointSliceObjects != mcs.EndpointSliceObjectsPresent || len(s.Clusters) != 2 ||
		s.Clusters[1].Cluster != "c2" || s.Conditions[0].Reason != "Ready" {
		t.Errorf("%+v", s)
	}
	in.Limited = true
	if s := Decide(in).ServiceImport.Status; s.EndpointSliceObjects != "" || len(s.Conditions) > 0 ||
		len(s.Clusters) != 2 {
		t.Errorf("v1alpha1 only: %+v", s)
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("backends=%d", size), func(b *testing.B) {
			in := input(map[string][]string{"c2": {"dns:53,http:8080=" + run("10.9", size)},
				"c3": {"dns:53,http:8080=" + run("10.7", size)}})
			in.Now = time.Unix(1700000000, 0)
			in.Slices = Decide(in).Slices
			b.ReportAllocs()
			for b.Loop() {
				Decide(in)
			}
		})
	}
}
