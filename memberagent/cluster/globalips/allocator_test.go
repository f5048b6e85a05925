// SPDX-License-Identifier: Apache-2.0

package globalips

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

func key(n int) types.NamespacedName {
	return types.NamespacedName{Namespace: "sample", Name: fmt.Sprintf("s%d", n)}
}

func object(n, age int, ip string) v1alpha1.GlobalAllocation { return allocationOfIP(key(n), age, ip) }

func allocationOfIP(service types.NamespacedName, age int, ip string) v1alpha1.GlobalAllocation {
	o := v1alpha1.NewGlobalAllocation(ownerOf(service))
	o.CreationTimestamp = metav1.Unix(int64(1000-age), 0)
	o.Spec.Ingress = &v1alpha1.IngressAllocation{IP: ip}
	return *o
}

// TestAllocatorRestores: what objects say holds, but for what another that is older has, and what is not of the block.
func TestAllocatorRestores(t *testing.T) {
	a := NewAllocator(netip.MustParsePrefix("120.1.0.0/24"), []v1alpha1.GlobalAllocation{
		object(1, 1, "120.1.0.10"), object(2, 2, "120.1.0.10"), object(3, 3, "120.9.0.1"), object(4, 4, "120.1.0.130"),
		object(5, 5, ""), object(6, 6, "120.1.0.0"),
	})
	seen := map[netip.Addr]types.NamespacedName{}
	for n := 6; n > 0; n-- {
		ip, err := a.Assign(key(n), time.Unix(2000, 0))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := globalnet.Number(a.Block(), ip); !ok || seen[ip].Name != "" {
			t.Errorf("%s gets %s, that of %s", key(n), ip, seen[ip])
		}
		seen[ip] = key(n)
	}
	if owner := seen[netip.MustParseAddr("120.1.0.10")]; owner != key(2) {
		t.Errorf("the address is that of %s, want the older", owner)
	}
}

func TestAllocatorExhausted(t *testing.T) {
	a := NewAllocator(netip.MustParsePrefix("120.1.0.0/26"), nil)
	now := time.Unix(1e9, 0)
	for n := range 31 {
		if _, err := a.Assign(key(n), now); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.Assign(key(99), now)
	for _, part := range []string{"sample/s99", "120.1.0.0/26", "all 31", "in use (31)", "wider block"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
	had := a.of[key(7)]
	a.Release(key(7), now)
	a.Release(key(8), now.Add(time.Second))
	if _, err := a.Assign(key(99), now.Add(Least-1)); err == nil {
		t.Error("the address goes to another at once")
	}
	ip, err := a.Assign(key(99), now.Add(Least))
	if err != nil || ip != had || a.keeps(ip.String(), key(7)) {
		t.Errorf("%s, %v: want %s, which has been kept for longest", ip, err, had)
	}
	if _, err := a.Assign(key(98), now.Add(Least)); err == nil {
		t.Error("the address of the one that went last goes to another, too")
	}
	if again, err := a.Assign(key(7), now.Add(Least+time.Second)); err != nil || again == ip {
		t.Errorf("who comes back too late gets %s, %v", again, err)
	}
}

// TestKeptForTheOthers: a tenant that uses up the block does not get what another namespace has given up, and may come
// back to; one that has little does, where nothing else is left.
func TestKeptForTheOthers(t *testing.T) {
	a := NewAllocator(netip.MustParsePrefix("120.1.0.0/26"), nil)
	now := time.Unix(1e9, 0)
	of := func(namespace string, n int) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("s%d", n)}
	}
	assign := func(service types.NamespacedName) netip.Addr {
		t.Helper()
		ip, err := a.Assign(service, now)
		if err != nil {
			t.Fatal(err)
		}
		return ip
	}
	victims := []netip.Addr{assign(of("victim", 0)), assign(of("victim", 1))}
	for n := range 29 {
		assign(of("greedy", n))
	}
	a.Release(of("victim", 0), now)
	a.Release(of("victim", 1), now)
	now = now.Add(Grace / 2)
	if ip, err := a.Assign(of("greedy", 99), now); err == nil {
		t.Errorf("who has 29 of 31 gets %s, which is kept for another", ip)
	}
	a.Release(of("greedy", 0), now)
	now = now.Add(Least)
	if ip := assign(of("greedy", 99)); slices.Contains(victims, ip) {
		t.Errorf("it gets %s, and should what was its own", ip)
	}
	if ip := assign(of("victim", 1)); ip != victims[1] {
		t.Errorf("who comes back gets %s, had %v", ip, victims)
	}
	if ip := assign(of("modest", 0)); ip != victims[0] {
		t.Errorf("who has nothing gets %s, and none is left but one of %v", ip, victims)
	}
}

// FuzzAllocator lets services come and go, and the agent restart with what is written. No two have one address, who
// comes back in time has the same, and nobody else has it until then.
func FuzzAllocator(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		steps := make([]byte, 400)
		for i := range steps {
			steps[i] = byte(r.IntN(256))
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		block, now := netip.MustParsePrefix("120.1.0.0/26"), time.Unix(1e9, 0)
		a := NewAllocator(block, nil)
		held := map[types.NamespacedName]netip.Addr{}
		last, until := map[netip.Addr]types.NamespacedName{}, map[netip.Addr]time.Time{}
		for _, step := range steps[:min(len(steps), 1000)] {
			k := key(int(step % 40))
			switch step >> 6 {
			case 0, 1:
				ip, err := a.Assign(k, now)
				if err != nil {
					continue
				}
				if had, ok := held[k]; ok && had != ip {
					t.Fatalf("%s had %s and has %s", k, had, ip)
				}
				for other, theirs := range held {
					if other != k && theirs == ip {
						t.Fatalf("%s and %s both have %s", k, other, ip)
					}
				}
				if last[ip] != k && now.Before(until[ip]) {
					unheld := 0
					for other := range until {
						if !slices.Contains(slices.Collect(maps.Values(held)), other) && now.Before(until[other]) {
							unheld++
							if until[other].Before(until[ip]) {
								t.Fatalf("%s goes to %s, and %s has been kept for longer", ip, k, other)
							}
						}
					}
					if unheld+len(held) < globalnet.IngressSize(block) || now.Before(until[ip].Add(Least-Grace)) {
						t.Fatalf("%s of %s goes to %s before %s", ip, last[ip], k, until[ip])
					}
				}
				held[k], last[ip] = ip, k
			case 2:
				if ip, ok := held[k]; ok {
					until[ip] = now.Add(Grace)
				}
				a.Release(k, now)
				delete(held, k)
			case 3:
				now = now.Add(time.Duration(step%64) * time.Minute)
			}
		}
		// A restart: addresses without an object are forgotten, and the others are all there.
		var objects []v1alpha1.GlobalAllocation
		for k, ip := range held {
			objects = append(objects, allocationOfIP(k, 0, ip.String()))
		}
		a = NewAllocator(block, objects)
		for k, ip := range held {
			if got, err := a.Assign(k, now); err != nil || got != ip {
				t.Fatalf("after a restart %s has %s, %v; it had %s", k, got, err, ip)
			}
		}
	})
}

func TestPorts(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	name := func(s string) *string { return &s }
	no := false
	service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "web", Port: 80}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "none", Port: 1}}}}
	udp := corev1.ProtocolUDP
	got := Ports(service, []discoveryv1.EndpointSlice{{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: name("web"), Port: number(8080)},
			{Name: name("dns"), Protocol: &udp, Port: number(5353)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.7.1.11"}}, {Addresses: []string{"10.7.1.10"}},
			{Addresses: []string{"10.7.1.12"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}}},
	}, {
		AddressType: discoveryv1.AddressTypeIPv6, Ports: []discoveryv1.EndpointPort{{Name: name("web"), Port: number(8080)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd07::10"}}},
	}})
	const want = "[{TCP 1 []} {TCP 80 [{10.7.1.10 8080} {10.7.1.11 8080} {fd07::10 8080}]} " +
		"{UDP 53 [{10.7.1.10 5353} {10.7.1.11 5353}]}]"
	if text := fmt.Sprint(got); text != want {
		t.Errorf("got %s\nwant %s", text, want)
	}
}
