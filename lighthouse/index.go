// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/reach"
)

// imported is what a ServiceImport says.
type imported struct {
	namespace string
	headless  bool
	vips      addresses
}

// index holds the parsed records of every object and makes Snapshots of them. A change costs what it
// touches, and one copy of the maps.
type index struct {
	mu sync.Mutex
	// bundles by object name. A Bundle that is gone stays: a missing mailbox changes nothing.
	bundles map[string]bundleRecords
	// found is what was found last of each import that has a ServiceImport, for while it is not known what it is.
	found map[string]*service
	// serviceImports by "<service>.<namespace>".
	serviceImports map[string]imported
	// gateways by name, with what they report.
	gateways map[string]v1alpha1.Gateway
	// reachable are the remote clusters as the gateways' reports tell.
	reachable reach.Clusters
	// self is the name of this cluster, empty while unknown, and shards how many its services are spread over, or 0.
	self   string
	shards int32
	// fixedZones are zones that the Peering does not change.
	fixedZones bool
	// dirty are the keys of services to make anew.
	dirty map[string]struct{}
	// reverse has the keys of ServiceImports by their addresses; reversed says that it changed.
	reverse  map[netip.Addr]string
	reversed bool
	// current is the Snapshot made last.
	current *Snapshot
}

// defaultZone is answered until the Peering or the Corefile names others.
const defaultZone = "clusterset.local."

// newIndex returns an empty index. With zones, only these are answered; without, those of the Peering.
func newIndex(zones []string) *index {
	x := &index{
		bundles:        map[string]bundleRecords{},
		found:          map[string]*service{},
		serviceImports: map[string]imported{},
		gateways:       map[string]v1alpha1.Gateway{},
		dirty:          map[string]struct{}{},
		reverse:        map[netip.Addr]string{},
		fixedZones:     len(zones) > 0,
		current: &Snapshot{
			zones:        []string{defaultZone},
			clusterNames: true,
			ttl:          defaultTTL,
			services:     map[string]*service{},
			namespaces:   map[string]int{},
		},
	}
	if x.fixedZones {
		x.current.zones = zones
	}
	x.snapshot(time.Now(), false)
	return x
}

// setBundle takes over the records of a Bundle and returns how many of its entries were rejected.
func (x *index) setBundle(b *v1alpha1.Bundle) (rejected int) {
	now := parseBundle(b)
	x.mu.Lock()
	defer x.mu.Unlock()
	last, known := x.bundles[b.Name]
	if now.exports == nil {
		now.exports = last.exports
	}
	for key := range now.withheld {
		if s := x.had(b.Name, key); s != nil {
			now.imports[key] = s
		}
	}
	for key, s := range now.imports {
		if old := last.imports[key]; old == nil || !old.equal(s) {
			x.dirty[key] = struct{}{}
		}
	}
	for key := range last.imports {
		if now.imports[key] == nil {
			x.dirty[key] = struct{}{}
		}
	}
	for key, c := range now.exports {
		if old := last.exports[key]; old == nil || !old.equal(c) {
			x.dirty[key] = struct{}{}
		}
	}
	for key := range last.exports {
		if now.exports[key] == nil {
			x.dirty[key] = struct{}{}
		}
	}
	x.bundles[b.Name] = now
	if !slices.Equal(last.halves, now.halves) {
		x.touchHalves(b.Name)
	}
	lists := b.Name == v1alpha1.BundleName(0)
	switch {
	case (lists || v1alpha1.IsDelta(b.Name)) && !known, lists && last.deltas != now.deltas:
		// All may have been held while one was missing, or is from now on.
		x.touchAll()
	case last.sequence != now.sequence:
		x.touchOutdated(b.Name, min(last.sequence, now.sequence))
	}
	return now.rejected
}

// had returns what an import was last that a Bundle withholds: of that nothing is known any more, which is no reason to
// take away what there is. It is nil if there was nothing.
func (x *index) had(bundle, key string) *service {
	if x.bundles[bundle].imports[key] != nil {
		s, _ := x.newest(bundle, key)
		return s
	}
	// It may have been in the Bundle in force until now.
	from, _ := ownBundle(bundle)
	if halves := x.bundles[from].halves; len(halves) > 0 {
		name, namespace, _ := strings.Cut(key, ".")
		from = v1alpha1.HalfName(from, v1alpha1.HalfOf(halves, namespace, name))
	}
	s, _ := x.newest(from, key)
	return s
}

// newest returns an import that a Bundle has as it is now: as that says or, if they are newer, Bundles of deltas. It is
// nil where the Bundle does not have it. Where one of deltas is missing that is listed, it is not known.
func (x *index) newest(bundle, key string) (newest *service, known bool) {
	base := x.bundles[bundle]
	newest = base.imports[key]
	if newest == nil || base.withheld[key] || base.sequence == 0 {
		return newest, true
	}
	listing, known := x.bundles[v1alpha1.BundleName(0)]
	sequence := base.sequence
	for n := range listing.deltas {
		delta, there := x.bundles[v1alpha1.DeltaName(n)]
		known = known && there
		if s := delta.imports[key]; s != nil && delta.sequence > sequence {
			newest, sequence = s, delta.sequence
		}
	}
	return newest, known
}

// forgetPart forgets a half or deltas that are gone, if they mean nothing: any other Bundle that is gone stays.
func (x *index) forgetPart(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, delta := v1alpha1.ParseDeltaName(name)
	_, half := ownBundle(name)
	if delta && n >= x.bundles[v1alpha1.BundleName(0)].deltas || half != "" && !x.inForce(name) {
		delete(x.bundles, name)
	}
}

// touchAll makes anew all services.
func (x *index) touchAll() {
	for key := range x.current.services {
		x.dirty[key] = struct{}{}
	}
}

// touchOutdated makes anew the services in a Bundle whose sequence has changed that are in another, too, which is newer
// than this one was: another of them may be the newest now. One of these two is a Bundle of deltas. Where the Bundle
// has no sequence any more, or had none, deltas mattered to all or to none.
func (x *index) touchOutdated(name string, was int64) {
	var newer []bundleRecords
	for other, b := range x.bundles {
		if other != name && (v1alpha1.IsDelta(name) || v1alpha1.IsDelta(other)) && b.sequence > was {
			newer = append(newer, b)
		}
	}
	for key := range x.bundles[name].imports {
		if was == 0 || slices.ContainsFunc(newer, func(b bundleRecords) bool { return b.imports[key] != nil }) {
			x.dirty[key] = struct{}{}
		}
	}
}

// touchHalves makes anew the services in a shard's own Bundle, and in any half of it.
func (x *index) touchHalves(shard string) {
	for name := range x.bundles {
		if own, _ := ownBundle(name); own == shard {
			for key := range x.bundles[name].imports {
				x.dirty[key] = struct{}{}
			}
		}
	}
}

// ownBundle returns the name of the own Bundle of a Bundle's shard, and which half of that it is itself, if any.
func ownBundle(name string) (own, half string) {
	shard, half, ok := v1alpha1.ParseBundleName(name)
	if !ok {
		return name, ""
	}
	return v1alpha1.BundleName(shard), half
}

// inForce says whether the imports of a Bundle mean something by themselves: its shard's own one lists it, or no half
// at all. Those in deltas do not.
func (x *index) inForce(name string) bool {
	if v1alpha1.IsDelta(name) {
		return false
	}
	own, half := ownBundle(name)
	halves := x.bundles[own].halves
	return half == "" && len(halves) == 0 || half != "" && slices.Contains(halves, half)
}

// setServiceImport takes over a ServiceImport and returns how many of its addresses were rejected.
func (x *index) setServiceImport(s *serviceImport) (rejected int) {
	if !isLabel(s.name) || !isLabel(s.namespace) {
		return 1
	}
	next := imported{namespace: s.namespace, headless: s.headless}
	if !s.headless {
		next.vips, rejected = parseAddresses(s.ips)
	}
	key := s.name + "." + s.namespace
	x.mu.Lock()
	defer x.mu.Unlock()
	last, ok := x.serviceImports[key]
	if !ok || last.headless != next.headless || !last.vips.equal(next.vips) {
		x.setReverse(key, last.vips, next.vips)
		x.serviceImports[key] = next
		x.dirty[key] = struct{}{}
	}
	return rejected
}

// deleteServiceImport forgets a ServiceImport.
func (x *index) deleteServiceImport(name, namespace string) {
	key := name + "." + namespace
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(key)
}

// forget a ServiceImport. The caller holds the lock.
func (x *index) forget(key string) {
	x.setReverse(key, x.serviceImports[key].vips, addresses{})
	delete(x.serviceImports, key)
	x.dirty[key] = struct{}{}
}

// replaceServiceImports takes over all ServiceImports.
func (x *index) replaceServiceImports(all []*serviceImport) (rejected int) {
	kept := make(map[string]struct{}, len(all))
	for _, s := range all {
		rejected += x.setServiceImport(s)
		kept[s.name+"."+s.namespace] = struct{}{}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for key := range x.serviceImports {
		if _, ok := kept[key]; !ok {
			x.forget(key)
		}
	}
	return rejected
}

// setGateway takes over a Gateway's report.
func (x *index) setGateway(g *v1alpha1.Gateway) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gateways[g.Name] = v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: g.DeletionTimestamp},
		Status: *g.Status.DeepCopy()}
	x.look(time.Now())
}

// look brings up to date which clusters can be reached, and returns when to look again without a new report
// (zero: never). It follows every report: a connection that was up in between leaves its trace.
func (x *index) look(now time.Time) (due time.Time) {
	reachable, again := x.reachable.Next(slices.Collect(maps.Values(x.gateways)), now)
	x.reachable = reachable
	if again == 0 {
		return time.Time{}
	}
	return now.Add(again)
}

// disconnected returns the clusters that cannot be reached, never this one itself.
func (x *index) disconnected() map[string]struct{} {
	down := map[string]struct{}{}
	for name := range x.reachable {
		if name != x.self && !x.reachable.Connected(name) {
			down[name] = struct{}{}
		}
	}
	return down
}

// deleteGateway forgets a Gateway.
func (x *index) deleteGateway(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.gateways, name)
}

// retainGateways forgets the Gateways that are not named.
func (x *index) retainGateways(names []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.gateways, func(name string, _ v1alpha1.Gateway) bool { return !slices.Contains(names, name) })
}

// setServer takes over the addresses of the name server. What is none, such as the "None" of a headless Service, is
// left out.
func (x *index) setServer(ips []string) {
	server, _ := parseAddresses(ips)
	x.mu.Lock()
	defer x.mu.Unlock()
	next := *x.current
	next.server = server
	x.current = &next
}

// setPeering takes over the domains, the TTL, this cluster's name and its service networks.
func (x *index) setPeering(p *v1alpha1.Peering) {
	var zones []string
	for _, d := range p.Spec.DNS.Domains {
		if z := zone(d); isZone(z) && !slices.Contains(zones, z) {
			zones = append(zones, z)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	next := *x.current
	if !x.fixedZones && len(zones) > 0 {
		next.zones = zones
	}
	next.clusterNames = p.Spec.DNS.ClusterNames == nil || *p.Spec.DNS.ClusterNames
	next.ttl = defaultTTL
	if ttl := p.Spec.DNS.TTLSeconds; ttl != nil && *ttl >= 0 && *ttl <= maxTTL {
		next.ttl = uint32(*ttl)
	}
	next.networks = parseNetworks(p.Spec.Networks.ServiceCIDRs)
	x.current = &next
	if x.self != p.Spec.ClusterID || x.shards != p.Spec.Shards {
		x.self, x.shards = p.Spec.ClusterID, p.Spec.Shards
		x.touchAll()
	}
}

// snapshot makes the Snapshot of now, and says when it is due again without any change (zero: never). It is
// ready from the first one on that is made of all objects.
func (x *index) snapshot(now time.Time, complete bool) (s *Snapshot, due time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	next := *x.current
	next.ready = next.ready || complete
	due = x.look(now)
	next.down = x.disconnected()
	next.soa = make([]dns.SOA, len(next.zones))
	for i, z := range next.zones {
		next.soa[i] = newSOA(z, uint32(now.Unix()))
	}
	moved := !maps.Equal(next.down, x.current.down)
	if len(x.dirty) > 0 || moved {
		next.services = maps.Clone(x.current.services)
		next.namespaces = maps.Clone(x.current.namespaces)
		for key := range x.dirty {
			next.put(key, x.merge(key))
			x.balance(&next, key)
		}
	}
	if moved {
		for key := range next.services {
			x.balance(&next, key)
		}
	}
	clear(x.dirty)
	if x.reversed {
		next.reverse, x.reversed = maps.Clone(x.reverse), false
	}
	x.current = &next
	return &next, due
}

// put sets or, with nil, removes a service, in a Snapshot that is not published yet.
func (s *Snapshot) put(key string, v *service) {
	if old := s.services[key]; old != nil {
		delete(s.services, key)
		if s.namespaces[old.namespace]--; s.namespaces[old.namespace] == 0 {
			delete(s.namespaces, old.namespace)
		}
	}
	if v != nil {
		s.services[key] = v
		s.namespaces[v.namespace]++
	}
}

// balance decides anew which clusters answer for a service in ClusterIP mode, in a Snapshot that is not
// published yet.
func (x *index) balance(next *Snapshot, key string) {
	if s := next.services[key]; s != nil && s.clusterIPMode {
		balanced := *s
		balanced.balance = newBalance(s, x.current.services[key], x.self, next.connected)
		next.services[key] = &balanced
	}
}

// merge makes a service of its records, or nil when it has no ServiceImport of Sealane's: a name exists where its
// import does. The import in a Bundle decides the type; the ServiceImport has the ClusterSetIPs.
func (x *index) merge(key string) *service {
	inCluster, materialised := x.serviceImports[key]
	if !materialised {
		delete(x.found, key)
		return nil
	}
	from := x.findImport(key, inCluster.namespace)
	x.found[key] = from
	if from == nil {
		return &service{key: key, namespace: inCluster.namespace, headless: inCluster.headless, vips: inCluster.vips}
	}
	s := *from
	if !s.headless && !s.clusterIPMode {
		s.vips = inCluster.vips
	}
	if local := s.cluster(x.self); local != nil {
		if own := x.findExport(key, inCluster.namespace); own != nil {
			s.clusters = slices.Clone(s.clusters)
			local = s.cluster(x.self)
			*local = own.join(local, s.ports)
		}
	}
	return &s
}

// placeOf returns the names of the own Bundle of a service's shard, and of the one that has its import; empty where
// that is not known.
func (x *index) placeOf(key, namespace string) (own, imports string) {
	if x.shards < 1 {
		return "", ""
	}
	name := strings.TrimSuffix(key, "."+namespace)
	own = v1alpha1.BundleName(v1alpha1.Shard(namespace, name, x.shards))
	halves := x.bundles[own].halves
	if len(halves) == 0 {
		return own, own
	}
	return own, v1alpha1.HalfName(own, v1alpha1.HalfOf(halves, namespace, name))
}

// findImport returns a service's import, first of all from where the agent finds it. What is not there is looked for in
// all Bundles that mean something, in their order: should two claim a service, the first has it. Where it is not known
// what it is now, it stays what it was.
func (x *index) findImport(key, namespace string) *service {
	_, at := x.placeOf(key, namespace)
	if x.bundles[at].imports[key] == nil {
		at = ""
		for name := range x.bundles {
			if x.bundles[name].imports[key] != nil && (at == "" || name < at) && x.inForce(name) {
				at = name
			}
		}
	}
	newest, known := x.newest(at, key)
	if was := x.found[key]; !known && was != nil {
		return was
	}
	return newest
}

// findExport returns this cluster's own export of a service, from the Bundle of its shard or else any.
func (x *index) findExport(key, namespace string) *export {
	if own, _ := x.placeOf(key, namespace); x.bundles[own].exports[key] != nil {
		return x.bundles[own].exports[key]
	}
	var found *export
	first := ""
	for name := range x.bundles {
		if e := x.bundles[name].exports[key]; e != nil && (found == nil || name < first) {
			found, first = e, name
		}
	}
	return found
}
