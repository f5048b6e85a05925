// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/reach"
)

// maxNamed is how many gateways a message names.
const maxNamed = 5

// Condition is v1alpha1.PeeringGatewaysReady: whether the nodes of the gateways are ready and their agents heard of,
// whether each labelled node is a gateway, and whether those that are labelled no more have been relieved. Labelled
// gateways are the administrator's to replace. Again is after what time it may be another although nothing has changed;
// 0 is never.
func Condition(nodes []corev1.Node, have []v1alpha1.Gateway, now time.Time) (c metav1.Condition, again time.Duration) {
	c = metav1.Condition{Type: v1alpha1.PeeringGatewaysReady, Status: metav1.ConditionFalse}
	byName := make(map[string]*corev1.Node, len(have))
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	well := 0
	gateways := map[string]bool{}
	var labelled, auto []string
	for i := range have {
		g := &have[i]
		n := byName[g.Name]
		if n == nil || g.DeletionTimestamp != nil {
			continue // it goes
		}
		gateways[g.Name] = true
		why, later := unwell(g, n, now)
		again = reach.Sooner(again, later)
		if why == "" {
			well++
			continue
		}
		if wants(n) {
			labelled = append(labelled, g.Name+why)
		} else {
			auto = append(auto, g.Name+why)
		}
	}
	slices.Sort(labelled)
	slices.Sort(auto)
	total := well + len(labelled) + len(auto)
	switch {
	case total == 0:
		c.Reason, c.Message = v1alpha1.ReasonNoGateway, "the cluster has no gateway: no node can be one"
	case len(labelled) > 0:
		c.Reason = v1alpha1.ReasonGatewaysNotReady
		c.Message = fmt.Sprintf(
			"%d of %d gateways are well, these are not: %s; they are not replaced, being labelled: repair "+
				"their nodes, or label others %s=true and take the label from these", well, total,
			clip.List(labelled, maxNamed), v1alpha1.LabelGateway)
	case well == 0:
		c.Reason = v1alpha1.ReasonGatewaysNotReady
		c.Message = fmt.Sprintf("no gateway is well: %s; another node takes its place as soon as one has been ready for "+
			"a minute", clip.List(auto, maxNamed))
	default:
		c.Status, c.Reason = metav1.ConditionTrue, "Ready"
		c.Message = fmt.Sprintf("%d of %d gateways are well", well, total)
		if len(auto) > 0 {
			c.Message += ", and the rest is being replaced"
		}
	}
	going, later := overdue(Input{Nodes: nodes, Have: have, Now: now})
	return withIgnored(withGoing(c, going), ignored(nodes, gateways)), reach.Sooner(again, later)
}

// withGoing adds the gateways that are labelled no more, and that no labelled one can relieve, to a condition.
func withGoing(c metav1.Condition, going []string) metav1.Condition {
	if len(going) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonGatewaysNotReady
	c.Message += fmt.Sprintf("; not labelled, and gateways until a labelled one is connected to all clusters that they "+
		"are connected to: %s; see why none is, or delete a Gateway of these to do without it", clip.List(going, maxNamed))
	return c
}

// unwell says in brackets why a gateway is not well; "" of one that is, or that is too young to tell, and then after
// what time to ask again.
func unwell(g *v1alpha1.Gateway, n *corev1.Node, now time.Time) (why string, again time.Duration) {
	switch {
	case g.Status.SilentSince != nil:
		return " (its agent is silent)", 0
	case !Ready(n):
		return " (the node is not ready)", 0
	case !hasAddress(n):
		return " (the node has no InternalIP)", 0
	case g.Status.ReportedAt != nil:
		return "", 0
	}
	if left := connectWithin - now.Sub(g.CreationTimestamp.Time); left > 0 {
		return "", left
	}
	return " (its agent has never reported: see the pods of " + v1alpha1.Namespace + " on the node)", 0
}

// hasAddress says that a node has an address that other nodes reach it by.
func hasAddress(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP
	})
}

// withIgnored adds the nodes whose label does not make them gateways to a condition.
func withIgnored(c metav1.Condition, nodes []string) metav1.Condition {
	if len(nodes) == 0 {
		return c
	}
	if c.Status == metav1.ConditionTrue {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonGatewayLabelIgnored
	}
	c.Message += "; labelled and no gateways: " + clip.List(nodes, maxNamed)
	return c
}

// ignored are the nodes whose label does not make them gateways, each with why, sorted.
func ignored(nodes []corev1.Node, gateways map[string]bool) []string {
	var out []string
	for i := range nodes {
		n := &nodes[i]
		value, ok := n.Labels[v1alpha1.LabelGateway]
		switch {
		case !ok, value == "false", n.DeletionTimestamp != nil:
		case value != gatewayLabel:
			out = append(out, fmt.Sprintf("%s (%s is %q, and not %q)", n.Name, v1alpha1.LabelGateway, value, gatewayLabel))
		case !usable(n):
			out = append(out, n.Name+" (it does not run Linux)")
		case !gateways[n.Name] && len(gateways) > v1alpha1.MaxSlot:
			out = append(out, fmt.Sprintf("%s (a cluster has %d gateways at most: take the label from one to make room)",
				n.Name, v1alpha1.MaxSlot+1))
		}
	}
	slices.Sort(out)
	return out
}
