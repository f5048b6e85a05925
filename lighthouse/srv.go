// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"math/rand/v2"
	"slices"

	"github.com/miekg/dns"
)

// srvWeight is the weight of every SRV record: no target is preferred.
const srvWeight = 100

// target is what one SRV record points at.
type target struct {
	// name without the zone's "svc.<zone>".
	name string
	port uint16
	addresses
}

// targets returns what SRV records of a known name point at: the service, or its part in a cluster, once
// per port; of a headless service every endpoint, once per port that it listens on.
func (s *Snapshot) targets(q *queryName) (targets []target) {
	svc := s.services[q.service]
	if svc == nil {
		return nil
	}
	switch {
	case svc.clusterIPMode && q.cluster == "":
		return s.balancedTargets(q, svc)
	case !svc.headless && q.cluster == "":
		return svc.portTargets(q, svc.key, svc.vips, nil)
	}
	for i := range svc.clusters {
		c := &svc.clusters[i]
		if q.cluster != "" && (c.name != q.cluster || s.namedCluster(svc, c.name) == nil) || !s.connected(c.name) {
			continue
		}
		if !svc.headless {
			return svc.portTargets(q, c.name+"."+svc.key, c.vips, c)
		}
		targets = append(targets, c.hostTargets(q, svc.key)...)
	}
	return targets
}

// balancedTargets returns, of a service in ClusterIP mode, one cluster for each port asked for. Where names
// may not mention clusters the target is the service itself, with the cluster's addresses.
func (s *Snapshot) balancedTargets(q *queryName, svc *service) (targets []target) {
	for i := range svc.ports {
		if !svc.ports[i].asked(q) {
			continue
		}
		c := svc.pick(&svc.balance.ports[i])
		if c == nil {
			continue
		}
		t := target{name: svc.key, port: svc.ports[i].number, addresses: c.vips}
		if s.clusterNames {
			t.name = c.name + "." + svc.key
		}
		targets = append(targets, t)
	}
	return targets
}

// portTargets returns a target for each port asked for, of those that the cluster serves, if one is given.
func (svc *service) portTargets(q *queryName, name string, vips addresses, c *cluster) (targets []target) {
	if len(vips.v4)+len(vips.v6) == 0 {
		return nil
	}
	for i := range svc.ports {
		p := &svc.ports[i]
		if p.asked(q) && (c == nil || c.serves(p.name)) {
			targets = append(targets, target{name: name, port: p.number, addresses: vips})
		}
	}
	return targets
}

// hostTargets returns a target for each endpoint asked for and each of its ports asked for.
func (c *cluster) hostTargets(q *queryName, key string) (targets []target) {
	for i := range c.hosts {
		h := &c.hosts[i]
		if q.host != "" && h.label != q.host {
			continue
		}
		for j := range h.ports {
			if h.ports[j].asked(q) {
				name := h.label + "." + c.name + "." + key
				targets = append(targets, target{name: name, port: h.ports[j].number, addresses: h.addresses})
			}
		}
	}
	return targets
}

// asked says whether a query, which may name no port, asks for this one.
func (p *port) asked(q *queryName) bool {
	return q.kind != namePort || q.port != "" && p.matches(q)
}

// addTargets answers with SRV records, and adds the addresses of their targets, each record once. As with
// addresses, several begin with one at random.
func (r *reply) addTargets(targets []target, zone string, ttl uint32) {
	type record struct {
		name string
		port uint16
	}
	seen := make(map[record]struct{}, len(targets))
	resolved := make(map[string]struct{}, len(targets))
	r.Compress = true
	targets = rotated(targets)
	for _, t := range targets[:r.fits(len(targets), recordLength+srvLength)] {
		name := t.name + ".svc." + zone
		if len(name)-1 > maxName {
			// No message can hold it, nor any other record beside it.
			continue
		}
		if _, again := seen[record{name, t.port}]; again {
			continue
		}
		seen[record{name, t.port}] = struct{}{}
		r.Answer = append(r.Answer, &dns.SRV{
			Hdr: r.header(dns.TypeSRV, ttl), Weight: srvWeight, Port: t.port, Target: name,
		})
		if _, again := resolved[name]; !again {
			resolved[name] = struct{}{}
			r.addExtra(name, &t.addresses, ttl)
		}
	}
}

// addExtra adds the addresses of a name that an answer mentions.
func (r *reply) addExtra(name string, a *addresses, ttl uint32) {
	for _, ip := range a.v4 {
		hdr := dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}
		r.Extra = append(r.Extra, &dns.A{Hdr: hdr, A: ip})
	}
	for _, ip := range a.v6 {
		hdr := dns.RR_Header{Name: name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: ttl}
		r.Extra = append(r.Extra, &dns.AAAA{Hdr: hdr, AAAA: ip})
	}
}

// srvLength is the least length of an SRV record's data: priority, weight, port and the shortest name of a target.
const srvLength = 6 + len("a.b.c.d.svc.") + 2

// rotated returns the targets beginning with one at random.
func rotated(targets []target) []target {
	if len(targets) < 2 {
		return targets
	}
	first := rand.IntN(len(targets))
	return slices.Concat(targets[first:], targets[:first])
}
