// SPDX-License-Identifier: Apache-2.0

package globalips

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/external"
)

func TestPods(t *testing.T) {
	yes, no := true, false
	pod := func(name, ip string, c discoveryv1.EndpointConditions) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: c,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name}}
	}
	outside, _ := external.For(&v1alpha1.PeeringSpec{GlobalCIDR: "120.1.0.0/24", ExternalCIDRs: []string{"172.31.0.0/16"},
		Networks: v1alpha1.Networks{PodCIDRs: []string{"10.7.0.0/16"}}}, []corev1.Node{{Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.31.1.1"}}}}}, nil)
	got, err := Pods([]discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{
		pod("web-1", "10.7.1.11", discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}),
		pod("web-0", "10.7.1.10", discoveryv1.EndpointConditions{}),
		pod("web-2", "10.7.1.12", discoveryv1.EndpointConditions{Ready: &no}),
		pod("web-3", "172.31.1.1", discoveryv1.EndpointConditions{}), // of the host network
		pod("web-4", "fd07::4", discoveryv1.EndpointConditions{}),
		pod("web-5", "172.31.1.50", discoveryv1.EndpointConditions{}), // said to be a pod
		{Addresses: []string{"10.7.1.20"}},
		pod("another", "10.7.1.30", discoveryv1.EndpointConditions{}), // of another namespace
		pod("web-0", "10.7.1.31", discoveryv1.EndpointConditions{}),
		{Addresses: []string{"172.31.1.1"}},
		{Addresses: []string{"172.31.1.50"}},
		{Addresses: []string{"172.31.1.52"}}, // a pod of another namespace
		{Addresses: []string{"192.0.2.7"}},
		{Addresses: []string{"169.254.169.254"}},
		{Addresses: []string{"web.example.com"}}, {},
	}}, {Endpoints: []discoveryv1.Endpoint{
		pod("web-1", "10.7.1.21", discoveryv1.EndpointConditions{}),
		pod("web-0", "10.7.1.10", discoveryv1.EndpointConditions{}),
	}}}, []string{"10.7.0.0/16", "nonsense"}, map[netip.Addr]string{
		netip.MustParseAddr("10.7.1.10"): "web-0", netip.MustParseAddr("10.7.1.11"): "web-1",
		netip.MustParseAddr("10.7.1.21"): "web-1", netip.MustParseAddr("10.7.1.12"): "web-2",
		netip.MustParseAddr("10.7.1.20"): "bare", netip.MustParseAddr("172.31.1.1"): "web-3",
		netip.MustParseAddr("fd07::4"):     "web-4",
		netip.MustParseAddr("172.31.1.52"): ""}, outside)
	const want = "172.31.1.50=172.31.1.50 bare=10.7.1.20 web-0=10.7.1.10 web-1=10.7.1.21"
	if text := render(got); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if err == nil || !strings.Contains(err.Error(), "169.254.169.254") {
		t.Errorf("of hosts that may not be exported it says %v", err)
	}
}

// TestPodsOfBothFamilies: a pod is one, by its name, whichever addresses its slices have, and has global addresses of
// one number.
func TestPodsOfBothFamilies(t *testing.T) {
	yes, no := true, false
	pod := func(name, ip string, ready *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{ip},
			Conditions: discoveryv1.EndpointConditions{Ready: ready, Serving: &yes},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: name}}
	}
	pods, err := Pods([]discoveryv1.EndpointSlice{
		{Endpoints: []discoveryv1.Endpoint{pod("web-1", "10.7.1.11", &yes), pod("web-0", "10.7.1.10", &yes)}},
		{Endpoints: []discoveryv1.Endpoint{pod("web-1", "fd07::66", &no), pod("web-1", "fd07::11", &yes),
			pod("web-2", "fd07::12", &yes), pod("web-3", "fd31::1", &yes)}},
	}, []string{"10.7.0.0/16", "fd07::/48"}, map[netip.Addr]string{
		netip.MustParseAddr("10.7.1.10"): "web-0", netip.MustParseAddr("10.7.1.11"): "web-1",
		netip.MustParseAddr("fd07::66"): "web-1", netip.MustParseAddr("fd07::11"): "web-1",
		netip.MustParseAddr("fd07::12"): "web-2", netip.MustParseAddr("fd31::1"): "web-3"}, external.Hosts{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range pods {
		got = append(got, p.Name+"="+p.IP+"+"+p.IPv6)
	}
	if want := "web-0=10.7.1.10+ web-1=10.7.1.11+fd07::11 web-2=+fd07::12"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
	spec := v1alpha1.PeeringSpec{GlobalCIDR: "242.1.0.0/16", GlobalIPv6CIDR: "fd5e:a1a4:e242:f201::/64"}
	block, ipv6 := blocks(spec)
	a, now := NewAllocator(block, nil), time.Unix(1e9, 0)
	a.ipv6 = ipv6
	v := decide(a, key(1), v1alpha1.IngressAllocation{}, wanted{exported: true, headless: true, pods: pods}, now)
	for _, p := range v.Pods {
		global := netip.MustParseAddr(p.GlobalIP).As4()
		if want := fmt.Sprintf("fd5e:a1a4:e242:f201::%x", int(global[2])<<8|int(global[3])); p.GlobalIPv6 != want {
			t.Errorf("%s has %s and %s, want %s", p.Name, p.GlobalIP, p.GlobalIPv6, want)
		}
	}
	v = decide(a, key(2), v1alpha1.IngressAllocation{}, wanted{exported: true}, now)
	if v.IPv6 != a.IPv6(v.IP) || v.IPv6 == "" {
		t.Errorf("a service has %q and %q", v.IP, v.IPv6)
	}
	if gone := release(a, key(1), v.Pods, nil, now); len(gone) > 0 && gone[0].IPv6 != "" {
		t.Errorf("a pod that went has %s", gone[0].IPv6)
	}
	for _, wrong := range []string{"fd5e:a1a4:e242:f202::/64", "fd5e:a1a4:e242:f201::/112", "2001:db8:1:f201::/64", "x",
		""} {
		spec.GlobalIPv6CIDR = wrong
		if _, ipv6 := blocks(spec); ipv6.IsValid() {
			t.Errorf("%s is taken for what 242.1.0.0/16 has of IPv6", wrong)
		}
	}
}

// render lists pods with their addresses; those that went have none of their own.
func render(pods []v1alpha1.GlobalPod) string {
	var out []string
	for _, p := range pods {
		text := p.Name + "=" + p.IP
		if p.GlobalIP != "" {
			text += "/" + p.GlobalIP
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func podNamed(n int, ip string) v1alpha1.GlobalPod {
	return v1alpha1.GlobalPod{Name: fmt.Sprintf("web-%d", n), IP: ip}
}

func allocated(pods []v1alpha1.GlobalPod) []v1alpha1.GlobalAllocation {
	return []v1alpha1.GlobalAllocation{allocationOf(key(1), pods)}
}

func allocationOf(service types.NamespacedName, pods []v1alpha1.GlobalPod) v1alpha1.GlobalAllocation {
	o := v1alpha1.NewGlobalAllocation(ownerOf(service))
	o.Spec.Ingress = &v1alpha1.IngressAllocation{Pods: pods}
	return *o
}

// TestPodsKeepTheirAddresses: by their names, for as long as Grace, also where the agent restarts in between.
func TestPodsKeepTheirAddresses(t *testing.T) {
	block, now := netip.MustParsePrefix("120.1.0.0/24"), time.Unix(1e9, 0)
	a := NewAllocator(block, nil)
	assign := func(before []v1alpha1.GlobalPod, pods ...v1alpha1.GlobalPod) []v1alpha1.GlobalPod {
		out, without, _, why := assignPods(a, key(1), before, pods, now)
		if without != 0 || why != nil {
			t.Fatalf("%d without an address: %v", without, why)
		}
		return out
	}
	pods := assign(nil, podNamed(0, "10.7.1.1"), podNamed(1, "10.7.1.2"))
	first, second := pods[0].GlobalIP, pods[1].GlobalIP
	if first == second || first == "" || second == "" {
		t.Fatal(render(pods))
	}
	pods = assign(pods, podNamed(0, "10.7.1.1"))
	if want := "web-0=10.7.1.1/" + first + " web-1=/" + second; render(pods) != want || pods[1].ReleasedAt == nil {
		t.Errorf("got %s, want %s", render(pods), want)
	}
	now = now.Add(Grace - time.Second)
	for range 2 {
		again := assign(pods, podNamed(0, "10.7.1.1"), podNamed(1, "10.7.2.9"))
		if want := "web-0=10.7.1.1/" + first + " web-1=10.7.2.9/" + second; render(again) != want {
			t.Errorf("got %s, want %s", render(again), want)
		}
		a = NewAllocator(block, allocated(pods)) // a restart with what was written last
	}
	now = now.Add(time.Second)
	if pods = assign(pods, podNamed(0, "10.7.1.1")); len(pods) != 1 {
		t.Errorf("it is kept for longer than stated: %s", render(pods))
	}
	t.Log("another block")
	a = NewAllocator(netip.MustParsePrefix("120.2.0.0/24"), allocated(pods))
	if pods = assign(pods, podNamed(0, "10.7.1.1")); !strings.HasPrefix(pods[0].GlobalIP, "120.2.0.") {
		t.Error(render(pods))
	}
	a.ReleaseAll(key(1), now)
	if len(a.owners) != 0 {
		t.Errorf("left: %v", a.owners)
	}
}

// TestPodsExhausted: those that have an address keep it, and services have theirs.
func TestPodsExhausted(t *testing.T) {
	a, now := NewAllocator(netip.MustParsePrefix("120.1.0.0/26"), nil), time.Unix(1e9, 0)
	if _, err := a.Assign(key(2), now); err != nil {
		t.Fatal(err)
	}
	var pods []v1alpha1.GlobalPod
	for n := range 40 {
		pods = append(pods, podNamed(n, fmt.Sprintf("10.7.1.%d", n)))
	}
	before, without, _, why := assignPods(a, key(1), nil, pods[20:], now)
	if without != 0 {
		t.Fatal(why)
	}
	out, without, _, why := assignPods(a, key(1), before, pods, now)
	if without != 10 || why == nil || !strings.Contains(why.Error(), "120.1.0.0/26") || len(out) != 40 {
		t.Errorf("%d of %d without an address: %v", without, len(out), why)
	}
	had := map[string]string{}
	for _, p := range before {
		had[p.Name] = p.GlobalIP
	}
	for _, p := range out {
		if had[p.Name] != "" && p.GlobalIP != had[p.Name] {
			t.Errorf("%s had %s and has %q", p.Name, had[p.Name], p.GlobalIP)
		}
	}
}

// TestPodsOfARollOut: pods that come with new names get the addresses of those that went, where none is left; after a
// restart, too.
func TestPodsOfARollOut(t *testing.T) {
	block, now := netip.MustParsePrefix("120.1.0.0/26"), time.Unix(1e9, 0)
	a, first := NewAllocator(block, nil), 0
	var written []v1alpha1.GlobalPod
	for round := range 20 {
		var pods []v1alpha1.GlobalPod
		for n := range 10 {
			pods = append(pods, podNamed(first+n, "10.7.1.1"))
		}
		first += 10
		var without int
		var why error
		if written, without, _, why = assignPods(a, key(1), written, pods, now); without > 0 {
			t.Fatalf("round %d: %d without an address: %v", round, without, why)
		}
		now = now.Add(2 * time.Minute)
		if round%3 == 0 {
			a = NewAllocator(block, allocated(written))
		}
		seen := map[string]string{}
		for _, p := range written {
			if seen[p.GlobalIP] != "" {
				t.Fatalf("round %d: %s and %s have %s", round, seen[p.GlobalIP], p.Name, p.GlobalIP)
			}
			seen[p.GlobalIP] = p.Name
		}
	}
}

// TestVeryManyPods: an object has room for some, and those that have an address keep it.
func TestVeryManyPods(t *testing.T) {
	a, now := NewAllocator(netip.MustParsePrefix("120.0.0.0/16"), nil), time.Unix(1e9, 0)
	var pods []v1alpha1.GlobalPod
	for n := range 3 * maxPods {
		pods = append(pods, podNamed(n, "10.7.1.1"))
	}
	before, _, _, _ := assignPods(a, key(1), nil, pods[2*maxPods:], now)
	out, without, _, why := assignPods(a, key(1), before, pods, now)
	if len(out) != maxPods || without != 2*maxPods || why != nil || render(out) != render(before) {
		t.Errorf("%d listed, %d without an address, %v", len(out), without, why)
	}
	out, _, _, _ = assignPods(a, key(1), out, pods[:maxPods/2], now)
	if len(out) != maxPods || len(a.owners) != maxPods/2 {
		t.Errorf("%d listed, %d have an address", len(out), len(a.owners))
	}
}

// FuzzPods lets pods of two services come and go, and the agent restart with what is written: no two have one address,
// and who comes back in time has the same.
func FuzzPods(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		steps := make([]byte, 300)
		for i := range steps {
			steps[i] = byte(r.IntN(256))
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		block, now := netip.MustParsePrefix("120.1.0.0/26"), time.Unix(1e9, 0)
		a := NewAllocator(block, nil)
		services := []types.NamespacedName{key(1), key(2)}
		written, there := [2][]v1alpha1.GlobalPod{}, [2]map[int]bool{{}, {}}
		for _, step := range steps[:min(len(steps), 500)] {
			s, n := int(step>>4&1), int(step%12)
			switch step >> 5 {
			case 0, 1, 2:
				there[s][n] = true
			case 3, 4, 5:
				delete(there[s], n)
			case 6:
				now = now.Add(time.Duration(n) * 10 * time.Minute)
			case 7:
				var objects []v1alpha1.GlobalAllocation
				for i, pods := range written {
					objects = append(objects, allocationOf(services[i], pods))
				}
				a = NewAllocator(block, objects)
			}
			var pods []v1alpha1.GlobalPod
			for n := range 12 {
				if there[s][n] {
					pods = append(pods, podNamed(n, fmt.Sprintf("10.7.%d.%d", s, n)))
				}
			}
			before := map[string]v1alpha1.GlobalPod{}
			for _, p := range written[s] {
				before[p.Name] = p
			}
			written[s], _, _, _ = assignPods(a, services[s], written[s], pods, now)
			owners := map[string]string{}
			for i := range written {
				for _, p := range written[i] {
					who := services[i].Name + "/" + p.Name
					if other := owners[p.GlobalIP]; p.GlobalIP != "" && other != "" {
						t.Fatalf("%s and %s have %s", who, other, p.GlobalIP)
					}
					owners[p.GlobalIP] = who
					if had := before[p.Name]; i == s && had.GlobalIP != "" && had.GlobalIP != p.GlobalIP {
						t.Fatalf("%s had %s and has %q", who, had.GlobalIP, p.GlobalIP)
					}
				}
			}
		}
	})
}
