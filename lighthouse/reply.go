// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"math/rand/v2"
	"net"

	"github.com/miekg/dns"
)

// schemaVersion is the version of the DNS schema of KEP-1645 that the plugin implements.
const schemaVersion = "1.0.0"

// reply is a message with room for the usual answer, one address, so that it takes one allocation.
type reply struct {
	dns.Msg
	question [1]dns.Question
	record   [1]dns.RR
	a        dns.A
	aaaa     dns.AAAA
}

// newReply returns an empty authoritative reply. Its records have the owner name in the query's own case.
func newReply(query *dns.Msg) *reply {
	r := &reply{question: [1]dns.Question{query.Question[0]}}
	r.Id = query.Id
	r.Response = true
	r.Opcode = query.Opcode
	r.RecursionDesired = query.RecursionDesired
	r.CheckingDisabled = query.CheckingDisabled
	r.Authoritative = true
	r.Question = r.question[:]
	return r
}

// header of a record of the name asked for.
func (r *reply) header(rrtype uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: r.question[0].Name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
}

// addAddresses answers with addresses. Several begin with one at random: clients tend to take the first,
// and a truncated answer would else always leave out the same ones.
func (r *reply) addAddresses(lists [][]net.IP, f family, ttl uint32) {
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	switch n {
	case 0:
		return
	case 1:
		r.Answer = r.record[:0]
		for _, list := range lists {
			for _, ip := range list {
				r.Answer = append(r.Answer, r.single(ip, f, ttl))
			}
		}
		return
	}
	r.Compress = true
	r.Answer = make([]dns.RR, n)
	i := rand.IntN(n)
	put := func(rr dns.RR) {
		r.Answer[i] = rr
		if i++; i == n {
			i = 0
		}
	}
	if f == ipv4 {
		records := make([]dns.A, 0, n)
		for _, list := range lists {
			for _, ip := range list {
				records = append(records, dns.A{Hdr: r.header(dns.TypeA, ttl), A: ip})
				put(&records[len(records)-1])
			}
		}
		return
	}
	records := make([]dns.AAAA, 0, n)
	for _, list := range lists {
		for _, ip := range list {
			records = append(records, dns.AAAA{Hdr: r.header(dns.TypeAAAA, ttl), AAAA: ip})
			put(&records[len(records)-1])
		}
	}
}

// single returns the reply's own address record.
func (r *reply) single(ip net.IP, f family, ttl uint32) dns.RR {
	if f == ipv4 {
		r.a = dns.A{Hdr: r.header(dns.TypeA, ttl), A: ip}
		return &r.a
	}
	r.aaaa = dns.AAAA{Hdr: r.header(dns.TypeAAAA, ttl), AAAA: ip}
	return &r.aaaa
}

// addVersion answers with the version of the schema.
func (r *reply) addVersion(ttl uint32) {
	r.Answer = append(r.record[:0], &dns.TXT{Hdr: r.header(dns.TypeTXT, ttl), Txt: []string{schemaVersion}})
}

// addNS answers with the name server of the zone.
func (r *reply) addNS(soa dns.SOA, ttl uint32) {
	r.Answer = append(r.record[:0], &dns.NS{Hdr: r.header(dns.TypeNS, ttl), Ns: soa.Ns})
}

// addSOA answers with the SOA of the zone.
func (r *reply) addSOA(soa dns.SOA, ttl uint32) {
	soa.Hdr.Name, soa.Hdr.Ttl, soa.Minttl = r.question[0].Name, ttl, ttl
	r.Answer = append(r.record[:0], &soa)
}

// deny says with the SOA that there is no answer (RFC 2308 §2), for as long as a positive answer lives.
func (r *reply) deny(soa dns.SOA, ttl uint32) {
	soa.Hdr.Ttl, soa.Minttl = ttl, ttl
	r.Ns = append(r.record[:0], &soa)
}

// newSOA returns a zone's SOA without its TTLs.
func newSOA(zone string, serial uint32) dns.SOA {
	return dns.SOA{
		Hdr:     dns.RR_Header{Name: zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET},
		Ns:      "ns.dns." + zone,
		Mbox:    "hostmaster." + zone,
		Serial:  serial,
		Refresh: 7200,
		Retry:   1800,
		Expire:  86400,
	}
}
