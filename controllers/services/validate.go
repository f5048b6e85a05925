// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/exportmeta"
)

// Limits of what a member may report.
const (
	maxExports    = 1000      // of one member in one shard
	maxRecord     = 1 << 20   // bytes in JSON of one member's exports in one shard, at most
	maxPorts      = 100       // of one Service, and of one group of backends
	maxGroups     = 100       // of backends of one export
	maxAddresses  = 5000      // of backends of one export
	maxClusterIPs = 2         // one of each family
	maxScopeNames = 1000      // of clusters in an import scope
	maxSelector   = 16 << 10  // bytes of the selector of an import scope, in JSON
	maxShown      = 64        // bytes of a member's text in a message
	maxReason     = 200       // bytes of a parser's message
	maxAffinity   = 24 * 3600 // seconds, as in a Service
)

// accepted is a member's export that passed validation.
type accepted struct {
	cluster string
	export  v1alpha1.Export
	// notRouted, outside and malformed count the backends left out: those with a node's address, those
	// with any other address that is not the member's, and those that no EndpointSlice could hold.
	notRouted, outside, malformed int
	// whyNotRouted says why those with a node's address are left out, and what to do.
	whyNotRouted string
	// byClusterIP and outsideFamilies say of families, true being IPv4, that importers are to use the ClusterIP whatever
	// their number of backends is, and that backends are outside.
	byClusterIP, outsideFamilies []bool
	// foreignIPs counts the ClusterIPs left out.
	foreignIPs int
	// foreignGlobal counts the global addresses left out that are not of the member's block, and sharedGlobal those that
	// somebody else has.
	foreignGlobal, sharedGlobal int
	// withoutGlobal counts the pods behind a headless service that have no global address of a family that the cluster's
	// block has, and onlyIPv6 says that none of its pods can have one.
	withoutGlobal int
	onlyIPv6      bool
	// hosts are the backends outside the cluster, which are reached by global addresses alone, and hostsToSome says that
	// some clusters do not know this one by these.
	hosts       map[string]bool
	hostsToSome bool
	// byBlock says, in a view, that its importers know the cluster by its block of global addresses.
	byBlock bool
	// dropped says which labels, and which annotations, are not exported, and why.
	dropped [2]string
	// scope of the export, parsed.
	scope *scope
	// age is since when it counts: its creation or, if that is later, when the broker first saw it.
	age time.Time
	// withdrawnAt is when the member ceased to report it; zero while it does.
	withdrawnAt time.Time
	// serves says that a withdrawn export keeps its backends, and not only its name.
	serves bool
}

func (a *accepted) withdrawn() bool { return !a.withdrawnAt.IsZero() }

// networks of a member, for look-ups.
type networks struct {
	pods, services, nodes *netipx.IPSet
	// block of global addresses, and what it has of IPv6.
	block, blockIPv6 netip.Prefix
	// toSome says that some clusters do not know the member by its block.
	toSome bool
}

// accept validates an export and returns it in canonical form: every address in one spelling,
// sorted and once. What it returns shares no backends with its argument.
func accept(cluster string, e v1alpha1.Export, n *networks) (accepted, error) {
	a := accepted{cluster: cluster, export: e}
	if e.CreatedAt.IsZero() {
		return a, errors.New("it has no creation time")
	}
	if err := validSettings(&e.Settings); err != nil {
		return a, err
	}
	if len(e.ClusterIPs) > maxClusterIPs {
		return a, fmt.Errorf("it has %d ClusterIPs, at most %d are possible", len(e.ClusterIPs), maxClusterIPs)
	}
	if e.Settings.Type == v1alpha1.Headless && len(e.ClusterIPs) > 0 {
		return a, errors.New("it is headless and has a ClusterIP")
	}
	if err := countBackends(e.Backends); err != nil {
		return a, err
	}
	if m := e.Mode; m != "" && m != v1alpha1.ServiceModeClusterSetIP && m != v1alpha1.ServiceModeClusterIP {
		return a, fmt.Errorf("its service mode %s is none of ClusterSetIP, ClusterIP", clip.Quote(string(m)))
	}
	if err := validScope(e.Scope); err != nil {
		return a, err
	}
	// The scope is valid.
	a.scope, _ = parseScope(e.Scope)
	s := &a.export.Settings
	s.SessionAffinity = cmp.Or(s.SessionAffinity, corev1.ServiceAffinityNone)
	if s.Ports == nil {
		s.Ports = []v1alpha1.ServicePort{}
	}
	var labels, annotations []exportmeta.Dropped
	s.Labels, labels = exportmeta.Labels(s.Labels)
	s.Annotations, annotations = exportmeta.Annotations(s.Annotations)
	a.dropped = [2]string{exportmeta.Text("label", labels), exportmeta.Text("annotation", annotations)}
	a.export.Remarks = exportmeta.Remarks(e.Remarks)
	a.export.ClusterIPs = a.clusterIPs(e.ClusterIPs, n)
	a.export.GlobalIP, a.export.GlobalIPv6 = a.globalIP(e.GlobalIP, n.block), a.globalIP(e.GlobalIPv6, n.blockIPv6)
	a.export.Backends = a.backends(e.Backends, n)
	a.onNodes(n)
	a.globalPods(n)
	return a, nil
}

// named says whether a member may call a service so: only then is it named in a condition.
func named(e *v1alpha1.Export) bool {
	return len(validation.IsDNS1123Label(e.Namespace)) == 0 && len(validation.IsDNS1035Label(e.Name)) == 0
}

func validSettings(s *v1alpha1.ServiceSettings) error {
	switch s.Type {
	case v1alpha1.ClusterSetIP:
		if len(s.Ports) == 0 {
			return errors.New("it has no ports")
		}
	case v1alpha1.Headless:
	default:
		return fmt.Errorf("its type %s is none of ClusterSetIP, Headless", clip.Quote(string(s.Type)))
	}
	if err := validPorts(s.Ports); err != nil {
		return err
	}
	if err := validTraffic(s); err != nil {
		return err
	}
	if len(s.IPFamilies) == 0 || len(s.IPFamilies) > 2 || len(s.IPFamilies) == 2 && s.IPFamilies[0] == s.IPFamilies[1] {
		return fmt.Errorf("it has %d IP families, expected IPv4, IPv6 or one of each", len(s.IPFamilies))
	}
	for _, f := range s.IPFamilies {
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol {
			return fmt.Errorf("its IP family %s is none of IPv4, IPv6", clip.Quote(string(f)))
		}
	}
	return nil
}

func validPorts(ports []v1alpha1.ServicePort) error {
	if len(ports) > maxPorts {
		return fmt.Errorf("it has %d ports, at most %d are possible", len(ports), maxPorts)
	}
	names := make(map[string]bool, len(ports))
	numbers := make(map[v1alpha1.BackendPort]bool, len(ports))
	for _, p := range ports {
		if err := validPort(p.Name, p.Protocol, p.Port); err != nil {
			return err
		}
		if p.AppProtocol != nil && len(validation.IsQualifiedName(*p.AppProtocol)) > 0 {
			return fmt.Errorf("the application protocol of port %d is %s, which is no qualified name", p.Port,
				clip.Quote(*p.AppProtocol))
		}
		number := v1alpha1.BackendPort{Protocol: p.Protocol, Port: p.Port}
		if names[p.Name] || numbers[number] {
			return fmt.Errorf("port %s is there twice", portText(p))
		}
		names[p.Name], numbers[number] = true, true
	}
	if len(ports) > 1 && names[""] {
		return errors.New("one of several ports has no name")
	}
	return nil
}

func validPort(name string, protocol corev1.Protocol, port int32) error {
	if name != "" && len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("the port name %s is no DNS label", clip.Quote(name))
	}
	switch protocol {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		return fmt.Errorf("the protocol %s is none of TCP, UDP, SCTP", clip.Quote(string(protocol)))
	}
	if port < 1 || port > 65535 {
		return fmt.Errorf("the port %d is not within 1-65535", port)
	}
	return nil
}

func validTraffic(s *v1alpha1.ServiceSettings) error {
	if s.SessionAffinity != "" && s.SessionAffinity != corev1.ServiceAffinityNone &&
		s.SessionAffinity != corev1.ServiceAffinityClientIP {
		return fmt.Errorf("its session affinity %s is none of None, ClientIP", clip.Quote(string(s.SessionAffinity)))
	}
	if t := affinityTimeout(s.SessionAffinityConfig); t < 1 || t > maxAffinity {
		return fmt.Errorf("its session affinity lasts %d s, expected 1-%d", t, maxAffinity)
	}
	if p := s.InternalTrafficPolicy; p != nil && *p != corev1.ServiceInternalTrafficPolicyCluster &&
		*p != corev1.ServiceInternalTrafficPolicyLocal {
		return fmt.Errorf("its internal traffic policy %s is none of Cluster, Local", clip.Quote(string(*p)))
	}
	if d := s.TrafficDistribution; d != nil && *d != "" && len(validation.IsQualifiedName(*d)) > 0 {
		return fmt.Errorf("its traffic distribution %s is no name", clip.Quote(*d))
	}
	return nil
}

func affinityTimeout(c *corev1.SessionAffinityConfig) int32 {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return corev1.DefaultClientIPServiceAffinitySeconds
	}
	return *c.ClientIP.TimeoutSeconds
}

func countBackends(groups []v1alpha1.Backends) error {
	if len(groups) > maxGroups {
		return fmt.Errorf("its backends have %d different lists of ports, at most %d are possible", len(groups), maxGroups)
	}
	addresses := 0
	for i := range groups {
		addresses += len(groups[i].Addresses)
		if len(groups[i].Ports) > maxPorts {
			return fmt.Errorf("its backends have %d ports, at most %d are possible", len(groups[i].Ports), maxPorts)
		}
	}
	if addresses > maxAddresses {
		return fmt.Errorf("it has %d backends, at most %d are possible", addresses, maxAddresses)
	}
	return nil
}

// clusterIPs returns those that lie within the services of the member, at most one of a family.
func (a *accepted) clusterIPs(ips []string, n *networks) []string {
	out := make([]string, 0, len(ips))
	var families []bool
	for _, s := range ips {
		ip, ok := parseIP(s)
		if !ok || !n.services.Contains(ip) || slices.Contains(families, ip.Is4()) {
			a.foreignIPs++
			continue
		}
		families = append(families, ip.Is4())
		out = append(out, ip.String())
	}
	return out
}

// backends returns those that other members may route to, and those on the nodes.
func (a *accepted) backends(groups []v1alpha1.Backends, n *networks) []v1alpha1.Backends {
	var out []v1alpha1.Backends
	for i := range groups {
		ports, ok := backendPorts(groups[i].Ports)
		if !ok {
			a.malformed += len(groups[i].Addresses)
			continue
		}
		g := v1alpha1.Backends{Ports: ports, Addresses: make([]v1alpha1.Backend, 0, len(groups[i].Addresses))}
		for _, b := range groups[i].Addresses {
			if b, ok := a.backend(b, n); ok {
				g.Addresses = append(g.Addresses, b)
			}
		}
		if len(g.Addresses) > 0 {
			out = addGroup(out, g)
		}
	}
	return sortGroups(out)
}

// backendPorts returns the ports sorted. They must have different names.
func backendPorts(ports []v1alpha1.BackendPort) ([]v1alpha1.BackendPort, bool) {
	out := append(make([]v1alpha1.BackendPort, 0, len(ports)), ports...)
	slices.SortFunc(out, comparePorts)
	for i, p := range out {
		if validPort(p.Name, p.Protocol, p.Port) != nil || i > 0 && p.Name == out[i-1].Name {
			return nil, false
		}
	}
	return out, true
}

func (a *accepted) backend(b v1alpha1.Backend, n *networks) (v1alpha1.Backend, bool) {
	ip, ok := parseIP(b.IP)
	if !ok || b.Hostname != "" && len(validation.IsDNS1123Label(b.Hostname)) > 0 ||
		len(validation.IsValidLabelValue(b.Zone)) > 0 {
		a.malformed++
		return b, false
	}
	b.IP = ip.String()
	// The node is of use in its own cluster only.
	b.Node = ""
	if n.nodes.Contains(ip) || n.pods.Contains(ip) || a.external(b, n) {
		return b, true
	}
	a.outside++
	if !slices.Contains(a.outsideFamilies, ip.Is4()) {
		a.outsideFamilies = append(a.outsideFamilies, ip.Is4())
	}
	return b, false
}

// addGroup adds a group to those with other ports.
func addGroup(all []v1alpha1.Backends, g v1alpha1.Backends) []v1alpha1.Backends {
	for i := range all {
		if slices.Equal(all[i].Ports, g.Ports) {
			all[i].Addresses = append(all[i].Addresses, g.Addresses...)
			return all
		}
	}
	return append(all, g)
}

// sortGroups sorts groups by their ports and the addresses in each, which it leaves once.
func sortGroups(groups []v1alpha1.Backends) []v1alpha1.Backends {
	for i := range groups {
		g := &groups[i]
		slices.SortFunc(g.Addresses, compareBackends)
		g.Addresses = slices.CompactFunc(g.Addresses, func(a, b v1alpha1.Backend) bool { return a.IP == b.IP })
	}
	slices.SortFunc(groups, func(a, b v1alpha1.Backends) int { return slices.CompareFunc(a.Ports, b.Ports, comparePorts) })
	return groups
}

// compareBackends orders by address; of two with one address the ready one comes first.
func compareBackends(a, b v1alpha1.Backend) int {
	x, _ := netip.ParseAddr(a.IP)
	y, _ := netip.ParseAddr(b.IP)
	return cmp.Or(x.Compare(y), compareBool(b.Ready, a.Ready), compareBool(b.Serving, a.Serving),
		compareBool(a.Terminating, b.Terminating),
		cmp.Compare(a.Hostname, b.Hostname), cmp.Compare(a.Zone, b.Zone))
}

// maxSize is a bound on the length of an export in JSON. It is cheap: nothing is encoded.
func maxSize(e *v1alpha1.Export) int {
	// Only in the values of annotations and in remarks do characters need escapes, of up to six bytes each.
	const escaped = 6
	size := 512 + len(e.GlobalIP) + len(e.GlobalIPv6) + len(e.Namespace) + len(e.Name)
	for _, p := range e.Settings.Ports {
		size += 64 + len(p.Name) + len(ptr.Deref(p.AppProtocol, ""))
	}
	for k, v := range e.Settings.Labels {
		size += 8 + len(k) + len(v)
	}
	for k, v := range e.Settings.Annotations {
		size += 8 + len(k) + escaped*len(v)
	}
	for _, text := range e.Remarks {
		size += 8 + escaped*len(text)
	}
	if e.Scope != nil {
		size += sizeOf(e.Scope)
	}
	for i := range e.Backends {
		size += 32 + 64*len(e.Backends[i].Ports)
		for _, p := range e.Backends[i].Ports {
			size += len(p.Name)
		}
		for _, b := range e.Backends[i].Addresses {
			size += 112 + len(b.GlobalIP) + len(b.IP) + len(b.Hostname) + len(b.Zone)
		}
	}
	return size
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func comparePorts(a, b v1alpha1.BackendPort) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

// parseIP accepts the addresses that an EndpointSlice may hold.
func parseIP(s string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.Zone() != "" {
		return netip.Addr{}, false
	}
	ip = ip.Unmap()
	return ip, ip.IsGlobalUnicast()
}
