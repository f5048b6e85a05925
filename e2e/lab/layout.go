// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"path/filepath"
)

// maxLabs is how many labs can stand side by side on one machine.
const maxLabs = 32

// Ports on the lab's own address. Member i adds 10*i to those named member.
const (
	portEtcdClient         = 12379
	portEtcdPeer           = 12380
	portKarmadaAPI         = 15443
	portKarmadaKCM         = 15257
	portKarmadaCM          = 15080
	portKarmadaCMHealth    = 15357
	portKarmadaSched       = 15180
	portKarmadaSchedHealth = 15351
	portKarmadaWebhook     = 18443
	portWebhookMetrics     = 18080
	portWebhookHealth      = 18000
	portMemberAPI          = 16443
	portMemberKCM          = 16444
	portMemberSched        = 16445
	portMemberAgent        = 16446
	portMemberAgentHealth  = 16447
	// The aggregated API server is found through the name localhost, so its
	// port has to differ from lab to lab: this plus the lab's index.
	portAggregated = 17443
)

// layout is every name, address and port of a lab, derived from its index.
type layout struct {
	index int
	dir   string
}

// hostLink is the lab's one link in the host's network namespace; being the
// prefix of everything else, it also names the lab in the kernel.
func (l layout) hostLink() string { return fmt.Sprintf("lab%d", l.index) }

func (l layout) underlayNetns() string { return l.hostLink() + "-ul" }

func (l layout) nodeNetns(node string) string { return l.hostLink() + "-" + node }

// prefix4 is the /20 that holds all of the lab's underlay subnets, a slice of
// 172.30.0.0/15.
func (l layout) prefix4() netip.Prefix {
	n := l.index << 12
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(30 + n>>16), byte(n >> 8), 0}), 20)
}

// prefix6 is the /56 that holds all of the lab's IPv6 underlay subnets.
func (l layout) prefix6() netip.Prefix {
	a := [16]byte{0xfd, 0x5e, 0xa1, 0xa9, 0xe0, 0, byte(l.index), 0}
	return netip.PrefixFrom(netip.AddrFrom16(a), 56)
}

// subnet returns the underlay subnet of a family; 0 is the host's, i+1 that of
// the i-th cluster.
func (l layout) subnet(family string, i int) netip.Prefix {
	if family == IPv4 {
		a := l.prefix4().Addr().As4()
		a[2] += byte(i)
		return netip.PrefixFrom(netip.AddrFrom4(a), 24)
	}
	a := l.prefix6().Addr().As16()
	a[7] = byte(i)
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// hostAddr is where the lab's control planes listen.
func (l layout) hostAddr(family string) netip.Addr { return offset(l.subnet(family, 0), 1) }

// underlayAddr is the underlay's end of the host link.
func (l layout) underlayAddr(family string) netip.Addr { return offset(l.subnet(family, 0), 2) }

// routerAddr is the default gateway of the nodes of the i-th cluster.
func (l layout) routerAddr(family string, cluster int) netip.Addr {
	return offset(l.subnet(family, cluster+1), 1)
}

// nodeAddr is the address of the j-th node of the i-th cluster.
func (l layout) nodeAddr(family string, cluster, node int) netip.Addr {
	return offset(l.subnet(family, cluster+1), 11+node)
}

func (l layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.dir}, elem...)...)
}

func (l layout) nodePath(node string, elem ...string) string {
	return l.path(append([]string{"nodes", node}, elem...)...)
}

// offset is the n-th address of a prefix, n < 256.
func offset(p netip.Prefix, n int) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := len(b) - 1; n > 0 && i >= 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// nodeBits is the length of a node's pod CIDR where the cluster's is wide.
func nodeBits(a netip.Addr) int {
	if a.Is4() {
		return 24
	}
	return 64
}

// nodePodCIDRs cuts one pod CIDR per family out of the cluster's for its j-th
// node: nodes take turns among the prefixes of a family.
func (c Cluster) nodePodCIDRs(j int) []netip.Prefix {
	var cidrs []netip.Prefix
	for _, family := range c.IPFamilies {
		pool := prefixesOf(c.PodCIDRs, family)
		cidrs = append(cidrs, slice(pool[j%len(pool)], j/len(pool), len(c.Nodes)))
	}
	return cidrs
}

// slice is the i-th of at least n equal parts of p, at most a node's usual size.
func slice(p netip.Prefix, i, n int) netip.Prefix {
	bits := max(nodeBits(p.Addr()), p.Bits())
	for n > 1<<(bits-p.Bits()) {
		bits++
	}
	b := p.Addr().AsSlice()
	for bit, v := bits-1, i; v > 0; bit, v = bit-1, v>>1 {
		b[bit/8] |= byte(v&1) << (7 - bit%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, bits)
}

func prefixesOf(cidrs []string, family string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range cidrs {
		if p, err := netip.ParsePrefix(s); err == nil && familyOf(p.Addr()) == family {
			ps = append(ps, p)
		}
	}
	return ps
}

// primaryServiceCIDRs are the service CIDRs kube-apiserver is started with, one
// per family; the others become ServiceCIDR objects.
func (c Cluster) primaryServiceCIDRs() (primary, further []netip.Prefix) {
	for _, family := range c.IPFamilies {
		ps := prefixesOf(c.ServiceCIDRs, family)
		primary = append(primary, ps[0])
		further = append(further, ps[1:]...)
	}
	return primary, further
}

// dnsAddr is the cluster DNS's ClusterIP: the tenth of the service CIDR.
func (c Cluster) dnsAddr() netip.Addr {
	primary, _ := c.primaryServiceCIDRs()
	return offset(primary[0], 10)
}
