// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
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

func describePolicy(p *v1alpha1.ServicePolicy) *policyRow {
	row := &policyRow{Choice: p.Spec.Choice.Text(), Accepted: string(metav1.ConditionUnknown)}
	if p.Spec.Importers != nil {
		row.Importers = p.Spec.Importers.Text()
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
