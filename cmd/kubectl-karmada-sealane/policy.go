// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// policyRow is the ServicePolicy of a service.
type policyRow struct {
	Choice    string `json:"choice,omitempty"`
	Importers string `json:"importers,omitempty"`
	Accepted  string `json:"accepted"`
	Message   string `json:"message,omitempty"`
}

func (p *policyRow) text() string {
	if p == nil {
		return ""
	}
	parts := []string{p.Choice}
	if p.Importers != "" {
		parts = append(parts, "importers "+p.Importers)
	}
	text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
	if p.Accepted != string(metav1.ConditionTrue) {
		text += " (accepted: " + p.Accepted + ")"
	}
	return strings.TrimSpace(text)
}

// scopeAll is the scope that nothing narrows.
const scopeAll = "all"

// describeScope tells who imports.
func describeScope(s *v1alpha1.ImportScope) string {
	if s == nil {
		return scopeAll
	}
	parts := slices.Clone(s.ClusterNames)
	if s.ClusterSelector != nil {
		parts = append(parts, "labels "+strconv.Quote(metav1.FormatLabelSelector(s.ClusterSelector)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ",")
}

func describePolicy(p *v1alpha1.ServicePolicy) *policyRow {
	row := &policyRow{Choice: describeChoice(p.Spec.Choice), Accepted: string(metav1.ConditionUnknown)}
	if p.Spec.Importers != nil {
		row.Importers = describeScope(p.Spec.Importers)
	}
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ServicePolicyAccepted)
	switch {
	case c == nil:
		row.Message = "the controller has not looked at it yet"
	case c.ObservedGeneration < p.Generation:
		row.Accepted, row.Message = string(metav1.ConditionUnknown), "the controller has not looked at its last change yet"
	default:
		row.Accepted = string(c.Status)
		if c.Status != metav1.ConditionTrue {
			row.Message = reasoned(c)
		}
	}
	return row
}

// describeChoice writes "failover Local>c2, at least 3 backends" or "weights c1=3,c2=1".
func describeChoice(c *v1alpha1.ClusterChoice) string {
	switch {
	case c == nil:
		return ""
	case c.Failover != nil:
		text := "failover " + strings.Join(c.Failover.Clusters, ">")
		if n := c.Failover.MinReadyBackends; n > 1 {
			text += fmt.Sprintf(" at %d backends", n)
		}
		return text
	case len(c.Weights) > 0:
		parts := make([]string, 0, len(c.Weights))
		for _, w := range c.Weights {
			parts = append(parts, w.Cluster+"="+number(w.Weight))
		}
		return "weights " + list(parts)
	}
	return ""
}
