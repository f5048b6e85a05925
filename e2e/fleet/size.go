// SPDX-License-Identifier: Apache-2.0

// Package fleet runs the broker against a real Karmada API with a fleet of simulated members: it answers as Karmada and
// the members' agents do, counts what the broker writes, and takes the time until a change has arrived. There are no
// nodes and no pods, so that one machine holds hundreds of clusters.
package fleet

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// MaxClusters is how many have networks of their own: pods 10.n.0.0/16, services a /20 of 172.16.0.0/12, nodes in
// 192.168.n.0/24.
const MaxClusters = 250

// Size of a fleet, whose last members, as many as Agents, are real clusters. Service i is in the namespace i modulo
// Namespaces, and exported by Exporters clusters with Backends pods each. A namespace is in every second cluster and in
// those that export from it. Karmada writes so many Reports of all members in a second; 0 is no limit.
type Size struct {
	Clusters, Services, Exporters, Backends, Namespaces, Agents, Reports int
	// Halves says that members read no deltas (ADR 70), as their agents of before did.
	Halves bool
}

// Check returns an error that says what a size may be, if it is another.
func (s Size) Check() error {
	if s.Clusters < 2 || s.Clusters > MaxClusters {
		return fmt.Errorf("clusters: expected 2 to %d, found %d", MaxClusters, s.Clusters)
	}
	if s.Exporters < 1 || s.Exporters > s.Clusters || s.Backends < 1 || s.Backends > 200 || s.Namespaces < 1 ||
		s.Services < 1 || s.Reports < 0 {
		return fmt.Errorf("expected at least one service, namespace, exporter and backend, no more exporters than "+
			"clusters, 200 backends at most, and no negative number of reports, found %+v", s)
	}
	if s.Halves && s.Agents > 0 {
		return fmt.Errorf("agents: expected none where members read no deltas, as real ones do, found %d", s.Agents)
	}
	if s.Agents < 0 || s.Agents > max(0, s.Clusters-simulated) {
		return fmt.Errorf("agents: expected none to %d with %d clusters, of which the first %d are simulated, found %d",
			max(0, s.Clusters-simulated), s.Clusters, simulated, s.Agents)
	}
	return nil
}

// simulated are the first clusters at least: those that scenarios change as a whole.
const simulated = 3

func (s Size) cluster(n int) string { return fmt.Sprintf("m%03d", n) }

// exporters of service i, from 0 to Clusters-1.
func (s Size) exporters(i int) []int {
	out := make([]int, s.Exporters)
	for k := range out {
		out[k] = s.exporter(i, k)
	}
	return out
}

func (s Size) exporter(i, k int) int { return (i + k*(s.Clusters/s.Exporters)) % s.Clusters }

// exports says whether cluster n exports service i.
func (s Size) exports(n, i int) bool {
	for k := range s.Exporters {
		if s.exporter(i, k) == n {
			return true
		}
	}
	return false
}

// present says which namespaces cluster n has.
func (s Size) present(n int) map[string]bool {
	out := map[string]bool{}
	for i := range s.Services {
		if namespace, _ := s.service(i); (i%s.Namespaces+n)%2 == 0 || s.exports(n, i) {
			out[namespace] = true
		}
	}
	return out
}

// Importers is how many clusters have the namespace of service i, but for its first exporter.
func (s Size) Importers(i int) int {
	namespace, _ := s.service(i)
	first, count := s.exporters(i)[0], 0
	for n := range s.Clusters {
		if n != first && s.present(n)[namespace] {
			count++
		}
	}
	return count
}

func pods(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n + 1), 0, 0}), 16)
}

func services(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(16 + n/16), byte(n % 16 * 16), 0}), 20)
}

// at returns the address of a prefix that is so far from its first.
func at(p netip.Prefix, offset int) netip.Addr {
	b := p.Addr().As4()
	b[2] += byte(offset >> 8)
	b[3] += byte(offset)
	return netip.AddrFrom4(b)
}

// offsetIn returns how far an address is from the first of a prefix, as at has it; false where it is in another.
func offsetIn(p netip.Prefix, address string) (offset uint16, ok bool) {
	a, err := netip.ParseAddr(address)
	if err != nil || !p.Contains(a) {
		return 0, false
	}
	b, first := a.As4(), p.Addr().As4()
	return uint16(b[2]-first[2])<<8 | uint16(b[3]-first[3]), true
}

// facts are what the agent of cluster n reports of its networks, with one gateway.
func facts(n int) v1alpha1.PeeringStatus {
	node := fmt.Sprintf("192.168.%d.1", n)
	return v1alpha1.PeeringStatus{
		Networks:  v1alpha1.Networks{PodCIDRs: []string{pods(n).String()}, ServiceCIDRs: []string{services(n).String()}},
		NodeCIDRs: []string{node + "/32"},
		Endpoints: []v1alpha1.Endpoint{{
			Gateway: "gateway", MTU: 1420,
			PublicKey: base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(n + 1)}, 32)),
			Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: node}},
		}},
		AgentVersion: "fleet",
	}
}

// export is service i as cluster n exports it. The offsets of its pods' addresses say which they are.
func (s Size) export(n, i int, offsets []int) v1alpha1.Export {
	namespace, name := s.service(i)
	e := v1alpha1.Export{
		Namespace: namespace, Name: name, CreatedAt: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC)),
		Settings: v1alpha1.ServiceSettings{
			Type:            v1alpha1.ClusterSetIP,
			Ports:           []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			SessionAffinity: corev1.ServiceAffinityNone, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster), // what an API server says
		},
		ClusterIPs: []string{at(services(n), 10+i%4000).String()},
	}
	if len(offsets) == 0 {
		return e
	}
	g := v1alpha1.Backends{Ports: []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}}}
	for k, offset := range offsets {
		g.Addresses = append(g.Addresses, v1alpha1.Backend{IP: at(pods(n), offset).String(), Ready: true, Serving: true,
			Node: fmt.Sprintf("node-%d", k), Zone: fmt.Sprintf("zone-%d", k%3)})
	}
	e.Backends = []v1alpha1.Backends{g}
	return e
}
