// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/reach"
)

// picture is the map of a snapshot: the rows of show, and the checks of diagnose that are not ok.
func (s *snapshot) picture() ui.Map {
	f := s.fleet()
	checks := s.check(diagnoseSubjects()...)
	m := ui.Map{Taken: s.taken.UTC().Format(time.RFC3339), Clusters: mapClusters(f, checks), Edges: mapEdges(f),
		Services: mapServices(f)}
	if domains := f.domains(); len(domains) > 0 {
		m.Domain = domains[0]
	}
	for _, c := range checks {
		if c.Verdict != verdictOK {
			m.Problems = append(m.Problems, ui.Problem{Cluster: c.Cluster, Check: c.Name, Verdict: string(c.Verdict),
				Expected: c.Expected, Found: c.Found, Remedy: c.Remedy})
		}
	}
	return m.Bounded()
}

func mapClusters(f *fleet, checks []checked) []ui.Cluster {
	verdicts := map[string]verdict{}
	for _, v := range byCluster(checks) {
		verdicts[v.Cluster] = v.Verdict
	}
	at := map[string]*ui.Cluster{}
	for _, row := range networkRows(f) {
		at[row.Cluster] = &ui.Cluster{Name: row.Cluster, Set: row.ClusterSet, Accepted: row.Accepted, Message: row.Message,
			Pods: row.PodCIDRs, Services: row.ServiceCIDRs, Verdict: string(cmp.Or(verdicts[row.Cluster], verdictOK)),
			Global: slices.DeleteFunc([]string{row.GlobalCIDR, row.GlobalIPv6CIDR}, func(s string) bool { return s == "" })}
	}
	for _, row := range gatewayRows(f) {
		if c := at[row.Cluster]; c != nil && row.Gateway != "" {
			c.Gateways = append(c.Gateways, ui.Gateway{Name: row.Gateway, Slot: row.Slot, HA: row.HAState, Ready: row.Ready,
				Cable: row.Implementation, Key: row.Key, Version: row.Version, Summary: row.Summary})
		}
	}
	var out []ui.Cluster
	for i := range f.members {
		m := &f.members[i]
		if c := at[m.Name]; c != nil {
			if m.err != nil {
				c.Unasked = m.err.Error()
			}
			out = append(out, *c)
		}
	}
	return out
}

// mapEdges are those between members that are to be connected, and between others that report of each other.
func mapEdges(f *fleet) []ui.Edge {
	edges := map[[2]string]*ui.Edge{}
	rows := map[[2]string][]connectionRow{}
	for _, row := range connectionRows(f) {
		if row.RemoteCluster != "" {
			key := pairKey(row.Cluster, row.RemoteCluster)
			rows[key] = append(rows[key], row)
		}
	}
	reports := map[string]map[string]v1alpha1.ConnectionStatus{}
	for i := range f.members {
		reports[f.members[i].Name] = reportedBy(f, &f.members[i])
	}
	for i := range f.members {
		for j := range f.members[:i] {
			a, b := &f.members[j], &f.members[i]
			key := pairKey(a.Name, b.Name)
			belongs := a.Spec.ClusterSet == b.Spec.ClusterSet && toBeConnected(a) && toBeConnected(b)
			if !belongs && len(rows[key]) == 0 {
				continue
			}
			edges[key] = mapEdge(key, worseOf(reports[a.Name][b.Name], reports[b.Name][a.Name]), rows[key])
		}
	}
	out := make([]ui.Edge, 0, len(edges))
	for _, e := range edges {
		out = append(out, *e)
	}
	return out
}

func pairKey(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// toBeConnected says whether a member is one that the others connect to.
func toBeConnected(m *fleetMember) bool {
	return m.Spec.Phase != v1alpha1.MemberLeaving &&
		conditionStatus(m.Status.Conditions, v1alpha1.MemberAccepted) == string(metav1.ConditionTrue)
}

// reportedBy is what a member says of each other one: its gateways, or where it could not be asked its last report.
func reportedBy(f *fleet, m *fleetMember) map[string]v1alpha1.ConnectionStatus {
	if m.err == nil {
		return reach.Reports(m.gateways, f.now)
	}
	out := map[string]v1alpha1.ConnectionStatus{}
	for _, c := range m.Status.Connections {
		out[c.Cluster] = c.Status
	}
	return out
}

// worseOf is how two clusters are connected by what each reports; "" is nothing.
func worseOf(a, b v1alpha1.ConnectionStatus) v1alpha1.ConnectionStatus {
	a, b = cmp.Or(a, v1alpha1.ConnectionUnknown), cmp.Or(b, v1alpha1.ConnectionUnknown)
	if reach.Badness(b) < reach.Badness(a) {
		return b
	}
	return a
}

func mapEdge(key [2]string, status v1alpha1.ConnectionStatus, rows []connectionRow) *ui.Edge {
	e := &ui.Edge{A: key[0], B: key[1], State: ui.Unknown}
	impaired := false
	for _, row := range rows {
		if row.Link == plan.MeshLink {
			e.Ways = append(e.Ways, row.Cluster+": "+row.Message)
			continue
		}
		if way := row.Cluster + ": through " + row.Through; row.Through != "" && !slices.Contains(e.Ways, way) {
			e.Ways = append(e.Ways, way)
		}
		t := mapTunnel(row)
		e.Tunnels = append(e.Tunnels, t)
		up := row.Status == string(v1alpha1.ConnectionConnected)
		impaired = impaired || !up
		if !up || !t.Carries && !t.Rounded {
			continue
		}
		if t.RTT != nil && (e.RTT == nil || *t.RTT > *e.RTT) {
			e.RTT = t.RTT
		}
		if t.Loss != nil && (e.Loss == nil || *t.Loss > *e.Loss) {
			e.Loss = t.Loss
		}
		impaired = impaired || t.Loss != nil && *t.Loss >= lossWarned
	}
	switch status {
	case v1alpha1.ConnectionConnected:
		e.State = ui.Connected
		if impaired {
			e.State = ui.Impaired
		}
	case v1alpha1.ConnectionConnecting:
		e.State = ui.Connecting
	case v1alpha1.ConnectionError:
		e.State = ui.Down
	}
	return e
}

func mapTunnel(row connectionRow) ui.Tunnel {
	t := ui.Tunnel{From: row.Cluster, Gateway: row.Gateway, RemoteGateway: row.RemoteGateway, Status: row.Status,
		Since: row.LastTransitionTime, Carries: row.Active, Address: row.Address, NAT: row.NAT, Loss: row.LossPercent,
		MTU: row.MTU, Message: row.Message}
	if row.RTT != nil {
		t.RTT = &row.RTT.Avg
	}
	traffic, mark := row.Traffic, ""
	if c := row.Coarse; c != nil {
		t.Rounded, t.Loss, traffic, mark = true, &c.LossPercent, c.Traffic, about
		if c.RTTMicroseconds > 0 {
			t.RTT = &c.RTTMicroseconds
		}
	}
	if traffic != nil {
		t.Received = mark + perSecond(traffic.ReceivedBytesPerSecond)
		t.Sent = mark + perSecond(traffic.SentBytesPerSecond)
	}
	return t
}

func mapServices(f *fleet) []ui.Service {
	used := map[string][]ui.Import{}
	for _, row := range importRows(f) {
		im := ui.Import{Cluster: row.Cluster, Ready: row.Ready, IPs: row.IPs, Message: row.Message}
		for _, cluster := range slices.Sorted(maps.Keys(row.Endpoints)) {
			im.Served = append(im.Served, ui.Serving{Cluster: cluster, Endpoints: row.Endpoints[cluster]})
		}
		key := row.Namespace + "/" + row.Name
		used[key] = append(used[key], im)
	}
	var out []ui.Service
	for _, row := range serviceRows(f) {
		service := ui.Service{Namespace: row.Namespace, Name: row.Name, Type: row.Type, Mode: row.Mode,
			Policy: row.Policy.text(), Ports: row.Ports, Problems: row.Problems, Imports: used[row.Namespace+"/"+row.Name]}
		for _, e := range row.Clusters {
			export := ui.Export{Cluster: e.Cluster, State: string(e.State), Message: cmp.Or(e.Conflict, e.Message)}
			if e.Conflict != "" && e.Message != "" {
				export.Message = e.Conflict + "; " + e.Message
			}
			if e.ReadyBackends != nil {
				export.Backends = backendCount(*e.ReadyBackends, row.Type)
			}
			service.Exports = append(service.Exports, export)
		}
		out = append(out, service)
	}
	return out
}
