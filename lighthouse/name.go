// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"strings"

	"github.com/miekg/dns"
)

// Limits of RFC 1035 §2.3.4, for names in text without the trailing dot.
const (
	maxLabel = 63
	maxName  = 253
)

// nameKind is the shape of a query name.
type nameKind uint8

const (
	// nameOutside is in none of the zones.
	nameOutside nameKind = iota
	// nameInvalid is in a zone and has a shape that no name of the schema has.
	nameInvalid
	// nameApex is the zone itself.
	nameApex
	// nameVersion is dns-version.<zone>.
	nameVersion
	// nameServers is dns.<zone>, which only has names below it.
	nameServers
	// nameServer is ns.dns.<zone>, which the zone's NS and SOA records name.
	nameServer
	// nameServices is svc.<zone>, which only has names below it.
	nameServices
	// nameNamespace is <namespace>.svc.<zone>, which only has names below it.
	nameNamespace
	// nameService is <service>.<namespace>.svc.<zone>.
	nameService
	// nameCluster is <cluster>.<service>.<namespace>.svc.<zone>.
	nameCluster
	// nameHost is <host>.<cluster>.<service>.<namespace>.svc.<zone>.
	nameHost
	// namePort is _<port>._<protocol>. before a service or before one of its clusters. Without a port it
	// only has names below it.
	namePort
)

// queryName is a parsed query name. Every part is in lower case and shares the memory of the name; a part
// that the kind does not have is empty.
type queryName struct {
	kind nameKind
	// zone that the name is in, with the trailing dot.
	zone string
	// service is "<service>.<namespace>", the key of a Snapshot.
	service   string
	namespace string
	cluster   string
	host      string
	// port and protocol, without the underscores.
	port     string
	protocol string
}

// parseName parses a query name in presentation format. The zones are in lower case, with the trailing dot,
// and the longest one that holds the name is taken.
func parseName(name string, zones []string) queryName {
	name = lower(name)
	zone := ""
	for _, z := range zones {
		if len(z) > len(zone) && inZone(name, z) {
			zone = z
		}
	}
	if zone == "" {
		return queryName{kind: nameOutside}
	}
	q := queryName{kind: nameInvalid, zone: zone}
	if len(name) == len(zone) {
		q.kind = nameApex
		return q
	}
	if len(name)-1 > maxName || strings.IndexByte(name, '\\') >= 0 {
		return q
	}
	relative := name[:len(name)-len(zone)-1]
	if !plausibleLabels(relative) {
		return q
	}
	parseRelative(&q, relative)
	return q
}

// parseRelative parses what stands before the zone.
func parseRelative(q *queryName, relative string) {
	rest, last := cutLast(relative)
	if last != "svc" {
		switch relative {
		case "dns-version":
			q.kind = nameVersion
		case "dns":
			q.kind = nameServers
		case "ns.dns":
			q.kind = nameServer
		}
		return
	}
	if rest == "" {
		q.kind = nameServices
		return
	}
	inNamespace := rest
	rest, q.namespace = cutLast(rest)
	if rest == "" {
		q.kind = nameNamespace
		return
	}
	below, service := cutLast(rest)
	q.service = inNamespace[len(rest)-len(service):]
	parseBelowService(q, below)
}

// parseBelowService parses what stands before <service>.<namespace>: nothing, a cluster, a host of a
// cluster, or a port and its protocol before either.
func parseBelowService(q *queryName, below string) {
	if below == "" {
		q.kind = nameService
		return
	}
	rest, label := cutLast(below)
	if label[0] != '_' {
		q.cluster = label
		if rest == "" {
			q.kind = nameCluster
			return
		}
		rest, label = cutLast(rest)
		if label[0] != '_' {
			if rest == "" {
				q.kind, q.host = nameHost, label
			}
			return
		}
	}
	q.protocol = label[1:]
	rest, label = cutLast(rest)
	switch {
	case rest != "":
		return
	case label == "":
		q.kind = namePort
	case label[0] == '_' && len(label) > 1:
		q.kind, q.port = namePort, label[1:]
	}
}

// cutLast splits off the last label: "a.b.c" gives "a.b" and "c".
func cutLast(name string) (rest, label string) {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}

// inZone says whether the name is the zone or below it, for a lower-case name with or without escapes.
func inZone(name, zone string) bool {
	if !strings.HasSuffix(name, zone) {
		return false
	}
	if len(name) == len(zone) {
		return true
	}
	if strings.IndexByte(name, '\\') >= 0 {
		return dns.IsSubDomain(zone, name)
	}
	return name[len(name)-len(zone)-1] == '.'
}

// plausibleLabels says whether every label has 1 to 63 octets.
func plausibleLabels(name string) bool {
	length := 0
	for i := range len(name) {
		if name[i] != '.' {
			length++
			continue
		}
		if length == 0 || length > maxLabel {
			return false
		}
		length = 0
	}
	return length > 0 && length <= maxLabel
}

// lower maps the ASCII letters to lower case, as RFC 4343 compares names, and leaves every other octet. It
// allocates only for a name with capitals.
func lower(name string) string {
	for i := range len(name) {
		if 'A' <= name[i] && name[i] <= 'Z' {
			return lowerFrom(name, i)
		}
	}
	return name
}

func lowerFrom(name string, from int) string {
	b := []byte(name)
	for i := from; i < len(b); i++ {
		if 'A' <= b[i] && b[i] <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

// isLabel says whether s is a DNS label as Kubernetes has them: 1 to 63 of a-z, 0-9 and "-", which neither
// begins nor ends it.
func isLabel(s string) bool {
	if s == "" || len(s) > maxLabel || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
