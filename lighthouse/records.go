// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// bundleRecords is what one Bundle says. Entries that are not well-formed are left out and counted.
type bundleRecords struct {
	// imports by "<service>.<namespace>": services without ClusterSetIP.
	imports map[string]*service
	// exports of this cluster by the same key; nil while the cluster has reported none, which is not the
	// same as an empty report.
	exports map[string]*export
	// halves of the shard that have its imports instead.
	halves []string
	// deltas is how many Bundles of deltas there are, as the own Bundle of shard 0 says.
	deltas int32
	// sequence orders Bundles that have the same import.
	sequence int64
	// withheld are the keys of imports of which only that is said.
	withheld map[string]bool
	// rejected entries.
	rejected int
}

// export is this cluster's own part of a service. The names of its ports are those that they have here.
type export struct {
	cluster
	// servicePorts are those of the Service.
	servicePorts []port
}

// parseBundle reads the records of a Bundle.
func parseBundle(b *v1alpha1.Bundle) bundleRecords {
	r := bundleRecords{imports: make(map[string]*service, len(b.Spec.Imports)), halves: slices.Clone(b.Spec.Halves),
		deltas: min(b.Spec.Deltas, v1alpha1.MaxDeltas), sequence: b.Spec.Sequence, withheld: map[string]bool{}}
	for i := range b.Spec.Imports {
		s, rejected := parseImport(&b.Spec.Imports[i])
		r.rejected += rejected
		if s != nil {
			r.imports[s.key] = s
			if b.Spec.Imports[i].Withheld {
				r.withheld[s.key] = true
			}
		}
	}
	if b.Status.ObservedRevision == 0 && len(b.Status.Exports) == 0 {
		return r
	}
	r.exports = make(map[string]*export, len(b.Status.Exports))
	for i := range b.Status.Exports {
		e, rejected := parseExport(&b.Status.Exports[i])
		r.rejected += rejected
		if e != nil {
			r.exports[b.Status.Exports[i].Name+"."+b.Status.Exports[i].Namespace] = e
		}
	}
	return r
}

// parseExport reads one export. It returns nil for one that cannot have a name.
func parseExport(from *v1alpha1.Export) (e *export, rejected int) {
	if !isLabel(from.Name) || !isLabel(from.Namespace) {
		return nil, 1
	}
	e = &export{}
	for _, p := range from.Settings.Ports {
		e.servicePorts = appendPort(e.servicePorts, p.Name, string(p.Protocol), p.Port)
	}
	rejected = e.setVIPs(from.ClusterIPs)
	if from.Settings.Type == v1alpha1.Headless {
		return e, rejected + e.setHosts(from.Backends)
	}
	e.backing, _ = parseBacking(from.Backends)
	return e, rejected
}

// parseImport reads one import. It returns nil for one that cannot have a name.
func parseImport(i *v1alpha1.Import) (s *service, rejected int) {
	if !isLabel(i.Name) || !isLabel(i.Namespace) {
		return nil, 1
	}
	s = &service{
		key:       i.Name + "." + i.Namespace,
		namespace: i.Namespace,
		headless:  i.Settings.Type == v1alpha1.Headless,
		clusters:  make([]cluster, 0, len(i.Clusters)),
	}
	if !s.headless && i.Mode == v1alpha1.ServiceModeClusterIP {
		s.clusterIPMode, s.choice = true, i.Choice.DeepCopy()
	}
	for _, p := range i.Settings.Ports {
		s.ports = appendPort(s.ports, p.Name, string(p.Protocol), p.Port)
	}
	for j := range i.Clusters {
		from := &i.Clusters[j]
		if !isLabel(from.Cluster) {
			rejected++
			continue
		}
		c := cluster{name: from.Cluster, ports: lowerSorted(from.Ports)}
		rejected += c.setVIPs(from.ClusterIPs)
		switch {
		case s.headless:
			rejected += c.setHosts(from.Backends)
		case s.clusterIPMode:
			var n int
			c.backing, n = parseBacking(from.Backends)
			rejected += n
			c.reported = int(max(ptr.Deref(from.ReadyBackends, 0), 0))
		}
		s.clusters = append(s.clusters, c)
	}
	slices.SortFunc(s.clusters, func(a, b cluster) int { return strings.Compare(a.name, b.name) })
	s.clusters = slices.CompactFunc(s.clusters, func(a, b cluster) bool { return a.name == b.name })
	return s, rejected
}

// join returns what this cluster contributes to a service, of which the import says less. A port takes the
// name that the merge gave it: its own or, where that was generated, the name of the merged port with its
// protocol and number.
func (e *export) join(imported *cluster, merged []port) cluster {
	c := *imported
	if len(c.vips.v4)+len(c.vips.v6) == 0 {
		c.vips = e.vips
	}
	names := make(map[string]string, len(e.servicePorts))
	for _, p := range e.servicePorts {
		at := slices.Index(merged, p)
		if at < 0 {
			at = slices.IndexFunc(merged, p.sameNumber)
		}
		if at >= 0 {
			names[p.name] = merged[at].name
		}
	}
	c.ready = e.ready
	c.hosts = slices.Clone(e.hosts)
	for i := range c.hosts {
		c.hosts[i].ports = renamed(c.hosts[i].ports, names)
	}
	c.backing = slices.Clone(e.backing)
	for i := range c.backing {
		var ports []string
		for _, name := range c.backing[i].ports {
			if merged, ok := names[name]; ok {
				ports = append(ports, merged)
			}
		}
		c.backing[i].ports = ports
	}
	return c
}

// sameNumber says whether both ports have one protocol and number.
func (p port) sameNumber(o port) bool { return p.protocol == o.protocol && p.number == o.number }

// renamed returns those of a cluster's ports that the merged service has, by their names there.
func renamed(ports []port, names map[string]string) (out []port) {
	for _, p := range ports {
		if name, ok := names[p.name]; ok {
			p.name = name
			out = append(out, p)
		}
	}
	return out
}

// appendPort appends a port with a usable number and protocol.
func appendPort(ports []port, name, protocol string, number int32) []port {
	if number < 1 || number > 65535 {
		return ports
	}
	return append(ports, port{name: lower(name), protocol: lower(protocol), number: uint16(number)})
}

// setVIPs reads ClusterIPs and returns how many were rejected.
func (c *cluster) setVIPs(ips []string) (rejected int) {
	c.vips, rejected = parseAddresses(ips)
	return rejected
}

// setHosts reads the ready backends of a headless service and returns how many were rejected. Backends of
// one hostname share its name.
func (c *cluster) setHosts(groups []v1alpha1.Backends) (rejected int) {
	byLabel := map[string]*host{}
	for i := range groups {
		var ports []port
		for _, p := range groups[i].Ports {
			ports = appendPort(ports, p.Name, string(p.Protocol), p.Port)
		}
		for j := range groups[i].Addresses {
			b := &groups[i].Addresses[j]
			ip, ok := parseAddress(b.IP)
			if !ok {
				rejected++
				continue
			}
			if !b.Ready {
				continue
			}
			label := lower(b.Hostname)
			if !isLabel(label) {
				label = addressLabel(ip)
			}
			h := byLabel[label]
			if h == nil {
				h = &host{label: label}
				byLabel[label] = h
			}
			h.add(ip)
			h.addPorts(ports)
		}
	}
	c.hosts = make([]host, 0, len(byLabel))
	for _, h := range byLabel {
		h.sort()
		c.hosts = append(c.hosts, *h)
	}
	slices.SortFunc(c.hosts, func(a, b host) int { return strings.Compare(a.label, b.label) })
	c.ready = addresses{}
	for i := range c.hosts {
		c.ready.v4 = append(c.ready.v4, c.hosts[i].v4...)
		c.ready.v6 = append(c.ready.v6, c.hosts[i].v6...)
	}
	c.ready.sort()
	return rejected
}

// parseAddresses reads addresses in their order, each once.
func parseAddresses(ips []string) (a addresses, rejected int) {
	for _, s := range ips {
		ip, ok := parseAddress(s)
		if !ok {
			rejected++
			continue
		}
		a.add(ip)
	}
	return a, rejected
}

// parseAddress reads an address that a service may have. Loopback, link-local, multicast and unspecified
// addresses are nothing that another cluster may point a client at.
func parseAddress(s string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.Zone() != "" {
		return netip.Addr{}, false
	}
	ip = ip.Unmap()
	return ip, ip.IsGlobalUnicast()
}

// parseNetworks reads prefixes and leaves out what is none.
func parseNetworks(cidrs []string) (out []netip.Prefix) {
	for _, s := range cidrs {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// addressLabel is the label of an endpoint without a hostname.
func addressLabel(ip netip.Addr) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, ip.String())
}

// add appends an address that is not there yet.
func (a *addresses) add(ip netip.Addr) {
	list := &a.v6
	if ip.Is4() {
		list = &a.v4
	}
	if raw := net.IP(ip.AsSlice()); !slices.ContainsFunc(*list, raw.Equal) {
		*list = append(*list, raw)
	}
}

// addPorts appends the ports that are not there yet.
func (h *host) addPorts(ports []port) {
	for _, p := range ports {
		if !slices.Contains(h.ports, p) {
			h.ports = append(h.ports, p)
		}
	}
}

// sort orders the addresses and leaves each one once.
func (a *addresses) sort() {
	for _, list := range []*[]net.IP{&a.v4, &a.v6} {
		slices.SortFunc(*list, func(x, y net.IP) int { return slices.Compare(x, y) })
		*list = slices.CompactFunc(*list, net.IP.Equal)
	}
}

// lowerSorted returns names in lower case, sorted.
func lowerSorted(names []string) []string {
	sorted := make([]string, len(names))
	for i, name := range names {
		sorted[i] = lower(name)
	}
	slices.Sort(sorted)
	return sorted
}
