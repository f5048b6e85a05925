// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

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

// TestRotateKeysWaits until the gateway has one key, which was made since it was asked for, and says how far it is.
func TestRotateKeysWaits(t *testing.T) {
	k := newKarmada(t)
	k.proxied(t)
	k.install(t)
	k.report(t, []string{"c1"})
	crds, err := memberCRDs()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.apply(t.Context(), crds...); err != nil {
		t.Fatal(err)
	}
	gateway := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gw"}}
	k.create(t, gateway)
	defer func() { _ = k.Delete(context.WithoutCancel(t.Context()), gateway) }()
	becomes := func(phase v1alpha1.KeyPhase, madeAt time.Time, message string) {
		t.Helper()
		k.get(t, gateway)
		reported := metav1.Now()
		c := metav1.Condition{Type: v1alpha1.GatewayKeyCurrent, Status: metav1.ConditionFalse, Reason: "Test",
			Message: message, LastTransitionTime: reported}
		gateway.Status.ReportedAt, gateway.Status.Conditions = &reported, []metav1.Condition{c}
		gateway.Status.Keys = &v1alpha1.GatewayKeys{Phase: phase, MadeAt: metav1.NewTime(madeAt), Peers: 1}
		if err := k.Status().Update(t.Context(), gateway); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-time.Hour)
	becomes(v1alpha1.KeyCurrent, before, "one key")
	var out transcript
	done := make(chan int, 1)
	go func() {
		done <- run([]string{"kubectl-karmada-sealane", "--kubeconfig=" + k.kubeconfig, "--karmada-context=karmada",
			"--timeout=3m", "rotate-keys", "c1"}, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out})
	}()
	says := func(words string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if until(ctx, func(context.Context) (bool, error) { return out.says(words), nil }) != nil {
			t.Fatalf("rotate-keys does not say %q next: %s", words, &out.text)
		}
	}
	says("c1: asked for new keys")
	says("c1/gw: has not heard of the request")
	m := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	k.get(t, m)
	asked, err := time.Parse(time.RFC3339, m.Annotations[v1alpha1.AnnotationRotateKeys])
	if err != nil {
		t.Fatal(err)
	}
	again := func(flag string, words ...string) {
		t.Helper()
		text, code := k.plugin(t, "rotate-keys", "c1", flag)
		for _, word := range append(words, "not asked anew", "since "+asked.Format(time.RFC3339)) {
			if code == 0 || !strings.Contains(text, word) {
				t.Errorf("rotate-keys again: exit code %d, does not say %q: %s", code, word, text)
			}
		}
		if k.get(t, m); m.Annotations[v1alpha1.AnnotationRotateKeys] != asked.Format(time.RFC3339) {
			t.Errorf("asked anew for keys of %s", m.Annotations[v1alpha1.AnnotationRotateKeys])
		}
	}
	again("--wait=false", "c1/gw: has not heard of the request", "expected gateways that do not replace")
	becomes(v1alpha1.KeyOffered, before, "0 of 1 have moved")
	says("c1/gw: Offered: 0 of 1 have moved")
	again("--wait=false", "c1/gw: Offered: 0 of 1 have moved", "expected gateways that do not replace")
	again("--timeout=2s", "c1/gw: Offered: 0 of 1 have moved", "to have a new key within 2s")
	becomes(v1alpha1.KeyPromoted, asked, "1 of 1 use the new key")
	says("c1/gw: Promoted: 1 of 1 use the new key")
	select {
	case code := <-done:
		t.Fatalf("rotate-keys has ended before the former key is of no use any more: exit code %d", code)
	default:
	}
	becomes(v1alpha1.KeyCurrent, asked, "one key")
	says("c1/gw: has its new key")
	says("every gateway has its new key, and no other cluster uses a former one")
	if code := <-done; code != 0 {
		t.Errorf("exit code %d, expected 0", code)
	}
	k.succeeds(t, "rotate-keys", "c1", "--wait=false")
	if k.get(t, m); m.Annotations[v1alpha1.AnnotationRotateKeys] == asked.Format(time.RFC3339) {
		t.Error("the next request, after the keys were replaced, asks for nothing")
	}
}

// TestKeysThatAreReplacedAlready: gateways do so by their age, too, without anybody having asked.
func TestKeysThatAreReplacedAlready(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fleetMember, *v1alpha1.GatewayStatus)
		want   string
	}{
		"offered, by age": {func(_ *fleetMember, s *v1alpha1.GatewayStatus) {
			at := metav1.NewTime(twoAndLost().now.Add(-time.Hour))
			s.Keys.Since = &at
		}, "its gateways replace their keys already, since 2026-01-02T02:04:05Z; c1/c1-gw: Offered"},
		"current": {func(_ *fleetMember, s *v1alpha1.GatewayStatus) { s.Keys.Phase = v1alpha1.KeyCurrent }, ""},
		"asked for, and silent": {func(m *fleetMember, s *v1alpha1.GatewayStatus) {
			m.Annotations = map[string]string{v1alpha1.AnnotationRotateKeys: "2026-01-02T03:00:00Z"}
			s.Keys.Phase, s.ReportedAt = v1alpha1.KeyCurrent, nil
		}, "since 2026-01-02T03:00:00Z; c1/c1-gw: begins or goes on when it is back: has not reported yet"},
		"done": {func(m *fleetMember, s *v1alpha1.GatewayStatus) {
			m.Annotations = map[string]string{v1alpha1.AnnotationRotateKeys: "2026-01-02T02:00:00Z"}
			s.Keys.Phase = v1alpha1.KeyCurrent
		}, ""},
		"an agent that replaces none": {func(_ *fleetMember, s *v1alpha1.GatewayStatus) { s.Keys = nil }, ""},
		"not reached":                 {func(m *fleetMember, _ *v1alpha1.GatewayStatus) { m.err = errors.New("late") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := twoAndLost()
			m := &f.members[0]
			c.change(m, &m.gateways[0].Status)
			if got := underWay(f, m); !strings.HasSuffix(got, c.want) && !strings.HasPrefix(got, c.want) ||
				(got == "") != (c.want == "") {
				t.Errorf("says %q, want %q", got, c.want)
			}
		})
	}
}

// transcript is what a command has said so far, while it runs.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// says whether it contains words, and goes on after them if so.
func (s *transcript) says(words string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := strings.Index(s.text.String(), words)
	if i >= 0 {
		s.text.Next(i + len(words))
	}
	return i >= 0
}
