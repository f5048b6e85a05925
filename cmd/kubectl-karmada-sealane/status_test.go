// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// inStatus is a fleet of one ClusterSet, whose members have conditions.
func inStatus(members map[string][]metav1.Condition) *fleet {
	f := &fleet{now: time.Now(), clusterSets: []v1alpha1.ClusterSet{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}}
	for _, name := range []string{"c1", "c2", "c3"} {
		if conditions, ok := members[name]; ok {
			m := v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: name}}
			m.Spec.ClusterSet, m.Status.Conditions = "default", conditions
			f.members = append(f.members, fleetMember{Member: m})
		}
	}
	f.clusterSets[0].Status.Members = int32(len(members))
	return f
}

// told is each part's state, and the messages of those that are open.
func told(all []standing) string {
	var out []string
	for _, s := range all {
		text := s.Name + "=" + s.State
		if s.State != stateOK {
			text += "(" + s.Message + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestWhereAllPartsStand(t *testing.T) {
	all := connected()
	for name, c := range map[string]struct {
		members   map[string][]metav1.Condition
		change    func(*fleet)
		condition string
		clusters  []string
		want      string
	}{
		"all is well": {members: map[string][]metav1.Condition{"c1": all, "c2": all}, condition: statusReady,
			want: "sealane-controller=ok default=ok c1=ok c2=ok"},
		"known, and that is all that is asked": {members: map[string][]metav1.Condition{"c1": all[:1]},
			condition: statusAccepted, want: "sealane-controller=ok default=ok c1=ok"},
		"known, and more is asked": {members: map[string][]metav1.Condition{"c1": all[:1]}, condition: statusConnected,
			want: "sealane-controller=ok default=ok c1=waiting(accepted, waiting for its tunnels)"},
		"connected, and its DNS is not asked for": {members: map[string][]metav1.Condition{"c1": all[:2]},
			condition: statusConnected, want: "sealane-controller=ok default=ok c1=ok"},
		"a pair is missing": {members: map[string][]metav1.Condition{"c1": all},
			change: func(f *fleet) { f.clusterSets[0].Status.Pairs = 3 }, condition: statusConnected,
			want: "sealane-controller=ok default=waiting(0 of 3 pairs of members are connected) c1=ok"},
		"no ClusterSet": {change: func(f *fleet) { f.clusterSets = nil }, condition: statusReady,
			want: "sealane-controller=ok =waiting(there is none)"},
		"no members": {condition: statusReady, want: "sealane-controller=ok default=waiting(has no members)"},
		"a member is yet to be taken in": {members: map[string][]metav1.Condition{"c1": all},
			change: func(f *fleet) { f.clusterSets[0].Status.Members = 3 }, condition: statusReady,
			want: "sealane-controller=ok default=waiting(waiting for 2 of 3 members to be taken in) c1=ok"},
		"a change is yet to be seen": {members: map[string][]metav1.Condition{"c1": all},
			change: func(f *fleet) { f.clusterSets[0].Generation = 2 }, condition: statusReady,
			want: "sealane-controller=ok default=waiting(waiting for the controller to see its last change) c1=ok"},
		"one that is asked for is no member yet": {members: map[string][]metav1.Condition{"c1": all},
			condition: statusReady, clusters: []string{"c9"},
			want: "sealane-controller=ok c9=waiting(waiting for the controller to take it in)"},
		"the controller is gone": {members: map[string][]metav1.Condition{"c1": all},
			change: func(f *fleet) { f.leaderSeen = f.now.Add(-time.Hour) }, condition: statusReady,
			want: "sealane-controller=waiting(no sealane-controller has renewed"},
		"new agents wait": {members: map[string][]metav1.Condition{"c1": all, "c2": all},
			change: func(f *fleet) {
				f.members[1].Status.RollOut = &v1alpha1.MemberRollOut{State: v1alpha1.RollOutWaiting, Message: "0 of 2 nodes"}
			}, condition: statusRolledOut,
			want: "sealane-controller=ok default=ok c1=ok c2=waiting(new node agents: 0 of 2 nodes)"},
		"new agents wait, and nobody asks": {members: map[string][]metav1.Condition{"c1": all},
			change: func(f *fleet) {
				f.members[0].Status.RollOut = &v1alpha1.MemberRollOut{State: v1alpha1.RollOutStopped}
			}, condition: statusReady, want: "sealane-controller=ok default=ok c1=ok"},
		"one is refused": {members: map[string][]metav1.Condition{"c1": {condition(v1alpha1.MemberAccepted,
			metav1.ConditionFalse, v1alpha1.ReasonCIDROverlap, "overlaps c2")}}, condition: statusAccepted,
			want: "sealane-controller=ok default=ok c1=refused(refused: overlaps c2)"},
	} {
		t.Run(name, func(t *testing.T) {
			f := inStatus(c.members)
			if c.change != nil {
				c.change(f)
			}
			if got := told(f.standings(c.condition, "", c.clusters)); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// TestStatusSaysWhatIsNotEncrypted of a ClusterSet that is well.
func TestStatusSaysWhatIsNotEncrypted(t *testing.T) {
	for pairs, want := range map[int32]string{0: "are connected",
		2: "are connected, 2 to be reached NOT ENCRYPTED, by vxlan"} {
		f := inStatus(map[string][]metav1.Condition{"c1": connected(), "c2": connected()})
		f.clusterSets[0].Status.UnencryptedPairs = pairs
		for _, s := range f.standings(statusReady, "", nil) {
			if s.Part == "ClusterSet" && (s.State != stateOK || !strings.HasSuffix(s.Message, want)) {
				t.Errorf("%d pairs: %s", pairs, s)
			}
		}
	}
}

// TestStatusWaits by a real API server: exit codes, what is said, and that a refusal ends it.
func TestStatusWaits(t *testing.T) {
	k := newKarmada(t)
	k.install(t, "-C", "c1,c2")
	k.report(t, []string{"c1", "c2"}, connected()[:1]...)
	k.succeeds(t, "status", "--wait=accepted")
	k.fails(t, []string{"c2: accepted, waiting for its tunnels"}, "status")
	k.fails(t, []string{"ready within 1s", "c1: accepted, waiting"}, "status", "--wait", "--timeout=1s")
	k.fails(t, []string{"waiting for the controller to take it in"}, "status", "-C", "c3")

	done := make(chan error, 1)
	go func() { done <- k.connect(t.Context(), "c1", "c2") }()
	out := k.succeeds(t, "status", "--wait", "--timeout=60s")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "member c1: accepted, waiting for its tunnels") || !strings.Contains(out, "STATE") {
		t.Errorf("says nothing of what it waited for, or has no table: %s", out)
	}
	if out := k.succeeds(t, "status", "-o", "json", "-C", "c1"); !strings.Contains(out, `"state": "ok"`) {
		t.Errorf("as JSON: %s", out)
	}
	k.report(t, []string{"c1"}, condition(v1alpha1.MemberAccepted, metav1.ConditionFalse, v1alpha1.ReasonCIDROverlap,
		"overlaps c2"))
	began := time.Now()
	k.fails(t, []string{"c1: refused: overlaps c2"}, "status", "--wait", "-C", "c1", "--timeout=60s")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("a refusal was waited for, %s", took)
	}
	if out := k.succeeds(t, "show", "networks", "-w", "--timeout=3s"); !strings.Contains(out, "c1") {
		t.Errorf("show -w: %s", out)
	}
}

// connect reports members as connected, after the wait has begun.
func (k *karmada) connect(ctx context.Context, names ...string) error {
	time.Sleep(time.Second) // that the wait sees the state of before, too
	for _, name := range names {
		var m v1alpha1.Member
		if err := k.Get(ctx, client.ObjectKey{Name: name}, &m); err != nil {
			return fmt.Errorf("get member %s: %w", name, err)
		}
		m.Status.Conditions = connected()
		if err := k.Status().Update(ctx, &m); err != nil {
			return fmt.Errorf("report member %s: %w", name, err)
		}
	}
	return nil
}

// TestPendingOnATerminal is one line, within its columns, drawn once a second, and taken away at the end.
func TestPendingOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newPending(&out)
	p.width = func() int { return 30 }
	for range 100 {
		p.show([]string{"member c1: waiting\nfor its tunnels", "member c2: waiting"})
	}
	p.clear()
	if got := out.String(); strings.Count(got, "\r") != 2 || strings.Contains(got, "\n") ||
		!strings.Contains(got, "waiting for 2: ") || len(got) > 29+len("\r\x1b[K\r\x1b[K") {
		t.Errorf("written: %q", got)
	}
}
