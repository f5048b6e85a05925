// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/memberagent/node"
)

// BenchmarkSilentNodes measures, in cores, what a node spends on nodes of other clusters that never answer, while they
// are all tried and while they all rest, and how many packets it sends to them.
func BenchmarkSilentNodes(b *testing.B) {
	for _, n := range []int{64, 512} {
		for _, state := range []string{"tried", "resting"} {
			b.Run(fmt.Sprintf("cable=wireguard/nodes=%d/%s", n, state), func(b *testing.B) {
				benchSilentNodes(b, n, state == "tried")
			})
		}
	}
}

func benchSilentNodes(b *testing.B, n int, tried bool) {
	private, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		b.Fatal(err)
	}
	own, holder := cable.OneKey(private), cable.NewHolder(logr.Discard())
	defer holder.Close()
	w, err := cable.OpenWireGuard(own, holder)
	if err != nil {
		b.Fatal(err)
	}
	const link = "bench-c0" // its control socket is in a directory of the host's
	if err := w.Create(link, benchMTU); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = w.Delete(link) }()
	if err := w.Set(plan.Tunnel{Link: link, ListenPort: benchPort - 1, ID: own.Current()}); err != nil {
		b.Fatal(err)
	}
	script := fmt.Sprintf(`ip link del silent 2>/dev/null || true; ip link add silent type veth peer name silent1
		ip link set silent up; ip link set silent1 up; ip addr add %s/24 dev silent
		ip neigh replace %s lladdr 02:00:00:00:00:01 dev silent
		ip addr add %s/128 dev %s nodad; ip link set %[4]s mtu %d up`, benchHere, benchThere, plan.ULA(own.Current()), link,
		benchMTU)
	targets := map[netip.Addr]node.Target{}
	for range n {
		var id [wgtypes.KeyLen]byte
		_, _ = rand.Read(id[:])
		address := plan.MeshULA(plan.PeerID(id[:]))
		script += fmt.Sprintf("; ip -6 route add %s/128 dev %s src %s", address, link, plan.ULA(own.Current()))
		if tried {
			targets[address] = node.Target{Interval: time.Second}
		}
		if err := w.SetPeer(plan.TunnelPeer{Link: link, Peer: plan.Peer{ID: plan.PeerID(id[:]),
			Candidates: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(benchThere), benchPort)},
			AllowedIPs: []netip.Prefix{netip.PrefixFrom(address, 128)}}}, true); err != nil {
			b.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(b.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	p, err := node.NewProber(true, func() {})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	p.Set(targets, 50*time.Millisecond, 3)
	time.Sleep(3 * time.Second) // until it is known of all that they do not answer
	sent := func() (sum int64) {
		states, err := w.Peers(link)
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range states {
			sum += s.SentBytes
		}
		return sum
	}
	const handshake = 148
	bytes, used, start := sent(), processorTime(b), time.Now()
	for range b.N {
		time.Sleep(10 * time.Second)
	}
	passed := time.Since(start).Seconds()
	b.ReportMetric((processorTime(b)-used).Seconds()/passed, "cores")
	b.ReportMetric(float64(sent()-bytes)/handshake/passed, "handshakes/s")
	b.ReportMetric(0, "ns/op")
}
