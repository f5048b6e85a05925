// SPDX-License-Identifier: Apache-2.0

package nodenetworks

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func node(name, address string, podCIDRs ...string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
}

// pod runs on a node since so many seconds after the beginning.
func pod(on string, since int, ips ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p" + fmt.Sprint(since, ips),
		CreationTimestamp: metav1.NewTime(time.Unix(int64(since), 0))},
		Spec: corev1.PodSpec{NodeName: on}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// text is "n1: 10.0.0.0/24 10.0.1.0/24; n2: …", with "+3" for what is left out.
func text(decided map[string]v1alpha1.NodeNetworkSpec) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(decided)) {
		s := name + ": " + strings.Join(decided[name].PodCIDRs, " ")
		if n := decided[name].LeftOut; n > 0 {
			s += fmt.Sprintf(" +%d", n)
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

func TestDecide(t *testing.T) {
	n1, n2 := node("n1", "172.31.0.1", "10.8.1.0/24", "fd00:8:1::/64"), node("n2", "172.31.0.2", "10.8.2.0/24")
	bare1, bare2 := node("n1", "10.6.0.1"), node("n2", "10.6.0.2")
	hostNetwork, ended := pod("n1", 1, "10.8.9.1"), pod("n1", 1, "10.8.9.2")
	hostNetwork.Spec.HostNetwork, ended.Status.Phase = true, corev1.PodSucceeded
	ending := pod("n1", 1, "10.8.9.3")
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(3, 0)}
	for name, c := range map[string]struct {
		input
		want string
	}{
		"nodes say it all": {input{nodes: []corev1.Node{n1, n2}, pods: []corev1.Pod{pod("n1", 1, "10.8.1.7"),
			pod("n2", 1, "10.8.2.7")}}, ""},
		"a plugin says the same": {input{nodes: []corev1.Node{n1, n2},
			ranges: map[string][]netip.Prefix{"n1": prefixes("10.8.1.0/24"), "n2": prefixes("10.8.2.128/25")}}, ""},
		"a plugin has ranges of its own": {input{nodes: []corev1.Node{n1, n2},
			ranges: map[string][]netip.Prefix{"n1": prefixes("10.8.2.0/26", "10.8.7.0/26"), "gone": prefixes("10.8.3.0/26")}},
			"n1: 10.8.2.0/26 10.8.7.0/26"},
		"in the middle of another's": {input{nodes: []corev1.Node{n1, n2},
			ranges: map[string][]netip.Prefix{"n1": prefixes("10.8.2.0/25"), "n2": prefixes("10.8.2.64/26")}},
			"n1: 10.8.2.0/25; n2: 10.8.2.64/26"},
		"two nodes have one": {input{nodes: []corev1.Node{n1, n2},
			ranges: map[string][]netip.Prefix{"n1": prefixes("10.8.7.0/26"), "n2": prefixes("10.8.7.0/26")},
			pods:   []corev1.Pod{pod("n2", 1, "10.8.7.1")}}, "n2: 10.8.7.1/32"},
		"not of the cluster": {input{nodes: []corev1.Node{n1}, pods: []corev1.Pod{pod("n1", 1, "192.0.2.1")},
			ranges: map[string][]netip.Prefix{"n1": prefixes("192.0.2.0/24", "10.0.0.0/8")}}, "n1: 10.8.0.0/16"},
		"a pod with a lent address": {input{nodes: []corev1.Node{n1, n2}, pods: []corev1.Pod{pod("n1", 1, "10.8.2.9")}},
			"n1: 10.8.2.9/32"},
		"both families": {input{nodes: []corev1.Node{n1, n2},
			pods: []corev1.Pod{pod("n2", 1, "10.8.2.4", "fd00:8:1::4")}}, "n2: fd00:8:1::4/128"},
		"an underlay": {input{nodes: []corev1.Node{bare1, bare2}, networks: prefixes("10.6.0.0/24"), pods: []corev1.Pod{
			pod("n1", 1, "10.6.0.8"), pod("n1", 1, "10.6.0.9"), pod("n2", 1, "10.6.0.10"), pod("n2", 1, "10.6.0.2"),
			pod("gone", 1, "10.6.0.11"), pod("", 1, "10.6.0.12")}}, "n1: 10.6.0.8/31; n2: 10.6.0.10/32"},
		"of nodes and of ended pods": {input{nodes: []corev1.Node{n1, n2}, pods: []corev1.Pod{hostNetwork, ended}}, ""},
		"a pod that takes another's address": {input{nodes: []corev1.Node{n1, n2},
			pods: []corev1.Pod{pod("n1", 1, "10.8.9.1"), pod("n2", 2, "10.8.9.1"), pod("n1", 3, "10.8.9.9"),
				pod("n2", 2, "10.8.9.9")}}, "n1: 10.8.9.1/32; n2: 10.8.9.9/32"},
		"a pod that has the address of one that goes": {input{nodes: []corev1.Node{n1, n2},
			pods: []corev1.Pod{ending, pod("n2", 2, "10.8.9.3")}}, "n2: 10.8.9.3/32"},
		"a young pod where its node says": {input{nodes: []corev1.Node{n1, n2},
			pods: []corev1.Pod{pod("n2", 1, "10.8.1.1"), pod("n1", 2, "10.8.1.1")}}, ""},
		"a node that claims another's pod": {input{nodes: []corev1.Node{n1, n2},
			pods: []corev1.Pod{pod("n1", 1, "10.8.1.1"), pod("n2", 2, "10.8.1.1")}}, ""},
		"no text of an address": {input{nodes: []corev1.Node{n1}, pods: []corev1.Pod{pod("n1", 1, "", "x", "fe80::1%eth0")}},
			""},
		"nothing is accepted": {input{nodes: []corev1.Node{n1}, networks: []netip.Prefix{},
			pods: []corev1.Pod{pod("n1", 1, "10.8.9.1")}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.networks == nil {
				c.networks = prefixes("10.8.0.0/16", "fd00:8::/32")
			}
			if got := text(decide(c.input)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestRoom: of more networks than there is room for the widest stay, and the others are counted.
func TestRoom(t *testing.T) {
	in := input{nodes: []corev1.Node{node("n1", "172.31.0.1")}, networks: prefixes("10.8.0.0/16"),
		ranges: map[string][]netip.Prefix{"n1": prefixes("10.8.200.0/24")}}
	for i := range v1alpha1.MaxNodePodCIDRs + 1 {
		in.pods = append(in.pods, pod("n1", 1, fmt.Sprintf("10.8.%d.%d", i/100, 2*(i%100)))) // none beside another
	}
	got := decide(in)["n1"]
	if len(got.PodCIDRs) != v1alpha1.MaxNodePodCIDRs || got.LeftOut != 2 ||
		!slices.Contains(got.PodCIDRs, "10.8.200.0/24") {
		t.Errorf("%d networks, %d left out", len(got.PodCIDRs), got.LeftOut)
	}
}

// TestEachPodIsWhereItIs: with whatever ranges, the narrowest network that holds a pod's address is its node's.
func TestEachPodIsWhereItIs(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	for range 200 {
		in := input{networks: prefixes("10.8.0.0/22"), ranges: map[string][]netip.Prefix{}}
		for i := range 4 {
			name := fmt.Sprintf("n%d", i)
			in.nodes = append(in.nodes, node(name, fmt.Sprintf("172.31.0.%d", i), fmt.Sprintf("10.8.%d.0/24", i)))
			for range r.IntN(4) {
				in.ranges[name] = append(in.ranges[name], netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 8, byte(r.IntN(4)),
					byte(r.IntN(256))}), 24+r.IntN(6)).Masked())
			}
		}
		where := map[netip.Addr]string{}
		for i := range 60 {
			ip, name := netip.AddrFrom4([4]byte{10, 8, byte(r.IntN(4)), byte(r.IntN(256))}), fmt.Sprintf("n%d", r.IntN(4))
			if where[ip] == "" {
				in.pods = append(in.pods, pod(name, i, ip.String()))
				where[ip] = name
			}
		}
		decided := decide(in)
		for ip, want := range where {
			at, best := "", -1
			for i := range in.nodes {
				n := &in.nodes[i]
				for j, list := range [][]string{n.Spec.PodCIDRs, decided[n.Name].PodCIDRs} { // of equals the second counts
					for _, p := range prefixes(list...) {
						if weight := 2*p.Bits() + j; p.Contains(ip) && weight > best {
							at, best = n.Name, weight
						}
					}
				}
			}
			if at != want {
				t.Fatalf("%s is on %s, by the networks on %s: %s", ip, want, at, text(decided))
			}
		}
	}
}

// BenchmarkDecide has 1,000 nodes with a block each, and 10,000 pods of which one in ten has a lent address.
func BenchmarkDecide(b *testing.B) {
	in := input{networks: prefixes("10.0.0.0/8"), ranges: map[string][]netip.Prefix{}}
	for i := range 1000 {
		name := fmt.Sprintf("n%03d", i)
		in.nodes = append(in.nodes, node(name, fmt.Sprintf("172.31.%d.%d", i/200, i%200+1)))
		in.ranges[name] = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 256), byte(i), 0}), 26)}
		for j := range 10 {
			third := i
			if j == 0 {
				third = (i + 1) % 1000
			}
			ip := netip.AddrFrom4([4]byte{10, byte(third / 256), byte(third), byte(j + 1)})
			in.pods = append(in.pods, pod(name, j, ip.String()))
		}
	}
	for b.Loop() {
		if len(decide(in)) != 1000 {
			b.Fatal("not every node has a network")
		}
	}
}
