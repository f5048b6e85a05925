// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"net"
	"net/netip"
	"testing"
)

// family is one of the two that the twins have networks and blocks of, as nft calls it.
type family string

const (
	ofIPv4 family = "ip"
	ofIPv6 family = "ip6"
)

// tcp and udp are the networks of package net.
func (f family) tcp() string { return f.choose("tcp4", "tcp6") }
func (f family) udp() string { return f.choose("udp4", "udp6") }

// networks are both of them.
func (f family) networks() []string { return []string{f.tcp(), f.udp()} }

// choose is one of two.
func (f family) choose(ipv4, ipv6 string) string {
	if f == ofIPv6 {
		return ipv6
	}
	return ipv4
}

// global is one of the twins' global addresses of IPv4, or what stands for it.
func (f family) global(ip string) string {
	if f == ofIPv6 {
		return six(ip)
	}
	return ip
}

// port is that with a port.
func (f family) port(ip, port string) string { return net.JoinHostPort(f.global(ip), port) }

// block of one of the twins.
func (f family) block(cluster string) netip.Prefix {
	return netip.MustParsePrefix(f.choose(blocks[cluster], blocksIPv6[cluster]))
}

// podsOf are those of a machine.
func (f family) podsOf(m *machine) string { return f.choose(m.pods+".0/24", m.pods6+"::/64") }

// countedOf is what the machine's table test of a family has counted with a comment.
func (m *machine) countedOf(t *testing.T, f family, comment string) int {
	t.Helper()
	return counted(t, m.command("nft list table "+string(f)+" test"), comment)
}
