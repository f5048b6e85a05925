// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// TestCounters of a peer go on whatever becomes of the session with charon, and of charon.
func TestCounters(t *testing.T) {
	const id = plan.PeerID("one")
	d := Open(t.TempDir(), nil, nil)
	p := &peer{Peer: Peer{ID: id}}
	d.peers[id] = p
	note := func(children ...child) {
		p.note([]association{{name: name("another"), up: true, children: []child{{spi: "z", received: 1000, sent: 1000}}},
			{name: name(id), up: true, group: usualSuite.group, children: children}}, usualSuite.group, time.Now())
	}
	for _, step := range []struct {
		what           string
		children       []child
		forget         bool
		received, sent int64
		rekeys         int
	}{
		{"the first", []child{{spi: "a", received: 10, sent: 20}}, false, 10, 20, 0},
		{"more by it", []child{{spi: "a", received: 15, sent: 20}}, false, 15, 20, 0},
		{"another one beside", []child{{spi: "a", received: 16, sent: 21}, {spi: "b", received: 1}}, false, 17, 21, 1},
		{"that one alone", []child{{spi: "b", received: 2, sent: 0}}, false, 18, 21, 1},
		{"charon was not asked for a while", []child{{spi: "b", received: 3, sent: 0}}, true, 19, 21, 1},
		{"another charon", []child{{spi: "c", received: 5, sent: 5}}, true, 24, 26, 1},
		{"made anew", []child{{spi: "d", received: 1, sent: 1}}, false, 25, 27, 1},
	} {
		if step.forget {
			d.forget(Config{Peers: []Peer{p.Peer}})
		}
		note(step.children...)
		if s := p.state; s.Received != step.received || s.Sent != step.sent || s.Rekeys != step.rekeys || !s.Up {
			t.Errorf("%s: %+v, want %d received, %d sent, %d rekeys", step.what, s, step.received, step.sent, step.rekeys)
		}
	}
}

// TestFits: what is established by other algorithms is up, and is told until there is nothing of it.
func TestFits(t *testing.T) {
	const id = plan.PeerID("one")
	p := &peer{Peer: Peer{ID: id}}
	old := association{name: name(id), id: "1", up: true, group: usualSuite.group, algorithms: "old"}
	next := association{name: name(id), id: "2", up: true, group: fipsSuite.group, algorithms: "next"}
	begun := association{name: name(id), id: "3"}
	for _, step := range []struct {
		what            string
		all             []association
		up, fits, other bool
		algorithms      string
		former          int
	}{
		{"none", nil, false, false, false, "", 0},
		{"the former one", []association{old}, true, false, true, "old", 1},
		{"another is begun", []association{old, begun}, true, false, true, "old", 1},
		{"both", []association{old, next}, true, true, true, "old", 1},
		{"both, in another order", []association{next, old}, true, true, true, "old", 1},
		{"that alone", []association{next}, true, true, false, "next", 0},
		{"ended", nil, false, false, false, "", 0},
	} {
		p.note(step.all, fipsSuite.group, time.Now())
		if s := p.state; s.Up != step.up || p.fits != step.fits || s.Other != step.other ||
			s.Algorithms != step.algorithms || len(p.former) != step.former {
			t.Errorf("%s: %+v, fits %t, former %v", step.what, s, p.fits, p.former)
		}
	}
}

// Associations of both families with one peer, which charon takes for two.
func TestOneAssociationIsKept(t *testing.T) {
	first, second := plan.PeerID("a"+strings.Repeat("0", 31)), plan.PeerID("b"+strings.Repeat("0", 31))
	if !before(first, second) {
		first, second = second, first
	}
	of := func(id string, age time.Duration) association {
		return association{name: name(second), id: id, up: true, age: age, group: usualSuite.group}
	}
	for _, c := range []struct {
		what           string
		have           []association
		first, another []string // what the end that begins ends, and what the other one does
	}{
		{"one", []association{of("1", time.Hour)}, nil, nil},
		{"the younger one is too young", []association{of("1", time.Hour), of("2", handOver-time.Second)}, nil, nil},
		{"the end that begins has not chosen yet", []association{of("1", time.Hour), of("2", 2*handOver-time.Second)},
			[]string{"1"}, nil},
		{"an old and a young one", []association{of("2", time.Minute), of("1", time.Hour)}, []string{"1"}, []string{"1"}},
		{"both began", []association{of("1", time.Minute), of("2", time.Minute+moments)}, []string{"2"}, nil},
		{"of one age", []association{of("1", time.Minute), of("2", time.Minute)}, []string{"2"}, nil},
		{"another's", []association{of("1", time.Minute), {name: "sl-other", id: "2", up: true, age: time.Hour}}, nil, nil},
		{"one is not up", []association{of("1", time.Minute), {name: name(second), id: "2", age: time.Hour}}, nil, nil},
	} {
		for _, end := range []struct {
			own  plan.PeerID
			want []string
		}{{first, c.first}, {second, c.another}} {
			p := &peer{Peer: Peer{ID: second}}
			p.note(c.have, usualSuite.group, time.Now())
			if end.own == second {
				p.ID = first
			}
			if found := p.surplus(end.own); !slices.Equal(found, end.want) {
				t.Errorf("%s: %x ends %v, want %v", c.what, end.own[:1], found, end.want)
			}
		}
	}
}
