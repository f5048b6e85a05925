// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// exact compares netip values as the values they are.
var exact = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

func key(b byte) string { return topology.Key{b}.String() }

func node(name, address string, pods ...string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDRs: pods},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}
}

func endpoint(name string, slot int32, key string, addresses ...string) v1alpha1.Endpoint {
	e := v1alpha1.Endpoint{Gateway: name, Slot: slot, PublicKey: key, MTU: 1420}
	for _, a := range addresses {
		e.Addresses = append(e.Addresses, v1alpha1.EndpointAddress{Type: v1alpha1.AddressPublic, IP: a})
	}
	return e
}

// input is a sound cluster c1 with two remotes, c2 and c3.
func input() topology.Input {
	return topology.Input{
		Peering: &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{
			Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: "c1",
			Cable:    v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
			Networks: v1alpha1.Networks{PodCIDRs: []string{"10.8.0.0/16"}, ServiceCIDRs: []string{"10.88.0.0/16"}},
			RemoteClusters: []v1alpha1.RemoteCluster{{
				Name:     "c2",
				Networks: v1alpha1.Networks{PodCIDRs: []string{"10.9.0.0/16"}, ServiceCIDRs: []string{"10.99.0.0/16"}},
				Endpoints: []v1alpha1.Endpoint{endpoint("g0", 0, key(2), "198.51.100.2"), endpoint("g1", 1, key(3),
					"198.51.100.3")},
			}, {
				Name:      "c3",
				Networks:  v1alpha1.Networks{PodCIDRs: []string{"10.10.0.0/16"}, ServiceCIDRs: []string{"10.110.0.0/16"}},
				Endpoints: []v1alpha1.Endpoint{endpoint("g0", 0, key(4), "198.51.100.4")},
			}},
		}},
		Gateways: []v1alpha1.Gateway{{
			ObjectMeta: metav1.ObjectMeta{Name: "gw"},
			Status:     v1alpha1.GatewayStatus{Endpoint: &v1alpha1.Endpoint{PublicKey: key(1), MTU: 1420}},
		}},
		Nodes: []corev1.Node{node("gw", "172.31.1.12", "10.8.2.0/24"), node("worker", "172.31.1.11", "10.8.1.0/24")},
	}
}

func TestBuild(t *testing.T) {
	got := topology.Build(input())
	want := topology.Topology{
		ClusterSet: "default", Cluster: "c1",
		Cable: topology.Cable{Driver: "wireguard", Port: 4500, VXLANPort: 4800, MeshPort: 4532, VXLANCablePort: 4533,
			IPsecPort: 4534, IPsecVXLANPort: 4535},
		Local: topology.Local{
			Pods: prefixes("10.8.0.0/16"), Announced: prefixes("10.8.0.0/16", "10.88.0.0/16"),
			Nodes: []topology.Node{
				{Name: "gw", Addresses: []netip.Addr{netip.MustParseAddr("172.31.1.12")}, Pods: prefixes("10.8.2.0/24")},
				{Name: "worker", Addresses: []netip.Addr{netip.MustParseAddr("172.31.1.11")}, Pods: prefixes("10.8.1.0/24")},
			},
			Gateways: []topology.Gateway{{Node: "gw", PublicKey: topology.Key{1}, MTU: 1420}},
		},
		Remotes: []topology.Remote{
			{Name: "c2", Routed: prefixes("10.9.0.0/16", "10.99.0.0/16"), Gateways: []topology.Gateway{
				{Node: "g0", Slot: 0, PublicKey: topology.Key{2}, MTU: 1420, Candidates: candidate("198.51.100.2")},
				{Node: "g1", Slot: 1, PublicKey: topology.Key{3}, MTU: 1420, Candidates: candidate("198.51.100.3")},
			}},
			{Name: "c3", Routed: prefixes("10.10.0.0/16", "10.110.0.0/16"), Gateways: []topology.Gateway{
				{Node: "g0", Slot: 0, PublicKey: topology.Key{4}, MTU: 1420, Candidates: candidate("198.51.100.4")},
			}},
		},
	}
	if diff := cmp.Diff(want, got, exact); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func candidate(a string) []topology.Candidate {
	return []topology.Candidate{{Addr: netip.MustParseAddr(a)}}
}

// TestBadNetworks: what c2 claims beside its networks is left out, with the reason, and nothing else is.
func TestBadNetworks(t *testing.T) {
	tests := []struct{ claim, reason string }{
		{"0.0.0.0/0", topology.ReasonDefaultRoute},
		{"::/0", topology.ReasonDefaultRoute},
		{"64.0.0.0/2", topology.ReasonReserved},
		{"32.0.0.0/4", topology.ReasonTooWide},
		{"2000::/3", topology.ReasonTooWide},
		{"172.31.0.0/16", topology.ReasonContainsNode},
		{"172.31.1.11/32", topology.ReasonContainsNode},
		{"10.8.0.0/16", topology.ReasonOverlap},
		{"10.8.1.128/25", topology.ReasonOverlap},
		{"10.88.7.0/24", topology.ReasonOverlap},
		{"10.0.0.0/8", topology.ReasonOverlap},
		{"11.1.0.0/8", topology.ReasonNotMasked},
		{"127.0.0.0/8", topology.ReasonReserved},
		{"169.254.51.0/24", topology.ReasonReserved},
		{"224.0.0.0/24", topology.ReasonReserved},
		{"255.255.255.255/32", topology.ReasonReserved},
		{"fe80::/64", topology.ReasonReserved},
		{"ff02::/64", topology.ReasonReserved},
		{"fd51:1::/64", topology.ReasonReserved},
		{"::1/128", topology.ReasonReserved},
		{"::ffff:10.9.0.0/112", topology.ReasonReserved},
		{"10.9.0.0", topology.ReasonInvalidCIDR},
		{"10.9.0.0/33", topology.ReasonInvalidCIDR},
		{"fe80::%eth0/64", topology.ReasonInvalidCIDR},
		{"", topology.ReasonInvalidCIDR},
		{strings.Repeat("9", 100000), topology.ReasonInvalidCIDR},
	}
	for _, test := range tests {
		t.Run(test.claim[:min(len(test.claim), 40)], func(t *testing.T) {
			in := input()
			c2 := &in.Peering.Spec.RemoteClusters[0].Networks
			c2.PodCIDRs = append(c2.PodCIDRs, test.claim)
			wantOne(t, in, "RemoteCluster/c2", test.reason)
		})
	}
}

// wantOne wants exactly one problem, and the topology of the sound input.
func wantOne(t *testing.T, in topology.Input, ref, reason string) {
	t.Helper()
	got := topology.Build(in)
	if len(got.Problems) != 1 || got.Problems[0].Ref != ref || got.Problems[0].Reason != reason {
		t.Errorf("want one problem %s of %s, got %+v", reason, ref, got.Problems)
	}
	for _, p := range got.Problems {
		if len(p.Message) > 300 {
			t.Errorf("a message of %d bytes", len(p.Message))
		}
	}
	got.Problems = nil
	if diff := cmp.Diff(topology.Build(input()), got, exact); diff != "" {
		t.Errorf("something else changed (-want +got)\n%s", diff)
	}
}

func TestBadEndpoints(t *testing.T) {
	tests := []struct {
		name     string
		endpoint v1alpha1.Endpoint
		reason   string
	}{
		{"name", endpoint("x y\n", 5, key(9)), topology.ReasonInvalidName},
		{"duplicate name", endpoint("g1", 5, key(9)), topology.ReasonDuplicate},
		{"duplicate slot", endpoint("x", 1, key(9)), topology.ReasonDuplicate},
		{"slot too high", endpoint("x", 16, key(9)), topology.ReasonInvalidSlot},
		{"slot below zero", endpoint("x", -1, key(9)), topology.ReasonInvalidSlot},
		{"empty key", endpoint("x", 5, ""), topology.ReasonInvalidPublicKey},
		{"zero key", endpoint("x", 5, key(0)), topology.ReasonInvalidPublicKey},
		{"short key", endpoint("x", 5, base64.StdEncoding.EncodeToString(make([]byte, 31))), topology.ReasonInvalidPublicKey},
		{"key with a newline", endpoint("x", 5, key(9)+"\n"), topology.ReasonInvalidPublicKey},
		{"our key", endpoint("x", 5, key(1)), topology.ReasonDuplicate},
		{"a neighbour's key", endpoint("x", 5, key(2)), topology.ReasonDuplicate},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := input()
			c2 := &in.Peering.Spec.RemoteClusters[0]
			c2.Endpoints = append(c2.Endpoints, test.endpoint)
			wantOne(t, in, "RemoteCluster/c2", test.reason)
		})
	}
}

func TestBadCandidates(t *testing.T) {
	for _, address := range []string{
		"", "nonsense", "0.0.0.0", "127.0.0.1", "::1", "224.0.0.1", "169.254.1.1", "fe80::1", "2001:db8::1%eth0",
		"255.255.255.255", "10.8.0.5", "10.88.0.5", "10.110.0.9", "fd51::1", "::ffff:127.0.0.1",
	} {
		t.Run(address, func(t *testing.T) {
			in := input()
			e := &in.Peering.Spec.RemoteClusters[0].Endpoints[0]
			e.Addresses = append(e.Addresses, v1alpha1.EndpointAddress{Type: v1alpha1.AddressPrivate, IP: address})
			wantOne(t, in, "RemoteCluster/c2", topology.ReasonInvalidAddress)
		})
	}
}

// TestAddressesOfLocalNodes: a gateway in another site may have the private address of a node here, which is left out
// and nobody's problem. A public one of a node here is none of its.
func TestAddressesOfLocalNodes(t *testing.T) {
	for kind, reason := range map[v1alpha1.AddressType]string{
		v1alpha1.AddressPrivate: "", v1alpha1.AddressPublic: topology.ReasonInvalidAddress} {
		in := input()
		e := &in.Peering.Spec.RemoteClusters[0].Endpoints[0]
		e.Addresses = append(e.Addresses, v1alpha1.EndpointAddress{Type: kind, IP: "172.31.1.11"})
		if reason != "" {
			wantOne(t, in, "RemoteCluster/c2", reason)
		} else if diff := cmp.Diff(topology.Build(input()), topology.Build(in), exact); diff != "" {
			t.Errorf("%s: something is different (-want +got)\n%s", kind, diff)
		}
	}
}

// Whatever the broker accepted, a node does not route away what it needs itself; the rest stays.
func TestProtectedNetworksAreRefused(t *testing.T) {
	prefix := netip.MustParsePrefix
	protected := []topology.Protected{
		{Prefix: prefix("203.0.113.5/32"), Reason: topology.ReasonCoversAPIServer, What: "an API server"},
		{Prefix: prefix("203.0.113.254/32"), Reason: topology.ReasonCoversGateway, What: "the default gateway"},
		{Prefix: prefix("192.0.2.53/32"), Reason: topology.ReasonCoversResolver, What: "a name server"},
		{Prefix: prefix("172.20.0.0/16"), Reason: topology.ReasonOverlapsLink, What: "the network of link eth0"},
		{Prefix: prefix("2001:db8::5/128"), Reason: topology.ReasonCoversAPIServer, What: "an API server"},
	}
	for claim, want := range map[string]string{
		"203.0.113.5/32": topology.ReasonCoversAPIServer, "203.0.113.0/25": topology.ReasonCoversAPIServer,
		"203.0.113.128/25": topology.ReasonCoversGateway, "192.0.0.0/16": topology.ReasonCoversResolver,
		"172.20.3.0/24": topology.ReasonOverlapsLink, "172.20.0.0/15": topology.ReasonOverlapsLink,
		"2001:db8::/48": topology.ReasonCoversAPIServer, "10.44.0.0/16": "", "2001:db8:1::/48": "",
	} {
		in := input()
		before := topology.Build(in).Remotes[0].Routed
		in.Protected = protected
		c2 := &in.Peering.Spec.RemoteClusters[0].Networks
		c2.PodCIDRs = append(c2.PodCIDRs, claim)
		got := topology.Build(in)
		reason := ""
		for _, p := range got.Problems {
			reason += p.Reason
		}
		routed := slices.Contains(got.Remotes[0].Routed, prefix(claim))
		if reason != want || routed != (want == "") {
			t.Errorf("%s: routed %v, problems %v", claim, routed, got.Problems)
		}
		for _, p := range before {
			if !slices.Contains(got.Remotes[0].Routed, p) {
				t.Errorf("%s takes %s along", claim, p)
			}
		}
	}
}

// With another driver in its place, packets would leave by a cable that nobody asked for.
func TestUnknownDriverIsNotReplaced(t *testing.T) {
	in := input()
	in.Peering.Spec.Cable.Driver = "pigeon"
	got := topology.Build(in)
	if got.Cable.Driver != "pigeon" || len(got.Problems) != 1 || got.Problems[0].Reason != topology.ReasonUnknownDriver {
		t.Errorf("driver %q, problems %v", got.Cable.Driver, got.Problems)
	}
}

func TestBadLocalObjects(t *testing.T) {
	tests := []struct {
		name, ref, reason string
		edit              func(*topology.Input)
	}{
		{"node without address", "Node/x", topology.ReasonNoAddress, func(in *topology.Input) {
			in.Nodes = append(in.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
		}},
		{"two nodes' pods overlap", "Node/worker", topology.ReasonOverlap, func(in *topology.Input) {
			in.Nodes[1].Spec.PodCIDRs = append(in.Nodes[1].Spec.PodCIDRs, "10.8.2.0/25")
		}},
		{"a node with another's address", "Node/worker", topology.ReasonDuplicate, func(in *topology.Input) {
			in.Nodes[1].Status.Addresses = append(in.Nodes[1].Status.Addresses, in.Nodes[0].Status.Addresses...)
		}},
		{"gateway without node", "Gateway/x", topology.ReasonUnknownNode, func(in *topology.Input) {
			in.Gateways = append(in.Gateways, v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
		}},
		{"two gateways of one slot", "Gateway/worker", topology.ReasonDuplicate, func(in *topology.Input) {
			in.Gateways = append(in.Gateways, v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
		}},
		{"local network", "Peering/sealane", topology.ReasonDefaultRoute, func(in *topology.Input) {
			in.Peering.Spec.Networks.ServiceCIDRs = append(in.Peering.Spec.Networks.ServiceCIDRs, "0.0.0.0/0")
		}},
		{"cable port", "Peering/sealane", topology.ReasonInvalidPort, func(in *topology.Input) {
			in.Peering.Spec.Cable.Port = 65530
		}},
		{"VXLAN port", "Peering/sealane", topology.ReasonInvalidPort, func(in *topology.Input) {
			in.Peering.Spec.Cable.VXLANPort = 4501
		}},
		{"a remote of our name", "RemoteCluster/c1", topology.ReasonDuplicate, func(in *topology.Input) {
			in.Peering.Spec.RemoteClusters = append(in.Peering.Spec.RemoteClusters, v1alpha1.RemoteCluster{Name: "c1"})
		}},
		{"a remote's name", `RemoteCluster/"x y"`, topology.ReasonInvalidName, func(in *topology.Input) {
			in.Peering.Spec.RemoteClusters = append(in.Peering.Spec.RemoteClusters, v1alpha1.RemoteCluster{Name: "x y"})
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := input()
			test.edit(&in)
			wantOne(t, in, test.ref, test.reason)
		})
	}
}

func TestTinyMTUIsUnknown(t *testing.T) {
	in := input()
	in.Peering.Spec.RemoteClusters[0].Endpoints[0].MTU = 68
	got := topology.Build(in)
	if len(got.Problems) != 1 || got.Problems[0].Reason != topology.ReasonInvalidMTU ||
		got.Remotes[0].Gateways[0].MTU != 0 {
		t.Errorf("problems %v, MTU %d", got.Problems, got.Remotes[0].Gateways[0].MTU)
	}
}

// TestPathsOfLocalGateways are the least of each gateway's to a cluster; one that no path can have is left out.
func TestPathsOfLocalGateways(t *testing.T) {
	in := input()
	remote, gateway := in.Peering.Spec.RemoteClusters[0].Name, in.Gateways[0].Name
	in.Gateways[0].Status.Connections = []v1alpha1.Connection{
		{Cluster: remote, Gateway: "a", MTU: 1344}, {Cluster: remote, Gateway: "b", MTU: 1296},
		{Cluster: remote, Gateway: "c"},
		{Cluster: "nobody", Gateway: "a", MTU: 1300},
	}
	got := topology.Build(in)
	if len(got.Problems) != 0 || len(got.Remotes[0].PathMTU) != 1 || got.Remotes[0].PathMTU[gateway] != 1296 {
		t.Errorf("problems %v, paths %v", got.Problems, got.Remotes[0].PathMTU)
	}
	in.Gateways[0].Status.Connections = []v1alpha1.Connection{{Cluster: remote, Gateway: "a", MTU: 68}}
	got = topology.Build(in)
	if len(got.Problems) != 1 || got.Problems[0].Reason != topology.ReasonInvalidMTU || got.Remotes[0].PathMTU != nil {
		t.Errorf("problems %v, paths %v", got.Problems, got.Remotes[0].PathMTU)
	}
}

func TestFirstByNameKeepsWhatTwoRemotesClaim(t *testing.T) {
	in := input()
	in.Peering.Spec.RemoteClusters[1].Networks.PodCIDRs = []string{"10.9.7.0/24", "10.10.0.0/16"}
	wantOne(t, in, "RemoteCluster/c3", topology.ReasonOverlap)
}

func TestLeavingHasNoRemotes(t *testing.T) {
	in := input()
	in.Peering.Spec.Phase = v1alpha1.MemberLeaving
	if got := topology.Build(in); len(got.Remotes) > 0 {
		t.Errorf("remotes %v", got.Remotes)
	}
}

func shuffled(in topology.Input, r *rand.Rand) topology.Input {
	in.Peering = in.Peering.DeepCopy()
	in.Nodes, in.Gateways = slices.Clone(in.Nodes), slices.Clone(in.Gateways)
	shuffle(r, in.Nodes)
	shuffle(r, in.Gateways)
	spec := &in.Peering.Spec
	shuffle(r, spec.Networks.PodCIDRs)
	shuffle(r, spec.Networks.ServiceCIDRs)
	shuffle(r, spec.RemoteClusters)
	for i := range spec.RemoteClusters {
		c := &spec.RemoteClusters[i]
		shuffle(r, c.Networks.PodCIDRs)
		shuffle(r, c.Networks.ServiceCIDRs)
		shuffle(r, c.Endpoints)
		shuffle(r, c.Nodes)
	}
	return in
}

func shuffle[E any](r *rand.Rand, list []E) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

func TestOrderOfInputDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	in := meshed()
	want := topology.Build(in)
	for range 50 {
		if diff := cmp.Diff(want, topology.Build(shuffled(in, r)), exact); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	}
}

// FuzzBuild feeds what a hostile member could make the broker pass on. Whatever it is, the result does
// not depend on the order of lists, and no remote prefix overlaps the local cluster or another's.
func FuzzBuild(f *testing.F) {
	f.Add("evil", "10.9.0.0/16", "0.0.0.0/0", "gw", int32(0), key(7), "198.51.100.9", int32(1420), "172.31.1.9",
		"10.8.3.0/24", int32(4500))
	f.Add("c2", "10.0.0.0/8", "fd51::/16", "g0", int32(16), key(0), "10.99.0.1", int32(-1), "::1", "::/0", int32(70000))
	f.Fuzz(func(t *testing.T, name, pods, services, gateway string, slot int32, key, address string, mtu int32,
		nodeAddress, nodePods string, port int32) {
		in := input()
		spec := &in.Peering.Spec
		spec.Cable.Port = port
		spec.Networks.PodCIDRs = append(spec.Networks.PodCIDRs, nodePods)
		in.Nodes = append(in.Nodes, node(gateway, nodeAddress, nodePods))
		in.Gateways = append(in.Gateways, v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: gateway},
			Spec: v1alpha1.GatewaySpec{Slot: slot}})
		evil := v1alpha1.RemoteCluster{
			Name:      name,
			Networks:  v1alpha1.Networks{PodCIDRs: []string{pods, services}, ServiceCIDRs: []string{services}},
			Endpoints: []v1alpha1.Endpoint{endpoint(gateway, slot, key, address), endpoint(name, slot, key, address, pods)},
		}
		evil.Endpoints[0].MTU = mtu
		evil.Nodes = []v1alpha1.MeshNode{meshNode(gateway, key, address, pods), meshNode(name, key, nodeAddress,
			pods, services),
			meshNode("worker", key, nodeAddress, nodePods, nodePods)}
		spec.RemoteClusters[0].Nodes = []v1alpha1.MeshNode{meshNode(name, key, address, nodePods)}
		spec.RemoteClusters = append(spec.RemoteClusters, evil)

		got := topology.Build(in)
		check(t, got)
		r := rand.New(rand.NewPCG(uint64(len(pods)), uint64(len(services))))
		if diff := cmp.Diff(got, topology.Build(shuffled(in, r)), exact); diff != "" {
			t.Errorf("the order matters (-one +other)\n%s", diff)
		}
	})
}

// check holds what every consumer of a topology relies on.
func check(t *testing.T, top topology.Topology) {
	t.Helper()
	var taken []netip.Prefix
	for _, n := range top.Local.Nodes {
		for _, a := range n.Addresses {
			taken = append(taken, netip.PrefixFrom(a, a.BitLen()))
		}
		taken = append(taken, n.Pods...)
	}
	taken = slices.Concat(taken, top.Local.Announced)
	keys := map[topology.Key]string{}
	var routed []netip.Prefix
	for _, r := range top.Remotes {
		routed = append(routed, r.Routed...)
	}
	for _, r := range top.Remotes {
		own := r.Routed
		for _, p := range own {
			for _, q := range taken {
				if p.Overlaps(q) {
					t.Errorf("%s of %s overlaps %s", p, r.Name, q)
				}
			}
		}
		taken = append(taken, own...)
		for i, g := range r.Gateways {
			id := fmt.Sprintf("%s/%s", r.Name, g.Node)
			if other, dup := keys[g.PublicKey]; dup || g.PublicKey == (topology.Key{}) {
				t.Errorf("key of %s is that of %q or zero", id, other)
			}
			keys[g.PublicKey] = id
			if g.Slot < 0 || g.Slot > 15 || i > 0 && g.Slot <= r.Gateways[i-1].Slot {
				t.Errorf("slot %d of %s", g.Slot, id)
			}
		}
		checkMesh(t, r, keys, routed)
	}
	if top.Cable.Port == 0 || int(top.Cable.Port)+15 > 65535 {
		t.Errorf("port %d", top.Cable.Port)
	}
}

// TestObservedCandidates: an address at which others claim to see a gateway comes after those that it publishes, and
// before those of load balancers. What it cannot be is left out, and is nobody's problem.
func TestObservedCandidates(t *testing.T) {
	in := input()
	e := &in.Peering.Spec.RemoteClusters[0].Endpoints[0]
	balancer := v1alpha1.EndpointAddress{Type: v1alpha1.AddressLoadBalancer, IP: "198.51.100.77"}
	e.Addresses = slices.Insert(e.Addresses, 0, balancer)
	e.Observed = []v1alpha1.ObservedAddress{{IP: "203.0.113.1"}, {IP: "198.51.100.2"}, {IP: "198.51.100.2", Port: 41000}}
	candidates := func(in topology.Input) []topology.Candidate {
		top := topology.Build(in)
		if len(top.Problems) > 0 {
			t.Errorf("problems %v", top.Problems)
		}
		return top.Remotes[0].Gateways[0].Candidates
	}
	want := slices.Concat(candidate("198.51.100.2"), candidate("203.0.113.1"), candidate("198.51.100.2"),
		candidate("198.51.100.77"))
	want[1].Observed, want[2].Observed, want[2].Port = true, true, 41000
	if diff := cmp.Diff(want, candidates(in), exact); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	e.Addresses, e.Observed = e.Addresses[1:], nil
	for what, o := range map[string]v1alpha1.ObservedAddress{
		"a node here": {IP: "172.31.1.11"}, "a pod here": {IP: "10.8.1.5"}, "a pod of its own cluster": {IP: "10.9.0.5"},
		"a service of a third": {IP: "10.110.0.1"}, "loopback": {IP: "127.0.0.1"}, "multicast": {IP: "ff02::1"},
		"text": {IP: "gw.example"}, "no port": {IP: "203.0.113.1", Port: 70000},
		"a negative port": {IP: "203.0.113.1", Port: -1},
	} {
		e.Observed = []v1alpha1.ObservedAddress{o}
		if got := candidates(in); len(got) != 1 {
			t.Errorf("%s: expected no candidate, found %v", what, got)
		}
	}
	e.Observed = nil
	for i := range 100 {
		e.Observed = append(e.Observed, v1alpha1.ObservedAddress{IP: fmt.Sprintf("203.0.113.%d", i+1)})
	}
	if got := candidates(in); len(got) != 1+v1alpha1.MaxObserved {
		t.Errorf("expected no more than %d candidates of 100 claims, found %d", 1+v1alpha1.MaxObserved, len(got))
	}
}
