// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"math/rand/v2"
	"net"

	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// schemaVersion is the version of the DNS schema of KEP-1645 that the plugin implements.
const schemaVersion = "1.0.0"

// reply is a message with room for the usual answer, one address, so that it takes one allocation.
type reply struct {
	dns.Msg
	// client and query say how many octets the reply may have.
	client   dns.ResponseWriter
	query    *dns.Msg
	question [1]dns.Question
	record   [1]dns.RR
	a        dns.A
	aaaa     dns.AAAA
}

// newReply returns an empty authoritative reply. Its records have the owner name in the query's own case.
func newReply(client dns.ResponseWriter, query *dns.Msg) *reply {
	r := &reply{client: client, query: query, question: [1]dns.Question{query.Question[0]}}
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
	count := r.fits(n, addressLength(f))
	r.Answer = make([]dns.RR, count)
	var v4 []dns.A
	var v6 []dns.AAAA
	if f == ipv4 {
		v4 = make([]dns.A, count)
	} else {
		v6 = make([]dns.AAAA, count)
	}
	i := rand.IntN(n)
	for _, list := range lists {
		for _, ip := range list {
			switch {
			case i >= count:
			case f == ipv4:
				v4[i] = dns.A{Hdr: r.header(dns.TypeA, ttl), A: ip}
				r.Answer[i] = &v4[i]
			default:
				v6[i] = dns.AAAA{Hdr: r.header(dns.TypeAAAA, ttl), AAAA: ip}
				r.Answer[i] = &v6[i]
			}
			if i++; i == n {
				i = 0
			}
		}
	}
}

// recordLength is the least length of a record without its data: a compressed name, type, class, TTL and length.
const recordLength = 12

// addressLength is the length of an address record.
func addressLength(f family) int {
	if f == ipv4 {
		return recordLength + net.IPv4len
	}
	return recordLength + net.IPv6len
}

// room returns how many octets the client takes.
func (r *reply) room() int { return (&request.Request{Req: r.query, W: r.client}).Size() }

// fits returns how many of n records of at least a length can fit the reply, and marks it as truncated where that is
// not all. More are not made; CoreDNS truncates the rest to the octet.
func (r *reply) fits(n, length int) int {
	if n*length <= dns.MinMsgSize {
		return n
	}
	most := max(r.room()/length, 1)
	if n <= most {
		return n
	}
	r.Truncated = true
	return most
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
