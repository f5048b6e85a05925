// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// buildMesh takes the nodes that remote clusters publish, after all networks and gateways are known. clusters are those
// of Remotes, in their order.
func (b *builder) buildMesh(clusters []v1alpha1.RemoteCluster) {
	var pods netfacts.Owners
	for i, c := range clusters {
		// Nodes of two clusters, each in its own site, may well have the same addresses.
		var addresses netfacts.Owners
		ref := "RemoteCluster/" + c.Name
		if c.Translated || c.GlobalCIDR != "" {
			continue // gateways translate, nodes do not
		}
		if b.Remotes[i].IPsec {
			continue // nodes have WireGuard alone
		}
		if len(c.Nodes) > 0 && b.Cable.MeshPort == 0 {
			b.left(ref, "nodes", faultf(ReasonInvalidPort, "the ports of cable and overlay leave none for a mesh"))
			continue
		}
		// Which of two that claim the same is meant cannot be known; the first by name has it, whatever their order was.
		nodes := slices.Clone(c.Nodes)
		slices.SortFunc(nodes, func(x, y v1alpha1.MeshNode) int {
			return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(fmt.Sprint(x), fmt.Sprint(y)))
		})
		for k, n := range nodes {
			if k >= v1alpha1.MaxMeshNodes {
				b.left(ref, "nodes", faultf(ReasonTooManyNodes, "%d nodes, at most %d are used", len(nodes),
					v1alpha1.MaxMeshNodes))
				break
			}
			node, f := b.meshNode(c, n, &pods, &addresses)
			if have := b.Remotes[i].Nodes; f == nil && len(have) > 0 && have[len(have)-1].Name == n.Name {
				f = faultf(ReasonDuplicate, "there is another of that name")
			}
			if f != nil {
				b.left(ref, "node "+clip.Quote(n.Name), f)
				continue
			}
			for _, p := range node.Pods {
				pods.Add(p, n.Name)
			}
			for _, a := range node.Addresses {
				addresses.Add(netfacts.Host(a), n.Name)
			}
			b.keys[node.PublicKey] = keyOwner(c.Name, n.Name)
			b.Remotes[i].Nodes = append(b.Remotes[i].Nodes, node)
		}
	}
}

// keyOwner names a node of a remote cluster, gateway or not, as the owner of a key.
func keyOwner(cluster, node string) string {
	return fmt.Sprintf("%s of RemoteCluster/%s", node, cluster)
}

// meshNode validates one node. What it has beside its pods may not be another's; the node of a gateway has its key.
func (b *builder) meshNode(c v1alpha1.RemoteCluster, n v1alpha1.MeshNode, pods, addresses *netfacts.Owners) (MeshNode,
	*fault) {
	out := MeshNode{Name: n.Name}
	if len(validation.IsDNS1123Subdomain(n.Name)) > 0 {
		return out, faultf(ReasonInvalidName, "not a DNS-1123 subdomain")
	}
	var f *fault
	if out.PublicKey, f = parseKey(n.PublicKey); f != nil {
		return out, f
	}
	if owner := b.keys[out.PublicKey]; owner != "" && owner != keyOwner(c.Name, n.Name) {
		return out, faultf(ReasonDuplicate, "public key is that of %s", owner)
	}
	if out.Pods, f = b.meshPods(c, n.PodCIDRs, pods); f != nil {
		return out, f
	}
	if out.Addresses, f = b.meshAddresses(n.Addresses, addresses); f != nil {
		return out, f
	}
	out.MTU = b.mtu("RemoteCluster/"+c.Name, "node "+clip.Quote(n.Name), n.MTU)
	return out, nil
}

// meshPods are within the accepted pod networks of the node's cluster, and no other node's.
func (b *builder) meshPods(c v1alpha1.RemoteCluster, cidrs []string, taken *netfacts.Owners) ([]netip.Prefix, *fault) {
	var out []netip.Prefix
	for _, cidr := range cidrs {
		p, f := parsePrefix(cidr)
		if f != nil {
			return nil, f
		}
		if !b.within(c, p) {
			return nil, faultf(ReasonOverlap, "%s is in no pod network of its cluster", p)
		}
		if other, ok := taken.Overlap(p, nobody); ok {
			return nil, faultf(ReasonOverlap, "%s overlaps pods of node %s", p, other.Owner)
		}
		for _, q := range out {
			if p.Overlaps(q) {
				return nil, faultf(ReasonOverlap, "%s overlaps its own %s", p, q)
			}
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, faultf(ReasonNoPods, "it has no pod network of its own")
	}
	return sorted(out), nil
}

// within says whether a prefix is in a pod network of a cluster that was taken over.
func (b *builder) within(c v1alpha1.RemoteCluster, p netip.Prefix) bool {
	return slices.ContainsFunc(c.Networks.PodCIDRs, func(cidr string) bool {
		pods, f := parsePrefix(cidr)
		if f != nil || pods.Bits() > p.Bits() || !pods.Contains(p.Addr()) {
			return false
		}
		owner, ok := b.remote.Overlap(p, nobody)
		return ok && owner.Owner == c.Name
	})
}

// meshAddresses returns the first usable address of each family, IPv4 first. Packets to one within a cluster's networks
// would be sent into the very cable that they are of.
func (b *builder) meshAddresses(texts []string, taken *netfacts.Owners) ([]netip.Addr, *fault) {
	var v4, v6 []netip.Addr
	var first *fault
	for _, text := range texts {
		a, f := parseAddr(text)
		if f == nil {
			f = b.misplaced(nobody, a)
		}
		if f == nil {
			if other, ok := taken.Overlap(netfacts.Host(a), nobody); ok {
				f = faultf(ReasonDuplicate, "%s is an address of node %s", a, other.Owner)
			}
		}
		switch {
		case f != nil:
			first = cmp.Or(first, f)
		case a.Is4():
			v4 = append(v4, a)
		default:
			v6 = append(v6, a)
		}
	}
	out := slices.Concat(v4[:min(1, len(v4))], v6[:min(1, len(v6))])
	if len(out) == 0 {
		return nil, cmp.Or(first, faultf(ReasonNoAddress, "no address"))
	}
	return out, nil
}
