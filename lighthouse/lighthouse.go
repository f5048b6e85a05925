// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/fall"
	"github.com/miekg/dns"
)

// Name of the plugin and of its directive.
const Name = "lighthouse"

// optLength is the length of the OPT record that CoreDNS adds to a reply.
const optLength = 11

// Lighthouse answers the names of the clusterset.
type Lighthouse struct {
	next plugin.Handler
	fall fall.F
	// ttl of every record, in seconds, where the directive sets one; else nil, and that of the Peering counts.
	ttl      *uint32
	current  atomic.Pointer[Snapshot]
	measures *measures
}

// Name implements plugin.Handler.
func (l *Lighthouse) Name() string { return Name }

// Ready implements ready.Readiness: true once every kind of object was read.
func (l *Lighthouse) Ready() bool { return l.current.Load().ready }

// ServeDNS implements plugin.Handler.
func (l *Lighthouse) ServeDNS(ctx context.Context, w dns.ResponseWriter, query *dns.Msg) (int, error) {
	start := time.Now()
	s := l.current.Load()
	q := parseName(query.Question[0].Name, s.zones)
	var r *reply
	var outcome result
	if q.kind != nameOutside {
		r, outcome = l.answer(s, &q, w, query)
	} else if r, outcome = l.answerAddress(s, w, query); r == nil && outcome == resultSuccess {
		if l.next == nil {
			return dns.RcodeRefused, nil
		}
		return plugin.NextOrFailure(Name, l.next, ctx, w, query)
	}
	l.measures.count(outcome, query.Question[0].Qtype)
	switch outcome {
	case resultFallthrough:
		return plugin.NextOrFailure(Name, l.next, ctx, w, query)
	case resultRefused:
		return dns.RcodeRefused, nil
	case resultNotReady:
		return dns.RcodeServerFailure, nil
	}
	if len(r.Extra) > 0 && r.Len()+optLength > r.room() {
		// They are only there to save a query; to leave out some would mark the answer as truncated.
		r.Extra = nil
	}
	l.measures.latency.Observe(time.Since(start).Seconds())
	if err := w.WriteMsg(&r.Msg); err != nil {
		return dns.RcodeServerFailure, fmt.Errorf("write reply: %w", err)
	}
	return dns.RcodeSuccess, nil
}

// answer makes the reply to a query in a zone. There is none when the query falls through or is not
// answered; then the result says why.
func (l *Lighthouse) answer(s *Snapshot, q *queryName, w dns.ResponseWriter, query *dns.Msg) (*reply, result) {
	question := query.Question[0]
	if query.Opcode != dns.OpcodeQuery || question.Qclass != dns.ClassINET ||
		question.Qtype == dns.TypeAXFR || question.Qtype == dns.TypeIXFR {
		return nil, resultRefused
	}
	if !s.ready {
		return nil, resultNotReady
	}
	ttl := l.ttlOf(s)
	soa := s.soa[slices.Index(s.zones, q.zone)]
	if !s.known(q) {
		if l.fall.Through(question.Name) {
			return nil, resultFallthrough
		}
		r := newReply(w, query)
		r.Rcode = dns.RcodeNameError
		r.deny(soa, ttl)
		return r, resultNameError
	}
	r := newReply(w, query)
	fill(r, s, q, soa, ttl)
	if len(r.Answer) == 0 {
		r.deny(soa, ttl)
		return r, resultNoData
	}
	return r, resultSuccess
}

// ttlOf returns the TTL of every record, in seconds.
func (l *Lighthouse) ttlOf(s *Snapshot) uint32 {
	if l.ttl != nil {
		return *l.ttl
	}
	return s.ttl
}

// fill adds the records that answer a known name.
func fill(r *reply, s *Snapshot, q *queryName, soa dns.SOA, ttl uint32) {
	var few [8][]net.IP
	switch r.question[0].Qtype {
	case dns.TypeA:
		r.addAddresses(s.addresses(few[:0], q, ipv4), ipv4, ttl)
	case dns.TypeAAAA:
		r.addAddresses(s.addresses(few[:0], q, ipv6), ipv6, ttl)
	case dns.TypeSRV:
		r.addTargets(s.targets(q), q.zone, ttl)
	case dns.TypeTXT:
		if q.kind == nameVersion {
			r.addVersion(ttl)
		}
	case dns.TypeSOA:
		if q.kind == nameApex {
			r.addSOA(soa, ttl)
		}
	case dns.TypeNS:
		if q.kind == nameApex {
			r.addNS(soa, ttl)
			r.addExtra(soa.Ns, &s.server, ttl)
		}
	}
}
