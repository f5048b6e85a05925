// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/dnspath"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// situation is a world with one thing changed, and a packet in it.
type situation struct {
	name string
	// from is a pod's address on c1's worker unless it is given, or "host" for the node itself.
	from string
	// to is a name, an address, or an address and its cluster as "c2/10.9.1.7".
	to string
	// port 0 is the service's first.
	port   uint16
	change func(f *Fleet)
	facts  func(f *dnspath.Facts)
	// arrives is what the golden must say, so that a rewritten one is no accident.
	arrives Arrival
	// lost is the step at which it is lost; "" where it is not.
	lost string
}

const (
	cart = "cart.shop.svc.clusterset.local"
	pod2 = "10.9.1.7"
)

func (s situation) request(f *Fleet) Request {
	r := Request{From: Endpoint{Cluster: "c1", What: "10.8.1.5", Addresses: []netip.Addr{netip.MustParseAddr("10.8.1.5")}},
		Port: Port{Number: s.port, Protocol: corev1.ProtocolTCP}}
	switch {
	case s.from == "host":
		r.From = Endpoint{Cluster: "c1", What: "node c1-w", Node: "c1-w", Host: true}
	case s.from != "":
		r.From.What, r.From.Addresses = s.from, []netip.Addr{netip.MustParseAddr(s.from)}
	}
	cluster, address, isPod := strings.Cut(s.to, "/")
	a, err := netip.ParseAddr(s.to)
	switch {
	case isPod:
		r.To = &Endpoint{Cluster: cluster, What: "pod shop/cart-0", Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	case err == nil:
		r.Address = a
	default:
		r.Name = named(f, s.to)
		if s.facts != nil {
			s.facts(r.Name)
		}
	}
	return r
}

func (s situation) explain() Explanation {
	f := world()
	if s.change != nil {
		s.change(f)
	}
	return Explain(f, s.request(f))
}

// TestSituations compares the explanation of every situation with the golden file.
func TestSituations(t *testing.T) {
	var out bytes.Buffer
	for _, s := range situations() {
		e := s.explain()
		fmt.Fprintf(&out, "== %s\nfrom %s to %s\n", s.name, e.From, e.To)
		e.Print(&out)
		fmt.Fprintf(&out, "error: %v\n\n", e.Err())
		lost := ""
		if l := e.lost(); l != nil {
			lost = l.Name
		}
		if e.Arrives != s.arrives || lost != s.lost {
			t.Errorf("%s: arrives %s, lost at %q, want %s and %q\n%v", s.name, e.Arrives, lost, s.arrives, s.lost, e.Err())
		}
	}
	const golden = "testdata/situations.golden"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("the explanations changed (-update rewrites them):\n%s", diff)
	}
}

// TestEveryStepCanBeActedOn: what is not ok says what was expected and what to do, the last step of a packet that is
// lost is where it is lost, and the exit code follows.
func TestEveryStepCanBeActedOn(t *testing.T) {
	for _, s := range situations() {
		e := s.explain()
		if len(e.Steps) == 0 {
			t.Errorf("%s: no step", s.name)
		}
		for _, step := range e.Steps {
			if step.Found == "" || step.At == "" || step.Name == "" {
				t.Errorf("%s: incomplete: %+v", s.name, step)
			}
			if step.Verdict == Fail && (step.Expected == "" || step.Remedy == "") {
				t.Errorf("%s: nobody can act on %+v", s.name, step)
			}
		}
		if (e.Err() == nil) != (e.Arrives == Arrives) || (e.Arrives == Arrives) && e.lost() != nil {
			t.Errorf("%s: arrives %s, error %v, lost at %+v", s.name, e.Arrives, e.Err(), e.lost())
		}
		if e.Arrives == Lost && e.Steps[len(e.Steps)-1].Verdict != Fail {
			t.Errorf("%s: it goes on after %+v", s.name, e.lost())
		}
		text, err := json.Marshal(e)
		var back Explanation
		if err != nil || json.Unmarshal(text, &back) != nil || !cmp.Equal(e, back) {
			t.Errorf("%s: in JSON it is %s (%v)", s.name, text, err)
		}
	}
}

// TestTextsOfMembersAreNoControlSequences: what a member reports is written to a terminal.
func TestTextsOfMembersAreNoControlSequences(t *testing.T) {
	s := situation{to: pod2, change: func(f *Fleet) {
		c := &f.Members[0].Network.Gateways[0].Status.Connections[0]
		c.Status, c.Message = v1alpha1.ConnectionError, "\x1b[2J\x1b]0;gone\x07"
	}}
	var out bytes.Buffer
	e := s.explain()
	e.Print(&out)
	if strings.ContainsAny(out.String(), "\x1b\x07") || !strings.Contains(out.String(), "cable") {
		t.Errorf("%q", out.String())
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"cart.shop.svc.clusterset.local":      "name cart.shop.svc.clusterset.local tcp",
		"cart.shop:80":                        "name cart.shop 80/tcp",
		"cart.shop:53/udp":                    "name cart.shop 53/udp",
		"10.9.1.7":                            "address 10.9.1.7 tcp",
		"10.9.1.7:80":                         "address 10.9.1.7 80/tcp",
		"fd00:9::7":                           "address fd00:9::7 tcp",
		"[fd00:9::7]:80/sctp":                 "address fd00:9::7 80/sctp",
		"::ffff:10.9.1.7":                     "address 10.9.1.7 tcp",
		"c2/shop/cart-0":                      "place c2 shop/cart-0 tcp",
		"c2/shop/cart-0:8080":                 "place c2 shop/cart-0 8080/tcp",
		"c2/w1.example.org":                   "place c2 node w1.example.org tcp",
		"c2/10.9.1.7:80":                      "place c2 10.9.1.7 80/tcp",
		"c2/fd00:9::7":                        "place c2 fd00:9::7 tcp",
		"c2/[fd00:9::7]:80":                   "place c2 fd00:9::7 80/tcp",
		"cart:0":                              `error port "0"`,
		"cart:http":                           `error port "http"`,
		"cart:65536":                          `error port "65536"`,
		"cart:80/icmp":                        `error protocol "icmp"`,
		":80":                                 "error names nothing",
		"":                                    "error names nothing",
		"c2/":                                 "error empty part",
		"c2/a/b/c":                            "error 4 parts",
		"C2/a/b":                              "error no name of a cluster",
		"c2/fe80::1%eth0":                     "error",
		"c2/shop/cart_0":                      "error no name of a namespace and a pod",
		"c2/../../etc/passwd":                 "error",
		"c2/shop/" + strings.Repeat("a", 1e3): "error",
	} {
		d, err := ParseDestination(text)
		got := "name " + d.Name
		switch {
		case err != nil:
			got = "error " + err.Error()
		case d.Place != nil && d.Place.Pod != "":
			got = "place " + d.Place.Cluster + " " + d.Place.Namespace + "/" + d.Place.Pod
		case d.Place != nil && d.Place.Node != "":
			got = "place " + d.Place.Cluster + " node " + d.Place.Node
		case d.Place != nil:
			got = "place " + d.Place.Cluster + " " + d.Place.Addr.String()
		case d.Addr.IsValid():
			got = "address " + d.Addr.String()
		}
		if err == nil {
			got += " " + d.Port.String()
		}
		kind, rest, _ := strings.Cut(want, " ")
		if kind != "error" && got != want || kind == "error" && (err == nil || !strings.Contains(got, rest)) {
			t.Errorf("%.60q: %s, want %s", text, got, want)
		}
	}
}

// FuzzParse: whatever is asked for, it is one of the three kinds, or it is said what is wrong.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"c1/shop/web-0", "[::1]:80", "a:1/udp", "c/[::]:1", "//", "[]", ":", "c1/::1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDestination(text)
		if err != nil {
			return
		}
		kinds := 0
		for _, is := range []bool{d.Place != nil, d.Addr.IsValid(), d.Name != ""} {
			if is {
				kinds++
			}
		}
		if kinds != 1 || d.Port.Protocol == "" || d.Addr.Zone() != "" {
			t.Errorf("%q is %+v", text, d)
		}
	})
}
