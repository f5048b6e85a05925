// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"iter"
	"net"
	"net/netip"
	"slices"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/miekg/dns"
)

// answerAddress makes the reply to a query outside the zones that asks for the name of an address (RFC 1035 §3.5,
// RFC 3596 §2.5). There is none, and the result is resultSuccess, where this server knows nothing of the address; else
// the result says why.
func (l *Lighthouse) answerAddress(s *Snapshot, w dns.ResponseWriter, query *dns.Msg) (*reply, result) {
	question := query.Question[0]
	if question.Qtype != dns.TypePTR || question.Qclass != dns.ClassINET || query.Opcode != dns.OpcodeQuery {
		return nil, resultSuccess
	}
	ip, err := netip.ParseAddr(dnsutil.ExtractAddressFromReverse(lower(question.Name)))
	if err != nil {
		return nil, resultSuccess
	}
	name := s.nameOf(ip)
	// The addresses of the cluster's other Services are its own DNS server's to answer.
	ours := l.next == nil && slices.ContainsFunc(s.networks, func(p netip.Prefix) bool { return p.Contains(ip) })
	switch {
	case name == "" && !ours:
		return nil, resultSuccess
	case !s.ready:
		return nil, resultNotReady
	}
	r := newReply(w, query)
	if name == "" {
		r.Rcode = dns.RcodeNameError
		return r, resultNameError
	}
	r.Answer = append(r.record[:0], &dns.PTR{Hdr: r.header(dns.TypePTR, l.ttlOf(s)), Ptr: name})
	return r, resultSuccess
}

// nameOf returns the name, in the first zone, of the service that has a ClusterSetIP, or "".
func (s *Snapshot) nameOf(ip netip.Addr) string {
	svc := s.services[s.reverse[ip]]
	if svc == nil || !svc.vips.has(ip) {
		return ""
	}
	name := svc.key + ".svc." + s.zones[0]
	if len(name)-1 > maxName {
		return ""
	}
	return name
}

// has says whether an address is among these.
func (a *addresses) has(ip netip.Addr) bool {
	for have := range a.all() {
		if have == ip {
			return true
		}
	}
	return false
}

// all returns the addresses of both families.
func (a *addresses) all() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, list := range [...][]net.IP{a.v4, a.v6} {
			for _, raw := range list {
				if ip, ok := netip.AddrFromSlice(raw); ok && !yield(ip) {
					return
				}
			}
		}
	}
}

// setReverse takes over the ClusterSetIPs of a ServiceImport, which had others before. The caller holds the lock.
func (x *index) setReverse(key string, before, now addresses) {
	for ip := range before.all() {
		if x.reverse[ip] == key {
			delete(x.reverse, ip)
		}
	}
	for ip := range now.all() {
		x.reverse[ip] = key
	}
	x.reversed = true
}
