// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// readCalicoPool takes a pool for pods. One that is disabled gives no new addresses: where pods have some of it yet,
// blocks say so.
func readCalicoPool(o *unstructured.Unstructured, s *stated) error {
	var pool struct {
		Spec struct {
			CIDR        string   `json:"cidr"`
			Disabled    bool     `json:"disabled"`
			AllowedUses []string `json:"allowedUses"`
		} `json:"spec"`
	}
	if err := decode(o, &pool); err != nil {
		return err
	}
	into := &s.pods
	switch {
	case len(pool.Spec.AllowedUses) > 0 && !slices.Contains(pool.Spec.AllowedUses, "Workload"):
		into = &s.otherUses
	case pool.Spec.Disabled:
		return nil
	}
	return addPrefixes(into, pool.Spec.CIDR)
}

// readCalicoBlock takes a block that a node has: it may be of a pool that is disabled, or gone. Calico may lend single
// addresses of it to pods of other nodes.
func readCalicoBlock(o *unstructured.Unstructured, s *stated) error {
	var block struct {
		Spec struct {
			CIDR string `json:"cidr"`
			Node string `json:"node"`
			// Type is "virtual" where the block is no node's, as that of load balancers.
			Type string `json:"type"`
			// State is "pending" until the node has it.
			State string `json:"state"`
			// Deleted is a boolean as text.
			Deleted string `json:"deleted"`
		} `json:"spec"`
	}
	if err := decode(o, &block); err != nil {
		return err
	}
	if block.Spec.State != "confirmed" || block.Spec.Deleted == "true" || block.Spec.Type == "virtual" {
		return nil
	}
	if err := addPrefixes(&s.calicoBlocks, block.Spec.CIDR); err != nil || block.Spec.Node == "" {
		return err
	}
	return addPrefixes(s.node(block.Spec.Node), block.Spec.CIDR)
}

// readCiliumNode takes the ranges of a node, of one pool or of several. Where Cilium takes single addresses of a
// cloud's subnets it has none.
func readCiliumNode(o *unstructured.Unstructured, s *stated) error {
	var node struct {
		Spec struct {
			IPAM struct {
				PodCIDRs []string `json:"podCIDRs"`
				Pools    struct {
					Allocated []struct {
						CIDRs []string `json:"cidrs"`
					} `json:"allocated"`
				} `json:"pools"`
			} `json:"ipam"`
		} `json:"spec"`
	}
	if err := decode(o, &node); err != nil {
		return err
	}
	cidrs := node.Spec.IPAM.PodCIDRs
	for _, pool := range node.Spec.IPAM.Pools.Allocated {
		cidrs = append(cidrs, pool.CIDRs...)
	}
	if err := addPrefixes(&s.pods, cidrs...); err != nil || len(cidrs) == 0 {
		return err
	}
	return addPrefixes(s.node(o.GetName()), cidrs...)
}

// readKubeOVNSubnet takes the subnets of the default VPC: nodes reach no other. That of an underlay, which has a VLAN,
// is less what the pods do not get, for others are there.
func readKubeOVNSubnet(o *unstructured.Unstructured, s *stated) error {
	const (
		defaultVPC = "ovn-cluster"
		joinSubnet = "join" // of the nodes' own addresses
	)
	var subnet struct {
		Spec struct {
			CIDRBlock  string   `json:"cidrBlock"`
			VPC        string   `json:"vpc"`
			VLAN       string   `json:"vlan"`
			Gateway    string   `json:"gateway"`
			ExcludeIPs []string `json:"excludeIps"`
		} `json:"spec"`
	}
	if err := decode(o, &subnet); err != nil {
		return err
	}
	spec := subnet.Spec
	if o.GetName() == joinSubnet || spec.VPC != "" && spec.VPC != defaultVPC {
		return nil
	}
	var b netipx.IPSetBuilder
	if err := addPrefixes(&b, strings.Split(spec.CIDRBlock, ",")...); err != nil {
		return err
	}
	if spec.VLAN != "" {
		not := spec.ExcludeIPs
		if spec.Gateway != "" {
			not = append(not, strings.Split(spec.Gateway, ",")...)
		}
		if err := removeRanges(&b, "..", not); err != nil {
			return err
		}
	}
	return addAll(&s.pods, &b)
}

// spiderSpec is what the kinds of Spiderpool have in common.
type spiderSpec struct {
	IPs        []string `json:"ips"`
	ExcludeIPs []string `json:"excludeIPs"`
	Disable    bool     `json:"disable"`
}

// addresses are those that pods get.
func (spec spiderSpec) addresses(into *netipx.IPSetBuilder) error {
	var b netipx.IPSetBuilder
	for _, text := range spec.IPs {
		r, err := parseRange(text, "-")
		if err != nil {
			return err
		}
		b.AddRange(r)
	}
	if err := removeRanges(&b, "-", spec.ExcludeIPs); err != nil {
		return err
	}
	return addAll(into, &b)
}

// readSpiderPool takes the addresses of a pool, and of one that is disabled those that pods have yet.
func readSpiderPool(o *unstructured.Unstructured, s *stated) error {
	var pool struct {
		Spec   spiderSpec `json:"spec"`
		Status struct {
			// AllocatedIPs is an object in JSON, by address.
			AllocatedIPs string `json:"allocatedIPs"`
		} `json:"status"`
	}
	if err := decode(o, &pool); err != nil {
		return err
	}
	if !pool.Spec.Disable {
		return pool.Spec.addresses(&s.pods)
	}
	if pool.Status.AllocatedIPs == "" {
		return nil
	}
	var allocated map[string]json.RawMessage
	if err := json.Unmarshal([]byte(pool.Status.AllocatedIPs), &allocated); err != nil {
		return fmt.Errorf("status.allocatedIPs: %w", err)
	}
	var b netipx.IPSetBuilder
	for text := range allocated {
		r, err := parseRange(text, "-")
		if err != nil {
			return err
		}
		b.AddRange(r)
	}
	return addAll(&s.pods, &b)
}

// readSpiderSubnet takes the addresses of which pools are made as pods come.
func readSpiderSubnet(o *unstructured.Unstructured, s *stated) error {
	var subnet struct {
		Spec spiderSpec `json:"spec"`
	}
	if err := decode(o, &subnet); err != nil {
		return err
	}
	return subnet.Spec.addresses(&s.pods)
}
