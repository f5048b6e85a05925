// SPDX-License-Identifier: Apache-2.0

package lighthouse

import "net"

// known says whether a name exists: has records of some type, or names below it.
func (s *Snapshot) known(q *queryName) bool {
	switch q.kind {
	case nameApex, nameVersion, nameServers, nameServer:
		return true
	case nameServices:
		return len(s.services) > 0
	case nameNamespace:
		return s.namespaces[q.namespace] > 0
	}
	svc := s.services[q.service]
	if svc == nil {
		return false
	}
	switch q.kind {
	case nameService:
		return true
	case nameCluster:
		return s.namedCluster(svc, q.cluster) != nil
	case nameHost:
		c := s.namedCluster(svc, q.cluster)
		return c != nil && c.host(q.host) != nil
	case namePort:
		return s.knownPort(svc, q)
	}
	return false
}

// knownPort says whether a service, or its part in a cluster, has a port of that name and protocol, or
// any port of that protocol when no name is asked for.
func (s *Snapshot) knownPort(svc *service, q *queryName) bool {
	var c *cluster
	if q.cluster != "" {
		if c = s.namedCluster(svc, q.cluster); c == nil {
			return false
		}
	}
	for i := range svc.ports {
		if svc.ports[i].matches(q) && (c == nil || c.serves(svc.ports[i].name)) {
			return true
		}
	}
	return false
}

// namedCluster returns a service's part in a cluster that names may mention, or nil.
func (s *Snapshot) namedCluster(svc *service, name string) *cluster {
	if !svc.headless && !s.clusterNames {
		return nil
	}
	return svc.cluster(name)
}

// addresses appends the lists of addresses that answer a name. The lists belong to the Snapshot.
func (s *Snapshot) addresses(lists [][]net.IP, q *queryName, f family) [][]net.IP {
	if q.kind == nameServer {
		return append(lists, s.server.of(f))
	}
	svc := s.services[q.service]
	if svc == nil {
		return lists
	}
	if q.kind == nameService {
		switch {
		case svc.clusterIPMode:
			if c := svc.pick(svc.balance.of(f)); c != nil {
				lists = append(lists, c.vips.of(f)[:1])
			}
			return lists
		case !svc.headless:
			return append(lists, svc.vips.of(f))
		}
		for i := range svc.clusters {
			if s.connected(svc.clusters[i].name) {
				lists = append(lists, svc.clusters[i].ready.of(f))
			}
		}
		return lists
	}
	c := s.namedCluster(svc, q.cluster)
	if c == nil || !s.connected(c.name) {
		return lists
	}
	switch {
	case q.kind == nameHost:
		if h := c.host(q.host); h != nil {
			lists = append(lists, h.of(f))
		}
	case q.kind == nameCluster && svc.headless:
		lists = append(lists, c.ready.of(f))
	case q.kind == nameCluster:
		lists = append(lists, c.vips.of(f))
	}
	return lists
}

// matches says whether a query asks for this port.
func (p *port) matches(q *queryName) bool {
	return p.protocol == q.protocol && (q.port == "" || p.name == q.port)
}
