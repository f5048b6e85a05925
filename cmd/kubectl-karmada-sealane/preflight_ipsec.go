// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	netdiscovery "github.com/sealane-io/sealane/memberagent/cluster/discovery"
)

// ipsecContainer is the name of the container for cables by IPsec beside a node agent.
const ipsecContainer = "ipsec"

// ipsecKernel is the first release of Linux by which a pair by IPsec is reached: routes of IPv4 have next hops of IPv6.
const ipsecKernel = "5.2.0"

// byIPsec is what a cluster is checked for cables by IPsec with.
type byIPsec struct {
	// port is the UDP port of IKE and ESP.
	port int32
	// with are the clusters of pairs that are to be reached so; none where the command line alone asks for it.
	with []string
	// installed says that the Karmada API has the node agents' DaemonSet, and bare that this has no container for it.
	installed, bare bool
}

func (b *byIPsec) pairs() string {
	if len(b.with) == 0 {
		return "other clusters"
	}
	return clip.List(b.with, 5)
}

// nodeAgents says whether a place has the node agents' DaemonSet, and whether that has no container for cables by
// IPsec.
func (a *api) nodeAgents(ctx context.Context) (installed, bare bool, err error) {
	var set appsv1.DaemonSet
	installed, err = a.find(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: nodeAgentName}, &set)
	bare = !slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == ipsecContainer
	})
	return installed, installed && bare, err
}

// ipsecChecks are those of a cluster in which cables by IPsec are to end.
func (a *api) ipsecChecks(ctx context.Context, o *options, b *byIPsec, nodes []corev1.Node) ([]checked, error) {
	var gateways v1alpha1.GatewayList
	if err := a.List(ctx, &gateways); err != nil && !gone(err) {
		return nil, fmt.Errorf("list Gateways: %w", err)
	}
	installed, bare, err := a.nodeAgents(ctx)
	if err != nil {
		return nil, err
	}
	return []checked{ipsecKernelCheck(nodes, gateways.Items, a.context), b.agentCheck(installed, bare, o.invocation),
		b.portCheck(nodes)}, nil
}

// mayBeGateways are the nodes that are gateways or labelled to be, and else, with chosen false, all that may be picked.
func mayBeGateways(nodes []corev1.Node, gateways []v1alpha1.Gateway) (out []corev1.Node, chosen bool) {
	linux := slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool {
		os := n.Status.NodeInfo.OperatingSystem
		return os != "linux" && os != ""
	})
	for i := range linux {
		n := &linux[i]
		if n.Labels[v1alpha1.LabelGateway] == "true" ||
			slices.ContainsFunc(gateways, func(g v1alpha1.Gateway) bool { return g.Name == n.Name }) {
			out = append(out, *n)
		}
	}
	if len(out) > 0 {
		return out, true
	}
	return linux, false
}

// ipsecKernelCheck judges the kernels of gateways by their versions, and says of IPv6 what addresses show.
func ipsecKernelCheck(nodes []corev1.Node, gateways []v1alpha1.Gateway, where string) checked {
	const name = "ipsec-kernel"
	candidates, chosen := mayBeGateways(nodes, gateways)
	var old, unseen []string
	for i := range candidates {
		n := &candidates[i]
		kernel := n.Status.NodeInfo.KernelVersion
		v, err := utilversion.ParseGeneric(strings.SplitN(kernel, "-", 2)[0])
		if err != nil || v.LessThan(utilversion.MustParseGeneric(ipsecKernel)) {
			old = append(old, fmt.Sprintf("%s has %q", n.Name, kernel))
		}
		if !showsIPv6(n) {
			unseen = append(unseen, n.Name)
		}
	}
	switch {
	case len(candidates) == 0:
		return checked{Name: name, Verdict: verdictFail, Found: "no node that can be a gateway",
			Expected: "gateways with Linux 5.2 or later, for cables by ipsec", Remedy: "add a node that runs Linux"}
	case len(old) > 0:
		bad := checked{Name: name, Verdict: verdictFail, Found: clip.List(old, 5),
			Expected: "gateways with Linux 5.2 or later, for cables by ipsec",
			Remedy: "upgrade their kernels, or have nodes with a later one be the gateways: kubectl --context " + where +
				" label node NODE " + v1alpha1.LabelGateway + "=true"}
		if !chosen && len(old) < len(candidates) {
			bad.Verdict = verdictWarn
			bad.Found += "; no gateway is chosen yet, and one of these may be picked"
		}
		return bad
	}
	text := "an IPv6 address of each shows that its kernel has IPv6"
	if len(unseen) > 0 {
		text = "whether the kernel has IPv6 cannot be seen from here of " + clip.List(unseen, 5) +
			", which /proc/net/if_inet6 shows there"
	}
	return passed(name, "Linux 5.2 or later on all nodes that are or may be gateways; %s; /dev/net/tun cannot be seen "+
		"from here", text)
}

// showsIPv6 says that a node has an address of IPv6, or pods with such: its kernel has it then.
func showsIPv6(n *corev1.Node) bool {
	networks := slices.Concat(netdiscovery.NodeCIDRs([]corev1.Node{*n}), n.Spec.PodCIDRs)
	return slices.ContainsFunc(netdiscovery.Prefixes(networks), func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// agentCheck looks for the container that runs IPsec: in the cluster itself, and where Sealane is not there yet in what
// the Karmada API has for it.
func (b *byIPsec) agentCheck(installed, bare bool, invocation string) checked {
	const name = "ipsec-agent"
	bad := checked{Name: name, Verdict: verdictFail,
		Expected: "node agents with the container " + ipsecContainer + ", by which " + b.pairs() + " are to be reached",
		Found: fmt.Sprintf("DaemonSet %s/%s has no such container: Sealane was installed without --ipsec",
			v1alpha1.Namespace, nodeAgentName),
		Remedy: fmt.Sprintf("run %s install again, with --ipsec beside the flags of the first time", invocation)}
	if len(b.with) > 0 {
		bad.Found += "; what went by WireGuard before goes on, and nothing else goes to these clusters"
		bad.Remedy += "; or give these pairs the driver wireguard in the ClusterSet"
	}
	switch {
	case b.bare, installed && bare && !b.installed:
		return bad
	case installed && bare:
		bad.Verdict = verdictWarn
		bad.Found = "the Karmada API has it, and the cluster has node agents without it"
		bad.Remedy = "wait for the roll-out (" + invocation + " show rollout), and see diagnose karmada: Karmada brings it"
		return bad
	case installed:
		return passed(name, "the node agents have the container %s", ipsecContainer)
	case b.installed:
		return passed(name, "Sealane is installed with the container %s, which comes with the node agents", ipsecContainer)
	}
	return passed(name, "Sealane is not installed yet: have %s install do it with --ipsec", invocation)
}

// portCheck names the port that is to be open, which no API server knows to be so or not.
func (b *byIPsec) portCheck(nodes []corev1.Node) checked {
	list := make([]*corev1.Node, len(nodes))
	for i := range nodes {
		list[i] = &nodes[i]
	}
	return passed("ipsec-port", "UDP %d has to pass between the gateways and those of %s, to one side at least (%s); "+
		"whether it does cannot be seen from here", b.port, b.pairs(), firewallsOf(list))
}
