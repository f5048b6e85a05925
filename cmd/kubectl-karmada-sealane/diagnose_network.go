// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util/names"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

const subjectKarmada, subjectNetworks, subjectConnections = "karmada", "networks", "connections"

// checkKarmada looks at what Karmada carries: its kinds and policies, and in each direction the Works of members.
func checkKarmada(s *snapshot) []checked {
	out := []checked{s.karmada.servesKinds()}
	for _, set := range of[*v1alpha1.ClusterSet](&s.karmada) {
		out = append(out, s.setInForce(set))
	}
	for _, m := range of[*v1alpha1.Member](&s.karmada) {
		if p := s.member(m.Name); p != nil {
			out = append(out, s.carried(p, m)...)
		}
	}
	return out
}

func (p *place) servesKinds() checked {
	var missing []string
	for _, kind := range []string{"Cluster", "ClusterPropagationPolicy", "Work", "ClusterSet", "Member"} {
		if why := p.lacks(kind); why != "" {
			missing = append(missing, kind+" ("+why+")")
		}
	}
	if len(missing) > 0 {
		return p.says(subjectKarmada, verdictFail, finding{
			expected: "the kinds of Karmada and of Sealane, and the right to read them",
			found:    "not read: " + strings.Join(missing, ", "),
			remedy:   "install Karmada's CRDs, and Sealane; use the kubeconfig of Karmada's administrator"})
	}
	if len(of[*policyv1alpha1.ClusterPropagationPolicy](p)) == 0 {
		return p.says(subjectKarmada, verdictFail, finding{
			expected: "Sealane's ClusterPropagationPolicies, by which Karmada brings the agents to members",
			found:    "there is none", remedy: "run install again, with the flags of the first time"})
	}
	return p.fine(subjectKarmada, "serves the kinds of Karmada and of Sealane, with Sealane's policies")
}

// setInForce says whether the controller works by a ClusterSet as it is.
func (s *snapshot) setInForce(set *v1alpha1.ClusterSet) checked {
	p, object := &s.karmada, "ClusterSet "+set.Name
	if set.Status.ObservedGeneration < set.Generation {
		return p.says(subjectKarmada, verdictWarn, finding{expected: "the controller to have looked at the last change of " +
			object, found: fmt.Sprintf("it has looked at generation %d of %d", set.Status.ObservedGeneration, set.Generation),
			remedy: "see diagnose deployment: the controller has to run"})
	}
	c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ClusterSetReady)
	if c != nil && c.Status == metav1.ConditionFalse {
		switch c.Reason {
		case v1alpha1.ReasonInvalidSettings, v1alpha1.ReasonNoMembers, v1alpha1.ReasonDeleting:
			return p.says(subjectKarmada, verdictFail, finding{expected: object + " to select members, with valid settings",
				found: c.Reason + ": " + c.Message, remedy: p.kubectl("edit clusterset %s", set.Name)})
		}
	}
	return p.fine(subjectKarmada, "%s is in force, with %d members", object, set.Status.Members)
}

// carried says whether Karmada reaches a member, and brings there and back what it should.
func (s *snapshot) carried(p *place, m *v1alpha1.Member) []checked {
	var out []checked
	cluster, found := one[*clusterv1alpha1.Cluster](&s.karmada, "", m.Name)
	if found && !clusterReady(cluster) || !found && s.karmada.lacks("Cluster") == "" {
		text := "Karmada has no cluster of this name"
		if found {
			text = "Karmada finds it not ready"
		}
		out = append(out, p.says(subjectKarmada, verdictFail, finding{
			expected: "a Cluster that is Ready, as all that members get and say goes by Karmada", found: text,
			remedy: s.karmada.kubectl("describe cluster %s", m.Name)}))
	}
	if s.karmada.lacks("Work") == "" {
		out = append(out, s.worksApplied(p, m)...)
	}
	if m.Status.ObservedRevision < m.Status.Revision {
		out = append(out, p.says(subjectKarmada, verdictWarn, finding{
			expected: fmt.Sprintf("a report that answers revision %d of the Peering", m.Status.Revision),
			found:    fmt.Sprintf("the last report answers revision %d", m.Status.ObservedRevision),
			remedy:   "wait some seconds; then see that the cluster agent runs (diagnose deployment)"}))
	}
	if m.Spec.Phase == v1alpha1.MemberLeaving {
		out = append(out, p.says(subjectKarmada, verdictWarn, finding{expected: "a member that stays",
			found:  "it leaves, and reaches nobody",
			remedy: "wait until it has left; if its agents cannot answer: " + s.invocation + " leave " + m.Name + " --force"}))
	}
	if len(out) == 0 {
		out = append(out, p.fine(subjectKarmada, "Karmada reaches it, and has applied what it was sent"))
	}
	return out
}

// worksApplied looks at the Works that carry a member's Peering and Bundles.
func (s *snapshot) worksApplied(p *place, m *v1alpha1.Member) []checked {
	var out []checked
	space, peering := names.GenerateExecutionSpaceName(m.Name), false
	for _, w := range of[*workv1alpha1.Work](&s.karmada) {
		if w.Namespace != space {
			continue
		}
		peering = peering || w.Name == peeringWork()
		c := meta.FindStatusCondition(w.Status.Conditions, workv1alpha1.WorkApplied)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		out = append(out, p.says(subjectKarmada, verdictFail, finding{
			expected: "Karmada to apply Work " + w.Namespace + "/" + w.Name + " in the cluster",
			found:    c.Reason + ": " + c.Message,
			remedy:   s.karmada.kubectl("-n %s describe work %s", w.Namespace, w.Name)}))
	}
	if !peering {
		out = append(out, p.says(subjectKarmada, verdictFail, finding{
			expected: "a Work " + space + "/" + peeringWork() + ", which brings the cluster its Peering",
			found:    "there is none", remedy: "see diagnose deployment, and the controller's log"}))
	}
	return out
}

// checkNetworks looks at the addresses of members: known, accepted, and routed on every node.
func checkNetworks(s *snapshot) []checked {
	const state = "state the right ones in the ClusterSet under spec.clusters[].networks; see docs/troubleshooting.md"
	var out []checked
	for _, m := range of[*v1alpha1.Member](&s.karmada) {
		p := s.member(m.Name)
		if p == nil {
			continue
		}
		object := "Member " + m.Name
		found := p.byConditions(subjectNetworks, object, m.Status.Conditions,
			judged{v1alpha1.MemberAccepted, verdictFail, "networks that are valid, allowed, and nobody else's", state},
			judged{v1alpha1.PeeringNetworksDiscovered, verdictFail, "networks of pods and services that are known", state},
			judged{v1alpha1.PeeringNetworksAccepted, verdictFail,
				"other clusters' networks that no node needs itself", "see docs/troubleshooting.md#networks-that-a-node-refuses"},
			judged{v1alpha1.PeeringPodsRouted, verdictFail, "pods with addresses that others route to their nodes",
				"state networks that hold them under spec.clusters[].networks.podCIDRs; see docs/cni.md"})
		if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MemberAccepted); c != nil &&
			c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonKeptLastGood {
			found = append(found, p.says(subjectNetworks, verdictWarn, finding{expected: "a last report that is valid",
				found: c.Message, remedy: state}))
		}
		n := m.Status.Networks
		if len(found) == 0 && (len(n.PodCIDRs) == 0 || len(n.ServiceCIDRs) == 0) {
			found = append(found, p.says(subjectNetworks, verdictFail, finding{
				expected: "accepted networks of pods and of services",
				found: fmt.Sprintf("pods %s; services %s", cmp.Or(clip.List(n.PodCIDRs, 5), "none"),
					cmp.Or(clip.List(n.ServiceCIDRs, 5), "none")), remedy: state}))
		}
		if len(found) == 0 {
			text := fmt.Sprintf("pods %s; services %s", clip.List(n.PodCIDRs, 5), clip.List(n.ServiceCIDRs, 5))
			if m.Status.GlobalCIDR != "" {
				text += "; known by " + m.Status.GlobalCIDR
				if m.Status.GlobalIPv6CIDR != "" {
					text += " and " + m.Status.GlobalIPv6CIDR
				}
			}
			found = append(found, p.fine(subjectNetworks, "%s", text))
		}
		out = append(out, found...)
	}
	return out
}

// lossWarned is the percentage of lost probes that is worth a warning.
const lossWarned = 5

// checkConnections looks at the tunnels as the gateways at either end see them.
func checkConnections(s *snapshot) []checked {
	f := s.fleet()
	var out []checked
	for i := range f.members {
		m := &f.members[i]
		p := s.member(m.Name)
		if m.err != nil || p.lacks("Gateway") != "" {
			out = append(out, s.reportedPairs(p, m, len(f.all))...)
			continue
		}
		found := s.gatewayConnections(f, p, m)
		if len(found) == 0 {
			found = append(found, p.fine(subjectConnections, "%s", tunnelCount(m)))
		}
		out = append(out, found...)
	}
	return out
}

func tunnelCount(m *fleetMember) string {
	n := len(tunnelsOf(m))
	text := fmt.Sprintf("%d tunnels of %d gateways are connected", n, len(m.gateways))
	if clear := inClear(m); clear > 0 {
		text += fmt.Sprintf(", %d of them by vxlan, NOT ENCRYPTED", clear)
	}
	return text
}

// inClear counts the tunnels of a member's gateways that do not encrypt.
func inClear(m *fleetMember) int {
	n := 0
	for _, c := range tunnelsOf(m) {
		if c.Cable == v1alpha1.CableVXLAN {
			n++
		}
	}
	return n
}

// tunnelsOf are the tunnels of a member's gateways. What is reached through a relay has none of its own.
func tunnelsOf(m *fleetMember) []*v1alpha1.Connection {
	var out []*v1alpha1.Connection
	for i := range m.gateways {
		for j := range m.gateways[i].Status.Connections {
			if c := &m.gateways[i].Status.Connections[j]; c.Through == "" {
				out = append(out, c)
			}
		}
	}
	return out
}

// reportedPairs judges a member that cannot be asked by what the broker has of it.
func (s *snapshot) reportedPairs(p *place, m *fleetMember, members int) []checked {
	var out []checked
	for _, c := range m.Status.Connections {
		v := verdictFail
		switch c.Status {
		case v1alpha1.ConnectionConnected:
			continue
		case v1alpha1.ConnectionUnknown:
			v = verdictWarn
		}
		out = append(out, p.says(subjectConnections, v, finding{expected: "a connection to " + c.Cluster,
			found:  fmt.Sprintf("as it last reported: %s %s", c.Status, c.Reason),
			remedy: "see docs/troubleshooting.md#why-two-clusters-are-not-connected"}))
	}
	switch {
	case len(m.Status.Connections) == 0 && members > 1:
		out = append(out, p.says(subjectConnections, verdictWarn, finding{expected: "connections to the other members",
			found: "it has reported none", remedy: "see diagnose karmada and deployment"}))
	case len(out) == 0:
		out = append(out, p.fine(subjectConnections, "as it last reported: connected to %d clusters",
			len(m.Status.Connections)))
	}
	return out
}

// gatewayConnections are what is wrong with the tunnels of a member. Where another tunnel leads to the same cluster it
// is a warning.
func (s *snapshot) gatewayConnections(f *fleet, p *place, m *fleetMember) []checked {
	if len(m.gateways) == 0 {
		return []checked{p.says(subjectConnections, verdictFail, finding{expected: "a gateway in the cluster",
			found: "there is none", remedy: "see the condition GatewaysReady of the Member, and docs/high-availability.md"})}
	}
	var out []checked
	up := map[string]bool{}
	for i := range m.gateways {
		for _, c := range m.gateways[i].Status.Connections {
			if stale(f, &m.gateways[i]) == "" && c.Status == v1alpha1.ConnectionConnected {
				up[c.Cluster] = true
			}
		}
	}
	for i := range m.gateways {
		g := &m.gateways[i]
		if begins(f, g) {
			continue
		}
		if why := stale(f, g); why != "" {
			out = append(out, p.says(subjectConnections, verdictFail, finding{
				expected: "gateway " + g.Name + " to report within 90 s", found: why,
				remedy: p.kubectl("-n %s get pods -o wide --field-selector spec.nodeName=%s", v1alpha1.Namespace, g.Name)}))
			continue
		}
		for j := range g.Status.Connections {
			if c, bad := s.tunnel(p, g, &g.Status.Connections[j], up); bad {
				out = append(out, c)
			}
		}
	}
	return append(out, p.missing(m, up)...)
}

// missing are the clusters that a member should be connected to and that none of its gateways names.
func (p *place) missing(m *fleetMember, up map[string]bool) []checked {
	var out []checked
	for _, c := range m.Status.Connections {
		named := slices.ContainsFunc(m.gateways, func(g v1alpha1.Gateway) bool {
			return slices.ContainsFunc(g.Status.Connections, func(k v1alpha1.Connection) bool { return k.Cluster == c.Cluster })
		})
		if named || up[c.Cluster] || c.Status == v1alpha1.ConnectionConnected {
			continue
		}
		out = append(out, p.says(subjectConnections, verdictFail, finding{expected: "a tunnel to " + c.Cluster,
			found:  fmt.Sprintf("no gateway has one; the cluster reports %s %s", c.Status, c.Reason),
			remedy: "see docs/troubleshooting.md#why-two-clusters-are-not-connected"}))
	}
	return out
}

// amiss is what is not as it should be with a tunnel that carries.
func amiss(name string, g *v1alpha1.Gateway, c *v1alpha1.Connection) (f finding, is bool) {
	switch {
	case c.Reason == v1alpha1.ReasonCableSilent:
		return finding{expected: name + " to be by the cable that the ClusterSet has for the pair", found: c.Message,
			remedy: "do what the message says, if it says what is missing; else let the cable's port pass (docs/cables.md), " +
				"or give the pair the driver wireguard"}, true
	case c.Reason == v1alpha1.ReasonAlgorithmsDiffer:
		return finding{expected: name + " to have the algorithms that spec.cable.ipsecAlgorithms has",
			found:  c.Algorithms + ": " + c.Message,
			remedy: "see whether the other cluster answers, and upgrade its agents"}, true
	case c.Reason == v1alpha1.ReasonKeysStay:
		return finding{expected: name + " to have its keys renewed", found: c.Message,
			remedy: "see why charon does not answer: the container ipsec of the node agent at " + g.Name + ", or else at " +
				c.Gateway + " of " + c.Cluster}, true
	case c.LossPercent >= lossWarned:
		return finding{expected: "less than 5 % of probes to be lost from " + name,
			found:  fmt.Sprintf("%d %% in the last minute", c.LossPercent),
			remedy: "look for loss on the way to " + cmp.Or(c.Address, "it") + ", and for load on both nodes"}, true
	}
	return finding{}, false
}

// tunnel judges one, and says what the gateway at its other end sees.
func (s *snapshot) tunnel(p *place, g *v1alpha1.Gateway, c *v1alpha1.Connection, up map[string]bool) (checked, bool) {
	name := fmt.Sprintf("%s to %s of %s", g.Name, c.Gateway, c.Cluster)
	if c.Through != "" {
		return s.relayed(p, g, c, up)
	}
	if c.Status == v1alpha1.ConnectionConnected {
		f, is := amiss(name, g, c)
		return p.says(subjectConnections, verdictWarn, f), is
	}
	bad := finding{expected: "an answer to probes from " + name,
		found:  strings.TrimSuffix(fmt.Sprintf("%s: %s %s: %s", name, c.Status, c.Reason, c.Message), ": "),
		remedy: "see diagnose firewall, which says which way is shut, and the agent of the other gateway"}
	if noIPsec(c) {
		bad.remedy = "do what the message says, or give the pair the driver wireguard; see diagnose deployment"
	}
	v := verdictFail
	if up[c.Cluster] {
		v = verdictWarn
		bad.found += "; another tunnel to the cluster is connected, and carries"
	}
	return p.says(subjectConnections, v, bad), true
}

// relayed judges what a gateway says of a cluster that it reaches through a relay. A fault of the tunnel to that is a
// finding of its own.
func (s *snapshot) relayed(p *place, g *v1alpha1.Gateway, c *v1alpha1.Connection, up map[string]bool) (checked, bool) {
	if c.Status == v1alpha1.ConnectionConnected || c.Reason != v1alpha1.ReasonRelayNotConnected {
		return checked{}, false
	}
	v := verdictFail
	if up[c.Cluster] {
		v = verdictWarn
	}
	return p.says(subjectConnections, v, finding{
		expected: fmt.Sprintf("the relay %s to be connected to %s, which %s reaches through it", c.Through, c.Cluster,
			g.Name),
		found: c.Message, remedy: fmt.Sprintf("see what is said here of %s and %s", c.Through, c.Cluster)}), true
}
