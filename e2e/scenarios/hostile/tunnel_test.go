// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/suite"
)

// foreign belongs to none of the clusters (RFC 5737).
var foreign = netip.MustParseAddr("203.0.113.7")

// hostile is cluster c1 in bad hands: somebody is root on its gateway, sends what they like through the real
// cable, and has told its WireGuard that everything may go there. The cluster c2 looks on.
type hostile struct {
	send            suite.Injector
	gateway, worker *suite.Capture  // of c2
	ours, theirs    suite.WireGuard // of c1 and of c2
	ourPeer         suite.Peer
	theirPeer       suite.Peer
	// legitimate is a pod of c1 asking a pod of c2.
	from, to netip.AddrPort
	number   int
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	const client, server = 40000, 8080
	h := &hostile{
		send: suite.NewInjector(t, "c1-gw", suite.CableLink), gateway: suite.NewCapture(t, "c2-gw"),
		worker: suite.NewCapture(t, "c2-worker"),
		ours:   suite.WireGuardOf(t, "c1-gw"), theirs: suite.WireGuardOf(t, "c2-gw"),
		from: netip.AddrPortFrom(netip.MustParseAddr(suite.PodIP(t, "c1", "client-c1-gw")), client),
		to:   netip.AddrPortFrom(netip.MustParseAddr(suite.PodIP(t, "c2", "server-c2-gw")), server),
	}
	for _, end := range []struct {
		cluster string
		tunnel  suite.WireGuard
		peer    *suite.Peer
	}{{"c2", h.ours, &h.ourPeer}, {"c1", h.theirs, &h.theirPeer}} {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			key, err := suite.JSONPath(ctx, end.cluster, "{.status.endpoint.publicKey}", "gateway", end.cluster+"-gw")
			if err == nil {
				*end.peer, err = end.tunnel.Peer(ctx, key)
			}
			return err
		})
		t.Cleanup(func() {
			if err := end.tunnel.Allow(context.Background(), *end.peer, end.peer.Allowed...); err != nil {
				t.Error(err)
			}
		})
	}
	return h
}

// attack is one kind of packet that must get nowhere.
type attack struct {
	from, to netip.AddrPort
	payload  []byte
	// drop is the rule that counts it, on the node dies; "" says that it does not come out of the tunnel.
	node, chain, rule string
	// listener must not hear it.
	listener *suite.Listener
}

// try sends the attack, and after it a legitimate packet. That one arrives, and the tunnel keeps the order, so
// what became of the attack is decided by then.
func (h *hostile) try(t *testing.T, a attack) {
	t.Helper()
	var payload string
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		h.number++
		payload = fmt.Sprintf("%shostile-%06d ", suite.Marked, h.number)
		proof := fmt.Sprintf("%slegitimate-%06d ", suite.Marked, h.number)
		if err := h.ours.Allow(ctx, h.ourPeer, append(h.ourPeer.Allowed, "0.0.0.0/0")...); err != nil {
			return err
		}
		before, err := h.count(ctx, a)
		if err != nil {
			return err
		}
		// Large and many, to stand out in what the tunnel counts.
		body := append([]byte(payload), make([]byte, 1000)...)
		if a.payload != nil {
			body = suite.VXLAN(suite.Datagram{From: h.from, To: h.to, Payload: body}.Marshal(), a.payload)
		}
		for i := range uint16(volley) {
			// Of one flow, they would come out of the tunnel joined.
			from := netip.AddrPortFrom(a.from.Addr(), a.from.Port()+1+i)
			if err := h.send.Send(suite.Datagram{From: from, To: a.to, Payload: body}.Marshal()); err != nil {
				return err
			}
		}
		if err := h.send.Send(suite.Datagram{From: h.from, To: h.to, Payload: []byte(proof)}.Marshal()); err != nil {
			return err
		}
		if err := h.arrives(ctx, proof); err != nil {
			return err
		}
		return h.died(ctx, a, payload, before)
	})
	h.checkNowhere(t, a, payload)
}

const (
	// volley is how often an attack is sent.
	volley = 20
	// vxlanPort of the overlay.
	vxlanPort = 4800
)

// arrives waits for the legitimate packet to be handed to its pod.
func (h *hostile) arrives(ctx context.Context, proof string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if seen := h.gateway.Where(proof); slices.Contains(seen, "> "+suite.CableLink) && slices.ContainsFunc(seen, leaving) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the legitimate packet did not arrive either; it was seen at %q", h.gateway.Where(proof))
		case <-tick.C:
		}
	}
}

func leaving(where string) bool { return strings.HasSuffix(where, " >") }

// died expects the evidence: the packets came through the tunnel, and what was to count them did.
func (h *hostile) died(ctx context.Context, a attack, payload string, before int) error {
	after, err := h.count(ctx, a)
	if err != nil {
		return err
	}
	out := slices.Contains(h.gateway.Where(payload), "> "+suite.CableLink)
	switch {
	case a.rule == "" && after-before < volley*1000:
		return fmt.Errorf("c2's tunnel received %d bytes, expected at least %d", after-before, volley*1000)
	case a.rule == "":
		return nil
	case !out:
		return errors.New("the packets did not come out of c2's tunnel")
	case after-before < volley:
		return fmt.Errorf("%d packets counted by %q in chain %s on %s, expected %d", after-before, a.rule, a.chain,
			a.node, volley)
	}
	return nil
}

// checkNowhere is not repeated: once is once too often.
func (h *hostile) checkNowhere(t *testing.T, a attack, payload string) {
	t.Helper()
	allowed := []string{"> " + suite.CableLink}
	switch {
	case a.rule == "":
		allowed = nil
	case a.node == "c2-worker": // the way there
		allowed = append(allowed, "sl-vx >")
		for _, seen := range h.worker.Where(payload) {
			if seen != "> sl-vx" && seen != "> eth0" {
				t.Errorf("seen on c2's worker: %s", seen)
			}
		}
	}
	for _, seen := range h.gateway.Where(payload) {
		if !slices.Contains(allowed, seen) && (a.node != "c2-worker" || seen != "eth0 >") {
			t.Errorf("seen on c2's gateway: %s", seen)
		}
	}
	if a.listener != nil {
		a.listener.Flush(t, payload)
		if a.listener.Heard(payload) {
			t.Error("the host port heard it")
		}
	}
}

// count is what the attack should raise: a rule's packets, or the bytes that c2's tunnel received.
func (h *hostile) count(ctx context.Context, a attack) (int, error) {
	if a.rule == "" {
		raw, err := suite.JSONPath(ctx, "c1", "{.status.endpoint.publicKey}", "gateway", "c1-gw")
		if err != nil {
			return 0, err
		}
		p, err := h.theirs.Peer(ctx, raw)
		return p.Received, err
	}
	return suite.Dropped(ctx, a.node, a.chain, a.rule)
}

// The rules that drop, as nft lists them.
const (
	notToNodes   = `iifname "sl-c*" ip daddr @nodes`
	notBehind    = `iifname "sl-c*" counter`
	notToHost    = `iifname "sl-*" ip daddr @pods ct state invalid,new,untracked`
	notFromNode  = `udp dport 4800 ip saddr != @nodes`
	notAtPodAddr = `udp dport 4800 ip daddr != @nodes fib daddr type local`
)

// TestAHostileClusterReachesOnlyPodsAndServices: whatever its gateway sends through the tunnel.
func TestAHostileClusterReachesOnlyPodsAndServices(t *testing.T) {
	h := newHostile(t)
	gateway, worker := suite.Listen(t, "c2-gw"), suite.Listen(t, "c2-worker")
	onGateway, onWorker := suite.NodeAddr("c2-gw"), suite.NodeAddr("c2-worker")
	inGateway, inWorker := suite.PodNetworkAddr(t, "c2", "c2-gw"), suite.PodNetworkAddr(t, "c2", "c2-worker")
	for node, l := range map[string]*suite.Listener{"c2-gw": gateway, "c2-worker": worker} {
		t.Run("the host port of "+node+" is open within the cluster", func(t *testing.T) {
			for _, to := range []netip.Addr{suite.NodeAddr(node), suite.PodNetworkAddr(t, "c2", node)} {
				l.WaitHeard(t, netip.AddrPortFrom(to, l.Port()), "control to "+to.String())
			}
		})
	}
	pod := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(h.to.Addr(), port) }
	spoof := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, h.from.Port()) }
	cases := []struct {
		name string
		attack
	}{
		{"from an address that is nobody's", attack{from: spoof(foreign), to: h.to}},
		{"from a pod of c2 itself", attack{from: spoof(h.to.Addr()), to: h.to}},
		{"from a node of c2", attack{from: spoof(onGateway), to: h.to}},
		{"from a node of its own", attack{from: spoof(suite.NodeAddr("c1-gw")), to: h.to}},
		{"to a host port of the gateway", attack{from: h.from, to: netip.AddrPortFrom(onGateway, gateway.Port()),
			node: "c2-gw", chain: "guard", rule: notToNodes, listener: gateway}},
		{"to a host port of a worker", attack{from: h.from, to: netip.AddrPortFrom(onWorker, worker.Port()),
			node: "c2-gw", chain: "guard", rule: notToNodes, listener: worker}},
		{"to a host port of the gateway, by its address among the pods",
			attack{from: h.from, to: netip.AddrPortFrom(inGateway, gateway.Port()),
				node: "c2-gw", chain: "host", rule: notToHost, listener: gateway}},
		{"to a host port of a worker, by its address among the pods", attack{from: h.from, to: netip.AddrPortFrom(inWorker,
			worker.Port()),
			node: "c2-worker", chain: "host", rule: notToHost, listener: worker}},
		{"to the nodes' network", attack{from: h.from, to: netip.AddrPortFrom(neighbourOf(onGateway), h.to.Port()),
			node: "c2-gw", chain: "guard", rule: notBehind}},
		{"to somewhere else on earth", attack{from: h.from, to: netip.AddrPortFrom(foreign, h.to.Port()),
			node: "c2-gw", chain: "guard", rule: notBehind}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { h.try(t, c.attack) })
	}
	for _, c := range suite.Lab().Topology.Clusters[2:] {
		other := netip.MustParsePrefix(c.PodCIDRs[0]).Addr().Next()
		t.Run("from a pod of "+c.Name, func(t *testing.T) { h.try(t, attack{from: spoof(other), to: h.to}) })
	}
	t.Run("from an address that is nobody's, were the tunnel to let it through", func(t *testing.T) {
		if err := h.theirs.Allow(t.Context(), h.theirPeer, append(h.theirPeer.Allowed, foreign.String()+
			"/32")...); err != nil {
			t.Fatal(err)
		}
		h.try(t, attack{from: spoof(foreign), to: pod(h.to.Port()), node: "c2-gw", chain: "guard", rule: notBehind})
	})
}

// TestOnlyNodesSpeakVXLAN: what the overlay unpacks is believed, so nobody else may hand it anything.
func TestOnlyNodesSpeakVXLAN(t *testing.T) {
	h := newHostile(t)
	var mac net.HardwareAddr
	suite.InNetns(t, "c2-gw", func() error {
		l, err := net.InterfaceByName("sl-vx")
		if err == nil {
			mac = l.HardwareAddr
		}
		return err
	})
	inner := func(word string) []byte {
		return suite.VXLAN(suite.Datagram{From: h.from, To: h.to, Payload: []byte(word)}.Marshal(), mac)
	}
	gateway, among := netip.AddrPortFrom(suite.NodeAddr("c2-gw"), vxlanPort),
		netip.AddrPortFrom(suite.PodNetworkAddr(t, "c2", "c2-gw"), vxlanPort)

	t.Run("a node of the cluster is heard", func(t *testing.T) {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error { return h.unpacked(ctx, t, gateway, inner) })
	})
	t.Run("through the tunnel to the node's address", func(t *testing.T) {
		h.try(t, attack{from: h.from, to: gateway, payload: mac, node: "c2-gw", chain: "guard", rule: notFromNode})
	})
	t.Run("through the tunnel to the node's address among the pods", func(t *testing.T) {
		h.try(t, attack{from: h.from, to: among, payload: mac, node: "c2-gw", chain: "guard", rule: notAtPodAddr})
	})
	t.Run("past the tunnel, from a machine that is no node", func(t *testing.T) {
		h.ignored(t, notFromNode, func(ctx context.Context, word string) {
			suite.SendUDP(ctx, t, "c1-gw", gateway,
				inner(word))
		}, inner)
	})
	t.Run("from a pod of the cluster", func(t *testing.T) {
		for to, rule := range map[netip.AddrPort]string{gateway: notFromNode, among: notAtPodAddr} {
			h.ignored(t, rule, func(ctx context.Context, _ string) {
				if out, err := suite.InPod(ctx, "c2", "client-c2-gw", "udp", "-timeout=50ms", to.String(), "64"); err == nil {
					t.Errorf("somebody answers a pod at %s: %s", to, out)
				}
			}, inner)
		}
	})
}

// unpacked expects what a worker sends to the overlay to come out of it on c2's gateway.
func (h *hostile) unpacked(ctx context.Context, t *testing.T, to netip.AddrPort, inner func(string) []byte) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	h.number++
	word := fmt.Sprintf("%slegitimate-%06d ", suite.Marked, h.number)
	suite.SendUDP(ctx, t, "c2-worker", to, inner(word))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !slices.Contains(h.gateway.Where(word), "> sl-vx") {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not unpacked: seen at %q", h.gateway.Where(word))
		case <-tick.C:
		}
	}
	return nil
}

// ignored expects that c2's gateway counts what is sent, and unpacks only what a node sends after it.
func (h *hostile) ignored(t *testing.T, rule string, send func(ctx context.Context, word string),
	inner func(string) []byte) {
	t.Helper()
	word := ""
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		before, err := suite.Dropped(ctx, "c2-gw", "guard", rule)
		if err != nil {
			return err
		}
		h.number++
		word = fmt.Sprintf("%shostile-%06d ", suite.Marked, h.number)
		send(ctx, word)
		if err := h.unpacked(ctx, t, netip.AddrPortFrom(suite.NodeAddr("c2-gw"), vxlanPort), inner); err != nil {
			return err
		}
		after, err := suite.Dropped(ctx, "c2-gw", "guard", rule)
		if err == nil && after == before {
			err = fmt.Errorf("nothing dropped by %q", rule)
		}
		return err
	})
	if slices.Contains(h.gateway.Where(word), "> sl-vx") {
		t.Error("unpacked")
	}
}

// neighbourOf is another address of the same network, which is no node's.
func neighbourOf(a netip.Addr) netip.Addr {
	const bits, host = 24, 250
	b := netip.PrefixFrom(a, bits).Masked().Addr().As4()
	b[3] = host
	return netip.AddrFrom4(b)
}
