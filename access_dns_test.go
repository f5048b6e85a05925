// SPDX-License-Identifier: Apache-2.0

package sealane_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

// peeringFor is the Peering of a cluster with these service networks, in a ClusterSet of these domains.
func peeringFor(domains, services []string) *v1alpha1.Peering {
	return &v1alpha1.Peering{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
		Spec: v1alpha1.PeeringSpec{
			Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: "c1", Shards: 1,
			DNS:            v1alpha1.DNSSpec{Domains: domains},
			Networks:       v1alpha1.Networks{PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: services},
			RemoteClusters: []v1alpha1.RemoteCluster{}, Conditions: []metav1.Condition{},
		},
	}
}

// writesCorefile writes the whole Corefile, as the agent does.
func writesCorefile(t *testing.T, text string) func(client.Client) error {
	return patchUpdateAs(t, corefile(""), func(c *corev1.ConfigMap) { c.Data["Corefile"] = text })
}

// blockOf is the marked block for one or more keys of a server block, and reverseOf the same with a part for these
// reverse zones.
func blockOf(keys string) string { return strings.ReplaceAll(ours, "clusterset.local:53", keys) }

func reverseOf(zones ...string) string {
	keys := strings.Join(zones, ":53 ") + ":53"
	return strings.Replace(ours, "# END", strings.Replace(reverseBlock, "96.10.in-addr.arpa:53", keys, 1)+"# END", 1)
}

// serviceNetworks whose neighbours are none of them.
var serviceNetworks = []string{
	"10.96.0.0/12", "172.20.128.0/17", "172.20.0.0/20", "192.168.7.0/24", "192.168.9.64/26", "100.64.0.0/15",
	"fd00::88:0/112", "fd00:1:2:3:4:5:8:0/110", "fd01::/108", "2001:db8:0:10::/64", "fd02::a000/116", "fd03:0:0:1::40/125",
}

// testForwarded: the block forwards the domains and the service networks of the Peering, and nothing else.
func testForwarded(t *testing.T, admin, agent client.Client) {
	set := func(text string) func(client.Client) error { return writesCorefile(t, text) }
	peering := peeringFor([]string{"clusterset.local", "mesh.example.org"}, serviceNetworks)
	expect(t, admin, []write{{"a user restores the Corefile", done, set(stock)}})
	create(t, admin, peering)
	enforced(t, func() error { return set(blockOf("example.com:53") + stock)(agent) })

	expect(t, agent, []write{
		{"the first domain", done, set(ours + stock)},
		{"every domain", done, set(blockOf("clusterset.local:53 mesh.example.org:53") + stock)},
		{"every domain, on another port", done, set(blockOf("clusterset.local:1053 mesh.example.org:1053") + stock)},
		{"none", done, set(stock)},
		{"a public domain", byPolicy, set(blockOf("example.com:53") + stock)},
		{"a public domain beside ours", byPolicy, set(blockOf("clusterset.local:53 example.com:53") + stock)},
		{"a public domain in a server block of its own", byPolicy, set(strings.Replace(ours, "# END",
			"example.com:53 {\n    errors\n    forward . 10.96.0.7\n}\n# END", 1) + stock)},
		{"a domain below ours", byPolicy, set(blockOf("svc.clusterset.local:53") + stock)},
		{"a parent of ours", byPolicy, set(blockOf("example.org:53") + stock)},

		{"names of addresses", done, set(reverseOf("96.10.in-addr.arpa") + stock)},
		{"those of a part of a network", done, set(reverseOf("5.96.10.in-addr.arpa") + stock)},
		{"those of public addresses", byPolicy, set(reverseOf("8.8.8.in-addr.arpa") + stock)},
		{"those of the network below", byPolicy, set(reverseOf("95.10.in-addr.arpa") + stock)},
		{"those of the network above", byPolicy, set(reverseOf("112.10.in-addr.arpa") + stock)},
		{"those of half a network", byPolicy, set(reverseOf("127.20.172.in-addr.arpa") + stock)},
		{"those of a network that holds one of ours", byPolicy, set(reverseOf("168.192.in-addr.arpa") + stock)},
		{"those of pods", byPolicy, set(reverseOf("244.10.in-addr.arpa") + stock)},
		{"those of public addresses beside ours", byPolicy,
			set(reverseOf("96.10.in-addr.arpa", "8.8.8.in-addr.arpa") + stock)},
		{"a reverse zone as a domain", byPolicy, set(blockOf("clusterset.local:53 96.10.in-addr.arpa:53") + stock)},
		{"no block", done, set(stock)},
	})
	t.Run("the names of addresses in each network", func(t *testing.T) { testReverseZones(t, agent) })

	t.Run("in Corefiles of many forms", func(t *testing.T) { testCorefiles(t, admin, agent) })
	t.Run("limits", func(t *testing.T) { testLimits(t, admin, agent) })
	expect(t, admin, []write{{"a user restores the Corefile", done, set(stock)}})
	t.Run("what the Peering says is in force", func(t *testing.T) {
		text := `{"spec":{"dns":{"domains":["other.example"]},"networks":{"serviceCIDRs":null,"podCIDRs":null}}}`
		if err := patch(t, peering, text)(admin); err != nil {
			t.Fatal(err)
		}
		enforced(t, func() error { return set(ours + stock)(agent) })
		expect(t, agent, []write{
			{"the domain that it has now", done, set(blockOf("other.example:53") + stock)},
			{"a network that it has no more", byPolicy,
				set(strings.ReplaceAll(reverseOf("96.10.in-addr.arpa"), "clusterset.local", "other.example") + stock)},
			{"no block", done, set(stock)},
			{"another Peering", noRight, creates(t, peeringFor([]string{"example.com"}, nil))},
			{"the Peering's end", noRight, deletes(t, peering)},
			{"the Peering's domains by way of its status", done,
				patchStatus(t, peering, `{"spec":{"dns":{"domains":["example.com"]}},"status":{"observedRevision":1}}`)},
			{"which does not change them", byPolicy, set(blockOf("example.com:53") + stock)},
		})
	})
}

// testReverseZones: the policy takes the reverse zones that the agent makes of a service network, and not those of the
// networks of the same size beside it.
func testReverseZones(t *testing.T, agent client.Client) {
	for _, text := range serviceNetworks {
		network := netip.MustParsePrefix(text)
		before := netip.PrefixFrom(network.Addr().Prev(), network.Bits()).Masked()
		after := netip.PrefixFrom(netipx.PrefixLastIP(network).Next(), network.Bits())
		for _, c := range []struct {
			network netip.Prefix
			want    string
		}{{network, done}, {before, byPolicy}, {after, byPolicy}} {
			if !c.network.Addr().Is4() && network.Addr().Is4() {
				continue
			}
			block, unforwarded, err := clusterdns.Add(stock, clusterdns.Forward{
				Domains: []string{"clusterset.local"}, To: netip.MustParseAddr("10.96.0.7"),
				Networks: v1alpha1.Networks{ServiceCIDRs: []string{c.network.String()}},
			})
			if err != nil || unforwarded != nil {
				t.Fatalf("%s: %v, %v", c.network, unforwarded, err)
			}
			expect(t, agent, []write{{c.network.String(), c.want, writesCorefile(t, block)}})
		}
	}
}

// testCorefiles: whatever the form of a Corefile, the policies take the block that the agent adds to it, and no other.
func testCorefiles(t *testing.T, admin, agent client.Client) {
	const kubernetes = "    kubernetes cluster.local in-addr.arpa ip6.arpa {\n        pods insecure\n    }\n"
	for name, file := range map[string]string{
		"k3s": ".:53 {\n    errors\n    health\n" + kubernetes + "    hosts /etc/coredns/NodeHosts {\n        fallthrough\n" +
			"    }\n    import /etc/coredns/custom/*.override\n    forward . /etc/resolv.conf\n}\n" +
			"import /etc/coredns/custom/*.server\n",
		"stub domains": "(common) {\n    errors\n}\ncorp.example:53 example.net:53 {\n    import common\n}\n" +
			"# clusterset.local is Sealane's {\n.:53 {\n    import common\n" + kubernetes + "    hosts {\n" +
			"        10.0.0.7 vault.example\n    }\n    template ANY ANY wild.example {\n        rcode NXDOMAIN\n    }\n}\n",
		"another cluster domain": ".:1053 {\n" + strings.ReplaceAll(kubernetes, "cluster.local", "k8s.acme.internal") + "}\n",
		"node-local cache": "cluster.local:53 {\n    bind 169.254.20.10\n    forward . 10.96.211.3 {\n        force_tcp\n" +
			"    }\n    }\nin-addr.arpa:53 {\n    forward . 10.96.211.3\n    }\n.:53 {\n    cache 30\n    }\n",
		"keys of many forms": "dns://Corp.example.:53, {$DOMAIN}:53,\n10.0.0.0/8 {\n    forward . 10.0.0.1\n}\n" +
			".:53 {\n" + kubernetes + "}\n",
		"not indented": strings.ReplaceAll(".:53 {\nerrors\nhealth {\nlameduck 5s\n}\nforward . /etc/resolv.conf\n"+
			kubernetes+"}\n", "    ", ""),
		"line ends of Windows": strings.ReplaceAll(".:53 {\n"+kubernetes+"}\n", "\n", "\r\n"),
		"without kubernetes":   ".:53 {\n    forward . 10.0.0.1\n}",
		"empty":                "",
	} {
		t.Run(name, func(t *testing.T) {
			with, unforwarded, err := clusterdns.Add(file, clusterdns.Forward{
				Domains: []string{"clusterset.local", "mesh.example.org"}, To: netip.MustParseAddr("10.96.0.7"),
				Networks: v1alpha1.Networks{ServiceCIDRs: []string{"10.96.0.0/12", "fd00::88:0/112"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("reverse zones are left out: %v", unforwarded)
			expect(t, admin, []write{{"a user writes it", done, writesCorefile(t, file)}})
			expect(t, agent, []write{
				{"the block", done, writesCorefile(t, with)},
				{"another domain", byPolicy, writesCorefile(t, strings.Replace(with, "mesh.example.org", "example.com", 1))},
				{"no block", done, writesCorefile(t, file)},
			})
		})
	}
	expect(t, admin, []write{{"a user restores the Corefile", done, writesCorefile(t, stock)}})
}

// testLimits: the agent may write the largest block that it makes, and nothing is so large that the policy, which is
// ignored where it cannot be evaluated, takes what it must refuse.
func testLimits(t *testing.T, admin, agent client.Client) {
	var domains, networks []string
	for i := range 8 {
		domains = append(domains, fmt.Sprintf("d%d.%s.%s.%s.example", i, strings.Repeat("a", 63), strings.Repeat("b", 63),
			strings.Repeat("c", 60)))
	}
	for i := range 64 {
		networks = append(networks, fmt.Sprintf("fd00:1111:2222:3333:4444:5555:6666:%x/123", 0x1000+i*32))
	}
	peering := peeringFor(domains, networks)
	if err := patch(t, peering, mergeSpec(t, peering))(admin); err != nil {
		t.Fatal(err)
	}
	with := func(domains, networks []string) string {
		block, unforwarded, err := clusterdns.Add(stock, clusterdns.Forward{
			Domains: domains, To: netip.MustParseAddr("fd00:1111:2222:3333:4444:5555:6666:7777"),
			Networks: v1alpha1.Networks{ServiceCIDRs: networks},
		})
		if err != nil || unforwarded != nil {
			t.Fatal(err, unforwarded)
		}
		return block
	}
	other := func(in []string, one string) []string { return append(slices.Clone(in[:len(in)-1]), one) }
	eventually(t, "the largest block is written", func() error {
		return is(done, writesCorefile(t, with(domains, networks))(agent))
	})
	expect(t, agent, []write{
		{"one other domain", byPolicy, writesCorefile(t, with(other(domains, "example.com"), networks))},
		{"one other network", byPolicy, writesCorefile(t, with(domains, other(networks, "2001:db8::7a60/123")))},
		{"nine domains", byPolicy, writesCorefile(t, with(append(slices.Clone(domains), "a."+domains[0]), networks))},
		{"no block", done, writesCorefile(t, stock)},
	})
	for size := 1 << 10; size < 1<<20; size *= 4 {
		long := stock + strings.Repeat("# a comment of a person\n", size/24)
		expect(t, admin, []write{{"a user writes comments", done, writesCorefile(t, long)}})
		for what, block := range map[string]string{
			"a public domain":  blockOf("example.com:53"),
			"public addresses": strings.ReplaceAll(reverseOf("8.8.8.in-addr.arpa"), "clusterset.local", domains[0]),
			"a long domain":    blockOf("a" + strings.Repeat(".example", size/8) + ":53"),
			"many domains":     blockOf("d.example:53" + strings.Repeat(" a.example:53", size/13)),
			"many reverse zones": reverseOf(strings.Split("8.8.8.in-addr.arpa"+
				strings.Repeat(" 9.9.9.in-addr.arpa", size/19), " ")...),
		} {
			if outcome(writesCorefile(t, block+long)(agent)) == done {
				t.Errorf("%s is forwarded, by a block of %d bytes in a Corefile of %d", what, len(block), len(block+long))
			}
		}
	}
}

// mergeSpec is a merge patch of the spec of a Peering.
func mergeSpec(t *testing.T, p *v1alpha1.Peering) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"spec": p.Spec})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestNobodyIsLockedOutOfTheClustersDNS: whether or not the API server knows the Peering or its kind, an administrator
// edits the cluster's DNS, and the agent takes its block out.
func TestNobodyIsLockedOutOfTheClustersDNS(t *testing.T) {
	config := apiserver.Start(t)
	admin := connect(t, config)
	installAll(t, admin, "artifacts/deploy/*.yaml")
	create(t, admin, corefile(stock))
	as := rest.AnonymousClientConfig(config)
	as.BearerToken = tokenOf(t, config, "sealane-cluster-agent", nil)
	agent := connect(t, as)
	evil, edited := blockOf("example.com:53")+stock, strings.ReplaceAll(stock, "reload", "reload 5s")
	enforced(t, func() error { return creates(t, derivedService("sl-web", nil), client.DryRunAll)(agent) })
	// Each state is left with the stock Corefile.
	works := func(state string, public string) {
		t.Helper()
		t.Run(state, func(t *testing.T) {
			expect(t, admin, []write{
				{"an administrator writes a block", done, writesCorefile(t, evil)},
				{"an administrator edits beside it", done, writesCorefile(t, blockOf("example.com:53")+edited)},
				{"an administrator edits another key", done,
					patchUpdateAs(t, corefile(""), func(c *corev1.ConfigMap) { c.Data["other.db"] = state })},
			})
			expect(t, agent, []write{
				{"the agent takes the block out", done, writesCorefile(t, edited)},
				{"the agent forwards the ClusterSet's domain", done, writesCorefile(t, ours+edited)},
				{"the agent forwards the cluster's own domain", byPolicy,
					writesCorefile(t, blockOf("cluster.local:53")+edited)},
				{"the agent forwards a public domain", public, writesCorefile(t, blockOf("example.com:53")+edited)},
				{"the agent changes the rest", byPolicy, writesCorefile(t, stock+edited)},
				{"the agent takes the block out again", done, writesCorefile(t, edited)},
			})
			expect(t, admin, []write{{"an administrator writes it anew", done, writesCorefile(t, stock)}})
		})
	}
	works("the kind is not served", done)
	installAll(t, admin, "artifacts/crds/sealane.io_peerings.yaml")
	peering := peeringFor([]string{"clusterset.local"}, []string{"10.96.0.0/16"})
	eventually(t, "the kind is served", func() error {
		return admin.Create(t.Context(), peering.DeepCopy(), client.DryRunAll)
	})
	works("there is no Peering", done)
	create(t, admin, peering.DeepCopy())
	refuses := func() error { return writesCorefile(t, evil)(agent) }
	eventually(t, "the policy is enforced", func() error { return is(byPolicy, refuses()) })
	works("there is a Peering", byPolicy)
	if err := admin.Delete(t.Context(), peering.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Peering is gone", func() error { return is(done, refuses()) })
	works("the Peering is gone", done)
	create(t, admin, peering.DeepCopy())
	eventually(t, "the policy is enforced again", func() error { return is(byPolicy, refuses()) })
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "peerings.sealane.io"}}
	if err := admin.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kind is gone", func() error { return is(done, refuses()) })
	works("the kind is gone", done)
}

// is returns an error unless a write ended so.
func is(want string, err error) error {
	if got := outcome(err); got != want {
		return fmt.Errorf("%s, want %s (%w)", got, want, err)
	}
	return nil
}

// eventually waits until check returns nil. The API server looks for kinds that it did not find twice a minute.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func testCorefileWrites(t *testing.T, admin, agent client.Client) {
	set := func(text string) func(client.Client) error {
		return patchUpdateAs(t, corefile(""), func(c *corev1.ConfigMap) { c.Data["Corefile"] = text })
	}
	block := func(zone string) string { return strings.ReplaceAll(ours, "clusterset.local:53", zone) }
	expect(t, agent, []write{
		{"the block is added", done, set(ours + stock)},
		{"it forwards elsewhere", done, set(strings.ReplaceAll(ours, "10.96.0.7", "fd00::7") + stock)},
		{"it serves two domains", done, set(block("clusterset.local:53 supercluster.local:53") + stock)},
		{"it is removed", done, set(stock)},
		{
			"the rest is changed", byPolicy,
			set(ours + strings.ReplaceAll(stock, "reload", "reload\n    forward . 192.0.2.1")),
		},
		{"the rest is removed", byPolicy, set(ours)},
		{"a second block", byPolicy, set(ours + stock + block("example.org:53"))},
		{
			"text between the marks that is not a forward", byPolicy,
			set(strings.ReplaceAll(ours, "    errors\n", "    rewrite name a.b c.d\n") + stock),
		},
		{"the cluster's own domain", byPolicy, set(block("cluster.local:53") + stock)},
		{"a domain below it", byPolicy, set(block("svc.cluster.local:53") + stock)},
		{"a domain below it, in capitals", byPolicy, set(block("svc.Cluster.Local:53") + stock)},
		{"a parent of it", byPolicy, set(block("local:53") + stock)},
		{"the reverse zone", byPolicy, set(block("10.in-addr.arpa:53") + stock)},
		{"everything", byPolicy, set(block(".:53") + stock)},
		{"addresses that the cluster does not answer", byPolicy, set(block("clusterset.local:53 a.arpa:53") + stock)},
		{
			"another key", byPolicy,
			patchUpdateAs(t, corefile(""), func(c *corev1.ConfigMap) { c.Data["other.db"] = "mine" }),
		},
		{
			"another key less", byPolicy,
			patchUpdateAs(t, corefile(""), func(c *corev1.ConfigMap) { delete(c.Data, "other.db") }),
		},
		{
			"its labels", byPolicy,
			patchUpdateAs(t, corefile(""), func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }),
		},
	})
	reverse := func(old, new string) string {
		return strings.Replace(ours, "# END", strings.ReplaceAll(reverseBlock, old, new)+"# END", 1)
	}
	const zone, v6 = "96.10.in-addr.arpa:53", "8.8.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa:53"
	expect(t, agent, []write{
		{"the names of addresses", done, set(reverse("", "") + stock)},
		{"in several networks", done, set(reverse(zone, zone+" 97.10.in-addr.arpa:53 "+v6) + stock)},
		{"in one network twice", byPolicy, set(reverse(zone, zone+" "+zone) + stock)},
		{"in a larger network than Services have", byPolicy, set(reverse("96.10.in-addr", "10.in-addr") + stock)},
		{"without the cluster's own answers", byPolicy, set(reverse(ownAnswers, "") + stock)},
		{"with fewer of the cluster's own answers", byPolicy, set(reverse("!sealane.io/import", "!app") + stock)},
		{
			"with names of another domain", byPolicy,
			set(reverse("kubernetes cluster.local", "kubernetes example.org") + stock),
		},
		{
			"of another cluster", byPolicy,
			set(reverse("        fallthrough", "        kubeconfig /a\n        fallthrough") + stock),
		},
		{"twice", byPolicy, set(strings.Replace(reverse("", ""), "# END", reverseBlock+"# END", 1) + stock)},
		{"no longer", done, set(ours + stock)},
	})
	const reversed = stock + "10.in-addr.arpa:53 168.192.in-addr.arpa {\n    forward . 192.0.2.1\n}\n"
	expect(t, admin, []write{{"a user serves a reverse zone", done, set(reversed)}})
	expect(t, agent, []write{
		{"the names of addresses within", byPolicy, set(reverse("", "") + reversed)},
		{"the names of addresses beside", done, set(reverse("96.10.in-addr", "16.172.in-addr") + reversed)},
		{"the block is gone", done, set(reversed)},
	})
	const served = stock + "example.org:53 {\n    forward . 192.0.2.1\n}\n"
	expect(t, admin, []write{{"a user adds a server block", done, set(served)}})
	expect(t, agent, []write{
		{"the block beside it", done, set(ours + served)},
		{"a domain that is served already", byPolicy, set(block("clusterset.local:53 example.org:53") + served)},
	})
	const below = stock + "(snippet) {\n    errors\n}\nexample.org:53, dns://Corp.example.:1053 {\n    import snippet\n}\n"
	expect(t, admin, []write{{"a user adds a server block of two keys", done, set(below)}})
	expect(t, agent, []write{
		{"the block beside those", done, set(ours + below)},
		{"a domain below the first", byPolicy, set(block("api.example.org:53") + below)},
		{"a domain below the second", byPolicy, set(block("api.corp.example:53") + below)},
		{"a domain above", byPolicy, set(block("corp.example:53") + below)},
		{"one that ends like it", done, set(block("other-example.org:53") + below)},
	})
	expect(t, admin, []write{{"the user takes it out", done, set(stock)}})
	testClusterZones(t, admin, agent)
	expect(t, admin, []write{{"a user moves the block to the end", done, set(served + ours)}})
	expect(t, agent, []write{
		{"it is changed there", done, set(served + strings.ReplaceAll(ours, "10.96.0.7", "10.96.0.8"))},
		{"it is removed there", done, set(served)},
	})
	elsewhere, proxy := corefile(stock), corefile("")
	proxy.Name = "kube-proxy"
	elsewhere.Namespace = "default"
	create(t, admin, elsewhere)
	expect(t, agent, []write{
		{
			"a ConfigMap of that name elsewhere", byPolicy,
			patch(t, elsewhere, `{"data":{"Corefile":"`+strings.ReplaceAll(ours+stock, "\n", `\n`)+`"}}`),
		},
		{
			"another ConfigMap", noRight,
			patch(t, proxy, `{"data":{}}`),
		},
	})
}

// testClusterZones: the cluster's own domain is known however the plugin kubernetes has it.
func testClusterZones(t *testing.T, admin, agent client.Client) {
	for name, line := range map[string]string{
		"after tabs":          "\tkubernetes\tcluster.local\tin-addr.arpa\tip6.arpa {",
		"with a port":         "    kubernetes cluster.local:53 in-addr.arpa ip6.arpa {",
		"with a scheme":       "    kubernetes dns://cluster.local in-addr.arpa ip6.arpa {",
		"with a trailing dot": "    kubernetes Cluster.Local. in-addr.arpa. ip6.arpa. {",
		"before a comment": "    kubernetes cluster.local in-addr.arpa ip6.arpa # not clusterset.local\n" +
			"    kubernetes other.local {",
		"of its server block": "}\ncluster.local:53 in-addr.arpa:53 ip6.arpa:53 {\n    kubernetes {",
	} {
		t.Run("the cluster's domain "+name, func(t *testing.T) {
			file := strings.Replace(stock, "    kubernetes cluster.local in-addr.arpa ip6.arpa {", line, 1)
			if file == stock {
				t.Fatal("the Corefile is the stock one")
			}
			expect(t, admin, []write{{"a user writes it", done, writesCorefile(t, file)}})
			expect(t, agent, []write{
				{"the block beside it", done, writesCorefile(t, ours+file)},
				{"that domain", byPolicy, writesCorefile(t, blockOf("cluster.local:53")+file)},
				{"a domain below", byPolicy, writesCorefile(t, blockOf("svc.cluster.local:53")+file)},
				{"the reverse zone", byPolicy, writesCorefile(t, blockOf("10.in-addr.arpa:53")+file)},
			})
		})
	}
	expect(t, admin, []write{{"the user restores it", done, writesCorefile(t, stock)}})
}
