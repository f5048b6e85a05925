// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Dropped is the number of packets that a rule in a chain of Sealane's IPv4 table has dropped. The rule is given by
// its beginning, as nft lists it.
func Dropped(ctx context.Context, node, chain, rule string) (int, error) {
	out, err := Lab().InNode(ctx, node, "nft", "list", "chain", "ip", "sealane", chain)
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		m := regexp.MustCompile(`counter packets (\d+) bytes \d+ drop`).FindStringSubmatch(line)
		if m != nil && strings.HasPrefix(strings.TrimSpace(line), rule) {
			return strconv.Atoi(m[1])
		}
	}
	return 0, fmt.Errorf("no rule %q that counts what it drops in chain %s on %s:\n%s", rule, chain, node, out)
}

// NodeAddr is the IPv4 address of a node in the underlay.
func NodeAddr(node string) netip.Addr {
	return netip.MustParseAddr(Lab().NodeAddress(node, "IPv4"))
}

// PodNetworkAddr is the node's own address in its pod network. A host port that is open on all addresses is open on
// it too.
func PodNetworkAddr(t *testing.T, cluster, node string) netip.Addr {
	t.Helper()
	cidr, err := JSONPath(t.Context(), cluster, "{.spec.podCIDR}", "node", node)
	if err != nil {
		t.Fatal(err)
	}
	network, err := netip.ParsePrefix(cidr)
	if err != nil {
		t.Fatal(err)
	}
	var found netip.Addr
	InNetns(t, node, func() error {
		addresses, err := net.InterfaceAddrs()
		for _, a := range addresses {
			if p, ok := netip.ParsePrefix(a.String()); ok == nil && network.Contains(p.Addr()) {
				found = p.Addr()
			}
		}
		return err
	})
	if !found.IsValid() {
		t.Fatalf("%s has no address in %s", node, network)
	}
	return found
}

// Foreign belongs to none of the clusters (RFC 5737): what is for it may leave a node.
var Foreign = netip.MustParsePrefix("203.0.113.7/32")

// SendMarked has nodes send marked datagrams to addresses until the end of the test, and captures on them.
func SendMarked(t *testing.T, nodes []string, to ...netip.Addr) map[string]*Capture {
	t.Helper()
	const every = 10 * time.Millisecond
	captures := map[string]*Capture{}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var senders sync.WaitGroup
	for _, node := range nodes {
		captures[node] = NewCapture(t, node)
		send := Sender(t, node)
		senders.Go(func() {
			for tick := time.NewTicker(every); ctx.Err() == nil; <-tick.C {
				for _, a := range to {
					send(netip.AddrPortFrom(a, 9), []byte(Marked+"clear"))
				}
			}
		})
	}
	t.Cleanup(func() {
		stop()
		senders.Wait()
	})
	return captures
}

// PodNetworkOf is the network of a cluster that a pod's address is in.
func PodNetworkOf(cluster string, pod netip.Addr) netip.Prefix {
	for _, c := range Lab().Topology.Clusters {
		for _, cidr := range c.PodCIDRs {
			if p := netip.MustParsePrefix(cidr); c.Name == cluster && p.Contains(pod) {
				return p
			}
		}
	}
	return netip.Prefix{}
}

// Marked is what a payload contains that a Capture keeps.
const Marked = "sealane-e2e-"

// sighting is a packet on a link of a node.
type sighting struct {
	link     string
	outgoing bool
	packet   []byte
}

// Capture keeps the marked packets that pass any link of a node: incoming ones before the firewall, outgoing ones
// after it.
type Capture struct {
	fd    int
	links map[int]string

	mu   sync.Mutex
	seen []sighting
}

// NewCapture captures on a node until the end of the test.
func NewCapture(t *testing.T, node string) *Capture {
	t.Helper()
	c := &Capture{links: map[int]string{}}
	InNetns(t, node, func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, l := range links {
			c.links[l.Index] = l.Name
		}
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(networkOrder(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		return unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go c.watch(ctx, ended)
	t.Cleanup(func() { cancel(); <-ended; _ = unix.Close(c.fd) })
	return c
}

func (c *Capture) watch(ctx context.Context, ended chan<- struct{}) {
	defer close(ended)
	packet := make([]byte, 1<<16)
	for ctx.Err() == nil {
		n, from, err := unix.Recvfrom(c.fd, packet, 0)
		link, ok := from.(*unix.SockaddrLinklayer)
		if err != nil || !ok || !bytes.Contains(packet[:n], []byte(Marked)) {
			continue
		}
		c.mu.Lock()
		c.seen = append(c.seen, sighting{c.links[link.Ifindex], link.Pkttype == unix.PACKET_OUTGOING,
			bytes.Clone(packet[:n])})
		c.mu.Unlock()
	}
}

// Sent lists the links, other than Sealane's, by which IPv4 packets to a network left, one for each packet. Links that
// were made since the capture began are left out: Sealane makes its own anew, and no other leads out of the node.
func (c *Capture) Sent(to netip.Prefix) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, s := range c.seen {
		const ipv4Header = 20
		if !s.outgoing || s.link == "" || strings.HasPrefix(s.link, "sl-") || len(s.packet) < ipv4Header ||
			s.packet[0]>>4 != 4 {
			continue
		}
		if to.Contains(netip.AddrFrom4([4]byte(s.packet[16:20]))) {
			out = append(out, s.link)
		}
	}
	return out
}

// Where lists the links on which a payload was seen: "> eth0" for incoming, "cni0 >" for outgoing.
func (c *Capture) Where(payload string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, s := range c.seen {
		if !bytes.Contains(s.packet, []byte(payload)) {
			continue
		}
		if s.outgoing {
			out = append(out, s.link+" >")
		} else {
			out = append(out, "> "+s.link)
		}
	}
	return out
}
