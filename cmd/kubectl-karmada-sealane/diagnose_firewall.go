// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
)

const subjectFirewall = "firewall"

// Ports that a ClusterSet has unless it says otherwise.
const (
	usualCablePort = 4500
	usualVXLANPort = 4800
)

// checkFirewall looks at what arrives of what node agents send: between gateways by the cables, and between the nodes
// of a cluster over the overlay. Each end says what it hears, so that of a path that is shut it is known which way.
func checkFirewall(s *snapshot) []checked {
	f, open := s.fleet(), s.ports()
	var out []checked
	for i := range f.members {
		m := &f.members[i]
		p := s.member(m.Name)
		if p.lacks(everything) != "" {
			continue
		}
		if c, unsure := p.unsure(subjectFirewall, "Gateway", "Pod"); unsure {
			out = append(out, c)
			continue
		}
		cable, vxlan := f.ports(m.Spec.ClusterSet)
		found := slices.Concat(s.cableLegs(f, p, m, cable), p.silentCables(f, m, open[m.Name]), p.overlayLegs(f, m, vxlan))
		if len(found) == 0 {
			found = append(found, p.fine(subjectFirewall, "UDP %s passes both ways with the gateways of other clusters, "+
				"and UDP %d between the nodes", m.passes(cable), vxlan))
		}
		out = append(out, found...)
	}
	return out
}

// passes names the UDP ports of the cables that a member's connections are by. Of one that carries nothing it is not
// known whether its port passes, and it need not.
func (m *fleetMember) passes(port int32) string {
	ports := map[string]bool{}
	for _, c := range tunnelsOf(m) {
		if plan.OfVXLAN(c.Link) || plan.OfIPsec(c.Link) {
			ports[strconv.Itoa(int(cablePort(port, c.Link)))] = true
		} else {
			ports[fmt.Sprintf("%d and up", port)] = true
		}
	}
	return cmp.Or(strings.Join(slices.Sorted(maps.Keys(ports)), ", "), fmt.Sprintf("%d and up", port))
}

// ports of a ClusterSet's cables, from which they count up, and of the overlay.
func (f *fleet) ports(set string) (cable, vxlan int32) {
	for i := range f.clusterSets {
		if spec := &f.clusterSets[i].Spec.Cable; f.clusterSets[i].Name == set {
			return cmp.Or(spec.Port, usualCablePort), cmp.Or(spec.VXLANPort, usualVXLANPort)
		}
	}
	return usualCablePort, usualVXLANPort
}

// cableLegs are what does not arrive at the gateways of a member, or of what they send, as far as the others say.
func (s *snapshot) cableLegs(f *fleet, p *place, m *fleetMember, port int32) []checked {
	var out []checked
	for i := range m.gateways {
		g := &m.gateways[i]
		if stale(f, g) != "" {
			continue // diagnose connections says so
		}
		for j := range g.Status.Connections {
			c := &g.Status.Connections[j]
			if c.Status == v1alpha1.ConnectionConnected || c.Through != "" {
				continue
			}
			out = append(out, s.cableLeg(f, p, g, c, port))
		}
	}
	return out
}

// ports says by cluster what has to pass firewalls.
func (s *snapshot) ports() map[string]openPorts {
	return portsOf(values(of[*v1alpha1.ClusterSet](&s.karmada)), values(of[*clusterv1alpha1.Cluster](&s.karmada)),
		values(of[*v1alpha1.Member](&s.karmada)))
}

func values[T any](list []*T) []T {
	out := make([]T, len(list))
	for i, v := range list {
		out[i] = *v
	}
	return out
}

// silentCables are the connections of a member that go by another cable than they are to: the port of that one may be
// shut, while those of the one that carries pass.
func (p *place) silentCables(f *fleet, m *fleetMember, open openPorts) []checked {
	var out []checked
	for i := range m.gateways {
		g := &m.gateways[i]
		if stale(f, g) != "" {
			continue
		}
		for j := range g.Status.Connections {
			c := &g.Status.Connections[j]
			port := open.to(c.Cluster)
			if c.Status != v1alpha1.ConnectionConnected || c.Reason != v1alpha1.ReasonCableSilent || port == 0 {
				continue
			}
			out = append(out, p.says(subjectFirewall, verdictWarn, finding{
				expected: fmt.Sprintf("the cable that the ClusterSet has for the pair, by UDP %d, from %s to %s of %s", port,
					g.Name, c.Gateway, c.Cluster),
				found: c.Message,
				remedy: fmt.Sprintf("do what that says, if it says what is missing; else open UDP %d between the two, in the "+
					"firewalls of both clusters' nodes and between them (%s)", port, firewallsOf(of[*corev1.Node](p)))}))
		}
	}
	return out
}

// said by the other end of a tunnel of this one; nothing where it does not say.
func (s *snapshot) said(f *fleet, cluster string, g *v1alpha1.Gateway, c *v1alpha1.Connection) v1alpha1.Connection {
	there, ok := s.gateway(c.Cluster, c.Gateway)
	if !ok || stale(f, there) != "" {
		return v1alpha1.Connection{}
	}
	for _, k := range there.Status.Connections {
		if k.Cluster == cluster && k.Gateway == g.Name && k.Through == "" {
			return k
		}
	}
	return v1alpha1.Connection{}
}

// noIPsec says that a gateway cannot have cables by IPsec, whatever passes.
func noIPsec(c *v1alpha1.Connection) bool {
	return c.Reason == v1alpha1.ReasonNoIPsecContainer || c.Reason == v1alpha1.ReasonNoIPv6
}

func (s *snapshot) cableLeg(f *fleet, p *place, g *v1alpha1.Gateway, c *v1alpha1.Connection, port int32) checked {
	said := s.said(f, p.name, g, c)
	if why, who := c.Message, g.Name; noIPsec(c) || noIPsec(&said) {
		if !noIPsec(c) {
			why, who = said.Message, c.Gateway+" of "+c.Cluster
		}
		return p.says(subjectFirewall, verdictWarn, finding{
			expected: fmt.Sprintf("a cable by ipsec from %s to %s of %s, to see whether UDP %d passes", g.Name, c.Gateway,
				c.Cluster, port+netfacts.IPsecOffset),
			found:  "nothing is sent, as " + who + " says: " + why,
			remedy: "do what that says, and look again: no firewall is known to be in the way"})
	}
	here, there := c.Heard, said.Heard
	from, to := c.Gateway+" of "+c.Cluster, fmt.Sprintf("UDP %d of %s", cablePort(port, c.Link), placed(g))
	back := fmt.Sprintf("what %s sends to %s", g.Name, cmp.Or(c.Address, "it"))
	bad := finding{
		expected: fmt.Sprintf("packets from %s to arrive at %s", from, to),
		remedy: fmt.Sprintf("open %s to %s in the firewalls of both clusters' nodes and between them (%s), and see that the "+
			"address is right: %s", to, from, firewallsOf(of[*corev1.Node](p)), p.kubectl("get gateway %s -o yaml", g.Name)),
	}
	switch {
	case here == nil:
		bad.found = "it is too early to tell, or the node agent is of an older version; the tunnel is " + string(c.Status)
		bad.remedy = "look again in half a minute; diagnose connections says what is known"
		return p.says(subjectFirewall, verdictWarn, bad)
	case !*here && there == nil:
		bad.found = "nothing has arrived for 30 s; whether " + back + " arrives is not known"
	case !*here && *there:
		bad.found = "nothing has arrived for 30 s, and " + back + " arrives: this way alone is shut"
	case !*here:
		bad.found = "nothing has arrived for 30 s, and neither does " + back + ": both ways are shut"
	case there == nil:
		bad.expected = fmt.Sprintf("packets from %s to arrive at %s", g.Name, from)
		bad.found = "what that sends arrives here; whether " + back + " arrives is not known, and no probe is answered"
		bad.remedy = "open UDP to " + cmp.Or(c.Address, from) + " there, or look at the member itself: diagnose firewall " +
			"needs to ask both"
	case *there:
		bad.expected = "probes within the tunnel from " + g.Name + " to " + from + " to be answered"
		bad.found = "UDP passes both ways, and no probe is answered"
		bad.remedy = "see that no firewall of the two nodes drops ICMP on the links sl-c*, and the agents' logs"
	default:
		bad.expected = fmt.Sprintf("packets from %s to arrive at %s", g.Name, from)
		bad.found = "what that sends arrives here, and " + back + " does not arrive: this way alone is shut"
		bad.remedy = "open UDP to " + cmp.Or(c.Address, from) + " there, and on the way"
	}
	return p.says(subjectFirewall, verdictFail, bad)
}

// cablePort is where a gateway listens for the peers of a cable: the number of the link is the port's above the first.
func cablePort(first int32, link string) int32 {
	if plan.OfVXLAN(link) {
		return first + netfacts.VXLANCableOffset
	}
	if plan.OfIPsec(link) {
		return first + netfacts.IPsecOffset
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(link, plan.CablePrefix), 10, 32)
	if err != nil {
		return first
	}
	return first + int32(n)
}

// placed is a gateway with its addresses.
func placed(g *v1alpha1.Gateway) string {
	var addresses []string
	if g.Status.Endpoint != nil {
		for _, a := range g.Status.Endpoint.Addresses {
			addresses = append(addresses, a.IP)
		}
	}
	return fmt.Sprintf("%s (%s)", g.Name, cmp.Or(clip.List(addresses, 4), "no address"))
}

// overlayLegs are what does not arrive between the nodes of a member and its gateways.
func (p *place) overlayLegs(f *fleet, m *fleetMember, port int32) []checked {
	var out []checked
	var older []string
	for _, pod := range of[*corev1.Pod](p) {
		if pod.Labels["app.kubernetes.io/name"] != nodeAgentName || pod.DeletionTimestamp != nil {
			continue
		}
		reached := podCondition(pod, v1alpha1.PodGatewaysReached)
		switch {
		case reached == nil && podCondition(pod, v1alpha1.PodNodeProgrammed) != nil:
			older = append(older, pod.Spec.NodeName)
		case reached != nil && reached.Status == corev1.ConditionFalse:
			names := strings.Split(reached.Message, ",")
			for _, name := range names[:min(len(names), v1alpha1.MaxSlot+1)] {
				out = append(out, p.overlayLeg(f, m, pod.Spec.NodeName, name, port))
			}
		}
	}
	if len(older) > 0 {
		out = append(out, p.says(subjectFirewall, verdictWarn, finding{
			expected: "node agents that say which gateways of their cluster they reach",
			found:    "those on " + clip.List(older, 5) + " do not: they are of an older version",
			remedy:   "see diagnose versions"}))
	}
	return out
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// overlayLeg says which way between a node and a gateway of its cluster is shut.
func (p *place) overlayLeg(f *fleet, m *fleetMember, node, gateway string, port int32) checked {
	bad := finding{
		expected: fmt.Sprintf("gateway %s to answer what node %s sends over the overlay", gateway, node),
		remedy: fmt.Sprintf("open UDP %d between all nodes of the cluster, both ways (%s): %s", port,
			firewallsOf(of[*corev1.Node](p)), p.kubectl("get node %s %s -o wide", node, gateway)),
	}
	i := slices.IndexFunc(m.gateways, func(g v1alpha1.Gateway) bool { return g.Name == gateway })
	switch {
	case i < 0:
		bad.found = "it does not; there is no such gateway any more"
		return p.says(subjectFirewall, verdictWarn, bad)
	case stale(f, &m.gateways[i]) != "":
		bad.found = "it does not, and its agent is silent: " + stale(f, &m.gateways[i])
		bad.remedy = "see diagnose deployment, and the node " + gateway
	case slices.Contains(m.gateways[i].Status.UnheardNodes, node):
		bad.found = fmt.Sprintf("UDP %d from %s does not arrive at %s", port, node, gateway)
	case len(m.gateways[i].Status.UnheardNodes) >= v1alpha1.MaxUnheardNodes:
		bad.found = fmt.Sprintf("UDP %d does not pass; %s hears so many nodes no more that it does not name all", port,
			gateway)
	default:
		bad.found = fmt.Sprintf("UDP %d from %s arrives at %s, and the answers do not arrive at %s", port, node, gateway,
			node)
	}
	return p.says(subjectFirewall, verdictFail, bad)
}
