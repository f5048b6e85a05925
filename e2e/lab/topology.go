// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"sigs.k8s.io/yaml"
)

// How a member is joined to Karmada.
const (
	ModePush = "push"
	ModePull = "pull"
)

// The backends of kube-proxy that a lab offers.
const (
	ProxyNFTables = "nftables"
	ProxyIPTables = "iptables"
)

// The CNIs that a lab offers.
const (
	CNIBridge  = "bridge"
	CNIFlannel = "flannel"
	CNIMacvlan = "macvlan"
)

// The distributions of Kubernetes that a member can look like to its agents.
const (
	DistributionKubeadm = "kubeadm"
	DistributionK3s     = "k3s"
)

// The policies of a node's FORWARD chain.
const (
	ForwardDrop   = "DROP"
	ForwardAccept = "ACCEPT"
)

// The IP families as Kubernetes spells them.
const (
	IPv4 = "IPv4"
	IPv6 = "IPv6"
)

const (
	maxClusters = 14
	maxNodes    = 100
)

// Topology is what a lab consists of besides Karmada itself.
type Topology struct {
	Clusters []Cluster `json:"clusters"`
	// ClusterSet is what the spec of the ClusterSet says beyond its defaults when Sealane is installed. The lab alone
	// makes nothing of it.
	ClusterSet map[string]any `json:"clusterSet,omitempty"`
	// IPsec installs what cables by IPsec need.
	IPsec bool `json:"ipsec,omitempty"`
	// PullImages leaves Sealane's images out of the nodes: they pull what is installed from a registry, which
	// Lab.TrustRegistry tells them.
	PullImages bool `json:"pullImages,omitempty"`
}

// Cluster is one member cluster.
type Cluster struct {
	Name string `json:"name"`
	// Mode is push (default) or pull.
	Mode string `json:"mode,omitempty"`
	// Distribution is kubeadm (default), whose ConfigMap kubeadm-config states the networks; or k3s, where nothing but
	// the Nodes and the API server do, and CoreDNS imports what ConfigMap coredns-custom has.
	Distribution string `json:"distribution,omitempty"`
	// PodCIDRs and ServiceCIDRs may hold several prefixes per family. Each
	// node gets one pod CIDR per family out of them, or, with cni macvlan, a range of addresses out of each.
	PodCIDRs     []string `json:"podCIDRs,omitempty"`
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// IPFamilies, first the primary one; by default those of PodCIDRs.
	IPFamilies []string `json:"ipFamilies,omitempty"`
	// Nodes default to <cluster>-gw, a gateway, and <cluster>-worker.
	Nodes []Node `json:"nodes,omitempty"`
	// CNI is bridge (default): a bridge on each node and routes between the nodes; flannel, in vxlan mode, with its
	// own MTU, masquerading and accepts in FORWARD; or macvlan: pods on the nodes' link, each with a veth to its node
	// besides, as Spiderpool's coordinator makes it.
	CNI string `json:"cni,omitempty"`
	// KubeProxyMode is nftables (default) or iptables.
	KubeProxyMode string `json:"kubeProxyMode,omitempty"`
	// IPMasq lets the bridge CNI masquerade everything that leaves a node.
	IPMasq bool `json:"ipMasq,omitempty"`
	// ForwardPolicy is that of the nodes' FORWARD chain: DROP (default), as a
	// container engine leaves it, with the CNI's accepts for the cluster's own
	// pod traffic; or ACCEPT.
	ForwardPolicy string `json:"forwardPolicy,omitempty"`
}

// Node is one machine of a cluster. Its name is unique in the lab.
type Node struct {
	Name string `json:"name"`
	// Gateway labels the node sealane.io/gateway=true.
	Gateway bool `json:"gateway,omitempty"`
}

// DefaultTopology is c1 (push) and c2 (pull) with a gateway and a worker each.
func DefaultTopology() Topology {
	t := Topology{Clusters: []Cluster{
		{Name: "c1", Mode: ModePush, PodCIDRs: []string{"10.8.0.0/16"}, ServiceCIDRs: []string{"10.88.0.0/16"}},
		{Name: "c2", Mode: ModePull, PodCIDRs: []string{"10.9.0.0/16"}, ServiceCIDRs: []string{"10.99.0.0/16"}},
	}}
	for i := range t.Clusters {
		t.Clusters[i].setDefaults(i)
	}
	return t
}

// ParseTopology reads a topology file (YAML, unknown fields refused) and fills
// in the defaults. All mistakes are reported at once.
func ParseTopology(data []byte) (Topology, error) {
	var t Topology
	if err := yaml.UnmarshalStrict(data, &t); err != nil {
		return Topology{}, fmt.Errorf("parse topology: %w", err)
	}
	return t.complete()
}

// complete returns t with its defaults filled in, or every mistake in it.
func (t Topology) complete() (Topology, error) {
	done := Topology{Clusters: make([]Cluster, len(t.Clusters)), ClusterSet: t.ClusterSet,
		PullImages: t.PullImages, IPsec: t.IPsec}
	for i, c := range t.Clusters {
		c.setDefaults(i)
		done.Clusters[i] = c
	}
	return done, done.validate()
}

// same says whether two topologies are written the same. What is made in Go has other types than what is read of it.
func (t Topology) same(other Topology) bool {
	a, errA := json.Marshal(t)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

func (c *Cluster) setDefaults(index int) {
	if c.Mode == "" {
		c.Mode = ModePush
	}
	if c.Distribution == "" {
		c.Distribution = DistributionKubeadm
	}
	if len(c.PodCIDRs) == 0 {
		c.PodCIDRs = []string{fmt.Sprintf("10.%d.0.0/16", 8+index)}
	}
	if len(c.ServiceCIDRs) == 0 {
		c.ServiceCIDRs = []string{fmt.Sprintf("10.%d.0.0/16", 88+11*index)}
	}
	if len(c.IPFamilies) == 0 {
		c.IPFamilies = familiesOf(c.PodCIDRs)
	}
	if len(c.Nodes) == 0 {
		c.Nodes = []Node{{Name: c.Name + "-gw", Gateway: true}, {Name: c.Name + "-worker"}}
	}
	if c.CNI == "" {
		c.CNI = CNIBridge
	}
	if c.KubeProxyMode == "" {
		c.KubeProxyMode = ProxyNFTables
	}
	if c.ForwardPolicy == "" {
		c.ForwardPolicy = ForwardDrop
	}
}

// familiesOf lists the families of the prefixes in order of first appearance.
func familiesOf(cidrs []string) []string {
	var families []string
	seen := map[string]bool{}
	for _, s := range cidrs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			continue
		}
		if f := familyOf(p.Addr()); !seen[f] {
			seen[f] = true
			families = append(families, f)
		}
	}
	return families
}

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// nodeName is also a host name and part of a network namespace's name.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)

// reservedNames are contexts and processes of the Karmada control plane.
var reservedNames = map[string]bool{"karmada": true, "etcd": true, "ul": true}

func (t Topology) validate() error {
	var errs []error
	if len(t.Clusters) == 0 || len(t.Clusters) > maxClusters {
		errs = append(errs, fmt.Errorf("clusters: expected 1 to %d, found %d", maxClusters, len(t.Clusters)))
	}
	seen := map[string]string{}
	for i, c := range t.Clusters {
		at := fmt.Sprintf("clusters[%d] (%s)", i, c.Name)
		errs = append(errs, claim(seen, c.Name, at), c.validate(at))
		for j, n := range c.Nodes {
			errs = append(errs, claim(seen, n.Name, fmt.Sprintf("%s.nodes[%d]", at, j)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("invalid topology:\n%w", err)
	}
	return nil
}

// claim reserves a name for what stands at the path at.
func claim(seen map[string]string, name, at string) error {
	if !nodeName.MatchString(name) || reservedNames[name] {
		return fmt.Errorf("%s: name %q: expected a DNS label of at most 40 characters other than karmada, etcd, ul", at, name)
	}
	if other, taken := seen[name]; taken {
		return fmt.Errorf("%s: name %q: already used by %s", at, name, other)
	}
	seen[name] = at
	return nil
}

func (c Cluster) validate(at string) error {
	errs := []error{
		oneOf(at+".mode", c.Mode, ModePush, ModePull),
		oneOf(at+".distribution", c.Distribution, DistributionKubeadm, DistributionK3s),
		oneOf(at+".cni", c.CNI, CNIBridge, CNIFlannel, CNIMacvlan),
		oneOf(at+".kubeProxyMode", c.KubeProxyMode, ProxyNFTables, ProxyIPTables),
		oneOf(at+".forwardPolicy", c.ForwardPolicy, ForwardDrop, ForwardAccept),
	}
	if len(c.Nodes) > maxNodes {
		errs = append(errs, fmt.Errorf("%s.nodes: expected at most %d, found %d", at, maxNodes, len(c.Nodes)))
	}
	if n := len(c.IPFamilies); n < 1 || n > 2 || (n == 2 && c.IPFamilies[0] == c.IPFamilies[1]) {
		errs = append(errs, fmt.Errorf("%s.ipFamilies: expected IPv4, IPv6 or both, found %q", at, c.IPFamilies))
	}
	for _, f := range c.IPFamilies {
		errs = append(errs, oneOf(at+".ipFamilies", f, IPv4, IPv6))
	}
	if c.CNI == CNIFlannel && (len(c.PodCIDRs) != 1 || len(c.IPFamilies) != 1 || c.IPFamilies[0] != IPv4) {
		errs = append(errs, fmt.Errorf("%s.podCIDRs: expected one IPv4 prefix for cni flannel, found %q", at, c.PodCIDRs))
	}
	if c.CNI == CNIMacvlan && len(c.Nodes) > maxUnderlayNodes {
		errs = append(errs, fmt.Errorf("%s.nodes: expected at most %d with cni macvlan, found %d", at, maxUnderlayNodes,
			len(c.Nodes)))
	}
	if c.CNI == CNIMacvlan && !slices.Equal(c.IPFamilies, []string{IPv4}) {
		errs = append(errs, fmt.Errorf("%s.ipFamilies: expected IPv4 for cni macvlan, found %q", at, c.IPFamilies))
	}
	if c.CNI != CNIBridge && c.IPMasq {
		errs = append(errs, fmt.Errorf("%s.ipMasq: only cni bridge can be told, found cni %s", at, c.CNI))
	}
	errs = append(errs,
		c.validateCIDRs(at+".podCIDRs", c.PodCIDRs, podRoom),
		c.validateCIDRs(at+".serviceCIDRs", c.ServiceCIDRs, serviceRoom))
	return errors.Join(errs...)
}

// uses tells whether any cluster has a CNI.
func (t Topology) uses(cni string) bool {
	return slices.ContainsFunc(t.Clusters, func(c Cluster) bool { return c.CNI == cni })
}

func oneOf(at, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("%s: expected one of %q, found %q", at, allowed, value)
}

// podRoom says whether a pod CIDR can be cut into nodes' CIDRs.
func podRoom(p netip.Prefix) error {
	if widest := nodeBits(p.Addr()); p.Bits() > widest {
		return fmt.Errorf("expected a prefix of at most /%d", widest)
	}
	return nil
}

// serviceRoom mirrors kube-apiserver's limits on service CIDRs.
func serviceRoom(p netip.Prefix) error {
	if p.Addr().BitLen()-p.Bits() < 4 {
		return errors.New("expected room for 16 addresses")
	}
	if p.Addr().Is6() && p.Bits() < 108 {
		return errors.New("expected a prefix of /108 or longer")
	}
	return nil
}

func (c Cluster) validateCIDRs(at string, cidrs []string, room func(netip.Prefix) error) error {
	var errs []error
	for _, s := range cidrs {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", at, err))
		case p != p.Masked():
			errs = append(errs, fmt.Errorf("%s: %s has host bits set, expected %s", at, p, p.Masked()))
		case room(p) != nil:
			errs = append(errs, fmt.Errorf("%s: %s: %w", at, p, room(p)))
		}
	}
	have := familiesOf(cidrs)
	for _, f := range c.IPFamilies {
		if !slices.Contains(have, f) {
			errs = append(errs, fmt.Errorf("%s: no %s prefix, but ipFamilies names %s", at, f, f))
		}
	}
	for _, f := range have {
		if !slices.Contains(c.IPFamilies, f) {
			errs = append(errs, fmt.Errorf("%s: %s prefix, but ipFamilies does not name %s", at, f, f))
		}
	}
	return errors.Join(errs...)
}
