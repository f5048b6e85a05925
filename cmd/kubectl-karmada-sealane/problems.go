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

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// problemRow is something that needs a person's attention, wherever it is said.
type problemRow struct {
	// Cluster that it is about; empty for what concerns no single one.
	Cluster string `json:"cluster,omitempty"`
	// Object that says it, as "Kind name" or "Kind namespace/name".
	Object  string `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (r problemRow) cells() []string { return []string{r.Cluster, r.Object, r.Reason, r.Message} }

func problemTable(f *fleet) table {
	t := newTable("problems", problemRows(f), 4, "CLUSTER", "OBJECT", "REASON", "MESSAGE")
	t.within = f.within()
	return t
}

// Reasons of problems that no condition states.
const (
	reasonStale    = "Stale"
	reasonTunnel   = "NotConnected"
	reasonExport   = "Export"
	reasonConflict = "Conflict"
	reasonImport   = "Import"
	reasonService  = "Service"
)

// problemRows are the problems of the network, the largest scope first: the controller, ClusterSets, members, gateways
// and their tunnels; then those of services. With a namespace given there are only the controller's and those of its
// services.
func problemRows(f *fleet) []problemRow {
	var rows []problemRow
	if message := f.leaderless(); message != "" {
		rows = append(rows, problemRow{Object: "Lease " + v1alpha1.Namespace + "/" + controllerName,
			Reason: reasonController, Message: message})
	}
	if f.namespace == "" {
		for i := range f.clusterSets {
			rows = append(rows, clusterSetProblems(f, &f.clusterSets[i])...)
		}
		for i := range f.members {
			rows = append(rows, memberProblems(f, &f.members[i])...)
		}
	}
	rows = append(rows, serviceProblems(f)...)
	return withoutRepeats(rows)
}

// withoutRepeats keeps the first of several that say the same of one cluster: the broker sums up in a ClusterSet what
// its Members say.
func withoutRepeats(rows []problemRow) []problemRow {
	seen := map[[2]string]bool{}
	return slices.DeleteFunc(rows, func(r problemRow) bool {
		key := [2]string{r.Cluster, strings.TrimPrefix(r.Message, r.Cluster+" reports: ")}
		repeated := seen[key]
		seen[key] = true
		return repeated
	})
}

func clusterSetProblems(f *fleet, set *v1alpha1.ClusterSet) []problemRow {
	object := "ClusterSet " + set.Name
	var rows []problemRow
	for _, p := range set.Status.Problems {
		if len(f.only) == 0 || slices.Contains(f.only, p.Cluster) {
			rows = append(rows, problemRow{Cluster: p.Cluster, Object: object, Reason: p.Reason, Message: p.Message})
		}
	}
	for _, p := range set.Status.UnconnectedPairs {
		if len(f.only) == 0 || slices.Contains(f.only, p.Cluster) || slices.Contains(f.only, p.RemoteCluster) {
			rows = append(rows, problemRow{Cluster: p.Cluster, Object: object, Reason: p.Reason,
				Message: fmt.Sprintf("the pair %s and %s is %s: %s", p.Cluster, p.RemoteCluster, p.Status, p.Message)})
		}
	}
	if len(f.only) > 0 {
		return rows
	}
	if n := set.Status.UnlistedPairs; n > 0 {
		rows = append(rows, problemRow{Object: object, Reason: reasonTunnel,
			Message: fmt.Sprintf("%d more pairs of members are not connected", n)})
	}
	if set.Status.ObservedGeneration < set.Generation {
		rows = append(rows, problemRow{Object: object, Reason: reasonStale,
			Message: "the controller has not looked at its last change yet; see that sealane-controller runs"})
	}
	// What the rows above say in detail the conditions sum up.
	if len(set.Status.Problems) == 0 && len(set.Status.UnconnectedPairs) == 0 {
		rows = append(rows, conditionProblems("", object, set.Status.Conditions, besides(set)...)...)
	}
	return rows
}

// besides is what needs nobody though it is not so: members that get new node agents.
func besides(set *v1alpha1.ClusterSet) []string {
	if c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ClusterSetRolledOut); c != nil &&
		c.Reason == v1alpha1.ReasonRollingOut {
		return []string{c.Type}
	}
	return nil
}

// conditionProblems are conditions that are not True: all of ours are positive.
func conditionProblems(cluster, object string, conditions []metav1.Condition, besides ...string) []problemRow {
	var rows []problemRow
	for i := range conditions {
		c := &conditions[i]
		if c.Status == metav1.ConditionTrue || slices.Contains(besides, c.Type) {
			continue
		}
		message := strings.TrimSuffix(c.Type+"="+string(c.Status)+": "+c.Message, ": ")
		if c.Message != "" && c.Status == metav1.ConditionFalse {
			message = c.Message
		}
		rows = append(rows, problemRow{Cluster: cluster, Object: object, Reason: cmp.Or(c.Reason, c.Type), Message: message})
	}
	return rows
}

// pairsOf says whether a ClusterSet lists a pair that a cluster is one of as not connected.
func (f *fleet) pairsOf(cluster string) bool {
	return slices.ContainsFunc(f.clusterSets, func(set v1alpha1.ClusterSet) bool {
		return slices.ContainsFunc(set.Status.UnconnectedPairs, func(p v1alpha1.ClusterPair) bool {
			return p.Cluster == cluster || p.RemoteCluster == cluster
		})
	})
}

func memberProblems(f *fleet, m *fleetMember) []problemRow {
	object := "Member " + m.Name
	// That it has not cleaned its nodes is a problem of none that stays.
	besides := []string{v1alpha1.MemberCleaned}
	if f.pairsOf(m.Name) || m.Spec.Phase == v1alpha1.MemberLeaving {
		besides = append(besides, v1alpha1.MemberConnected)
	}
	rows := conditionProblems(m.Name, object, m.Status.Conditions, besides...)
	if m.err != nil {
		rows = append(rows, problemRow{Cluster: m.Name, Object: object, Reason: refusal(m.err),
			Message: "it could not be asked from here: " + m.err.Error()})
	}
	for i := range m.gateways {
		rows = append(rows, gatewayProblems(f, m.Name, &m.gateways[i])...)
	}
	return rows
}

func gatewayProblems(f *fleet, cluster string, g *v1alpha1.Gateway) []problemRow {
	object := "Gateway " + g.Name
	if begins(f, g) {
		return nil
	}
	if stale(f, g) != "" {
		return []problemRow{{Cluster: cluster, Object: object, Reason: reasonStale, Message: gatewaySummary(f, g)}}
	}
	var besides []string
	if replacesKey(f, g) {
		besides = append(besides, v1alpha1.GatewayKeyCurrent)
	}
	rows := conditionProblems(cluster, object, g.Status.Conditions, besides...)
	for i := range g.Status.Connections {
		c := &g.Status.Connections[i]
		if c.Status == v1alpha1.ConnectionConnected {
			continue
		}
		way := "the tunnel to " + c.Gateway + " of " + c.Cluster
		if c.Through != "" {
			way = "the way to " + c.Cluster + " through " + c.Through
		}
		rows = append(rows, problemRow{Cluster: cluster, Object: object, Reason: reasonTunnel,
			Message: strings.TrimSuffix(way+" is "+string(c.Status)+": "+c.Message, ": ")})
	}
	return rows
}

// keyReplaced is how long the replacement of a key may take before it is a problem: the others hear of a key within
// minutes.
const keyReplaced = time.Hour

// replacesKey says whether a gateway replaces its key, and nobody is needed for it yet.
func replacesKey(f *fleet, g *v1alpha1.Gateway) bool {
	c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.GatewayKeyCurrent)
	if c == nil || f.now.Sub(c.LastTransitionTime.Time) > keyReplaced {
		return false
	}
	return c.Reason == v1alpha1.ReasonKeyOffered || c.Reason == v1alpha1.ReasonKeyPromoted ||
		c.Reason == v1alpha1.ReasonKeyWaits
}

func serviceProblems(f *fleet) []problemRow {
	var rows []problemRow
	for _, service := range serviceRows(f) {
		name := service.Namespace + "/" + service.Name
		for _, e := range service.Clusters {
			if e.Conflict != "" {
				rows = append(rows,
					problemRow{Cluster: e.Cluster, Object: "ServiceExport " + name, Reason: reasonConflict, Message: e.Conflict})
			}
			if e.Message != "" {
				rows = append(rows,
					problemRow{Cluster: e.Cluster, Object: "ServiceExport " + name, Reason: reasonExport, Message: e.Message})
			}
		}
		for _, problem := range service.Problems {
			if !strings.HasPrefix(problem, importProblem) {
				rows = append(rows, problemRow{Object: "Service " + name, Reason: reasonService, Message: problem})
			}
		}
	}
	for _, im := range importRows(f) {
		if im.problem() {
			rows = append(rows, problemRow{Cluster: im.Cluster, Object: "ServiceImport " + im.Namespace + "/" + im.Name,
				Reason: reasonImport, Message: im.Message})
		}
	}
	return rows
}
