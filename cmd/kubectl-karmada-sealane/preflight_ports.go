// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/internal/pairs"
)

// openPorts are what has to pass the firewalls of a cluster. The zero value is of one in no ClusterSet.
type openPorts struct {
	// cable is the first of the cables', overlay that between the nodes of a cluster; 0 is the usual one.
	cable, overlay int32
	// vxlan and ipsec are the clusters of pairs that are to be reached by these.
	vxlan, ipsec []string
	// mesh are the clusters whose nodes are to be reached without gateways, and meshPort is at which.
	mesh     []string
	meshPort uint16
}

// ports says by cluster what has to pass firewalls, of those that ClusterSets select.
func (a *api) ports(ctx context.Context, clusters []clusterv1alpha1.Cluster) (map[string]openPorts, error) {
	var sets v1alpha1.ClusterSetList
	var members v1alpha1.MemberList
	for _, list := range []client.ObjectList{&sets, &members} {
		// Before the first installation there is no such kind.
		if err := a.List(ctx, list); err != nil && !gone(err) {
			return nil, a.unanswered("the Karmada API", "--karmada-context", err)
		}
	}
	return portsOf(sets.Items, clusters, members.Items), nil
}

// portsOf says by cluster what has to pass. A cluster that is selected counts as a member.
func portsOf(sets []v1alpha1.ClusterSet, clusters []clusterv1alpha1.Cluster,
	members []v1alpha1.Member) map[string]openPorts {
	owners := pairs.Owners(sets, clusters, members)
	of := map[string]*openPorts{}
	for i := range sets {
		set := &sets[i]
		var in []*clusterv1alpha1.Cluster
		for k := range clusters {
			if owners[clusters[k].Name] == set.Name {
				in = append(in, &clusters[k])
				of[clusters[k].Name] = &openPorts{cable: set.Spec.Cable.Port, overlay: set.Spec.Cable.VXLANPort}
			}
		}
		for pair, driver := range pairs.Cables(set, in) {
			for i, cluster := range pair {
				switch p := of[cluster]; driver {
				case v1alpha1.CableVXLAN:
					p.vxlan = append(p.vxlan, pair[1-i])
				case v1alpha1.CableIPsec:
					p.ipsec = append(p.ipsec, pair[1-i])
				}
			}
		}
		addMesh(set, of, in)
	}
	out := map[string]openPorts{}
	for name, p := range of {
		slices.Sort(p.vxlan)
		slices.Sort(p.ipsec)
		slices.Sort(p.mesh)
		out[name] = *p
	}
	return out
}

// addMesh adds the pairs with the mode Mesh. Those with Auto go by gateways where the port is shut.
func addMesh(set *v1alpha1.ClusterSet, of map[string]*openPorts, in []*clusterv1alpha1.Cluster) {
	port, err := netfacts.MeshPort(cmp.Or(set.Spec.Cable.Port, usualCablePort), set.Spec.Cable.VXLANPort)
	if err != nil {
		return // as the ClusterSet says
	}
	mode := func(a, b string) v1alpha1.TopologyMode {
		for _, p := range set.Spec.Topology.Pairs {
			if slices.Contains(p.Clusters, a) && slices.Contains(p.Clusters, b) {
				return p.Mode
			}
		}
		return set.Spec.Topology.Mode
	}
	for _, a := range in {
		for _, b := range in {
			if a.Name != b.Name && mode(a.Name, b.Name) == v1alpha1.TopologyMesh {
				of[a.Name].mesh, of[a.Name].meshPort = append(of[a.Name].mesh, b.Name), port
			}
		}
	}
}

// firstCable is the UDP port that the others count from.
func (p openPorts) firstCable() int32 { return cmp.Or(p.cable, usualCablePort) }

// ipsecPort is that of IKE and ESP.
func (p openPorts) ipsecPort() int32 { return p.firstCable() + netfacts.IPsecOffset }

// vxlanPort is that of cables by VXLAN.
func (p openPorts) vxlanPort() int32 { return p.firstCable() + netfacts.VXLANCableOffset }

// to is the port of the cable by which a cluster is to be reached; 0 where that is WireGuard's.
func (p openPorts) to(cluster string) int32 {
	switch {
	case slices.Contains(p.vxlan, cluster):
		return p.vxlanPort()
	case slices.Contains(p.ipsec, cluster):
		return p.ipsecPort()
	}
	return 0
}

func (p openPorts) String() string {
	list := []string{fmt.Sprintf("UDP %d and up to gateways", p.firstCable())}
	if len(p.vxlan) > 0 {
		list = append(list, fmt.Sprintf("UDP %d both ways between them and those of %s (vxlan)",
			p.vxlanPort(), clip.List(p.vxlan, 5)))
	}
	if len(p.ipsec) > 0 {
		list = append(list, fmt.Sprintf("UDP %d between them and those of %s, to one side at least (ipsec)",
			p.ipsecPort(), clip.List(p.ipsec, 5)))
	}
	if len(p.mesh) > 0 {
		list = append(list, fmt.Sprintf("UDP %d between all nodes and those of %s (mesh)", p.meshPort, clip.List(p.mesh, 5)))
	}
	return strings.Join(list, ", ") + fmt.Sprintf(" and UDP %d between nodes", cmp.Or(p.overlay, usualVXLANPort))
}
