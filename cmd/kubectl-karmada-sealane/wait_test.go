// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestWhatPassesByItselfIsWaitedFor: install and join give up for what needs a person alone. A member whose block of
// global addresses is being recorded is not accepted for a moment, and is next.
func TestWhatPassesByItselfIsWaitedFor(t *testing.T) {
	for reason, refused := range map[string]bool{
		"":                                false,
		v1alpha1.ReasonWaitingForFacts:    false,
		v1alpha1.ReasonGlobalCIDRRecorded: false,
		v1alpha1.ReasonCIDROverlap:        true,
		v1alpha1.ReasonNotAllowed:         true,
		"OfALaterVersion":                 true,
	} {
		m := &v1alpha1.Member{Status: v1alpha1.MemberStatus{Conditions: []metav1.Condition{
			condition(v1alpha1.MemberAccepted, metav1.ConditionFalse, reason, "why")}}}
		if r := memberReadiness(m); r.ready || r.refused != refused {
			t.Errorf("%q: ready %t, refused %t (%s); want refused %t", reason, r.ready, r.refused, r.text, refused)
		}
	}
}
