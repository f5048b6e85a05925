// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/internal/settings"
)

// facts are one of each that a member can report.
type facts struct {
	pods, services, node       string
	gateway, key, kind, ip     string
	slot, mtu, port, vxlanPort int32
}

// sound facts, of which a test makes one unsound.
func sound() facts {
	return facts{
		pods: "10.8.0.0/16", services: "10.88.0.0/16", node: "192.0.2.9",
		gateway: "g", key: key(7), kind: "Private", ip: "192.0.2.8", mtu: 1420, port: 4500, vxlanPort: 4800,
	}
}

func (f facts) endpoint() v1alpha1.Endpoint {
	return v1alpha1.Endpoint{
		Gateway: f.gateway, Slot: f.slot, PublicKey: f.key, MTU: f.mtu,
		Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressType(f.kind), IP: f.ip}},
	}
}

// verdict says which of the facts are accepted.
type verdict struct{ networks, node, endpoint, ports bool }

func (f facts) broker() verdict {
	_, networks := Parse(v1alpha1.Networks{PodCIDRs: []string{f.pods}, ServiceCIDRs: []string{f.services}}, nil)
	_, node := netfacts.ParseAddr(f.node)
	_, reported := Parse(v1alpha1.Networks{}, []string{f.node + "/32"})
	if reported != nil {
		_, reported = Parse(v1alpha1.Networks{}, []string{f.node + "/128"})
	}
	if (node == nil) != (reported == nil) {
		panic("the address " + f.node + " is judged in two ways")
	}
	_, errs := Endpoints([]v1alpha1.Endpoint{f.endpoint()}, nil, Others{Routed: new(netfacts.Owners)})
	var set v1alpha1.ClusterSet
	set.Spec = v1alpha1.ClusterSetSpec{Shards: 4, DNS: v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}}}
	set.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: f.port, VXLANPort: f.vxlanPort}
	return verdict{
		networks: networks == nil, node: node == nil, endpoint: len(errs) == 0, ports: settings.Validate(&set) == nil,
	}
}

// nodeVerdict gives the same facts to a node, one kind at a time, and looks for what it leaves out.
func (f facts) nodeVerdict() verdict {
	sees := func(spec v1alpha1.PeeringSpec, nodes ...corev1.Node) bool {
		spec.ClusterID = "c1"
		t := topology.Build(topology.Input{Peering: &v1alpha1.Peering{Spec: spec}, Nodes: nodes})
		return len(t.Problems) == 0
	}
	remote := func(n v1alpha1.Networks, endpoints ...v1alpha1.Endpoint) v1alpha1.PeeringSpec {
		return v1alpha1.PeeringSpec{RemoteClusters: []v1alpha1.RemoteCluster{{Name: "c2", Networks: n, Endpoints: endpoints}}}
	}
	return verdict{
		networks: sees(remote(v1alpha1.Networks{PodCIDRs: []string{f.pods}, ServiceCIDRs: []string{f.services}})),
		node: sees(v1alpha1.PeeringSpec{}, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: f.node}}},
		}),
		endpoint: sees(remote(v1alpha1.Networks{}, f.endpoint())),
		ports:    sees(v1alpha1.PeeringSpec{Cable: v1alpha1.CableSpec{Port: f.port, VXLANPort: f.vxlanPort}}),
	}
}

// disagreed are facts that broker and node once judged differently, and neighbours of theirs.
func disagreed() []facts {
	var out []facts
	add := func(change func(*facts)) {
		f := sound()
		change(&f)
		out = append(out, f)
	}
	for _, p := range []string{
		"240.0.0.0/4", "242.0.0.0/8", "fd51::/16", "fd51:1::/32", "fd00::/16", "fd00::/31", "fd00::/32", "2000::/3", "::/96",
		"::2/128", "0.0.0.0/0", "10.0.0.0/7", "10.8.0.1/16", "10.88.7.0/24", "169.254.169.254/32", "fd00:ec2::/32", "x",
	} {
		add(func(f *facts) { f.pods = p })
		add(func(f *facts) { f.services = p })
	}
	for _, a := range []string{
		"::ffff:192.0.2.1", "240.0.0.1", "fd51::1", "fe80::1%eth0", "::1", "2001:db8::1", "0.1.2.3", "",
	} {
		add(func(f *facts) { f.node = a })
		add(func(f *facts) { f.ip = a })
	}
	for _, n := range []int32{-1, 0, 1, 15, 16, 576, 1279, 1280, 4499, 4515, 4516, 65520, 65521, 65535, 65536} {
		add(func(f *facts) { f.slot = n })
		add(func(f *facts) { f.mtu = n })
		// A port of 0 is a field that is not set: the API server fills it in.
		if n != 0 {
			add(func(f *facts) { f.port = n })
			add(func(f *facts) { f.vxlanPort = n })
		}
	}
	for _, k := range []string{"", key(0), key(7)[:40], key(7) + "\n"} {
		add(func(f *facts) { f.key = k })
	}
	add(func(f *facts) { f.kind = "Secret" })
	add(func(f *facts) { f.gateway = "x y" })
	return out
}

func TestBrokerAndNodeAgree(t *testing.T) {
	all := verdict{true, true, true, true}
	if got := sound().broker(); got != all {
		t.Errorf("the broker refuses what is sound: %+v", got)
	}
	refused := slices.DeleteFunc(disagreed(), func(f facts) bool { return f.broker() == all })
	if len(refused) < 60 {
		t.Errorf("only %d of the facts are refused", len(refused))
	}
	for _, f := range disagreed() {
		if broker, node := f.broker(), f.nodeVerdict(); broker != node {
			t.Errorf("%+v:\nbroker %+v\nnode   %+v", f, broker, node)
		}
	}
}

// FuzzBrokerAndNodeAgree: what the broker accepts of a member, a node of another member accepts too, and the
// other way round.
func FuzzBrokerAndNodeAgree(f *testing.F) {
	for _, x := range disagreed() {
		f.Add(x.pods, x.services, x.node, x.gateway, x.key, x.kind, x.ip, x.slot, x.mtu, x.port, x.vxlanPort)
	}
	f.Fuzz(func(t *testing.T, pods, services, node, gateway, key, kind, ip string, slot, mtu, port, vxlanPort int32) {
		if port == 0 || vxlanPort == 0 {
			t.Skip("port 0 stands for the default, which the API server fills in before either side sees it")
		}
		x := facts{pods, services, node, gateway, key, kind, ip, slot, mtu, port, vxlanPort}
		if broker, node := x.broker(), x.nodeVerdict(); broker != node {
			t.Errorf("%+v:\nbroker %+v\nnode   %+v", x, broker, node)
		}
	})
}
