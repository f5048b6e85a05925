// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

func TestDecideKey(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	asked := func(d time.Duration) v1alpha1.PeeringKeys {
		at := metav1.NewTime(ago(d))
		return v1alpha1.PeeringKeys{NotBefore: &at}
	}
	moved, here := keyPeer{name: "c2/a", moved: true}, keyPeer{name: "c3/b"}
	gone := func(d time.Duration) keyPeer { return keyPeer{name: "c4/c", absent: ago(d)} }
	const offered, promoted = topology.Offered, topology.Promoted
	const day = 24 * time.Hour
	for _, c := range []struct {
		name               string
		s                  keyState
		step               keyStep
		reason             string
		waiting, abandoned []string
	}{
		{"nobody asks", keyState{madeAt: ago(1000 * day)}, keyStay, v1alpha1.ReasonKeyCurrent, nil, nil},
		{"younger than asked for", keyState{madeAt: ago(time.Minute), asked: asked(time.Hour)}, keyStay,
			v1alpha1.ReasonKeyCurrent, nil, nil},
		{"made as asked for, by a clock that is ahead", keyState{madeAt: ago(-time.Hour), asked: asked(-time.Hour)}, keyStay,
			v1alpha1.ReasonKeyCurrent, nil, nil},
		{"older than asked for", keyState{madeAt: ago(time.Hour), asked: asked(time.Minute)}, keyOffer,
			v1alpha1.ReasonKeyOffered, nil, nil},
		{"young", keyState{madeAt: ago(29 * day), asked: v1alpha1.PeeringKeys{MaxAgeDays: 30}}, keyStay,
			v1alpha1.ReasonKeyCurrent, nil, nil},
		{"too old", keyState{madeAt: ago(31 * day), asked: v1alpha1.PeeringKeys{MaxAgeDays: 30}}, keyOffer,
			v1alpha1.ReasonKeyOffered, nil, nil},
		{"another replaces its own", keyState{madeAt: ago(time.Hour), asked: asked(time.Minute),
			peers: []keyPeer{moved, {name: "c3/b", replaces: true}}}, keyStay, v1alpha1.ReasonKeyWaits, []string{"c3/b"}, nil},
		{"and does not end", keyState{madeAt: ago(3 * day), asked: asked(2 * day), due: ago(day),
			peers: []keyPeer{{name: "c3/b", replaces: true}}}, keyOffer, v1alpha1.ReasonKeyOffered, nil, nil},
		{"no ports", keyState{madeAt: ago(time.Hour), asked: asked(time.Minute), ports: "taken"}, keyStay,
			v1alpha1.ReasonPortTaken, nil, nil},

		{"offered, one has not moved", keyState{replacement: offered, since: ago(time.Hour), settled: ago(time.Hour),
			peers: []keyPeer{moved, here}}, keyStay, v1alpha1.ReasonKeyOffered, []string{"c3/b"}, nil},
		{"offered, all have just moved", keyState{replacement: offered, since: ago(time.Hour), settled: ago(time.Second),
			peers: []keyPeer{moved}}, keyStay, v1alpha1.ReasonKeyOffered, nil, nil},
		{"offered, all have moved", keyState{replacement: offered, since: ago(time.Hour), settled: ago(time.Minute),
			peers: []keyPeer{moved}}, keyPromote, v1alpha1.ReasonKeyOffered, nil, nil},
		{"offered, nobody is there", keyState{replacement: offered, since: ago(time.Hour), settled: ago(time.Minute)},
			keyPromote, v1alpha1.ReasonKeyOffered, nil, nil},
		{"offered, one is away for a moment", keyState{replacement: offered, since: ago(time.Hour), settled: ago(time.Hour),
			peers: []keyPeer{moved, gone(time.Minute)}}, keyStay, v1alpha1.ReasonKeyOffered, []string{"c4/c"}, nil},
		{"offered, one has been away since before", keyState{replacement: offered, since: ago(time.Minute),
			settled: ago(time.Hour), peers: []keyPeer{moved, gone(time.Hour)}}, keyStay, v1alpha1.ReasonKeyOffered,
			[]string{"c4/c"}, nil},
		{"offered, one is gone", keyState{replacement: offered, since: ago(time.Hour), settled: ago(time.Minute),
			peers: []keyPeer{moved, gone(time.Hour)}}, keyPromote, v1alpha1.ReasonKeyOffered, nil, []string{"c4/c"}},
		{"offered, all are gone: maybe it is this one", keyState{replacement: offered, since: ago(time.Hour),
			settled: ago(time.Minute), peers: []keyPeer{gone(time.Hour)}}, keyStay, v1alpha1.ReasonKeyOffered,
			[]string{"c4/c"}, nil},
		{"offered, for a day", keyState{replacement: offered, since: ago(day), settled: ago(time.Minute),
			peers: []keyPeer{here, gone(time.Hour)}}, keyPromote, v1alpha1.ReasonKeyOffered, nil, []string{"c3/b", "c4/c"}},

		{"promoted, one has not moved", keyState{replacement: promoted, since: ago(time.Hour), settled: ago(time.Hour),
			peers: []keyPeer{moved, here}}, keyStay, v1alpha1.ReasonKeyPromoted, []string{"c3/b"}, nil},
		{"promoted, all have moved", keyState{replacement: promoted, since: ago(time.Hour), settled: ago(time.Minute),
			peers: []keyPeer{moved}}, keyFinish, v1alpha1.ReasonKeyPromoted, nil, nil},
		{"promoted, and asked for again", keyState{replacement: promoted, since: ago(time.Hour), madeAt: ago(2 * time.Hour),
			asked: asked(time.Minute), settled: ago(time.Minute), peers: []keyPeer{moved}}, keyFinish,
			v1alpha1.ReasonKeyPromoted, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.s.now, c.s.settle = now, keySettle
			d := decideKey(c.s)
			if d.step != c.step || d.reason != c.reason || !slices.Equal(d.waiting, c.waiting) ||
				!slices.Equal(d.abandoned, c.abandoned) {
				t.Errorf("found %+v", d)
			}
			for _, name := range slices.Concat(c.waiting, c.abandoned) {
				if !strings.Contains(d.message, name) {
					t.Errorf("the message %q does not name %s", d.message, name)
				}
			}
			current := d.condition(1, now).Status == metav1.ConditionTrue
			if s := d.status(c.s); current != (s.Phase == v1alpha1.KeyCurrent) {
				t.Errorf("the condition and phase %s contradict each other", s.Phase)
			}
		})
	}
}

func TestPortsOfTheNextKey(t *testing.T) {
	for _, c := range []struct {
		cable topology.Cable
		free  bool
	}{
		{topology.Cable{Port: 4500, VXLANPort: 4800}, true},
		{topology.Cable{Port: 4500, VXLANPort: 4515}, true}, // which is refused elsewhere
		{topology.Cable{Port: 4500, VXLANPort: 4516}, false},
		{topology.Cable{Port: 4500, VXLANPort: 4531}, false},
		{topology.Cable{Port: 4500, VXLANPort: 4532}, true},
		{topology.Cable{Port: 65504, VXLANPort: 4800}, true},
		{topology.Cable{Port: 65505, VXLANPort: 4800}, false},
	} {
		if got := keyPorts(c.cable); (got == "") != c.free {
			t.Errorf("%+v: %q", c.cable, got)
		}
	}
}

// TestOneConnectionForAGateway: of the two cables to a gateway that replaces its key, the Gateway tells of one.
func TestOneConnectionForAGateway(t *testing.T) {
	tunnel := func(cluster, link string, slot int32, status v1alpha1.ConnectionStatus, active bool) Tunnel {
		return Tunnel{connection: v1alpha1.Connection{Cluster: cluster, Slot: slot, Link: link, Status: status,
			Active: active}}
	}
	const up, down = v1alpha1.ConnectionConnected, v1alpha1.ConnectionError
	got := perGateway([]Tunnel{
		tunnel("c2", "sl-c0", 0, up, false), tunnel("c2", "sl-c1", 1, down, false), tunnel("c2", "sl-c16", 0, up, true),
		tunnel("c2", "sl-c17", 1, up, false), tunnel("c3", "sl-c0", 0, up, true), tunnel("c3", "sl-c16", 0, down, false),
	})
	var links []string
	for _, g := range got {
		links = append(links, g.connection.Cluster+" "+g.connection.Link)
	}
	if want := []string{"c2 sl-c16", "c2 sl-c17", "c3 sl-c0"}; !slices.Equal(links, want) {
		t.Errorf("found %q, want %q", links, want)
	}
}

// TestAKeyIsPromotedOffTheMesh: the node has left the mesh for long enough that the others send by gateways. It comes
// back if the key is not promoted after all.
func TestAKeyIsPromotedOffTheMesh(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a := &Agent{poke: make(chan struct{}, 1)}
	if !a.leftMesh(true, now) || !a.rotation.offMesh.IsZero() {
		t.Error("without a mesh there is nothing to wait for")
	}
	a.mesh = []plan.Peer{{}}
	for _, step := range []struct {
		promote   bool
		at        time.Duration
		done, off bool
	}{
		{false, 0, true, false}, {true, time.Second, false, true}, {true, 2 * time.Second, false, true},
		{false, 2 * time.Second, true, false}, {true, 3 * time.Second, false, true},
		{true, 3*time.Second + withdrawLeast, true, true},
	} {
		done := a.leftMesh(step.promote, now.Add(step.at))
		if off := !a.rotation.offMesh.IsZero(); done != step.done || off != step.off {
			t.Errorf("%+v: found %t, off the mesh: %t", step, done, off)
		}
	}
}
