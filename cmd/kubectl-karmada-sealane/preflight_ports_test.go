// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestPortsAreThoseOfTheCablesInUse goes by the rule that the controller goes by, of clusters that are to become
// members too: a port is named where a pair of the cluster has its cable, and nowhere else.
func TestPortsAreThoseOfTheCablesInUse(t *testing.T) {
	var clusters []clusterv1alpha1.Cluster
	for _, name := range []string{"c1", "c2", "c3", "out"} {
		clusters = append(clusters, clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	selected := v1alpha1.ClusterSetSpec{ClusterAffinity: policyv1alpha1.ClusterAffinity{
		ClusterNames: []string{"c1", "c2", "c3"}}, DNS: v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}}, Shards: 4,
		Cable: v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800}}
	pair := func(driver v1alpha1.CableDriver, names ...string) v1alpha1.PairCable {
		out := v1alpha1.PairCable{Driver: driver, Unencrypted: driver == v1alpha1.CableVXLAN}
		for _, name := range names {
			out.Clusters = append(out.Clusters, policyv1alpha1.ClusterAffinity{ClusterNames: []string{name}})
		}
		return out
	}
	const (
		usual   = "UDP 4500 and up to gateways and UDP 4800 between nodes"
		towards = "UDP 4500 and up to gateways, UDP "
	)
	alone := map[string]string{"c1": usual, "c2": usual, "c3": usual, "out": usual}
	for name, c := range map[string]struct {
		change func(*v1alpha1.ClusterSetSpec)
		want   map[string]string
	}{
		"WireGuard": {func(*v1alpha1.ClusterSetSpec) {}, alone},
		"all by IPsec, at other ports": {func(s *v1alpha1.ClusterSetSpec) {
			s.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableIPsec, Port: 5000, VXLANPort: 4789}
		}, map[string]string{
			"c1": "UDP 5000 and up to gateways, UDP 5034 between them and those of c2, c3, to one side at least (ipsec) and " +
				"UDP 4789 between nodes",
			"out": usual,
		}},
		"one pair by IPsec": {func(s *v1alpha1.ClusterSetSpec) {
			s.Cables = []v1alpha1.PairCable{pair(v1alpha1.CableIPsec, "c3", "c1")}
		}, map[string]string{
			"c1": towards + "4534 between them and those of c3, to one side at least (ipsec) and UDP 4800 between nodes",
			"c2": usual,
			"c3": towards + "4534 between them and those of c1, to one side at least (ipsec) and UDP 4800 between nodes",
		}},
		"all by VXLAN": {func(s *v1alpha1.ClusterSetSpec) {
			s.Cable.Driver, s.Cable.Unencrypted = v1alpha1.CableVXLAN, true
		}, map[string]string{
			"c2": towards + "4533 both ways between them and those of c1, c3 (vxlan) and UDP 4800 between nodes", "out": usual,
		}},
		"each pair by another": {func(s *v1alpha1.ClusterSetSpec) {
			s.Cables = []v1alpha1.PairCable{pair(v1alpha1.CableVXLAN, "c1", "c2"), pair(v1alpha1.CableIPsec, "c1", "c3")}
		}, map[string]string{
			"c1": towards + "4533 both ways between them and those of c2 (vxlan), UDP 4534 between them and those of c3, to " +
				"one side at least (ipsec) and UDP 4800 between nodes",
			"c2": towards + "4533 both ways between them and those of c1 (vxlan) and UDP 4800 between nodes",
			"c3": towards + "4534 between them and those of c1, to one side at least (ipsec) and UDP 4800 between nodes",
		}},
		"a mesh, but for a pair": {func(s *v1alpha1.ClusterSetSpec) {
			s.Topology = v1alpha1.TopologySpec{Mode: v1alpha1.TopologyMesh, Pairs: []v1alpha1.TopologyPair{
				{Clusters: []string{"c3", "c1"}, Mode: v1alpha1.TopologyGateways}}}
		}, map[string]string{
			"c1":  towards + "4532 between all nodes and those of c2 (mesh) and UDP 4800 between nodes",
			"c2":  towards + "4532 between all nodes and those of c1, c3 (mesh) and UDP 4800 between nodes",
			"out": usual,
		}},
		"a mesh where that works": {func(s *v1alpha1.ClusterSetSpec) { s.Topology.Mode = v1alpha1.TopologyAuto }, alone},
	} {
		set := v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: *selected.DeepCopy()}
		c.change(&set.Spec)
		open := portsOf([]v1alpha1.ClusterSet{set}, clusters, nil)
		for cluster, want := range c.want {
			if got := open[cluster].String(); got != want {
				t.Errorf("%s: of %s\n%q, want\n%q", name, cluster, got, want)
			}
		}
	}
	if open := portsOf(nil, clusters, nil); len(open) > 0 {
		t.Errorf("of no ClusterSet: %v", open)
	}
}

// TestPreflightNamesThePortsOfCables, where it names the cloud, and with --ipsec the port that IPsec has by the
// ClusterSet of the cluster.
func TestPreflightNamesThePortsOfCables(t *testing.T) {
	k := newKarmada(t)
	k.kubeconfig = writeKubeconfig(t, server, "karmada", "c1", "c2")
	k.temporary(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "aws"},
		Spec: corev1.NodeSpec{ProviderID: "aws:///eu-west-1a/i-0a1b2c3d"}})
	names := func(texts ...string) {
		t.Helper()
		out, _ := k.plugin(t, "preflight", "-C", "c1", "--ipsec")
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("no %q in\n%s", text, out)
			}
		}
	}
	names("AWS: UDP 4500 and up to gateways and UDP 4800 between nodes have to pass the security groups",
		"source/destination check of the instances may stay on", "UDP 4534 has to pass")
	k.install(t, "-C", "c1,c2")
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	k.get(t, set)
	set.Spec.Cable.Port, set.Spec.Cable.Driver, set.Spec.Cable.Unencrypted = 5000, v1alpha1.CableVXLAN, true
	if err := k.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	names("UDP 5033 both ways between them and those of c2 (vxlan)", "UDP 5034 has to pass")
}
