// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
)

// cloud is what of a provider of nodes matters to the network; docs/clouds.md has the sources.
type cloud struct {
	// nodes matches spec.providerID of its nodes, as the cloud providers of Kubernetes write it.
	nodes *regexp.Regexp
	name  string
	// firewalls are where ports are opened.
	firewalls string
	// sizes says what packets fit.
	sizes string
	// check is what the provider calls its check of sources and destinations, and how that may stay: whatever leaves a
	// node is from its own address and to another node's (TestSourceCheckOfTheUnderlay).
	check string
}

var clouds = []cloud{
	{regexp.MustCompile(`^aws://`), "AWS", "the security groups of the instances and the network ACLs of the subnets",
		"9001 bytes within a VPC, 8500 to another region by peering, 1500 by an internet gateway",
		"the source/destination check of the instances may stay on"},
	{regexp.MustCompile(`^azure://`), "Azure", "the network security groups of the subnets and the interfaces",
		"1500 bytes, more only within a virtual network",
		"IP forwarding of the network interfaces may stay off"},
	{regexp.MustCompile(`^gce://`), "Google Cloud", "the firewall rules of the VPC network, for the nodes' network tag",
		"1460 bytes unless the VPC network has another MTU, 1500 by the internet",
		"canIpForward of the instances may stay off"},
	{regexp.MustCompile(`^[a-z]{2}-[a-z0-9-]+\.i-[a-z0-9]+$`), "Alibaba Cloud",
		"the security groups of the instances, whose enterprise kind lets nothing in or out by default",
		"1500 bytes, 8500 between some kinds of instances",
		"the source/destination check of the network interfaces may stay on"},
	{regexp.MustCompile(`^openstack://`), "OpenStack", "the security groups of the nodes' ports",
		"what the network's MTU says",
		"port security of the nodes' ports may stay on, without allowed address pairs"},
}

// cloudOf returns the cloud that the first of some nodes runs on; nil where that is none of those known.
func cloudOf(nodes []*corev1.Node) *cloud {
	for _, n := range nodes {
		for i := range clouds {
			if clouds[i].nodes.MatchString(n.Spec.ProviderID) {
				return &clouds[i]
			}
		}
	}
	return nil
}

// firewallsOf names where ports are opened for some nodes, and what else of their cloud is not in the way.
func firewallsOf(nodes []*corev1.Node) string {
	if c := cloudOf(nodes); c != nil {
		return fmt.Sprintf("%s: %s; and nftables on the nodes; %s", c.name, c.firewalls, c.check)
	}
	return "security groups, nftables"
}

// cloudCheck says which ports are to be opened and where, which no API server knows to be so or not.
func cloudCheck(nodes []corev1.Node, open openPorts) checked {
	const name = "cloud"
	list := make([]*corev1.Node, len(nodes))
	for i := range nodes {
		list[i] = &nodes[i]
	}
	c := cloudOf(list)
	if c == nil {
		return passed(name, "none that is known by spec.providerID of the nodes: open %s, where firewalls are", open)
	}
	return passed(name, "%s: %s have to pass %s; packets may have %s; %s", c.name, open, c.firewalls, c.sizes, c.check)
}
