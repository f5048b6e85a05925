// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/choice"
)

// purpose is whom the EndpointSlices of a group are for.
type purpose string

const (
	// balanced is behind the derived Service: kube-proxy reads the slices.
	balanced purpose = "balanced"
	// published is for readers of the MCS API only.
	published purpose = "published"
	// expiring is behind a derived Service that is about to go: for kube-proxy only.
	expiring purpose = "expiring"
)

// group is a set of endpoints of one cluster and family that share one list of ports: what the
// EndpointSlices of the group hold between them.
type group struct {
	purpose   purpose
	cluster   string
	family    discoveryv1.AddressType
	ports     []v1alpha1.BackendPort
	endpoints []discoveryv1.Endpoint // sorted by address
}

// headless lists everything that connected clusters have, this one included.
func headless(in *Input, family corev1.IPFamily) []group {
	var out []group
	all := offers(in, family)
	for i := range all {
		o := &all[i]
		g := newGrouping(o, published, family)
		for j := range o.pools {
			var ports []v1alpha1.BackendPort
			for _, p := range o.pools[j].ports {
				if slices.Contains(o.ports, p.Name) {
					ports = append(ports, p)
				}
			}
			if len(ports) == 0 && len(in.Import.Settings.Ports) > 0 {
				continue
			}
			for _, b := range o.pools[j].backends {
				g.add(ports, b)
			}
		}
		out = append(out, g.groups()...)
	}
	return out
}

// clusterIPs lists, for each connected cluster, its ClusterIP with the ports that have ready backends there. DNS
// chooses among them.
func clusterIPs(in *Input, family corev1.IPFamily) []group {
	var out []group
	all := offers(in, family)
	for i := range all {
		o := &all[i]
		var ports []v1alpha1.BackendPort
		for _, p := range in.Import.Settings.Ports {
			if o.count(p.Name, false) > 0 {
				ports = append(ports, v1alpha1.BackendPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
			}
		}
		if !o.clusterIP.IsValid() || len(ports) == 0 {
			continue
		}
		g := newGrouping(o, published, family)
		g.add(sortedPorts(ports), backend{address: o.clusterIP, Backend: v1alpha1.Backend{Ready: true, Serving: true}})
		out = append(out, g.groups()...)
	}
	return out
}

// chosen lists, port by port, the clusters that the import's choice falls on.
func chosen(in *Input, family corev1.IPFamily, why purpose) []group {
	all := offers(in, family)
	for _, p := range in.Import.Settings.Ports {
		counts := counts(in.Import.Choice, all, p.Name)
		for i := range all {
			all[i].list(p.Name, counts[i], in.ClusterID)
		}
	}
	var out []group
	for i := range all {
		g := newGrouping(&all[i], why, family)
		for j := range all[i].pools {
			for _, b := range all[i].pools[j].backends {
				if len(b.listed) > 0 {
					g.add(sortedPorts(b.listed), b)
				}
			}
		}
		out = append(out, g.groups()...)
	}
	return out
}

// many is more backends than a cluster can list.
const many = 101

// counts returns how many ready backends of each cluster to list for a port. While no cluster has a ready one,
// those that shut down and still serve count instead, since kube-proxy falls back to them.
func counts(policy *v1alpha1.ClusterChoice, all []offer, port string) []int {
	able := candidates(all, port, false)
	if len(able) == 0 {
		able = candidates(all, port, true)
	}
	place := func(cluster string) int {
		return slices.IndexFunc(all, func(o offer) bool { return o.cluster == cluster })
	}
	shares := choice.Clusters(policy, able)
	for i := range shares {
		// A ClusterIP is one address, whatever its weight. To list as few pods of the others as would match
		// it would put the load of a cluster on a single pod, so that it limits nobody.
		if all[place(shares[i].Cluster)].stands() {
			shares[i].Ready = max(shares[i].Ready, many)
		}
	}
	out := make([]int, len(all))
	for i, n := range choice.Counts(policy, shares) {
		out[place(shares[i].Cluster)] = n
	}
	return out
}

// candidates are the clusters that have a backend for a port: a ready one, or with serving any.
func candidates(all []offer, port string, serving bool) []choice.Candidate {
	var out []choice.Candidate
	for i := range all {
		if n := all[i].count(port, serving); n > 0 {
			out = append(out, choice.Candidate{Cluster: all[i].cluster, Local: all[i].local, Ready: n})
		}
	}
	return out
}

// list adds a port to as many ready backends as it is given, and to all others that still serve. Which backends
// is decided by rendezvous hashing over the importing cluster and the address, so that importers that list a few
// list different ones, and a change moves few.
func (o *offer) list(port string, count int, importer string) {
	if count == 0 {
		return
	}
	var ready []netip.Addr
	for i := range o.pools {
		if !o.pools[i].has(port) {
			continue
		}
		for _, b := range o.pools[i].backends {
			if b.Ready {
				ready = append(ready, b.address)
			}
		}
	}
	slices.SortFunc(ready, netip.Addr.Compare)
	ready = slices.Compact(ready)
	if len(ready) > count {
		slices.SortFunc(ready, func(a, b netip.Addr) int { return cmp.Compare(score(importer, b), score(importer, a)) })
		ready = ready[:count]
		slices.SortFunc(ready, netip.Addr.Compare)
	}
	for i := range o.pools {
		at := slices.IndexFunc(o.pools[i].ports, func(p v1alpha1.BackendPort) bool { return p.Name == port })
		if at < 0 {
			continue
		}
		for j := range o.pools[i].backends {
			b := &o.pools[i].backends[j]
			if _, listed := slices.BinarySearchFunc(ready, b.address, netip.Addr.Compare); listed || !b.Ready {
				b.listed = append(b.listed, o.pools[i].ports[at])
			}
		}
	}
}

// score of an address in the eyes of an importing cluster.
func score(importer string, a netip.Addr) uint64 {
	sum := sha256.Sum256([]byte(importer + "/" + a.String()))
	return binary.BigEndian.Uint64(sum[:])
}

func sortedPorts(ports []v1alpha1.BackendPort) []v1alpha1.BackendPort {
	slices.SortFunc(ports, func(a, b v1alpha1.BackendPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return ports
}

// grouping collects the backends of one cluster by their ports.
type grouping struct {
	offer    *offer
	like     group
	ports    [][]v1alpha1.BackendPort
	backends [][]backend
}

func newGrouping(o *offer, why purpose, family corev1.IPFamily) *grouping {
	return &grouping{offer: o, like: group{purpose: why, cluster: o.cluster, family: addressType(family)}}
}

func (g *grouping) add(ports []v1alpha1.BackendPort, b backend) {
	at := slices.IndexFunc(g.ports, func(x []v1alpha1.BackendPort) bool { return slices.Equal(x, ports) })
	if at < 0 {
		at = len(g.ports)
		g.ports, g.backends = append(g.ports, ports), append(g.backends, nil)
	}
	g.backends[at] = append(g.backends[at], b)
}

// groups has each address once in a group; of two with one address, the ready one.
func (g *grouping) groups() []group {
	out := make([]group, 0, len(g.ports))
	for i, all := range g.backends {
		slices.SortFunc(all, func(a, b backend) int {
			return cmp.Or(a.address.Compare(b.address), -compareBool(a.Ready, b.Ready), -compareBool(a.Serving, b.Serving))
		})
		all = slices.CompactFunc(all, func(a, b backend) bool { return a.address == b.address })
		one := g.like
		one.ports, one.endpoints = g.ports[i], make([]discoveryv1.Endpoint, 0, len(all))
		for j := range all {
			one.endpoints = append(one.endpoints, g.endpoint(&all[j]))
		}
		out = append(out, one)
	}
	return out
}

// endpoint carries what the source says; the node only where kube-proxy could know it.
func (g *grouping) endpoint(b *backend) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses:  []string{b.address.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: &b.Ready, Serving: &b.Serving, Terminating: &b.Terminating},
	}
	if b.Hostname != "" {
		e.Hostname = &b.Hostname
	}
	if b.Zone != "" {
		e.Zone = &b.Zone
	}
	if g.offer.local && b.Node != "" {
		e.NodeName = &b.Node
	}
	return e
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
