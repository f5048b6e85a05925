// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// read returns what the objects of several YAML documents state.
func read(t *testing.T, documents string) Ranges {
	t.Helper()
	var s stated
	for _, text := range strings.Split(documents, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		known := false
		for _, k := range kinds {
			if known = k.GroupVersionKind == o.GroupVersionKind(); known {
				s.note(k, o)
				break
			}
		}
		if !known {
			t.Fatalf("%s is not read", o.GroupVersionKind())
		}
	}
	r, err := s.ranges()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestKinds has objects as the plugins' published schemas have them.
func TestKinds(t *testing.T) {
	const (
		calicoPool  = "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: a}\nspec: "
		calicoBlock = "apiVersion: crd.projectcalico.org/v1\nkind: BlockAffinity\nmetadata: {name: a}\nspec: "
		ciliumNode  = "apiVersion: cilium.io/v2\nkind: CiliumNode\nmetadata: {name: a}\nspec: "
		subnet      = "apiVersion: kubeovn.io/v1\nkind: Subnet\nmetadata: {name: a}\nspec: "
		spiderPool  = "apiVersion: spiderpool.spidernet.io/v2beta1\nkind: SpiderIPPool\nmetadata: {name: a}\nspec: "
		spiderNet   = "apiVersion: spiderpool.spidernet.io/v2beta1\nkind: SpiderSubnet\nmetadata: {name: a}\nspec: "
		and         = "\n---\n"
	)
	for name, c := range map[string]struct{ objects, pods string }{
		"a Calico pool":       {calicoPool + "{cidr: 192.168.0.0/16, blockSize: 26}", "[192.168.0.0/16]"},
		"one for pods":        {calicoPool + "{cidr: fd00:8::/48, allowedUses: [Workload, Tunnel]}", "[fd00:8::/48]"},
		"one for tunnels":     {calicoPool + "{cidr: 192.168.0.0/16, allowedUses: [Tunnel]}", "[]"},
		"one that is drained": {calicoPool + "{cidr: 192.168.0.0/16, disabled: true}", "[]"},
		"one that is drained, of which a node has some": {calicoPool + "{cidr: 192.168.0.0/16, disabled: true}" + and +
			calicoBlock + `{cidr: 192.168.1.64/26, node: n1, state: confirmed, deleted: "false"}`, "[192.168.1.64/26]"},
		"blocks that no node has": {calicoBlock + `{cidr: 192.168.1.0/26, node: n1, state: pending, deleted: "false"}` + and +
			calicoBlock + `{cidr: 192.168.2.0/26, node: n1, state: confirmed, deleted: "true"}` + and +
			calicoBlock + `{cidr: 192.168.3.0/26, node: lb, state: confirmed, deleted: "false", type: virtual}`, "[]"},
		"a block of tunnels": {calicoBlock + `{cidr: 192.168.1.64/26, node: n1, state: confirmed, deleted: "false"}` + and +
			calicoPool + "{cidr: 192.168.0.0/16, allowedUses: [Tunnel]}", "[]"},
		"Cilium's cluster pool": {ciliumNode + "{ipam: {podCIDRs: [10.0.1.0/24, 'fd00::100/120']}}",
			"[10.0.1.0/24 fd00::100/120]"},
		"Cilium's pools": {ciliumNode + "{ipam: {pools: {allocated: [{pool: a, cidrs: [10.10.0.0/27]}, " +
			"{pool: b, cidrs: [10.20.0.0/27]}]}}}", "[10.10.0.0/27 10.20.0.0/27]"},
		"Cilium in a cloud": {ciliumNode + "{ipam: {pool: {10.1.2.3: {}}}}", "[]"},
		"a Kube-OVN subnet": {subnet + "{cidrBlock: '10.16.0.0/16,fd00:10:16::/112', gateway: '10.16.0.1,fd00:10:16::1', " +
			"excludeIps: [10.16.0.1]}", "[10.16.0.0/16 fd00:10:16::/112]"},
		"that of the nodes": {strings.Replace(subnet, "name: a", "name: join", 1) + "{cidrBlock: 100.64.0.0/16}", "[]"},
		"one of a VPC":      {subnet + "{cidrBlock: 10.17.0.0/16, vpc: tenant}", "[]"},
		"one of an underlay": {subnet + "{cidrBlock: 10.6.0.0/28, vlan: v10, vpc: ovn-cluster, gateway: 10.6.0.1, " +
			"excludeIps: [10.6.0.0..10.6.0.3, 10.6.0.15]}", "[10.6.0.4/30 10.6.0.8/30 10.6.0.12/31 10.6.0.14/32]"},
		"a Spiderpool pool": {spiderPool + "{subnet: 10.6.0.0/16, ips: [10.6.0.8-10.6.0.15, 10.6.0.1], " +
			"excludeIPs: [10.6.0.12-10.6.0.15]}", "[10.6.0.1/32 10.6.0.8/30]"},
		"one that is disabled": {spiderPool + "{subnet: 10.6.0.0/16, ips: [10.6.0.8-10.6.0.15], disable: true}\n" +
			`status: {allocatedIPs: '{"10.6.0.9":{"pod":"a/b","podUid":"c"}}'}`, "[10.6.0.9/32]"},
		"one that is disabled and empty": {spiderPool + "{subnet: 10.6.0.0/16, ips: [10.6.0.8], disable: true}", "[]"},
		"a Spiderpool subnet": {spiderNet + "{subnet: 'fd00:6::/64', ips: ['fd00:6::10-fd00:6::1f']}",
			"[fd00:6::10/124]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := read(t, c.objects)
			if fmt.Sprint(got.Pods) != c.pods || len(got.Skipped) > 0 {
				t.Errorf("got %v, want %s; skipped %q", got.Pods, c.pods, got.Skipped)
			}
		})
	}
}

// TestRangesOfNodes: what a node has for its pods alone is told with its name.
func TestRangesOfNodes(t *testing.T) {
	const block = "{apiVersion: crd.projectcalico.org/v1, kind: BlockAffinity, metadata: {name: %s}, " +
		"spec: {cidr: %s, node: %s, state: %s, deleted: \"false\"}}\n---\n"
	got := read(t, fmt.Sprintf(block, "a", "192.168.1.0/26", "n1", "confirmed")+
		fmt.Sprintf(block, "b", "192.168.1.64/26", "n1", "confirmed")+
		fmt.Sprintf(block, "c", "192.168.2.0/26", "n2", "confirmed")+
		fmt.Sprintf(block, "d", "192.168.3.0/26", "n2", "pending")+
		fmt.Sprintf(block, "e", "10.250.0.0/26", "n2", "confirmed")+
		"{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: t}, "+
		"spec: {cidr: 10.250.0.0/16, allowedUses: [Tunnel]}}\n---\n"+
		"{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: n3}, spec: {ipam: {podCIDRs: [10.0.3.0/24]}}}\n---\n"+
		"{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: n4}, spec: {ipam: {}}}")
	const want = "map[n1:[192.168.1.0/25] n2:[192.168.2.0/26] n3:[10.0.3.0/24]]"
	if fmt.Sprint(got.OnNodes) != want || len(got.Skipped) > 0 {
		t.Errorf("got %v, want %s; skipped %q", got.OnNodes, want, got.Skipped)
	}
}

// TestOneBadObjectIsSkipped: what cannot be read is named, and the rest counts.
func TestOneBadObjectIsSkipped(t *testing.T) {
	const good = "{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: good}, " +
		"spec: {ipam: {podCIDRs: [10.0.1.0/24]}}}"
	for name, bad := range map[string]string{
		"no CIDR":          "cilium.io/v2, kind: CiliumNode, spec: {ipam: {podCIDRs: [10.0.2.0/24, nonsense]}}",
		"of another type":  "crd.projectcalico.org/v1, kind: IPPool, spec: {cidr: [10.0.2.0/24]}",
		"backwards":        "spiderpool.spidernet.io/v2beta1, kind: SpiderIPPool, spec: {ips: [10.0.2.9-10.0.2.1]}",
		"of two families":  "spiderpool.spidernet.io/v2beta1, kind: SpiderSubnet, spec: {ips: ['10.0.2.9-fd00::1']}",
		"excludes nothing": "kubeovn.io/v1, kind: Subnet, spec: {cidrBlock: 10.0.2.0/24, vlan: a, excludeIps: [b]}",
		"no JSON": "spiderpool.spidernet.io/v2beta1, kind: SpiderIPPool, spec: {disable: true}, " +
			"status: {allocatedIPs: '{'}",
		"no block": "crd.projectcalico.org/v1, kind: BlockAffinity, spec: {cidr: 10.0.2.0, state: confirmed}",
	} {
		t.Run(name, func(t *testing.T) {
			got := read(t, "{apiVersion: "+bad+", metadata: {name: bad}}\n---\n"+good)
			if fmt.Sprint(got.Pods) != "[10.0.1.0/24]" || len(got.Skipped) != 1 || !strings.Contains(got.Skipped[0], " bad: ") {
				t.Errorf("got %v, skipped %q", got.Pods, got.Skipped)
			}
		})
	}
}

// FuzzRange: what is parsed has both its ends, and nothing panics.
func FuzzRange(f *testing.F) {
	f.Add("10.6.0.10-10.6.0.20", "-")
	f.Add("fd00::1%eth0..fd00::2", "..")
	f.Add("::ffff:10.0.0.1-10.0.0.2", "-")
	f.Fuzz(func(t *testing.T, text, separator string) {
		r, err := parseRange(text, separator)
		if err != nil {
			return
		}
		var b netipx.IPSetBuilder
		b.AddRange(r)
		set, err := b.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []netip.Addr{r.From(), r.To()} {
			if !set.Contains(a) {
				t.Errorf("%q is %s, which does not hold %s", text, r, a)
			}
		}
	})
}
