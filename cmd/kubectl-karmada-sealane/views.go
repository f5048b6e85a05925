// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/reach"
)

func clusterSetRows(f *fleet) []clusterSetRow {
	var rows []clusterSetRow
	for i := range f.clusterSets {
		cs := &f.clusterSets[i]
		row := clusterSetRow{
			Name: cs.Name, Members: cs.Status.Members, Accepted: cs.Status.AcceptedMembers,
			Connected: cs.Status.ConnectedMembers, Pairs: cs.Status.Pairs, ConnectedPairs: cs.Status.ConnectedPairs,
			Driver: string(cs.Spec.Cable.Driver), UnencryptedPairs: cs.Status.UnencryptedPairs, Domains: cs.Spec.DNS.Domains,
			Ready: conditionStatus(cs.Status.Conditions, v1alpha1.ClusterSetReady), Problems: cs.Status.Problems,
		}
		if message := f.leaderless(); message != "" {
			row.Ready = string(metav1.ConditionUnknown)
			row.Problems = append([]v1alpha1.Problem{{Reason: reasonController, Message: message}}, row.Problems...)
		}
		rows = append(rows, row)
	}
	return rows
}

func conditionStatus(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return string(c.Status)
	}
	return string(metav1.ConditionUnknown)
}

// connectionRows are the tunnels as the gateways measure them; for a member that cannot be asked, its
// connections as it last reported them to the broker.
func connectionRows(f *fleet) []connectionRow {
	var rows []connectionRow
	for i := range f.members {
		m := &f.members[i]
		if m.err != nil {
			rows = append(rows, reportedConnections(f, m)...)
			rows = append(rows, meshConnections(m)...)
			continue
		}
		for j := range m.gateways {
			g := &m.gateways[j]
			for k := range g.Status.Connections {
				rows = append(rows, connectionOf(f, m.Name, g, &g.Status.Connections[k]))
			}
		}
		rows = append(rows, meshConnections(m)...)
	}
	return rows
}

// meshConnections say, of each cluster whose nodes a member's connect to, or would by the pair's mode, which way
// traffic takes, as the member last reported it.
func meshConnections(m *fleetMember) []connectionRow {
	var rows []connectionRow
	for _, c := range m.Status.Connections {
		if c.NodePairs == 0 && c.Topology == "" {
			continue
		}
		rows = append(rows, connectionRow{Cluster: m.Name, RemoteCluster: c.Cluster, Link: plan.MeshLink,
			Active: c.StraightNodePairs > 0, Status: string(c.Status), Reason: c.TopologyReason,
			Message: cmp.Or(string(c.Topology), string(v1alpha1.TopologyMesh)) + ": " + wayOf(c)})
	}
	return rows
}

// wayOf says which way the packets of two clusters' pods take.
func wayOf(c v1alpha1.MemberConnection) string {
	switch c.TopologyReason {
	case "":
	case v1alpha1.ReasonTooManyNodes:
		return "by gateways, as the two clusters have too many nodes"
	case v1alpha1.ReasonMeshTooLarge:
		return "by gateways, as one of the clusters has enough nodes of others to connect to"
	case v1alpha1.ReasonNodeAddressesShared:
		return "by gateways, as a node of each has the same address: they are not in one network"
	case v1alpha1.ReasonNodeFamiliesDiffer:
		return "by gateways, as nodes of one have IPv4 and those of the other IPv6 addresses alone"
	case v1alpha1.ReasonGlobalAddresses:
		return "by gateways, which translate: one of the clusters knows the other by a block of global addresses"
	case v1alpha1.ReasonNodesNotPublished:
		return "by gateways, as one of the clusters publishes no node to connect to"
	default:
		return "by gateways"
	}
	switch {
	case c.NodePairs == 0 && c.Status == v1alpha1.ConnectionUnknown:
		return "not known"
	case c.NodePairs == 0:
		return "by gateways, as the member has not reported of its nodes yet"
	case c.StraightNodePairs == 0:
		return fmt.Sprintf(
			"by gateways, as none of %d pairs of nodes reach each other; they are tried again from time to time",
			c.NodePairs)
	case c.StraightNodePairs < c.NodePairs:
		return fmt.Sprintf("%d of %d pairs of nodes talk without gateways, the others by gateways", c.StraightNodePairs,
			c.NodePairs)
	}
	return fmt.Sprintf("%d of %d pairs of nodes talk without gateways", c.StraightNodePairs, c.NodePairs)
}

// reportedConnections are what the broker knows of a member's connections. Where no controller takes reports, what was
// measured is of the past.
func reportedConnections(f *fleet, m *fleetMember) []connectionRow {
	rows := []connectionRow{}
	taken := f.leaderless() == ""
	for _, c := range m.Status.Connections {
		message := "as last reported; " + m.unavailable()
		if c.Reason != "" {
			message = c.Reason + ", " + message
		}
		if c.Through != "" {
			message = "through " + c.Through + ", " + message
		}
		row := connectionRow{Cluster: m.Name, RemoteCluster: c.Cluster, Status: string(c.Status), Reason: c.Reason,
			Message: message, Through: c.Through}
		row.changed(c.LastTransitionTime, f.now)
		if taken && c.Status == v1alpha1.ConnectionConnected {
			row.Coarse = c.Measured
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		rows = append(rows, connectionRow{Cluster: m.Name, Status: refusal(m.err), Message: m.err.Error()})
	}
	return rows
}

func connectionOf(f *fleet, cluster string, g *v1alpha1.Gateway, c *v1alpha1.Connection) connectionRow {
	row := connectionRow{
		Cluster: cluster, Gateway: g.Name, RemoteCluster: c.Cluster, RemoteGateway: c.Gateway, Slot: c.Slot,
		Address: c.Address, NAT: c.NAT, Link: c.Link, Active: c.Active, Status: string(c.Status),
		RTT: c.RTT, LossPercent: &c.LossPercent, Traffic: c.Traffic, MTU: c.MTU, Reason: c.Reason, Message: c.Message,
		Cable: string(c.Cable), Algorithms: c.Algorithms, Through: c.Through,
	}
	switch c.Cable {
	case v1alpha1.CableVXLAN:
		row.Message = strings.TrimSuffix("NOT ENCRYPTED, by vxlan; "+c.Message, "; ")
	case v1alpha1.CableIPsec:
		row.Message = strings.TrimSuffix("by ipsec; "+c.Message, "; ")
	}
	if c.Through != "" {
		row.Message = strings.TrimSuffix("through "+c.Through+"; "+row.Message, "; ")
		row.LossPercent = nil // it is not measured
	}
	if why := stale(f, g); why != "" {
		row.Status, row.Reason, row.Message = string(v1alpha1.ConnectionUnknown), v1alpha1.ReasonAgentSilent, why
		row.UnknownSince = unknownSince(f, g)
		row.Active, row.RTT, row.LossPercent, row.Traffic, row.Algorithms = false, nil, nil, nil, ""
		row.changed(lastHeard(g), f.now)
		return row
	}
	row.changed(c.LastTransitionTime, f.now)
	return row
}

// changed says when the status of a row last changed; nil if that is not known.
func (r *connectionRow) changed(at *metav1.Time, now time.Time) {
	if at == nil {
		return
	}
	r.LastTransitionTime = at.UTC().Format(time.RFC3339)
	r.age = duration.HumanDuration(max(now.Sub(at.Time), 0)) // of a clock that is ahead
}

// stale says why what a Gateway reports is unknown; "" if it is not.
func stale(f *fleet, g *v1alpha1.Gateway) string {
	age := func(t metav1.Time) string { return f.now.Sub(t.Time).Round(time.Second).String() }
	switch {
	case g.Status.SilentSince != nil:
		return "the node agent has not been heard of for " + age(*g.Status.SilentSince)
	case g.Status.ReportedAt == nil:
		return "has not reported yet"
	case !reach.Fresh(g, f.now):
		return "last report " + age(*g.Status.ReportedAt) + " ago"
	}
	return ""
}

// begins says that a node has only just been made a gateway, so that its agent owes no report yet. One whose agent does
// not run is marked as silent long before.
func begins(f *fleet, g *v1alpha1.Gateway) bool {
	return g.Status.ReportedAt == nil && g.Status.SilentSince == nil &&
		f.now.Sub(g.CreationTimestamp.Time) < reach.ReportLifetime
}

// unknownSince is from when on it is not known what a Gateway does, by RFC 3339; "" if it is known, or never was.
func unknownSince(f *fleet, g *v1alpha1.Gateway) string {
	if at := lastHeard(g); at != nil && stale(f, g) != "" {
		return at.UTC().Format(time.RFC3339)
	}
	return ""
}

// lastHeard is when a Gateway's agent was last heard of, as far as is known; nil if it never was.
func lastHeard(g *v1alpha1.Gateway) *metav1.Time {
	if g.Status.SilentSince != nil {
		return g.Status.SilentSince
	}
	return g.Status.ReportedAt
}

func endpointRows(f *fleet) []endpointRow {
	var rows []endpointRow
	for i := range f.members {
		m := &f.members[i]
		for _, e := range m.Status.Endpoints {
			row := endpointRow{Cluster: m.Name, Gateway: e.Gateway, Slot: e.Slot, PublicKey: e.PublicKey, MTU: e.MTU}
			for _, a := range e.Addresses {
				row.Addresses = append(row.Addresses, addressRow{Type: string(a.Type), IP: a.IP})
			}
			for _, o := range e.Observed {
				row.Addresses = append(row.Addresses, addressRow{Type: typeObserved, IP: o.IP, Port: o.Port})
			}
			for j := range m.gateways {
				if m.gateways[j].Name == e.Gateway {
					row.Implementation = string(m.gateways[j].Status.Implementation)
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func gatewayRows(f *fleet) []gatewayRow {
	var rows []gatewayRow
	for i := range f.members {
		m := &f.members[i]
		if m.err != nil {
			rows = append(rows, gatewayRow{Cluster: m.Name, HAState: refusal(m.err), Summary: m.err.Error()})
			continue
		}
		for j := range m.gateways {
			g := &m.gateways[j]
			row := gatewayRow{
				Cluster: m.Name, Gateway: g.Name, Slot: g.Spec.Slot, HAState: string(g.Status.HAState),
				Implementation: string(g.Status.Implementation), Version: g.Status.Version,
				Ready:   conditionStatus(g.Status.Conditions, v1alpha1.GatewayReady),
				Summary: gatewaySummary(f, g), Key: keyPhase(g), FlowHash: string(g.Status.FlowHash),
			}
			if k := g.Status.Keys; k != nil {
				row.KeyMadeAt = k.MadeAt.UTC().Format(time.RFC3339)
			}
			if stale(f, g) != "" {
				row.HAState, row.Ready = string(metav1.ConditionUnknown), string(metav1.ConditionUnknown)
				row.UnknownSince = unknownSince(f, g)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// keyPhase says where a gateway stands in replacing its key.
func keyPhase(g *v1alpha1.Gateway) string {
	k := g.Status.Keys
	switch {
	case k == nil:
		return ""
	case k.Phase == v1alpha1.KeyOffered, k.Phase == v1alpha1.KeyPromoted:
		return fmt.Sprintf("%s, %d of %d moved", k.Phase, k.Moved, k.Peers)
	}
	return string(k.Phase)
}

// gatewaySummary counts a gateway's tunnels.
func gatewaySummary(f *fleet, g *v1alpha1.Gateway) string {
	if why := stale(f, g); why != "" {
		return why
	}
	if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.GatewayReady); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.Message
	}
	up := 0
	for i := range g.Status.Connections {
		if g.Status.Connections[i].Status == v1alpha1.ConnectionConnected {
			up++
		}
	}
	return fmt.Sprintf("%d of %d connections are up", up, len(g.Status.Connections))
}

// rollOutRows are where members stand with new node agents, those first that others wait for.
func rollOutRows(f *fleet) []rollOutRow {
	rank := []v1alpha1.RollOutState{v1alpha1.RollOutStopped, v1alpha1.RollOutInTurn, v1alpha1.RollOutWaiting,
		v1alpha1.RollOutDone}
	rows := absentCanaries(f)
	for i := range f.members {
		m := &f.members[i]
		r := m.Status.RollOut
		if r == nil {
			rows = append(rows, rollOutRow{Cluster: m.Name, State: string(metav1.ConditionUnknown),
				Message: "the member tells nothing of its node agents: they take over when they can"})
			continue
		}
		row := rollOutRow{Cluster: m.Name, State: string(r.State), Updated: r.Report.Updated, Nodes: r.Report.Nodes,
			Message: r.Message, Revision: r.Report.Revision, LastNode: r.Report.LastNode}
		if r.State != v1alpha1.RollOutDone {
			row.Since = f.now.Sub(r.ProgressedAt.Time).Round(time.Second).String()
		}
		rows = append(rows, row)
	}
	place := func(r rollOutRow) int { return slices.Index(rank, v1alpha1.RollOutState(r.State)) }
	slices.SortStableFunc(rows, func(a, b rollOutRow) int { return cmp.Compare(place(a), place(b)) })
	return rows
}

// stateNotMember is the state of a canary that is no member, of whom there is no record.
const stateNotMember = "NotMember"

// absentCanaries are the clusters that ClusterSets name as canaries and that are no members of them.
func absentCanaries(f *fleet) []rollOutRow {
	var rows []rollOutRow
	for i := range f.clusterSets {
		set := &f.clusterSets[i]
		canary := set.Spec.RollOut.Canary
		m := f.member(canary)
		if canary == "" || m != nil && m.Spec.ClusterSet == set.Name ||
			len(f.only) > 0 && !slices.Contains(f.only, canary) {
			continue
		}
		rows = append(rows, rollOutRow{Cluster: canary, State: stateNotMember, Message: "the canary of ClusterSet " +
			set.Name + " by spec.rollOut.canary, and no member of it: the first member by name is the canary"})
	}
	return rows
}

func networkRows(f *fleet) []networkRow {
	var rows []networkRow
	for i := range f.members {
		m := &f.members[i]
		row := networkRow{
			Cluster: m.Name, ClusterSet: m.Spec.ClusterSet, PodCIDRs: m.Status.Networks.PodCIDRs,
			ServiceCIDRs: m.Status.Networks.ServiceCIDRs, NodeCIDRs: m.Status.NodeCIDRs,
			GlobalCIDR: m.Status.GlobalCIDR, GlobalIPv6CIDR: m.Status.GlobalIPv6CIDR,
			GlobalScope: string(m.Status.GlobalScope), OverlappingClusters: m.Status.OverlappingClusters,
			Accepted: string(metav1.ConditionUnknown),
		}
		if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MemberAccepted); c != nil {
			row.Accepted = string(c.Status)
			if c.Status != metav1.ConditionTrue {
				row.Message = c.Message
			}
		}
		if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.PeeringPodsRouted); c != nil &&
			c.Status == metav1.ConditionFalse && row.Message == "" {
			row.Message = c.Message
		}
		if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.PeeringNodesProgrammed); c != nil &&
			row.Message == "" {
			row.Message = c.Message
		}
		rows = append(rows, row)
	}
	return rows
}

func ports(list []v1alpha1.ServicePort) []string {
	out := make([]string, 0, len(list))
	for _, p := range list {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%s:%d/%s", p.Name, p.Port, p.Protocol), ":"))
	}
	return out
}
