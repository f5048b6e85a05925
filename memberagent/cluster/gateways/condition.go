// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// maxNamed is how many gateways a message names.
const maxNamed = 5

// Condition is v1alpha1.PeeringGatewaysReady: whether the nodes of the gateways are ready and their agents heard of.
// Labelled gateways are the administrator's to replace.
func Condition(nodes []corev1.Node, have []v1alpha1.Gateway) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.PeeringGatewaysReady, Status: metav1.ConditionFalse}
	byName := make(map[string]*corev1.Node, len(have))
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	well := 0
	var labelled, auto []string
	for i := range have {
		g := &have[i]
		n := byName[g.Name]
		if n == nil || g.DeletionTimestamp != nil {
			continue // it goes
		}
		var why string
		switch {
		case g.Status.SilentSince != nil:
			why = " (its agent is silent)"
		case !Ready(n):
			why = " (the node is not ready)"
		default:
			well++
			continue
		}
		if n.Labels[v1alpha1.LabelGateway] == "true" {
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
	return c
}
