// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTopologyFillsDefaults(t *testing.T) {
	got, err := ParseTopology([]byte("clusters: [{name: c1}, {name: c2, mode: pull}]"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultTopology(), got); diff != "" {
		t.Errorf("two named clusters should be the default topology (-want +got):\n%s", diff)
	}
}

func TestTopologiesOfTheTreeAreValid(t *testing.T) {
	files, err := filepath.Glob("../topologies/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d topologies: %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseTopology(data); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestParseTopologyDualStack(t *testing.T) {
	got, err := ParseTopology([]byte(`
clusters:
- name: d1
  podCIDRs: [10.8.0.0/16, "fd00:8::/48"]
  serviceCIDRs: [10.88.0.0/16, "fd00:88::/112"]
  nodes: [{name: a, gateway: true}, {name: b}, {name: c}]
`))
	if err != nil {
		t.Fatal(err)
	}
	c := got.Clusters[0]
	if diff := cmp.Diff([]string{IPv4, IPv6}, c.IPFamilies); diff != "" {
		t.Errorf("families (-want +got):\n%s", diff)
	}
	if got, want := join(c.nodePodCIDRs(2)), "10.8.2.0/24,fd00:8:0:2::/64"; got != want {
		t.Errorf("pod CIDRs of the third node: got %s, want %s", got, want)
	}
	if got, want := c.dnsAddr().String(), "10.88.0.10"; got != want {
		t.Errorf("DNS address: got %s, want %s", got, want)
	}
}

func TestNodesShareSeveralPodCIDRs(t *testing.T) {
	c := Cluster{Name: "c1", PodCIDRs: []string{"10.8.0.0/16", "10.18.0.0/24"}, IPFamilies: []string{IPv4},
		Nodes: make([]Node, 4)}
	var got []string
	for j := range c.Nodes {
		got = append(got, join(c.nodePodCIDRs(j)))
	}
	want := []string{"10.8.0.0/24", "10.18.0.0/26", "10.8.1.0/24", "10.18.0.64/26"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseTopologyNamesEveryMistake(t *testing.T) {
	for name, tc := range map[string]struct{ yaml, want string }{
		"no clusters":   {"clusters: []", "expected 1 to 14, found 0"},
		"unknown field": {"clusters: [{name: c1, podCidr: 10.0.0.0/8}]", `unknown field "podCidr"`},
		"reserved name": {"clusters: [{name: karmada}]", `name "karmada"`},
		"bad name":      {"clusters: [{name: C_1}]", `name "C_1": expected a DNS label`},
		"same name":     {"clusters: [{name: c1}, {name: c1}]", `name "c1": already used by clusters[0]`},
		"same node": {"clusters: [{name: c1, nodes: [{name: m1}]}, {name: c2, nodes: [{name: m1}]}]",
			`name "m1": already used`},
		"mode":            {"clusters: [{name: c1, mode: pusch}]", `mode: expected one of ["push" "pull"], found "pusch"`},
		"distribution":    {"clusters: [{name: c1, distribution: k0s}]", `expected one of ["kubeadm" "k3s"], found "k0s"`},
		"kube-proxy mode": {"clusters: [{name: c1, kubeProxyMode: ipvs}]", `found "ipvs"`},
		"CNI":             {"clusters: [{name: c1, cni: weave}]", `expected one of ["bridge" "flannel" "macvlan"], found`},
		"flannel of two":  {"clusters: [{name: c1, cni: flannel, podCIDRs: [10.8.0.0/16, 10.9.0.0/16]}]", "cni flannel"},
		"flannel, IPv6":   {"clusters: [{name: c1, cni: flannel, podCIDRs: ['fd00::/48']}]", "expected one IPv4 prefix"},
		"macvlan, IPv6": {"clusters: [{name: c1, cni: macvlan, podCIDRs: ['fd00::/48']}]",
			"expected IPv4 for cni macvlan"},
		"macvlan, 8 nodes": {"clusters: [{name: c1, cni: macvlan, nodes: [{name: a}, {name: b}, {name: c}, {name: d}, " +
			"{name: e}, {name: f}, {name: g}, {name: h}]}]", "expected at most 7 with cni macvlan, found 8"},
		"flannel, ipMasq": {"clusters: [{name: c1, cni: flannel, ipMasq: true}]", "only cni bridge can be told"},
		"forward policy":  {"clusters: [{name: c1, forwardPolicy: reject}]", `found "reject"`},
		"not a CIDR":      {"clusters: [{name: c1, podCIDRs: [10.8.0.0]}]", "podCIDRs"},
		"host bits":       {"clusters: [{name: c1, podCIDRs: [10.8.0.1/16]}]", "expected 10.8.0.0/16"},
		"narrow pods":     {"clusters: [{name: c1, podCIDRs: [10.8.0.0/26]}]", "at most /24"},
		"wide services": {"clusters: [{name: c1, podCIDRs: ['fd00::/48'], serviceCIDRs: ['fd01::/64']}]",
			"/108 or longer"},
		"family without": {"clusters: [{name: c1, ipFamilies: [IPv4, IPv6]}]", "no IPv6 prefix"},
		"family not named": {"clusters: [{name: c1, serviceCIDRs: [10.88.0.0/16, 'fd01::/112']}]",
			"ipFamilies does not name IPv6"},
		"family twice":       {"clusters: [{name: c1, ipFamilies: [IPv4, IPv4]}]", "expected IPv4, IPv6 or both"},
		"two mistakes":       {"clusters: [{name: c1, mode: x, kubeProxyMode: y}]", "kubeProxyMode"},
		"not even an object": {"clusters: 7", "parse topology"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseTopology([]byte(tc.yaml))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestNodesOfAnUnderlayHaveRangesInEverySubnet(t *testing.T) {
	c := Cluster{CNI: CNIMacvlan, PodCIDRs: []string{"10.21.0.0/24", "10.22.0.0/16"}, Nodes: make([]Node, 2)}
	var got []string
	for j := range c.Nodes {
		for _, r := range c.underlayRanges(j) {
			got = append(got, fmt.Sprintf("%s by %s: %s-%s", r.Subnet, r.Gateway, r.First, r.Last))
		}
	}
	want := []string{
		"10.21.0.0/24 by 10.21.0.1: 10.21.0.65-10.21.0.126",
		"10.22.0.0/16 by 10.22.0.1: 10.22.1.1-10.22.1.254",
		"10.22.0.0/16 by 10.22.0.1: 10.22.2.1-10.22.2.254",
		"10.21.0.0/24 by 10.21.0.1: 10.21.0.129-10.21.0.190",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPodsOfAnUnderlayReachOtherClustersByTheirNode(t *testing.T) {
	topology := Topology{Clusters: []Cluster{
		{PodCIDRs: []string{"10.21.0.0/24"}, ServiceCIDRs: []string{"10.143.0.0/16"}},
		{PodCIDRs: []string{"10.8.0.0/16"}, ServiceCIDRs: []string{"10.88.0.0/16"}},
		{PodCIDRs: []string{"10.9.0.0/16"}, ServiceCIDRs: []string{"10.88.0.0/16"}},
	}}
	want := []string{"10.143.0.0/16", "10.8.0.0/16", "10.88.0.0/16", "10.9.0.0/16"}
	if diff := cmp.Diff(want, topology.hijacked(0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseTopology(f *testing.F) {
	f.Add([]byte("clusters: [{name: c1}]"))
	f.Add([]byte("clusters: [{name: c1, podCIDRs: ['fd00::/48', 10.0.0.0/8], nodes: [{name: a}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		topology, err := ParseTopology(data)
		if err != nil {
			return
		}
		for _, c := range topology.Clusters {
			c.dnsAddr()
			for j := range c.Nodes {
				c.nodePodCIDRs(j)
			}
		}
	})
}

// TestATopologyIsTheSameWhenItIsRead as it was when it was made, and another one is not.
func TestATopologyIsTheSameWhenItIsRead(t *testing.T) {
	made := DefaultTopology()
	made.ClusterSet = map[string]any{"healthCheck": map[string]int{"intervalMilliseconds": 100}}
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseTopology(text)
	if err != nil {
		t.Fatal(err)
	}
	if !read.same(made) {
		t.Errorf("made %+v, read %+v", made, read)
	}
	read.ClusterSet = map[string]any{"healthCheck": map[string]int{"intervalMilliseconds": 101}}
	if read.same(made) {
		t.Error("another health check is the same topology")
	}
}
