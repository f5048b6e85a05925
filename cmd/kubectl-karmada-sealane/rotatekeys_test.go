// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestRotationOf(t *testing.T) {
	f := twoAndLost()
	asked := f.now.Add(-time.Minute)
	const waits = "1 of 2 gateways have moved; waiting for c2/c2-gw"
	for _, c := range []struct {
		name   string
		change func(*fleetMember, *v1alpha1.GatewayStatus)
		text   string
		done   bool
	}{
		{"before it has heard", func(_ *fleetMember, s *v1alpha1.GatewayStatus) { s.Keys.Phase = v1alpha1.KeyCurrent },
			"has not heard of the request", false},
		{"offered", func(_ *fleetMember, s *v1alpha1.GatewayStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.GatewayKeyCurrent,
				Status: metav1.ConditionFalse, Message: waits})
		}, "Offered: " + waits, false},
		{"promoted", func(_ *fleetMember, s *v1alpha1.GatewayStatus) {
			s.Keys.Phase, s.Keys.MadeAt = v1alpha1.KeyPromoted, metav1.NewTime(f.now)
		}, "Promoted", false},
		{"new", func(_ *fleetMember, s *v1alpha1.GatewayStatus) {
			s.Keys.Phase, s.Keys.MadeAt = v1alpha1.KeyCurrent, metav1.NewTime(asked)
		}, "has its new key", true},
		{"silent", func(_ *fleetMember, s *v1alpha1.GatewayStatus) {
			at := metav1.NewTime(f.now.Add(-time.Hour))
			s.Keys.Phase, s.SilentSince = v1alpha1.KeyCurrent, &at
		}, "when it is back: the node agent has not been heard of for 1h", false},
		{"silent, though with a new key", func(_ *fleetMember, s *v1alpha1.GatewayStatus) {
			at := metav1.NewTime(f.now.Add(-time.Hour))
			s.Keys.Phase, s.Keys.MadeAt, s.SilentSince = v1alpha1.KeyCurrent, metav1.NewTime(f.now), &at
		}, "when it is back", false},
		{"of a former version", func(_ *fleetMember, s *v1alpha1.GatewayStatus) { s.Keys = nil }, "upgrade it", false},
		{"not asked", func(m *fleetMember, _ *v1alpha1.GatewayStatus) { m.err = errors.New("no route") },
			"not known: ", false},
		{"without a gateway", func(m *fleetMember, _ *v1alpha1.GatewayStatus) { m.gateways = nil }, "has no gateway", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := connectedMember(f.now, "c1", "c2", "10.8.0.0/16", "10.88.0.0/16", "172.30.1.11")
			c.change(&m, &m.gateways[0].Status)
			got := rotationOf(f, &m, asked)
			if len(got) != 1 || !strings.Contains(got[0].text, c.text) || got[0].done != c.done {
				t.Errorf("found %+v, want %q, done %t", got, c.text, c.done)
			}
		})
	}
}

func TestRotateKeys(t *testing.T) {
	k := newKarmada(t)
	k.install(t)
	k.report(t, []string{"c1"})
	k.fails(t, []string{`"c7"`, "members: [c1]"}, "rotate-keys", "c7")
	last := time.Now()
	for range 2 { // within a second
		k.succeeds(t, "rotate-keys", "--wait=false")
		m := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
		k.get(t, m)
		at, err := time.Parse(time.RFC3339, m.Annotations[v1alpha1.AnnotationRotateKeys])
		if err != nil || !at.After(last) {
			t.Errorf("asked for keys of %v, want a time after %v: %v", at, last, err)
		}
		last = at
	}
	k.fails(t, []string{"c1: not known"}, "rotate-keys", "c1", "--timeout=2s")
}
