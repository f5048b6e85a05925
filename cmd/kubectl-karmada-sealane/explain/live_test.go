// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/internal/probe"
	"github.com/sealane-io/sealane/internal/trace"
)

const (
	livePort = 61777
	liveFlow = 4711
)

// sight is what a node tells, in short: "syn in veth1", "large out sl-vx", "synack dropped ip fw forward: drop",
// "syn refused 10.8.1.1 host unreachable", "route cni0 PROBLEM", "route to 10.10.1.7 cni0 PROBLEM",
// "missed rules WHY".
// "@10.9.1.7 " before it is where the packet goes instead.
func sight(text, to string) trace.Line {
	if rest, found := strings.CutPrefix(text, "@"); found {
		to, text, _ = strings.Cut(rest, " ")
	}
	client, server := netip.MustParseAddrPort(fmt.Sprintf("10.8.1.5:%d", livePort)), netip.MustParseAddrPort(to+":8080")
	kind, rest, _ := strings.Cut(text, " ")
	p := trace.Packet{Kind: trace.Kind(kind), From: client, To: server, Size: 60, Flow: liveFlow}
	switch kind {
	case "missed":
		what, why, _ := strings.Cut(rest, " ")
		return trace.Line{Missed: &trace.Missed{What: trace.Lacking(what), Why: why}}
	case "route":
		if other, found := strings.CutPrefix(rest, "to "); found {
			address, way, _ := strings.Cut(other, " ")
			server, rest = netip.AddrPortFrom(netip.MustParseAddr(address), 0), way
		}
		device, problem, _ := strings.Cut(rest, " ")
		return trace.Line{LookedUp: &trace.Route{From: client.Addr(), To: server.Addr(), By: "sl-vx",
			Device: strings.Trim(device, "-"), Problem: problem}}
	case "large":
		p.Kind, p.Size, p.Flow = trace.TCP, 1400, 0
	case "foreign": // of somebody else on the same port
		p.Kind, p.Flow, p.From = trace.SYN, 1, netip.AddrPortFrom(netip.MustParseAddr("10.8.1.66"), livePort)
	case "back":
		p.Kind, p.Flow, p.From, p.To = trace.UDP, 0, server, client
	case "synack", "rst":
		p.From, p.To = server, client
	}
	what, rest, _ := strings.Cut(rest, " ")
	word, tail, _ := strings.Cut(rest, " ")
	switch what {
	case "in", "out":
		return trace.Line{Seen: &trace.Seen{Packet: p, Device: rest, Out: what == "out"}}
	case "refused":
		return trace.Line{Refused: &trace.Refused{Packet: p, Device: "sl-vx", Out: true, By: netip.MustParseAddr(word),
			Why: tail}}
	}
	names, rule, _ := strings.Cut(rest, ": ")
	f := strings.Fields(names)
	return trace.Line{Dropped: &trace.Dropped{Packet: p, Family: f[0], Table: f[1], Chain: f[2], Rule: rule}}
}

// liveSituation is a probe from c1's worker to a pod on c2's, by both gateways, and what the nodes tell of it.
type liveSituation struct {
	name   string
	change func(f *Fleet)
	to     string
	stage  probe.Stage
	err    string
	// nodes by name; those that are not there tell nothing.
	nodes  map[string][]string
	failed map[string]string
	// also is what nodes tell besides.
	also map[string][]string
	step *Step
	// from is "host" for the node itself; server is where the packet goes, "" for pod2.
	from, server string
	udp          bool

	arrives Arrival
	// lost at the step of a node, and last seen there.
	at, step2, last string
	// without is what no step may say.
	without string
}

// The nodes of the way, and what each sees of a packet that passes it.
func passes(changes map[string][]string) map[string][]string {
	out := map[string][]string{
		"c1/c1-w":  {"syn in veth1", "syn out sl-vx", "synack in sl-vx", "synack out veth1"},
		"c1/c1-gw": {"syn in sl-vx", "syn out sl-c0", "synack in sl-c0", "synack out sl-vx"},
		"c2/c2-gw": {"syn in sl-c0", "syn out sl-vx", "synack in sl-vx", "synack out sl-c0"},
		"c2/c2-w":  {"syn in sl-vx", "syn out veth2", "synack in veth2", "synack out sl-vx"},
	}
	for node, lines := range changes {
		out[node] = lines
	}
	return out
}

// until is a way that ends at the last of these nodes, which tells the lines.
func until(last string, lines ...string) map[string][]string {
	out := passes(nil)
	end := slices.Index([]string{"c1/c1-w", "c1/c1-gw", "c2/c2-gw", "c2/c2-w"}, last)
	for i, node := range []string{"c1/c1-w", "c1/c1-gw", "c2/c2-gw", "c2/c2-w"} {
		switch {
		case i < end:
			out[node] = out[node][:2]
		case i == end:
			out[node] = lines
		default:
			delete(out, node)
		}
	}
	return out
}

func liveSituations() []liveSituation {
	large := func(node string, lines ...string) map[string][]string {
		out := passes(nil)
		for i, n := range []string{"c1/c1-w", "c1/c1-gw", "c2/c2-gw", "c2/c2-w"} {
			if n == node {
				out[n] = append(out[n], lines...)
				break
			}
			out[n] = append(out[n], [][]string{{"large in veth1", "large out sl-vx"}, {"large in sl-vx", "large out sl-c0"},
				{"large in sl-c0", "large out sl-vx"}}[i]...)
		}
		return out
	}
	none := probe.NoAnswer
	return []liveSituation{
		{name: "it passes", stage: probe.Answered, nodes: passes(nil), arrives: Arrives},
		{name: "it passes, though the objects say that the cable is down", stage: probe.Answered, nodes: passes(nil),
			arrives: Arrives, change: func(f *Fleet) { down(connectionTo(f, 1, 2), ptr.To(false)) }},
		{name: "it passes, and one node is not watched", stage: probe.Answered, arrives: Arrives,
			nodes: passes(map[string][]string{"c2/c2-gw": nil}), failed: map[string]string{"c2/c2-gw": "forbidden"}},
		{name: "a policy drops it at the backend", stage: none, arrives: Lost, at: "c2/c2-w", step2: stepDropped,
			last:  "c2/c2-w, in by sl-vx",
			nodes: until("c2/c2-w", "syn in sl-vx", "syn dropped ip policies forward: tcp dport 8080 drop")},
		{name: "the guard drops it", stage: none, arrives: Lost, at: "c2/c2-gw", step2: stepDropped,
			last:  "c2/c2-gw, in by sl-c0",
			nodes: until("c2/c2-gw", "syn in sl-c0", `syn dropped ip sealane guard: iifname "sl-c*" drop`)},
		{name: "a policy of a chain drops it", stage: none, arrives: Lost, at: "c1/c1-gw", step2: stepDropped,
			nodes: until("c1/c1-gw", "syn in sl-vx", "syn dropped ip filter FORWARD: ")},
		{name: "kube-proxy refuses it", stage: probe.Refused, err: "connection refused", arrives: Lost, at: "c1/c1-w",
			step2: stepDropped, nodes: until("c1/c1-w", "syn in veth1", "syn dropped ip kube-proxy reject-chain: reject")},
		{name: "no route", stage: probe.Refused, err: "no route to host", arrives: Lost, at: "c1/c1-w", step2: stepRoute,
			nodes: until("c1/c1-w", "syn in veth1", "syn refused 10.8.1.1 host unreachable",
				"syn refused 10.8.1.1 host unreachable", "route - no route to host")},
		{name: "an MTU black hole", stage: probe.LargeLost, arrives: Lost, at: "c2/c2-w", step2: stepDropped,
			nodes: large("c2/c2-w", "large in sl-vx", "large dropped ip fw forward: meta length > 1000 drop")},
		{name: "an MTU black hole between clusters", stage: probe.LargeLost, arrives: Lost, at: "c1/c1-gw",
			step2: stepCable, last: "c1/c1-gw, out by sl-c0", nodes: large("c2/c2-gw")},
		{name: "a dead backend", stage: probe.Refused, err: "no route to host", arrives: Lost, at: "c2/c2-w",
			step2: stepRoute, nodes: until("c2/c2-w", "syn in sl-vx", "syn refused 10.9.1.1 host unreachable",
				"route cni0 10.9.1.7 does not answer on cni0: nobody has this address there")},
		{name: "a wrong port", stage: probe.Refused, err: "connection refused", arrives: Lost, at: "c2/c2-w",
			step2: stepDelivery, nodes: map[string][]string{
				"c1/c1-w":  {"syn in veth1", "syn out sl-vx", "rst in sl-vx", "rst out veth1"},
				"c1/c1-gw": {"syn in sl-vx", "syn out sl-c0", "rst in sl-c0", "rst out sl-vx"},
				"c2/c2-gw": {"syn in sl-c0", "syn out sl-vx", "rst in sl-vx", "rst out sl-c0"},
				"c2/c2-w":  {"syn in sl-vx", "syn out veth2", "rst in veth2", "rst out sl-vx"}}},
		{name: "no answer to the name", stage: probe.Resolving, err: "no such host", to: cart, arrives: Lost,
			at: "c1/c1-w", step2: stepProbe},
		{name: "the overlay is blocked", stage: none, arrives: Lost, at: "c1/c1-w", step2: stepOverlay,
			last: "c1/c1-w, out by sl-vx", nodes: until("c1/c1-w", "syn in veth1", "syn out sl-vx")},
		{name: "the cable is down", stage: none, arrives: Lost, at: "c1/c1-gw", step2: stepCable,
			last: "c1/c1-gw, out by sl-c0", nodes: until("c1/c1-gw", "syn in sl-vx", "syn out sl-c0")},
		{name: "the remote gateway has no routes", stage: none, arrives: Lost, at: "c2/c2-gw", step2: stepRoute,
			nodes: until("c2/c2-gw", "syn in sl-c0", "route - network is unreachable")},
		{name: "the remote gateway has no routes of ours", stage: none, arrives: Lost, at: "c2/c2-gw", step2: stepRoute,
			last: "c2/c2-w, in by eth0", nodes: map[string][]string{
				"c1/c1-w": {"syn in veth1", "syn out sl-vx"}, "c1/c1-gw": {"syn in sl-vx", "syn out sl-c0"},
				"c2/c2-gw": {"syn in sl-c0", "syn out eth0"},
				"c2/c2-w":  {"syn in eth0", `syn dropped ip sealane guard: iifname != "sl-*" ip saddr @remote drop`}}},
		{name: "the remote gateway has no routes of ours, and its network drops what strays", stage: none, arrives: Lost,
			at: "c2/c2-gw", step2: stepRoute, last: "c2/c2-gw, out by eth0",
			nodes: until("c2/c2-gw", "syn in sl-c0", "syn out eth0", "syn refused 172.31.2.1 host unreachable")},
		{name: "the answer is routed another way, where our own rule drops it", stage: none, arrives: Lost, at: "c2/c2-w",
			step2: stepWayBack, last: "c2/c2-w, in by veth2", nodes: until("c2/c2-w", "syn in sl-vx", "syn out veth2",
				"synack in veth2", `synack dropped ip sealane egress: oifname != "sl-*" ip daddr @remote drop`)},
		{name: "the answer goes another way", stage: none, arrives: Lost, at: "c2/c2-w", step2: stepWayBack,
			last:  "c2/c2-w, out by eth0",
			nodes: until("c2/c2-w", "syn in sl-vx", "syn out veth2", "synack in veth2", "synack out eth0")},
		{name: "the answer is dropped", stage: none, arrives: Lost, at: "c1/c1-gw", step2: stepDropped,
			nodes: passes(map[string][]string{
				"c1/c1-w": {"syn in veth1", "syn out sl-vx"}, "c1/c1-gw": {"syn in sl-vx", "syn out sl-c0", "synack in sl-c0",
					"synack dropped ip fw forward: tcp sport 8080 drop"}})},
		{name: "the pod does not answer", stage: none, arrives: Lost, at: "c2/c2-w", step2: stepDelivery,
			last: "c2/c2-w, out by veth2", nodes: until("c2/c2-w", "syn in sl-vx", "syn out veth2")},
		{name: "it does not leave its pod", stage: none, arrives: Lost, at: "c1/c1-w", step2: stepSource,
			nodes: until("c1/c1-w", "missed rules operation not supported")},
		{name: "others send by the same port", stage: none, arrives: Lost, at: "c1/c1-gw", step2: stepCable,
			last: "c1/c1-gw, out by sl-c0", nodes: map[string][]string{
				"c1/c1-w":  {"foreign in veth7", "syn in veth1", "syn out sl-vx", "foreign out eth0"},
				"c1/c1-gw": {"syn in sl-vx", "syn out sl-c0"}, "c2/c2-gw": {"foreign in sl-c0", "foreign out veth9"}}},
		{name: "the node behind the overlay is not watched", stage: none, arrives: Unknown,
			nodes:  until("c2/c2-gw", "syn in sl-c0", "syn out sl-vx"),
			failed: map[string]string{"c2/c2-w": "no node agent runs on c2-w"}},
		{name: "the other cluster cannot be asked", stage: none, arrives: Unknown, change: func(f *Fleet) {
			f.Members[1] = Member{Name: "c2", Unread: "unreachable: timeout"}
		}, nodes: until("c1/c1-gw", "syn in sl-vx", "syn out sl-c0")},
		{name: "something in the pod's own network namespace answers", stage: probe.Answered, arrives: Unknown},
		{name: "another cluster answers than the one that was meant", stage: probe.Answered, arrives: Unknown,
			nodes:  map[string][]string{"c1/c1-w": {"syn in veth1", "syn out veth9", "synack in veth9", "synack out veth1"}},
			change: func(f *Fleet) { down(connectionTo(f, 1, 2), ptr.To(false)) }},
		{name: "one of two clusters is reached", stage: probe.Answered, to: cart, arrives: Sometimes, at: "",
			nodes: passes(nil), change: func(f *Fleet) { down(connectionTo(f, 1, 3), nil) }},
		{name: "it passes unseen, and the objects say that it cannot", stage: probe.Answered, arrives: Unknown,
			nodes: map[string][]string{"c1/c1-w": passes(nil)["c1/c1-w"]}, failed: map[string]string{"c1/c1-gw": "cut off"},
			change: func(f *Fleet) { down(connectionTo(f, 1, 2), ptr.To(false)) }},
		{name: "a trace behind the cable was cut off", stage: none, arrives: Unknown,
			nodes: map[string][]string{"c1/c1-w": passes(nil)["c1/c1-w"][:2], "c1/c1-gw": passes(nil)["c1/c1-gw"][:2],
				"c2/c2-gw": {"foreign in sl-c0"}},
			failed: map[string]string{"c2/c2-gw": "the connection was lost"}},
		{name: "another backend than the one that is watched", stage: probe.Refused, arrives: Unknown,
			nodes: map[string][]string{"c1/c1-w": {"syn in veth1", "syn out sl-vx", "rst in sl-vx", "rst out veth1"},
				"c1/c1-gw": {"syn in sl-vx", "syn out sl-c0", "rst in sl-c0", "rst out sl-vx"},
				"c2/c2-gw": {"syn in sl-c0", "syn out sl-vx", "rst in sl-vx", "rst out sl-c0"}}},
		{name: "a policy drops it at the second of two backends", stage: none, to: cart, server: "10.9.3.7", arrives: Lost,
			at: "c2/c2-w2", step2: stepDropped, last: "c2/c2-w2, in by sl-vx", change: manyBackends(1),
			nodes: map[string][]string{
				"c1/c1-w": passes(nil)["c1/c1-w"][:2], "c1/c1-gw": passes(nil)["c1/c1-gw"][:2],
				"c2/c2-gw": passes(nil)["c2/c2-gw"][:2],
				"c2/c2-w2": {"syn in sl-vx", "syn dropped ip policies forward: tcp dport 8080 drop"}}},
		{name: "a backend on one node more than are watched", stage: none, to: cart, server: "10.9.32.7", arrives: Unknown,
			change: manyBackends(30), nodes: until("c2/c2-gw", "syn in sl-c0", "syn out sl-vx")},
		{name: "the cable to one cluster is down, and the gateway of another is not watched", stage: none, to: cart,
			arrives: Lost, at: "c1/c1-gw", step2: stepCable, nodes: until("c1/c1-gw", "syn in sl-vx", "syn out sl-c0"),
			failed: map[string]string{"c3/c3-gw": "no node agent runs on c3-gw"}},
		{name: "it stays on a node that has no way to another cluster's backend", stage: none, to: cart, arrives: Lost,
			at: "c1/c1-gw", step2: stepRoute, without: "10.10.1.7", nodes: until("c1/c1-gw", "syn in sl-vx", "route sl-c0",
				"route to 10.10.1.7 - network is unreachable")},
		{name: "a policy drops it behind a global address", stage: none, to: cart, server: "242.2.0.1", arrives: Lost,
			at: "c2/c2-w", step2: stepDropped, change: twins, nodes: until("c2/c2-w", "@10.9.1.7 syn in sl-vx",
				"@10.9.1.7 syn dropped ip policies forward: tcp dport 8080 drop")},
		{name: "the overlay behind a global address is blocked", stage: none, to: cart, server: "242.2.0.1", arrives: Lost,
			at: "c2/c2-gw", step2: stepOverlay, change: twins, nodes: until("c2/c2-gw", "syn in sl-c0",
				"@10.9.1.7 syn out sl-vx")},
		{name: "routes that lead back to the node before", stage: none, arrives: Lost, at: "c2/c2-gw", step2: stepRoute,
			nodes: until("c2/c2-gw", "syn in sl-c0", "syn out sl-c0"), without: "blocked", also: map[string][]string{
				"c1/c1-gw": {"syn in sl-c0"}}},
		{name: "routes between two nodes that lead to each other", stage: probe.Refused, err: "no route to host",
			arrives: Lost, at: "c1/c1-gw", step2: stepRoute, nodes: until("c1/c1-gw", "syn in sl-vx", "syn out sl-vx"),
			without: "blocked", also: map[string][]string{"c1/c1-w": {"syn in sl-vx"}}},
		{name: "routes in a circle, of which a router tells", stage: probe.Refused, err: "no route to host", arrives: Lost,
			at: "c1/c1-gw", step2: stepRoute, nodes: until("c1/c1-gw", "syn in sl-vx", "syn out sl-c0",
				"syn refused 10.9.2.1 time exceeded"), without: "blocked"},
		{name: "one of two clusters is reached, and not all nodes of that are watched", stage: probe.Answered, to: cart,
			arrives: Sometimes, change: func(f *Fleet) { down(connectionTo(f, 1, 3), nil) },
			nodes: passes(map[string][]string{"c2/c2-gw": nil}), failed: map[string]string{"c2/c2-gw": "forbidden"}},
		{name: "a node's source port is replaced", from: "host", to: cart, stage: none, arrives: Unknown},
		{name: "a node's source port is replaced, and it passes", from: "host", to: cart, stage: probe.Answered,
			arrives: Arrives},
		{name: "a node that does not tell of rules", stage: none, arrives: Lost, at: "c1/c1-gw", step2: stepRoute,
			nodes: until("c1/c1-gw", "syn in sl-vx", "missed rules operation not supported"), without: "no rule"},
		{name: "a node that does not tell of all packets, and not of this one as it leaves", stage: none, arrives: Unknown,
			nodes: until("c1/c1-gw", "syn in sl-vx", "missed packets too many")},
		{name: "a node that does not tell of all packets, and of none of the answer", stage: none, arrives: Unknown,
			nodes: until("c2/c2-w", "syn in sl-vx", "syn out veth2", "missed packets too many")},
		{name: "a node behind the cable that does not tell of all packets", stage: none, arrives: Unknown,
			nodes: map[string][]string{"c1/c1-w": passes(nil)["c1/c1-w"][:2], "c1/c1-gw": passes(nil)["c1/c1-gw"][:2],
				"c2/c2-gw": {"missed packets too many"}}},
		{name: "a datagram is answered", udp: true, stage: probe.Answered, arrives: Arrives, nodes: map[string][]string{
			"c1/c1-w":  {"udp in veth1", "udp out sl-vx", "back in sl-vx", "back out veth1"},
			"c1/c1-gw": {"udp in sl-vx", "udp out sl-c0", "back in sl-c0", "back out sl-vx"},
			"c2/c2-gw": {"udp in sl-c0", "udp out sl-vx", "back in sl-vx", "back out sl-c0"},
			"c2/c2-w":  {"udp in sl-vx", "udp out veth2", "back in veth2", "back out sl-vx"}}},
		{name: "a datagram is delivered, and nothing answers it", udp: true, stage: none, arrives: Arrives,
			nodes: datagram()},
		{name: "a datagram is delivered where the objects say that none can be", udp: true, stage: none, arrives: Unknown,
			nodes: datagram(), at: "", change: func(f *Fleet) { down(connectionTo(f, 1, 2), ptr.To(false)) }},
		{name: "a datagram is dropped", udp: true, stage: none, arrives: Lost, at: "c2/c2-gw", step2: stepDropped,
			nodes: map[string][]string{"c1/c1-w": datagram()["c1/c1-w"], "c1/c1-gw": datagram()["c1/c1-gw"],
				"c2/c2-gw": {"udp in sl-c0", "udp dropped inet fw forward: udp dport 8080 drop"}}},
		{name: "a wrong port of UDP", udp: true, stage: probe.Refused, err: "connection refused", arrives: Lost,
			at: "c2/c2-w", step2: stepDelivery, nodes: datagram("udp refused 10.9.1.7 port unreachable")},
		{name: "a wrong port of UDP, of which the source does not hear", udp: true, stage: none, arrives: Lost,
			at: "c2/c2-w", step2: stepDelivery, nodes: datagram("udp refused 10.9.1.7 port unreachable")},
		{name: "the source's own network namespace drops what it sends", udp: true, stage: probe.Denied, arrives: Lost,
			err: "operation not permitted", at: "c1/c1-w", step2: stepSource},
		{name: "a rule drops what a node sends", from: "host", udp: true, stage: probe.Denied, arrives: Lost,
			err: "operation not permitted", at: "c1/c1-w", step2: stepDropped,
			nodes: map[string][]string{"c1/c1-w": {"udp dropped inet fw output: udp dport 8080 drop"}}},
		{name: "a rule drops the connections of a node", from: "host", stage: none, arrives: Lost, at: "c1/c1-w",
			step2: stepDropped, nodes: map[string][]string{"c1/c1-w": {"syn dropped inet fw output: tcp dport 8080 drop"}}},
		{name: "a datagram for a node's own program", udp: true, to: "172.31.1.12", server: "172.31.1.12", stage: none,
			arrives: Arrives, nodes: map[string][]string{"c1/c1-w": {"udp in veth1", "udp out eth0"},
				"c1/c1-gw": {"udp in eth0", "route lo"}}},
		{name: "nothing could be sent", arrives: Unknown, step: &Step{At: "c1/c1-w", Name: stepProbe, Verdict: Warn,
			Expected: "to add an ephemeral container", Found: "forbidden", Remedy: "have the right"}},
	}
}

// datagram that comes to c2's worker, which tells more.
func datagram(more ...string) map[string][]string {
	return map[string][]string{"c1/c1-w": {"udp in veth1", "udp out sl-vx"}, "c1/c1-gw": {"udp in sl-vx", "udp out sl-c0"},
		"c2/c2-gw": {"udp in sl-c0", "udp out sl-vx"}, "c2/c2-w": append([]string{"udp in sl-vx", "udp out veth2"}, more...)}
}

// manyBackends has c2 serve cart from as many more workers.
func manyBackends(n int) func(f *Fleet) {
	return func(f *Fleet) {
		addresses := []string{pod2}
		for i := range n {
			c2 := &f.Members[1].Network
			c2.Nodes = append(c2.Nodes, nodeIn(fmt.Sprintf("c2-w%d", i+2), fmt.Sprintf("172.31.2.%d", 100+i),
				fmt.Sprintf("10.9.%d.0/24", 3+i)))
			addresses = append(addresses, fmt.Sprintf("10.9.%d.7", 3+i))
		}
		f.Members[0].Slices[0] = slice("c2", addresses...)
	}
}

// judge returns what is made of the probe, and what the objects say without it.
func (s liveSituation) judge() (live, objects Explanation) {
	f := world()
	if s.change != nil {
		s.change(f)
	}
	to := s.to
	if to == "" {
		to = pod2
	}
	port := uint16(8080)
	if s.to != "" {
		port = 80
	}
	r := situation{from: s.from, to: to, port: port}.request(f)
	if s.udp {
		r.Port.Protocol = corev1.ProtocolUDP
	}
	e, target := Aim(f, r)
	sent := Sent{Port: livePort, Mark: liveFlow, Failed: s.step, Result: probe.Knocked{Stage: s.stage, Error: s.err,
		To: netip.MustParseAddr(pod2), Took: time.Second}}
	var watched []Watched
	for _, spot := range target.Spots {
		w := Watched{Spot: spot, Failed: s.failed[spot.String()]}
		for _, text := range slices.Concat(s.nodes[spot.String()], s.also[spot.String()]) {
			w.Lines = append(w.Lines, sight(text, cmp.Or(s.server, pod2)))
		}
		if w.Failed == "" {
			w.Lines = append(w.Lines, trace.Line{Ended: true})
		}
		watched = append(watched, w)
	}
	return Judge(e, target, sent, watched), e
}

// TestLiveSituations compares what is made of sightings with the golden file.
func TestLiveSituations(t *testing.T) {
	var out bytes.Buffer
	for _, s := range liveSituations() {
		e, objects := s.judge()
		before := len(objects.Steps)
		fmt.Fprintf(&out, "== %s\n", s.name)
		shown := e
		if gocmp.Equal(objects.Steps, e.Steps[:before]) {
			shown.Steps = e.Steps[before:] // such as those before are in the other golden file
		}
		shown.Print(&out)
		fmt.Fprintf(&out, "error: %v\n\n", e.Err())
		at, step := "", ""
		if l := e.lost(); l != nil && e.Arrives == Lost {
			at, step = l.At, l.Name
		}
		if e.Arrives != s.arrives || at != s.at || step != s.step2 || s.last != "" && e.Live.LastSeen != s.last {
			t.Errorf("%s: arrives %s, lost at %q %s, last seen %q", s.name, e.Arrives, at, step, e.Live.LastSeen)
		}
		for i, step := range e.Steps {
			if i >= before && s.without != "" && strings.Contains(step.Found, s.without) {
				t.Errorf("%s: %q is in %+v", s.name, s.without, step)
			}
			if step.Verdict != OK && step.Name != "tunnel" && // the objects alone, where it is among the facts of a name
				(step.Expected == "" || step.Remedy == "" || step.Found == "") {
				t.Errorf("%s: nobody can act on %+v", s.name, step)
			}
		}
		text, err := json.Marshal(e)
		var back Explanation
		if err != nil || json.Unmarshal(text, &back) != nil || !gocmp.Equal(e, back) {
			t.Errorf("%s: in JSON it is %s (%v)", s.name, text, err)
		}
	}
	const golden = "testdata/live.golden"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("the verdicts changed (-update rewrites them):\n%s", diff)
	}
}

// TestAProbeIsAimed: at what the source would connect to, and watched on the nodes of the way and on all gateways.
func TestAProbeIsAimed(t *testing.T) {
	const all = " 80/tcp [c1/c1-w c1/c1-gw c2/c2-gw c2/c2-w c3/c3-gw c3/c3-w]"
	for _, c := range []struct {
		to   string
		port uint16
		want string
	}{
		{cart, 0, cart + all},
		{"_http._tcp." + cart, 0, cart + all},
		{pod2, 8080, "10.9.1.7 8080/tcp [c1/c1-w c1/c1-gw c2/c2-gw c2/c2-w]"},
		{"c2/" + pod2, 0, "10.9.1.7 tcp [c1/c1-w c1/c1-gw c2/c2-gw c2/c2-w]"},
		{"10.101.0.10", 0, "10.101.0.10" + all},
	} {
		f := world()
		_, target := Aim(f, situation{to: c.to, port: c.port}.request(f))
		got := fmt.Sprintf("%s %s %v", target.Host, target.Port, target.Spots)
		if got != c.want || target.Source.String() != "c1/c1-w" || target.Port.Protocol != corev1.ProtocolTCP {
			t.Errorf("%s: %s, want %s", c.to, got, c.want)
		}
	}
}
