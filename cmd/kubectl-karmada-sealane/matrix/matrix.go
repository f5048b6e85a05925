// SPDX-License-Identifier: Apache-2.0

// Package matrix is every way from the pods and nodes of some clusters to the pods and services of the others that
// verify tries, what came of each, and how that is told. It is pure.
package matrix

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/probe"
)

// Role of a node.
type Role string

// The roles of nodes.
const (
	Gateway Role = "gateway"
	Worker  Role = "worker"
)

// Roles in their order.
func Roles() []Role { return []Role{Gateway, Worker} }

// Kind of what asks.
type Kind string

// The kinds of clients: Host is a pod on the network of its node.
const (
	Pod  Kind = "pod"
	Host Kind = "host"
)

// Kinds in their order.
func Kinds() []Kind { return []Kind{Pod, Host} }

// Place is where a client or a server is.
type Place struct {
	Cluster string `json:"cluster"`
	Kind    Kind   `json:"kind"`
	Role    Role   `json:"role"`
	Node    string `json:"node"`
}

func (p Place) String() string { return fmt.Sprintf("%s %s %s", p.Cluster, p.Role, p.Kind) }

// Client asks all servers of other clusters.
type Client struct {
	Place
	// Failure is why it could not be started; all its checks fail.
	Failure string
}

// Server answers what is asked at its pod's addresses, and at those of the two Services that have it as their one pod.
type Server struct {
	Place
	// Failure is why it could not be started; all checks of it fail.
	Failure string
	// PodIPs and ClusterIPs, at most one of each family.
	PodIPs, ClusterIPs []netip.Addr
	// Service and Headless are the names of its Services.
	Service, Headless string
}

// Name is what a server says who it is.
func (s Server) Name() string { return s.Cluster + "/" + string(s.Role) }

// Target is what of a server a check asks for.
type Target string

// The targets.
const (
	// TargetPod is the pod's address.
	TargetPod Target = "pod"
	// TargetClusterIP is the address that the Service has in its own cluster.
	TargetClusterIP Target = "ClusterIP"
	// TargetClusterSetIP is the Service's name in the clusterset.
	TargetClusterSetIP Target = "ClusterSetIP"
	// TargetHeadless is the name of the headless Service.
	TargetHeadless Target = "headless"
	// TargetByCluster is the Service's name with that of its cluster before it.
	TargetByCluster Target = "by-cluster"
)

// Targets in the order of the table's columns.
func Targets() []Target {
	return []Target{TargetPod, TargetClusterIP, TargetClusterSetIP, TargetHeadless, TargetByCluster}
}

// Family of addresses.
type Family string

// The families.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Verdict on a check.
type Verdict string

// The verdicts.
const (
	Pending Verdict = "pending"
	OK      Verdict = "ok"
	Failed  Verdict = "fail"
	// Skipped: what the check would ask for does not exist, and need not.
	Skipped Verdict = "skip"
)

// Check is one way from a client to a server, and what came of it.
type Check struct {
	From     Place  `json:"from"`
	To       Place  `json:"to"`
	Target   Target `json:"target"`
	Protocol string `json:"protocol"`
	Large    bool   `json:"large"`
	Family   Family `json:"family"`
	// Address asked for, as host:port.
	Address string  `json:"address,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Reason why it failed, or is skipped.
	Reason string `json:"reason,omitempty"`
	// Tries until it succeeded or was given up, and how long the last one took.
	Tries  int           `json:"tries,omitempty"`
	Took   time.Duration `json:"tookNanoseconds,omitempty"`
	server string
}

// Size and protocol as a word: TCP, UDP, TCP-large or UDP-large.
func (c *Check) way() string {
	way := strings.ToUpper(c.Protocol)
	if c.Large {
		way += "-large"
	}
	return way
}

// String names a check: "c1 worker pod → c2 gateway pod, ClusterSetIP, UDP-large, IPv4".
func (c *Check) String() string {
	return fmt.Sprintf("%s → %s, %s, %s, %s", c.From, c.To, c.Target, c.way(), c.Family)
}

// Clusterset is what is known of all clusters together.
type Clusterset struct {
	Clients []Client
	Servers []Server
	// Namespace of the Services, and the domain of their names in the clusterset.
	Namespace, Domain string
	// ClusterNames says that names with a cluster before them are answered.
	ClusterNames bool
	// Global says that a cluster's addresses are known to another by global ones only.
	Global func(cluster, to string) bool
}

// Matrix is all checks. A check's index is its number.
type Matrix struct{ Checks []Check }

// Build makes the checks of every client with every server of another cluster, in the order of both.
func (s Clusterset) Build() Matrix {
	var m Matrix
	for _, client := range s.Clients {
		for _, server := range s.Servers {
			if client.Cluster != server.Cluster {
				m.Checks = append(m.Checks, s.between(client, server)...)
			}
		}
	}
	return m
}

func (s Clusterset) between(client Client, server Server) []Check {
	var out []Check
	for _, family := range s.families(client, server) {
		for _, target := range Targets() {
			host, reason := s.host(client, server, target, family)
			for _, protocol := range []string{"tcp", "udp"} {
				for _, large := range []bool{false, true} {
					c := Check{From: client.Place, To: server.Place, Target: target, Protocol: protocol, Large: large,
						Family: family, Verdict: Pending, server: server.Name()}
					switch failure := cmp.Or(client.Failure, server.Failure); {
					case failure != "":
						c.Verdict, c.Reason = Failed, failure
					case host == "":
						c.Verdict, c.Reason = Skipped, reason
					default:
						c.Address = net.JoinHostPort(host, strconv.Itoa(probe.Port))
					}
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// families that both clusters have, as their pods tell; global addresses are of IPv4. One row is there in any case.
func (s Clusterset) families(client Client, server Server) []Family {
	if s.Global(server.Cluster, client.Cluster) || len(server.PodIPs) == 0 {
		return []Family{IPv4}
	}
	var out []Family
	for _, a := range server.PodIPs {
		if has, known := s.clusterHas(client.Cluster, familyOf(a)); has || !known {
			out = append(out, familyOf(a))
		}
	}
	if len(out) == 0 {
		return []Family{familyOf(server.PodIPs[0])}
	}
	slices.Sort(out)
	return out
}

// clusterHas says whether a server of the cluster has an address of the family; known is false where none has any.
func (s Clusterset) clusterHas(cluster string, family Family) (has, known bool) {
	for _, server := range s.Servers {
		if server.Cluster != cluster {
			continue
		}
		for _, a := range server.PodIPs {
			known = true
			has = has || familyOf(a) == family
		}
	}
	return has, known
}

// host that a client asks for, or the reason why there is none.
func (s Clusterset) host(client Client, server Server, target Target, family Family) (host, reason string) {
	ofFamily := func(addresses []netip.Addr) (string, string) {
		for _, a := range addresses {
			if familyOf(a) == family {
				return a.String(), ""
			}
		}
		return "", "it has no " + string(family) + " address"
	}
	suffix := "." + s.Namespace + ".svc." + s.Domain + "."
	switch target {
	case TargetPod, TargetClusterIP:
		if s.Global(server.Cluster, client.Cluster) {
			return "", fmt.Sprintf("%s is known to %s by global addresses only", server.Cluster, client.Cluster)
		}
		if target == TargetPod {
			return ofFamily(server.PodIPs)
		}
		return ofFamily(server.ClusterIPs)
	case TargetHeadless:
		return server.Headless + suffix, ""
	case TargetByCluster:
		if !s.ClusterNames {
			return "", "the ClusterSet answers no names of clusters (spec.dns.clusterNames)"
		}
		return server.Cluster + "." + server.Service + suffix, ""
	}
	return server.Service + suffix, ""
}

// Asked are the checks of the client at a place that it has to make.
func (m Matrix) Asked(from Place) []probe.Check {
	var out []probe.Check
	for i, c := range m.Checks {
		if c.From == from && c.Verdict == Pending {
			network := c.Protocol + "4"
			if c.Family == IPv6 {
				network = c.Protocol + "6"
			}
			out = append(out, probe.Check{ID: i, Network: network, Address: c.Address, Large: c.Large, Server: c.server})
		}
	}
	return out
}

// Settle takes a result that the client at a place reports. A member's pod speaks for its own checks, and once.
func (m Matrix) Settle(from Place, r probe.Result) bool {
	if r.ID < 0 || r.ID >= len(m.Checks) || m.Checks[r.ID].From != from || m.Checks[r.ID].Verdict != Pending {
		return false
	}
	c := &m.Checks[r.ID]
	c.Verdict, c.Tries, c.Took = OK, min(max(r.Tries, 0), 1<<20), min(max(r.Took, 0), time.Hour)
	if !r.OK {
		c.Verdict, c.Reason = Failed, clip.Line(clip.Text(cmp.Or(r.Error, "failed, without a reason"), 400))
	}
	return true
}

// Abandon fails what the client at a place has not reported.
func (m Matrix) Abandon(from Place, reason string) {
	for i := range m.Checks {
		if c := &m.Checks[i]; c.From == from && c.Verdict == Pending {
			c.Verdict, c.Reason = Failed, reason
		}
	}
}

// Count is how many checks have a verdict.
func (m Matrix) Count(v Verdict) int {
	n := 0
	for i := range m.Checks {
		if m.Checks[i].Verdict == v {
			n++
		}
	}
	return n
}
