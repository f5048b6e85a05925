// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"net"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Snapshot is everything that answers depend on, at one moment. But for the counters of round robins it is
// never changed: queries read it without a lock.
type Snapshot struct {
	// ready says that every kind of object was read: only then is what is missing unknown.
	ready bool
	// zones answered, in lower case with the trailing dot.
	zones []string
	// soa of each zone, without its TTLs.
	soa []dns.SOA
	// ttl of every record, in seconds.
	ttl uint32
	// clusterNames says whether <cluster>.<service> is answered for ClusterSetIP services.
	clusterNames bool
	// services by "<service>.<namespace>".
	services map[string]*service
	// namespaces that have a service, and how many.
	namespaces map[string]int
	// server has the addresses of ns.dns.<zone>.
	server addresses
	// reverse has the keys of services by their ClusterSetIPs.
	reverse map[netip.Addr]string
	// networks hold every ClusterIP of this cluster, and no other address.
	networks []netip.Prefix
	// down are the clusters that are known to be disconnected.
	down map[string]struct{}
}

// service is one imported service.
type service struct {
	// key is "<service>.<namespace>".
	key       string
	namespace string
	headless  bool
	// clusterIPMode says that a query is answered with one cluster's ClusterIP. Headless services have no
	// mode.
	clusterIPMode bool
	// choice of that cluster; nil is the default.
	choice *v1alpha1.ClusterChoice
	// balance is the outcome of the choice. A service in ClusterIP mode has one in a Snapshot.
	balance *balance
	// vips are the ClusterSetIPs; headless services and those in ClusterIP mode have none.
	vips addresses
	// ports of the service.
	ports []port
	// clusters that export it, sorted by name.
	clusters []cluster
}

// cluster is one cluster's part of a service.
type cluster struct {
	name string
	// vips are the service's ClusterIPs there; headless services have none.
	vips addresses
	// ports are the names of the service's ports that this cluster serves, sorted.
	ports []string
	// ready are the addresses of all hosts.
	ready addresses
	// hosts are the ready endpoints of a headless service, sorted by label.
	hosts []host
	// backing is what is ready behind the ClusterIPs of a service in ClusterIP mode.
	backing []backing
	// reported is how many ready backends the cluster is said to have where it cannot be counted, else 0.
	reported int
}

// host is what one name below a cluster stands for: usually one endpoint of a headless service.
type host struct {
	label string
	addresses
	// ports that the endpoints listen on, which may differ from the service's.
	ports []port
}

// port of a service or of its endpoints. The protocol is in lower case, as names have it.
type port struct {
	name     string
	protocol string
	number   uint16
}

// addresses by family, in the form that resource records have. Replies share them.
type addresses struct {
	v4, v6 []net.IP
}

// of returns the addresses of one family.
func (a *addresses) of(f family) []net.IP {
	if f == ipv4 {
		return a.v4
	}
	return a.v6
}

// family of an address.
type family bool

const (
	ipv4 family = false
	ipv6 family = true
)

// cluster returns the named cluster's part, or nil.
func (s *service) cluster(name string) *cluster {
	i := sort.Search(len(s.clusters), func(i int) bool { return s.clusters[i].name >= name })
	if i < len(s.clusters) && s.clusters[i].name == name {
		return &s.clusters[i]
	}
	return nil
}

// host returns the named host, or nil.
func (c *cluster) host(label string) *host {
	i := sort.Search(len(c.hosts), func(i int) bool { return c.hosts[i].label >= label })
	if i < len(c.hosts) && c.hosts[i].label == label {
		return &c.hosts[i]
	}
	return nil
}

// connected says whether a cluster may be named in answers. A cluster of which nothing is known may.
func (s *Snapshot) connected(name string) bool {
	if len(s.down) == 0 {
		return true
	}
	_, down := s.down[name]
	return !down
}

// equal says whether both services give the same answers.
func (s *service) equal(o *service) bool {
	return s.key == o.key && s.headless == o.headless && s.clusterIPMode == o.clusterIPMode && s.vips.equal(o.vips) &&
		slices.Equal(s.ports, o.ports) && equality.Semantic.DeepEqual(s.choice, o.choice) &&
		slices.EqualFunc(s.clusters, o.clusters, func(a, b cluster) bool { return a.equal(&b) })
}

func (c *cluster) equal(o *cluster) bool {
	return c.name == o.name && c.vips.equal(o.vips) && slices.Equal(c.ports, o.ports) &&
		c.reported == o.reported && slices.EqualFunc(c.backing, o.backing, backing.equal) &&
		slices.EqualFunc(c.hosts, o.hosts, func(a, b host) bool {
			return a.label == b.label && a.equal(b.addresses) && slices.Equal(a.ports, b.ports)
		})
}

func (b backing) equal(o backing) bool {
	return b.v4 == o.v4 && b.v6 == o.v6 && slices.Equal(b.ports, o.ports)
}

func (a addresses) equal(o addresses) bool {
	return slices.EqualFunc(a.v4, o.v4, net.IP.Equal) && slices.EqualFunc(a.v6, o.v6, net.IP.Equal)
}

// equal says whether both exports give the same answers.
func (e *export) equal(o *export) bool {
	return e.cluster.equal(&o.cluster) && slices.Equal(e.servicePorts, o.servicePorts)
}

// zone returns the zone of a domain: in lower case, with the trailing dot.
func zone(domain string) string {
	return lower(strings.TrimSuffix(domain, ".")) + "."
}

// isZone says whether a zone can be served.
func isZone(zone string) bool {
	name := strings.TrimSuffix(zone, ".")
	if name == "" || len(name) > maxName {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

// serves says whether a cluster serves a port of the service.
func (c *cluster) serves(name string) bool {
	_, found := slices.BinarySearch(c.ports, name)
	return found
}
