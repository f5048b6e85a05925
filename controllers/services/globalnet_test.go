// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// withBlock gives cluster n the block 242.n.0.0/16, by which all know it or those that it overlaps.
func withBlock(m Member, n int, toAll bool, overlapping ...string) Member {
	m.Global = Global{Block: netip.MustParsePrefix(fmt.Sprintf("242.%d.0.0/16", n)), ToAll: toAll,
		Overlapping: overlapping}
	return m
}

func withGlobalIP(ip string) func(*v1alpha1.Export) {
	return func(e *v1alpha1.Export) { e.GlobalIP = ip }
}

// endpointsIn renders what a member gets of another's export of sample/web: ClusterIPs, then backends with their ports.
func endpointsIn(t *testing.T, d Decision, importer, exporter string) string {
	t.Helper()
	var out []string
	for _, i := range d.Bundles[importer].Imports {
		for _, c := range i.Clusters {
			if c.Cluster != exporter {
				continue
			}
			out = append(out, strings.Join(c.ClusterIPs, "+"))
			for _, g := range c.Backends {
				for _, b := range g.Addresses {
					out = append(out, fmt.Sprintf("%s:%d", b.IP, g.Ports[0].Port))
				}
			}
		}
	}
	return strings.Join(out, " ")
}

// TestGlobalAddresses: who knows an exporter by its block gets the service's global address, all others its pods.
func TestGlobalAddresses(t *testing.T) {
	const plain, global = "10.101.0.10 10.1.0.1:8080 10.1.0.2:8080 10.1.0.3:8080", "242.1.0.10 242.1.0.10:80"
	export := func(changes ...func(*v1alpha1.Export)) v1alpha1.Export {
		return web(1, append(changes, withGlobalIP("242.1.0.10"))...)
	}
	for _, c := range []struct {
		name         string
		exporter     Member
		toC2, toC3   string
		overlappedBy []string // of c2
	}{
		{"by a block to all", withBlock(cluster(1, export()), 1, true), global, global, nil},
		{"by a block to one", withBlock(cluster(1, export()), 1, false, "c2"), global, plain, nil},
		{"as the importer says", withBlock(cluster(1, export()), 1, false), global, plain, []string{"c1"}},
		{"to nobody", withBlock(cluster(1, export()), 1, false), plain, plain, nil},
		{"no backend is ready", withBlock(cluster(1, export(func(e *v1alpha1.Export) {
			for i := range e.Backends[0].Addresses {
				e.Backends[0].Addresses[i].Ready = false
			}
		})), 1, true), "242.1.0.10", "242.1.0.10", nil},
		{"no address yet", withBlock(cluster(1, web(1)), 1, true), "", "", nil},
		{"an address for what is sent", withBlock(cluster(1, web(1, withGlobalIP("242.1.128.1"))), 1, true), "", "", nil},
		{"an address of another", withBlock(cluster(1, web(1, withGlobalIP("242.2.0.1"))), 1, true), "", "", nil},
		{"no address at all", withBlock(cluster(1, web(1, withGlobalIP("242.1.0"))), 1, true), "", "", nil},
		{"headless", withBlock(cluster(1, export(headless)), 1, true), "", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := Input{Shards: 1, Now: now, Members: []Member{c.exporter, withBlock(cluster(2), 2, false, c.overlappedBy...),
				cluster(3)}}
			d := Decide(in)
			for importer, want := range map[string]string{"c2": c.toC2, "c3": c.toC3} {
				if got := endpointsIn(t, d, importer, "c1"); got != want {
					t.Errorf("%s gets %q, want %q", importer, got, want)
				}
			}
			if got := endpointsIn(t, d, "c1", "c1"); strings.Contains(got, "242.") {
				t.Errorf("the exporter itself gets %q", got)
			}
		})
	}
}

// withPods makes an export headless, and gives its pods names and global addresses, in their order.
func withPods(globals ...string) func(*v1alpha1.Export) {
	return func(e *v1alpha1.Export) {
		headless(e)
		for i, ip := range globals {
			b := &e.Backends[0].Addresses[i]
			b.Hostname, b.GlobalIP = fmt.Sprintf("web-%d", i), ip
		}
	}
}

// TestGlobalPods: who knows an exporter by its block gets each pod of a headless service by the pod's own global
// address, with its name, and all others get the pods as they are.
func TestGlobalPods(t *testing.T) {
	const plain = "web-0=10.1.0.1 web-1=10.1.0.2 web-2=10.1.0.3"
	three := []string{"242.1.0.10", "242.1.0.11", "242.1.0.12"}
	for _, c := range []struct {
		name    string
		globals []string
		change  func(*v1alpha1.Export)
		want    string
		problem string // what it says
	}{
		{"all", three, nil, "web-0=242.1.0.10 web-1=242.1.0.11 web-2=242.1.0.12", ""},
		{"not yet", []string{"242.1.0.10", "", "242.1.0.12"}, nil, "web-0=242.1.0.10 web-2=242.1.0.12", ""},
		{"one for what is sent", []string{"242.1.0.10", "242.1.128.1", "242.1.0.12"}, nil,
			"web-0=242.1.0.10 web-2=242.1.0.12", "1 global addresses of sample/web are left out: they are not for services"},
		{"one of another cluster", []string{"242.1.0.10", "242.2.0.11", "10.1.0.2"}, nil, "web-0=242.1.0.10",
			"2 global addresses of sample/web are left out: they are not for services and pods in 242.1.0.0/16"},
		{"one for two pods", []string{"242.1.0.10", "242.1.0.11", "242.1.0.10"}, nil, "web-0=242.1.0.10 web-1=242.1.0.11",
			"1 global addresses of sample/web are left out: another service or pod"},
		{"that of an older service", []string{"242.1.0.10", "242.1.0.99", "242.1.0.12"}, nil,
			"web-0=242.1.0.10 web-2=242.1.0.12", "1 global addresses of sample/web are left out: another service or pod"},
		{"a pod with two", three, func(e *v1alpha1.Export) {
			g := e.Backends[0]
			g.Ports = []v1alpha1.BackendPort{{Name: "http", Protocol: "TCP", Port: 9090}}
			g.Addresses = []v1alpha1.Backend{g.Addresses[0]}
			g.Addresses[0].GlobalIP = "242.1.0.50"
			e.Backends = append(e.Backends, g)
		}, "web-0=242.1.0.10 web-1=242.1.0.11 web-2=242.1.0.12", "another service or pod"},
	} {
		t.Run(c.name, func(t *testing.T) {
			older := web(1, func(e *v1alpha1.Export) { e.Name, e.CreatedAt = "older", at(0) }, withGlobalIP("242.1.0.99"))
			e := web(1, withPods(c.globals...))
			for i := range e.Backends[0].Addresses {
				e.Backends[0].Addresses[i].Hostname = fmt.Sprintf("web-%d", i)
			}
			if c.change != nil {
				c.change(&e)
			}
			d := Decide(Input{Shards: 1, Now: now, Members: []Member{withBlock(cluster(1, older, e), 1, false, "c2"), cluster(2),
				cluster(3)}})
			for importer, want := range map[string]string{"c2": c.want, "c3": plain} {
				if got := podsIn(d, importer); got != want {
					t.Errorf("%s gets %q, want %q", importer, got, want)
				}
			}
			var problems []string
			for _, p := range d.Problems {
				problems = append(problems, p.Message)
			}
			text := strings.Join(problems, "; ")
			if (c.problem == "") != (text == "") || !strings.Contains(text, c.problem) {
				t.Errorf("problems %q, want %q", text, c.problem)
			}
			if got := e.Backends[0].Addresses[0].GlobalIP; got != c.globals[0] {
				t.Errorf("what the member reports was changed to %q", got)
			}
		})
	}
}

// podsIn renders the endpoints of the import of sample/web, with what is left of their global addresses.
func podsIn(d Decision, importer string) string {
	var out []string
	for _, i := range d.Bundles[importer].Imports {
		for _, c := range i.Clusters {
			for _, g := range c.Backends {
				for _, b := range g.Addresses {
					if text := b.Hostname + "=" + b.IP + b.GlobalIP; i.Name == "web" && !slices.Contains(out, text) {
						out = append(out, text)
					}
				}
			}
		}
	}
	return strings.Join(out, " ")
}

// TestPortsOfGlobalAddresses: importers connect to a global address at the ports of the service, and at those
// alone that a ready backend serves.
func TestPortsOfGlobalAddresses(t *testing.T) {
	e := web(1, withPorts(port("http", 80), port("metrics", 9090)), withGlobalIP("242.1.0.10"))
	e.Backends[0].Ports = e.Backends[0].Ports[:1]
	e.Settings.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	e.Backends = append(e.Backends, v1alpha1.Backends{Ports: e.Backends[0].Ports,
		Addresses: []v1alpha1.Backend{{IP: "fd00:1::1", Ready: true, Serving: true}}})
	d := Decide(Input{Shards: 1, Now: now, Members: []Member{withBlock(cluster(1, e), 1, true), cluster(2)}})
	if got, want := endpointsIn(t, d, "c2", "c1"), "242.1.0.10 242.1.0.10:80"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestGlobalAddressesOfIPv6: an importer gets an address of each family that service, block and report have.
func TestGlobalAddressesOfIPv6(t *testing.T) {
	const six = "fd5e:a1a4:e242:f201::a"
	four, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	for _, c := range []struct {
		name     string
		families []corev1.IPFamily
		global   string
		noBlock  bool
		want     string
	}{
		{"dual-stack", []corev1.IPFamily{four, v6}, six, false,
			"242.1.0.10+" + six + " 242.1.0.10:80 " + six + ":80"},
		{"IPv6 alone", []corev1.IPFamily{v6}, six, false, six + " " + six + ":80"},
		{"IPv4 alone", []corev1.IPFamily{four}, six, false, "242.1.0.10 242.1.0.10:80"},
		{"not reported", []corev1.IPFamily{four, v6}, "", false, "242.1.0.10 242.1.0.10:80"},
		{"of another block", []corev1.IPFamily{four, v6}, "fd5e:a1a4:e242:f202::a", false, "242.1.0.10 242.1.0.10:80"},
		{"of what is sent", []corev1.IPFamily{four, v6}, "fd5e:a1a4:e242:f201::8001", false, "242.1.0.10 242.1.0.10:80"},
		{"that stands for none", []corev1.IPFamily{four, v6}, "fd5e:a1a4:e242:f201::1:a", false, "242.1.0.10 242.1.0.10:80"},
		{"of a block without", []corev1.IPFamily{four, v6}, six, true, "242.1.0.10 242.1.0.10:80"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := web(1, withGlobalIP("242.1.0.10"))
			e.Settings.IPFamilies, e.GlobalIPv6 = c.families, c.global
			e.Backends = append(e.Backends, v1alpha1.Backends{Ports: e.Backends[0].Ports,
				Addresses: []v1alpha1.Backend{{IP: "fd00:1::1", Ready: true, Serving: true}}})
			if !slices.Contains(c.families, four) {
				e.Backends = e.Backends[1:]
			}
			m := withBlock(cluster(1, e), 1, true)
			m.Pods = append(m.Pods, netip.MustParsePrefix("fd00:1::/48"))
			if !c.noBlock {
				m.Global.IPv6 = netip.MustParsePrefix("fd5e:a1a4:e242:f201::/64")
			}
			d := Decide(Input{Shards: 1, Now: now, Members: []Member{m, cluster(2)}})
			if got := endpointsIn(t, d, "c2", "c1"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestGlobalPodsOfIPv6: each of a pod's addresses has its own, of its family.
func TestGlobalPodsOfIPv6(t *testing.T) {
	e := web(1, withPods("242.1.0.10", "fd5e:a1a4:e242:f201::b", ""))
	six := e.Backends[0]
	six.Addresses = []v1alpha1.Backend{
		{IP: "fd00:1::1", Hostname: "web-0", Ready: true, Serving: true, GlobalIP: "fd5e:a1a4:e242:f201::a"},
		{IP: "fd00:1::2", Hostname: "web-1", Ready: true, Serving: true, GlobalIP: "242.1.0.11"},
		{IP: "fd00:1::3", Hostname: "web-2", Ready: true, Serving: true, GlobalIP: "fd5e:a1a4:e242:f201::c"}}
	e.Backends = append(e.Backends, six)
	e.Settings.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	m := withBlock(cluster(1, e), 1, true)
	m.Pods = append(m.Pods, netip.MustParsePrefix("fd00:1::/48"))
	m.Global.IPv6 = netip.MustParsePrefix("fd5e:a1a4:e242:f201::/64")
	d := Decide(Input{Shards: 1, Now: now, Members: []Member{m, cluster(2)}})
	const want = "web-0=242.1.0.10 web-0=fd5e:a1a4:e242:f201::a web-2=fd5e:a1a4:e242:f201::c"
	if got := podsIn(d, "c2"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestHeadlessInABlockIsToldSo: whoever exports a headless service is told of pods without a global address.
func TestHeadlessInABlockIsToldSo(t *testing.T) {
	for _, c := range []struct {
		exporter Member
		told     bool
	}{
		{withBlock(cluster(1, web(1, headless)), 1, true), true},
		{withBlock(cluster(1, web(1, withPods("242.1.0.1", "242.1.0.2"))), 1, true), true},
		{withBlock(cluster(1, web(1, withPods("242.1.0.1", "242.1.0.2", "242.1.0.3"))), 1, true), false},
		{withBlock(cluster(1, web(1)), 1, true), false},
		{cluster(1, web(1, headless)), false},
	} {
		d := Decide(Input{Shards: 1, Now: now, Members: []Member{c.exporter, cluster(2)}})
		var messages []string
		for _, condition := range d.Bundles["c1"].ExportConditions {
			messages = append(messages, condition.Message)
		}
		text := strings.Join(messages, " ")
		if len(messages) == 0 || strings.Contains(text, "block of global addresses") != c.told {
			t.Errorf("block %v: %q", c.exporter.Global, text)
		}
	}
}
