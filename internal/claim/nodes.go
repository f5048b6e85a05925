// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Limits of one node of a mesh: those of the CRD.
const (
	maxNodeAddresses = 2
	maxNodePods      = 4
)

// Nodes validates the nodes that a member publishes for a mesh, one by one, within what it was accepted with. Gateways
// are its Endpoints, whose nodes have the same keys. A bad one becomes an error: its pods are reached by gateways. Of
// two that claim the same the first by name has it.
func Nodes(reported []v1alpha1.MeshNode, in Claim, gateways []v1alpha1.Endpoint, others Others) ([]v1alpha1.MeshNode,
	[]error) {
	var good []v1alpha1.MeshNode
	var errs []error
	var taken netfacts.Owners
	keys, names := map[string]string{}, map[string]bool{}
	for _, e := range gateways {
		keys[e.PublicKey] = e.Gateway
	}
	reported = slices.Clone(reported)
	slices.SortStableFunc(reported, func(a, b v1alpha1.MeshNode) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range reported {
		owned, err := checkNode(&n, in, others)
		if err == nil {
			err = free(n, owned, names, keys, &taken)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", clip.Quote(n.Name), err))
			continue
		}
		names[n.Name], keys[n.PublicKey] = true, n.Name
		for _, p := range owned {
			taken.Add(p, n.Name)
		}
		good = append(good, n)
	}
	return good, errs
}

// free says what of a node another of the same cluster has.
func free(n v1alpha1.MeshNode, owned []netip.Prefix, names map[string]bool, keys map[string]string,
	taken *netfacts.Owners) error {
	if names[n.Name] {
		return errors.New("there is another of that name")
	}
	if other, ok := keys[n.PublicKey]; ok && other != n.Name {
		return fmt.Errorf("its public key is that of node %s", other)
	}
	for i, p := range owned {
		if other, ok := taken.Overlap(p, ""); ok {
			return fmt.Errorf("%s overlaps %s of node %s", p, other.Prefix, other.Owner)
		}
		for _, q := range owned[:i] {
			if p.Overlaps(q) {
				return fmt.Errorf("%s overlaps its own %s", p, q)
			}
		}
	}
	return nil
}

// checkNode checks what can be told of a node alone. It writes its addresses and networks as everybody does, and
// returns them.
func checkNode(n *v1alpha1.MeshNode, in Claim, others Others) ([]netip.Prefix, error) {
	if len(validation.IsDNS1123Subdomain(n.Name)) > 0 {
		return nil, errors.New("the name is not a node's")
	}
	if _, err := netfacts.ParsePublicKey(n.PublicKey); err != nil {
		return nil, err
	}
	if owner, ok := others.Keys[n.PublicKey]; ok && owner != others.Cluster {
		return nil, fmt.Errorf("its public key is that of a node of %s", owner)
	}
	if err := netfacts.CheckMTU(n.MTU); err != nil {
		return nil, err
	}
	if l := len(n.Addresses); l == 0 || l > maxNodeAddresses {
		return nil, fmt.Errorf("%d addresses, expected 1 to %d", l, maxNodeAddresses)
	}
	if l := len(n.PodCIDRs); l == 0 || l > maxNodePods {
		return nil, fmt.Errorf("%d pod networks, expected 1 to %d", l, maxNodePods)
	}
	n.Addresses, n.PodCIDRs = slices.Clone(n.Addresses), slices.Clone(n.PodCIDRs)
	var owned []netip.Prefix
	for i, text := range n.Addresses {
		a, err := netfacts.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		host := netfacts.Host(a)
		// Packets to it would be sent into the cable that they are of.
		if network, ok := others.Routed.Overlap(host, ""); ok {
			return nil, fmt.Errorf("address %s is in network %s of %s", a, network.Prefix, network.Owner)
		}
		owned, n.Addresses[i] = append(owned, host), a.String()
	}
	for i, text := range n.PodCIDRs {
		p, err := netfacts.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(in.Pods, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }) {
			return nil, fmt.Errorf("pod network %s is in none of its cluster", p)
		}
		owned, n.PodCIDRs[i] = append(owned, p), p.String()
	}
	return owned, nil
}
