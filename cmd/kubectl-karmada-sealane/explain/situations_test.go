// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/dnspath"
)

func situations() []situation {
	return slices.Concat(arriving(), lostByName(), lostOnTheWay(), globalSituations(), topologySituations())
}

func peering(f *Fleet, n int) *v1alpha1.PeeringSpec { return &f.Members[n-1].Network.Peering.Spec }

func gatewayOf(f *Fleet, n int) *v1alpha1.Gateway { return &f.Members[n-1].Network.Gateways[0] }

// toOther is how a cluster has another.
func toOther(f *Fleet, n, other int) *v1alpha1.RemoteCluster {
	for i := range peering(f, n).RemoteClusters {
		if r := &peering(f, n).RemoteClusters[i]; r.Name == name(other) {
			return r
		}
	}
	panic("no such cluster")
}

func connectionTo(f *Fleet, n, other int) *v1alpha1.Connection {
	for i := range gatewayOf(f, n).Status.Connections {
		if c := &gatewayOf(f, n).Status.Connections[i]; c.Cluster == name(other) {
			return c
		}
	}
	panic("no such connection")
}

// throughRelay has c1 and c2 reach each other by c3.
func throughRelay(f *Fleet) {
	for n := 1; n <= 2; n++ {
		r := toOther(f, n, 3-n)
		r.Relay, r.Endpoints = "c3", nil
		c := connectionTo(f, n, 3-n)
		c.Through, c.Gateway, c.Address = "c3", "c3-gw", "172.31.3.12:4500"
	}
	peering(f, 3).Relays = []v1alpha1.RelayedClusters{{Clusters: []string{"c1", "c2"}, With: []string{"c1", "c2"}}}
	relay := &gatewayOf(f, 3).Status
	relay.Relays, relay.RelaysVersion = v1alpha1.DigestOfRelays(peering(f, 3).Relays), relay.Version
}

// byVXLAN has a cluster send to another by VXLAN.
func byVXLAN(f *Fleet, n, other int) {
	toOther(f, n, other).Cable = v1alpha1.CableVXLAN
	c := connectionTo(f, n, other)
	c.Link, c.Cable, c.Address = "sl-cv0", v1alpha1.CableVXLAN, fmt.Sprintf("172.31.%d.12:4533", other)
}

// byIPsec has a cluster send to another by IPsec.
func byIPsec(f *Fleet, n, other int) {
	toOther(f, n, other).Cable = v1alpha1.CableIPsec
	c := connectionTo(f, n, other)
	c.Link, c.Cable, c.Address = "sl-ci0", v1alpha1.CableIPsec, fmt.Sprintf("172.31.%d.12:4534", other)
}

func down(c *v1alpha1.Connection, heard *bool) {
	c.Status, c.Active, c.Heard = v1alpha1.ConnectionError, true, heard
	c.Reason, c.Message = "NoAnswer", "no answer to probes"
	c.LastTransitionTime = ptr.To(metav1.NewTime(now().Add(-time.Hour)))
}

// dead is a node that is not Ready.
func dead(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status."}}
}

func arriving() []situation {
	return []situation{
		{name: "a pod of the same cluster", to: "10.8.2.6", arrives: Arrives},
		{name: "a pod, from worker by gateways to worker", to: "c2/" + pod2, port: 8080, arrives: Arrives},
		{name: "from a gateway's pod to a gateway's pod", from: "10.8.2.5", to: "10.9.2.6", arrives: Arrives},
		{name: "a service that two others export", to: cart, port: 80, arrives: Arrives},
		{name: "the ClusterSetIP itself", to: "10.101.0.10", port: 80, arrives: Arrives},
		{name: "a service that this cluster exports too", to: cart, arrives: Arrives, change: func(f *Fleet) {
			c1 := &f.Members[0]
			own := part(1, "cart")
			im := &c1.Bundles[0].Spec.Imports[0]
			im.Clusters = append([]v1alpha1.ImportCluster{{Cluster: "c1", Ports: []string{"http"}}}, im.Clusters...)
			c1.Bundles[0].Status = v1alpha1.BundleStatus{ObservedRevision: 1,
				Exports: []v1alpha1.Export{exported("cart", v1alpha1.ClusterSetIP, own)}}
			c1.Slices = []discoveryv1.EndpointSlice{slice("c1", "10.8.1.7")}
		}},
		{name: "failover, of which the first is enough", to: cart, arrives: Arrives, change: func(f *Fleet) {
			f.Members[0].Bundles[0].Spec.Imports[0].Choice = &v1alpha1.ClusterChoice{
				Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"c3", "c2"}}}
			f.Members[0].Slices = []discoveryv1.EndpointSlice{slice("c3", "10.10.1.7")}
		}},
		{name: "weights that the EndpointSlices do not have yet", to: cart, arrives: Arrives, change: func(f *Fleet) {
			f.Members[0].Bundles[0].Spec.Imports[0].Choice = &v1alpha1.ClusterChoice{
				Weights: []v1alpha1.ClusterWeight{{Cluster: "c2", Weight: 1}, {Cluster: "c3", Weight: 0}}}
		}},
		{name: "a headless service", to: "db.shop.svc.clusterset.local", port: 8080, arrives: Arrives},
		{name: "a host of a headless service", to: "db-0.c2.db.shop.svc.clusterset.local", arrives: Arrives},
		{name: "a name of one cluster", to: "c2." + cart, arrives: Arrives},
		{name: "a name for SRV records", to: "_http._tcp." + cart, arrives: Arrives},
		{name: "a service in ClusterIP mode", to: "api.shop.svc.clusterset.local", arrives: Arrives},
		{name: "from a node's own network", from: "host", to: cart, arrives: Arrives},
		{name: "a cluster left out, for it is not connected", to: cart, arrives: Arrives, change: func(f *Fleet) {
			down(connectionTo(f, 1, 3), ptr.To(false))
			f.Members[0].Slices = f.Members[0].Slices[:1]
		}},
		{name: "a path that loses packets of full size", to: pod2, arrives: Arrives, change: func(f *Fleet) {
			connectionTo(f, 1, 2).MTU = 1344
		}},
		{name: "a path that loses one probe of ten", to: pod2, arrives: Arrives, change: func(f *Fleet) {
			connectionTo(f, 1, 2).LossPercent = 10
		}},
		{name: "a gateway whose agent is silent", to: pod2, arrives: Arrives, change: func(f *Fleet) {
			gatewayOf(f, 1).Status.SilentSince = ptr.To(metav1.NewTime(now()))
		}},
		{name: "networks that a node refuses", to: pod2, arrives: Arrives, change: func(f *Fleet) {
			f.Members[0].Agents = []corev1.Pod{agent("c1-w", v1alpha1.PodNetworksAccepted, corev1.ConditionFalse,
				"RemoteCluster/c3: 10.10.0.0/16 overlaps the resolver 10.10.0.2")}
		}},
	}
}

func lostByName() []situation {
	return []situation{
		{name: "no such service", to: "none.shop.svc.clusterset.local", arrives: Lost, lost: "export"},
		{name: "no such cluster in the name", to: "c9." + cart, arrives: Lost, lost: "export"},
		{name: "a service that no cluster exports, for it is refused", to: cart, arrives: Lost, lost: "export",
			facts: func(f *dnspath.Facts) {
				f.Exports = []dnspath.Export{{Cluster: "c2", Message: "NoService: there is no Service shop/cart", Ready: -1}}
			}},
		{name: "an import that the broker withholds", to: cart, arrives: Lost, lost: "bundle", facts: func(f *dnspath.Facts) {
			f.Bundle, f.Importers = &v1alpha1.Bundle{}, "c3"
			f.Wanted = f.Bundle
		}},
		{name: "a namespace that is missing", to: cart, arrives: Lost, lost: "namespace", facts: func(f *dnspath.Facts) {
			f.Namespaces, f.ServiceImport, f.Derived = map[string]bool{}, nil, nil
		}},
		{name: "no block in the cluster's Corefile", to: cart, arrives: Lost, lost: "corefile",
			facts: func(f *dnspath.Facts) { f.ClusterDNS.Found = foundCorefile(".:53 {\n}\n") }},
		{name: "nothing of Sealane's DNS is ready", to: cart, arrives: Lost, lost: "sealane-dns",
			facts: func(f *dnspath.Facts) { f.DNS.Ready = 0 }},
		{name: "no endpoints", to: cart, arrives: Lost, lost: "endpoints", change: func(f *Fleet) {
			im := &f.Members[0].Bundles[0].Spec.Imports[0]
			for i := range im.Clusters {
				im.Clusters[i].Backends[0].Addresses[0].Ready = false
			}
			f.Members[0].Slices = nil
		}},
		{name: "EndpointSlices that the agent has not written", to: cart, arrives: Lost, lost: "endpoints",
			change: func(f *Fleet) { f.Members[0].Slices = nil }},
		{name: "a port that the service does not have", to: cart, port: 81, arrives: Lost, lost: stepService},
		{name: "a port that a cluster's service does not have", to: "c2." + cart, port: 81, arrives: Lost,
			lost: stepService},
		{name: "a service of the other family", from: "fd00:8:1::5", to: cart, arrives: Lost, lost: stepAnswer,
			change: func(f *Fleet) { dualStack(f, 1) }},
	}
}

func lostOnTheWay() []situation {
	return []situation{
		{name: "a cable is down, both ways", to: cart, arrives: Lost, lost: "tunnel", change: func(f *Fleet) {
			for _, other := range []int{2, 3} {
				down(connectionTo(f, 1, other), ptr.To(false))
				down(connectionTo(f, other, 1), ptr.To(false))
			}
		}},
		{name: "a cable is down, and an address is asked for", to: pod2, arrives: Lost, lost: stepCable,
			change: func(f *Fleet) {
				down(connectionTo(f, 1, 2), ptr.To(true))
				down(connectionTo(f, 2, 1), ptr.To(false))
			}},
		{name: "one of two clusters that serve is not reached", to: cart, arrives: Sometimes, lost: stepCable,
			change: func(f *Fleet) { down(connectionTo(f, 1, 3), nil) }},
		{name: "a cable works in one direction alone", to: pod2, arrives: Lost, lost: stepWayBack + ": " + stepCable,
			change: func(f *Fleet) { down(connectionTo(f, 2, 1), ptr.To(true)) }},
		{name: "the only gateway is dead", to: pod2, arrives: Lost, lost: stepOverlay, change: func(f *Fleet) {
			dead(&f.Members[0].Network.Nodes[1])
			gatewayOf(f, 1).Status.SilentSince = ptr.To(metav1.NewTime(now()))
		}},
		{name: "the overlay is blocked", to: pod2, arrives: Lost, lost: stepOverlay, change: func(f *Fleet) {
			gatewayOf(f, 1).Status.UnheardNodes = []string{"c1-w"}
		}},
		{name: "the overlay of the other cluster is blocked", to: pod2, arrives: Lost, lost: stepOverlay,
			change: func(f *Fleet) {
				f.Members[1].Agents = []corev1.Pod{agent("c2-w", v1alpha1.PodGatewaysReached, corev1.ConditionFalse, "c2-gw")}
			}},
		{name: "the backend's node is dead", to: pod2, arrives: Lost, lost: stepOverlay,
			change: func(f *Fleet) { dead(&f.Members[1].Network.Nodes[0]) }},
		{name: "a node that is not programmed", to: pod2, arrives: Lost, lost: stepNode, change: func(f *Fleet) {
			f.Members[0].Agents = []corev1.Pod{agent("c1-w", v1alpha1.PodNodeProgrammed, corev1.ConditionFalse,
				"add link sl-vx: operation not supported")}
		}},
		{name: "the other cluster has no gateway", to: pod2, arrives: Lost, lost: stepRoute,
			change: func(f *Fleet) { toOther(f, 1, 2).Endpoints = nil }},
		{name: "this cluster has no gateway", to: pod2, arrives: Lost, lost: stepRoute,
			change: func(f *Fleet) { f.Members[0].Network.Gateways = nil }},
		{name: "an address of nobody", to: "192.0.2.1", arrives: Lost, lost: stepRoute},
		{name: "a ClusterIP that nobody exports", to: "10.102.0.99", arrives: Lost, lost: stepService},
		{name: "a network that the other cluster does not know", from: "10.18.1.5", to: pod2, arrives: Lost, lost: stepGuard,
			change: func(f *Fleet) {
				peering(f, 1).Networks.PodCIDRs = append(peering(f, 1).Networks.PodCIDRs, "10.18.0.0/16")
				f.Members[0].Network.Nodes[0].Spec.PodCIDRs = []string{"10.18.1.0/24"}
			}},
		{name: "a service network that the other cluster has lost", to: "10.102.0.10", port: 80, arrives: Lost,
			lost: stepGuard, change: func(f *Fleet) { peering(f, 2).Networks.ServiceCIDRs = []string{"10.202.0.0/16"} }},
		{name: "a peer that the other cluster does not know", to: pod2, arrives: Lost, lost: stepCable,
			change: func(f *Fleet) { toOther(f, 2, 1).Endpoints = nil }},
		{name: "a cluster that cannot be asked", to: pod2, arrives: Unknown, lost: stepReachable,
			change: func(f *Fleet) { f.Members[1].Unread = "unreachable: timeout" }},
		{name: "the packet's own cluster cannot be asked", to: pod2, arrives: Unknown, lost: stepSource,
			change: func(f *Fleet) { f.Members[0].Unread = "unreachable: timeout" }},
		{name: "a source that no node has", from: "192.0.2.9", to: pod2, arrives: Lost, lost: stepSource},
	}
}

// blockOf a cluster of global addresses.
func blockOf(n int) string { return fmt.Sprintf("242.%d.0.0/16", n) }

// known has a cluster known by its block in another; both says that it is so the other way round as well.
func known(f *Fleet, n, by int) {
	peering(f, n).GlobalCIDR = blockOf(n)
	r := toOther(f, by, n)
	r.GlobalCIDR, r.Networks = blockOf(n), v1alpha1.Networks{PodCIDRs: []string{}, ServiceCIDRs: []string{}}
	toOther(f, n, by).Translated = true
}

// allocation of cart in a cluster, and of a pod behind its db.
func allocate(f *Fleet, n int) {
	own := fmt.Sprintf("10.%d.1.7", 7+n)
	f.Members[n-1].Network.GlobalAllocations = []v1alpha1.GlobalAllocation{
		{ObjectMeta: metav1.ObjectMeta{Name: "ingress.shop.cart"}, Spec: v1alpha1.GlobalAllocationSpec{
			Owner: v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "shop", Name: "cart"},
			Ingress: &v1alpha1.IngressAllocation{IP: fmt.Sprintf("242.%d.0.1", n), Ports: []v1alpha1.GlobalPort{{
				Protocol: corev1.ProtocolTCP, Port: 80, Backends: []v1alpha1.GlobalBackend{{IP: own, Port: 8080}}}}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "ingress.shop.db"}, Spec: v1alpha1.GlobalAllocationSpec{
			Owner: v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "shop", Name: "db"},
			Ingress: &v1alpha1.IngressAllocation{Pods: []v1alpha1.GlobalPod{
				{Name: "db-0", IP: own, GlobalIP: fmt.Sprintf("242.%d.0.2", n)}}}}},
	}
}

// twins know each other by their blocks; c1 imports cart of c2 by its global address.
func twins(f *Fleet) {
	known(f, 1, 2)
	known(f, 2, 1)
	allocate(f, 2)
	s := slice("c2", "242.2.0.1")
	s.Ports[0].Port = ptr.To(int32(80))
	f.Members[0].Slices = []discoveryv1.EndpointSlice{s}
	im := &f.Members[0].Bundles[0].Spec.Imports[0]
	im.Clusters = im.Clusters[:1]
	im.Clusters[0].ClusterIPs = []string{"242.2.0.1"}
	im.Clusters[0].Backends = []v1alpha1.Backends{{Ports: []v1alpha1.BackendPort{{Name: "http",
		Protocol: corev1.ProtocolTCP, Port: 80}}, Addresses: []v1alpha1.Backend{{IP: "242.2.0.1", Ready: true}}}}
}

func globalSituations() []situation {
	return []situation{
		{name: "a service of a twin, each known by its block", to: cart, port: 80, arrives: Arrives, change: twins},
		{name: "a service of a cluster known by its block, from one known by its networks", to: "242.2.0.1", port: 80,
			arrives: Arrives, change: func(f *Fleet) { known(f, 2, 1); allocate(f, 2) }},
		{name: "from a cluster known by its block to one known by its networks", to: pod2, arrives: Arrives,
			change: func(f *Fleet) { known(f, 1, 2) }},
		{name: "a pod with a global address", to: "c2/" + pod2, arrives: Arrives,
			change: func(f *Fleet) { known(f, 2, 1); allocate(f, 2) }},
		{name: "a pod without a global address", to: "c2/10.9.2.9", arrives: Lost, lost: stepTarget,
			change: func(f *Fleet) { known(f, 2, 1) }},
		{name: "pods with addresses of their own for connections", to: pod2, arrives: Arrives, change: func(f *Fleet) {
			known(f, 1, 2)
			f.Members[0].Network.GlobalAllocations = []v1alpha1.GlobalAllocation{{
				ObjectMeta: metav1.ObjectMeta{Name: "egress.shop.web"}, Spec: v1alpha1.GlobalAllocationSpec{
					Owner: v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalEgress, Namespace: "shop", Name: "web"},
					Egress: &v1alpha1.PodEgressAllocation{EgressRange: v1alpha1.EgressRange{First: 20, Last: 21},
						Selected: true, Pods: []string{"10.8.1.5"}}}}}
		}},
		{name: "a global address that nobody has", to: "242.2.0.9", port: 80, arrives: Lost, lost: stepNAT,
			change: func(f *Fleet) { known(f, 2, 1); allocate(f, 2) }},
		{name: "a port that the global address does not have", to: "242.2.0.1", port: 81, arrives: Lost, lost: stepNAT,
			change: func(f *Fleet) { known(f, 2, 1); allocate(f, 2) }},
		{name: "a host outside all clusters", to: "242.2.0.3", port: 5432, arrives: Arrives, change: func(f *Fleet) {
			known(f, 2, 1)
			peering(f, 2).ExternalCIDRs = []string{"192.0.2.0/24"}
			f.Members[1].Network.GlobalAllocations = []v1alpha1.GlobalAllocation{{
				ObjectMeta: metav1.ObjectMeta{Name: "ingress.shop.old"}, Spec: v1alpha1.GlobalAllocationSpec{
					Owner: v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "shop", Name: "old"},
					Ingress: &v1alpha1.IngressAllocation{Pods: []v1alpha1.GlobalPod{
						{Name: "old-db", IP: "192.0.2.7", GlobalIP: "242.2.0.3"}}}}}}
		}},
		{name: "an address of no block", to: "242.9.0.1", arrives: Lost, lost: stepRoute},
	}
}

// second gateway of a cluster, on a node of its own.
func second(f *Fleet, n int) {
	m := &f.Members[n-1]
	m.Network.Nodes = append(m.Network.Nodes, nodeIn(name(n)+"-gw1", fmt.Sprintf("172.31.%d.13", n),
		fmt.Sprintf("10.%d.3.0/24", 7+n)))
	g := gatewayOf(f, n).DeepCopy()
	endpoint := endpointIn(n, 1)
	g.Name, g.Spec.Slot, g.Status.Endpoint = endpoint.Gateway, 1, &endpoint
	m.Network.Gateways = append(m.Network.Gateways, *g)
	for o := range f.Members {
		if o+1 == n {
			continue
		}
		r := toOther(f, o+1, n)
		r.Endpoints = append(r.Endpoints, endpoint)
		c := *connectionTo(f, o+1, n)
		c.Gateway, c.Slot, c.Link = endpoint.Gateway, 1, "sl-c1"
		s := &gatewayOf(f, o+1).Status
		s.Connections = append(s.Connections, c)
	}
}

// dualStack gives a cluster IPv6 besides.
func dualStack(f *Fleet, n int) {
	six := v1alpha1.Networks{PodCIDRs: []string{fmt.Sprintf("fd00:%d::/32", 7+n)},
		ServiceCIDRs: []string{fmt.Sprintf("fd00:%d::/112", 100+n)}}
	add := func(to *v1alpha1.Networks) {
		to.PodCIDRs = append(slices.Clone(to.PodCIDRs), six.PodCIDRs...)
		to.ServiceCIDRs = append(slices.Clone(to.ServiceCIDRs), six.ServiceCIDRs...)
	}
	add(&peering(f, n).Networks)
	for o := range f.Members {
		if o+1 != n {
			add(&toOther(f, o+1, n).Networks)
		}
	}
	for i := range f.Members[n-1].Network.Nodes {
		node := &f.Members[n-1].Network.Nodes[i]
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, fmt.Sprintf("fd00:%d:%d::/64", 7+n, i+1))
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP,
			Address: fmt.Sprintf("2001:db8:%d::%d", n, 11+i)})
	}
}

// onlyIPv6 leaves the clusters nothing of IPv4.
func onlyIPv6(f *Fleet) {
	for n := 1; n <= len(f.Members); n++ {
		dualStack(f, n)
	}
	for i := range f.Members {
		trim := func(to *v1alpha1.Networks) { to.PodCIDRs, to.ServiceCIDRs = to.PodCIDRs[1:], to.ServiceCIDRs[1:] }
		trim(&f.Members[i].Network.Peering.Spec.Networks)
		for j := range f.Members[i].Network.Peering.Spec.RemoteClusters {
			trim(&f.Members[i].Network.Peering.Spec.RemoteClusters[j].Networks)
		}
		for j := range f.Members[i].Network.Nodes {
			node := &f.Members[i].Network.Nodes[j]
			node.Spec.PodCIDRs, node.Status.Addresses = node.Spec.PodCIDRs[1:], node.Status.Addresses[1:]
		}
	}
	c1 := &f.Members[0]
	c1.ServiceImports[0].Spec.IPs = []string{"fd00:101::10"}
	six := slice("c2", "fd00:9:1::7")
	six.AddressType = discoveryv1.AddressTypeIPv6
	c1.Slices = []discoveryv1.EndpointSlice{six}
	im := &c1.Bundles[0].Spec.Imports[0]
	im.Clusters = im.Clusters[:1]
	im.Clusters[0].Backends[0].Addresses[0].IP = "fd00:9:1::7"
}

// meshed has c1 and c2 connect their nodes to each other, and each node reach so many of the other's.
func meshed(f *Fleet, reached int) {
	for _, pair := range [][2]int{{1, 2}, {2, 1}} {
		n, other := pair[0], pair[1]
		r := toOther(f, n, other)
		for i, node := range f.Members[other-1].Network.Nodes {
			k := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(128 + 16*other + i)}, 32))
			if i == 1 {
				k = key(other, 0)
			}
			r.Nodes = append(r.Nodes, v1alpha1.MeshNode{Name: node.Name, PublicKey: k, PodCIDRs: node.Spec.PodCIDRs,
				MTU: 1420, Addresses: []string{node.Status.Addresses[0].Address}})
		}
		for _, node := range f.Members[n-1].Network.Nodes {
			f.Members[n-1].Agents = append(f.Members[n-1].Agents, agent(node.Name, v1alpha1.PodNodesReached,
				corev1.ConditionTrue, fmt.Sprintf(`{"%s":%d}`, name(other), reached)))
		}
	}
}

func topologySituations() []situation {
	return []situation{
		{name: "IPv6 only", from: "fd00:8:1::5", to: cart, port: 80, arrives: Arrives, change: onlyIPv6},
		{name: "a mesh", to: pod2, arrives: Arrives, change: func(f *Fleet) { meshed(f, 2) }},
		{name: "a mesh in which the nodes do not reach each other", to: pod2, arrives: Arrives,
			change: func(f *Fleet) { meshed(f, 0) }},
		{name: "through a relay", to: pod2, arrives: Arrives, change: throughRelay},
		{name: "through a relay that is not told", to: pod2, arrives: Lost, lost: stepRelay, change: func(f *Fleet) {
			throughRelay(f)
			peering(f, 3).Relays = nil
		}},
		{name: "through a relay whose agent has something else in force", to: pod2, arrives: Lost, lost: stepRelay,
			change: func(f *Fleet) {
				throughRelay(f)
				gatewayOf(f, 3).Status.Relays = v1alpha1.DigestOfRelays(nil)
			}},
		{name: "through a relay whose agent was rolled back", to: pod2, arrives: Lost, lost: stepRelay,
			change: func(f *Fleet) {
				throughRelay(f)
				relay := &gatewayOf(f, 3).Status
				relay.Version, relay.RelaysVersion = "v0.1.0", "v0.2.0"
			}},
		{name: "through a relay that has lost the other", to: pod2, arrives: Lost, lost: stepCable, change: func(f *Fleet) {
			throughRelay(f)
			down(connectionTo(f, 3, 2), ptr.To(false))
		}},
		{name: "through a relay without a gateway", to: pod2, arrives: Lost, lost: stepRoute, change: func(f *Fleet) {
			throughRelay(f)
			toOther(f, 1, 3).Endpoints = nil
		}},
		{name: "through a relay, without a gateway of one's own", to: pod2, arrives: Lost, lost: stepRoute,
			change: func(f *Fleet) {
				throughRelay(f)
				f.Members[0].Network.Gateways = nil
			}},
		{name: "through a relay, where all know each other by their blocks", to: "242.2.0.1", port: 80, arrives: Arrives,
			change: func(f *Fleet) {
				throughRelay(f)
				for _, pair := range [][2]int{{1, 2}, {2, 1}, {1, 3}, {3, 1}, {2, 3}, {3, 2}} {
					known(f, pair[0], pair[1])
				}
				allocate(f, 2)
			}},
		{name: "by VXLAN", to: pod2, arrives: Arrives, change: func(f *Fleet) { byVXLAN(f, 1, 2); byVXLAN(f, 2, 1) }},
		{name: "by VXLAN, which does not answer", to: pod2, arrives: Arrives, change: func(f *Fleet) {
			byVXLAN(f, 1, 2)
			byVXLAN(f, 2, 1)
			for n := 1; n <= 2; n++ {
				c := connectionTo(f, n, 3-n)
				c.Link, c.Cable, c.Address = "sl-c0", v1alpha1.CableWireGuard, fmt.Sprintf("172.31.%d.12:4500", 3-n)
			}
		}},
		{name: "by IPsec", to: pod2, arrives: Arrives, change: func(f *Fleet) { byIPsec(f, 1, 2); byIPsec(f, 2, 1) }},
		{name: "by IPsec, which does not answer", to: pod2, arrives: Lost, lost: stepCable, change: func(f *Fleet) {
			byIPsec(f, 1, 2)
			byIPsec(f, 2, 1)
			for n := 1; n <= 2; n++ {
				down(connectionTo(f, n, 3-n), ptr.To(false))
			}
		}},
		{name: "by IPsec, with WireGuard until that answers", to: pod2, arrives: Arrives, change: func(f *Fleet) {
			byIPsec(f, 1, 2)
			byIPsec(f, 2, 1)
			for n := 1; n <= 2; n++ {
				c := connectionTo(f, n, 3-n)
				c.Link, c.Cable, c.Address = "sl-c0", v1alpha1.CableWireGuard, fmt.Sprintf("172.31.%d.12:4500", 3-n)
				c.Reason, c.Message = v1alpha1.ReasonCableSilent, "traffic goes by wireguard, as before, until ipsec answers"
			}
		}},
		{name: "two gateways at each end", to: pod2, arrives: Arrives, change: func(f *Fleet) { second(f, 1); second(f, 2) }},
		{name: "of two gateways one is dead", to: pod2, arrives: Arrives, change: func(f *Fleet) {
			second(f, 1)
			down(connectionTo(f, 2, 1), ptr.To(false))
			dead(&f.Members[0].Network.Nodes[1])
			gatewayOf(f, 1).Status.SilentSince = ptr.To(metav1.NewTime(now()))
		}},
		{name: "of two gateways one has just died", to: pod2, arrives: Sometimes, change: func(f *Fleet) {
			second(f, 1)
			dead(&f.Members[0].Network.Nodes[1])
		}},
		{name: "a gateway without cables hands over to its sibling", from: "10.8.2.5", to: pod2, arrives: Arrives,
			change: func(f *Fleet) {
				second(f, 1)
				down(connectionTo(f, 1, 2), nil)
				down(connectionTo(f, 2, 1), nil)
			}},
		{name: "a service import that is not Sealane's", to: "10.101.0.77", arrives: Lost, lost: stepService,
			change: func(f *Fleet) {
				foreign := serviceImport("theirs", mcsv1beta1.ClusterSetIP, "10.101.0.77")
				foreign.Labels = nil
				f.Members[0].ServiceImports = append(f.Members[0].ServiceImports, foreign)
			}},
	}
}
