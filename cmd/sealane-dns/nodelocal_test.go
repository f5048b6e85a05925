// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

// upstreamNodeLocal is the Corefile of node-local-dns as Kubernetes ships it, cluster/addons/dns/nodelocaldns,
// but for the addresses and ports.
const upstreamNodeLocal = `
cluster.local:{port} {
    errors
    cache {
        success 9984 30
        denial 9984 5
    }
    bind 127.0.0.1
    forward . {cluster} {
        force_tcp
    }
}
.:{port} {
    errors
    cache 30
    bind 127.0.0.1
    forward . {upstream}
}
`

// clusterCorefile is the one that kubeadm writes, without what takes an API server.
const clusterCorefile = `.:{port} {
    errors
    health 127.0.0.1:{health} {
        lameduck 1s
    }
    hosts {
        127.0.0.9 kubernetes.default.svc.cluster.local
        fallthrough
    }
    forward . {upstream} {
        max_concurrent 1000
    }
    cache 30
    loop
    loadbalance
}
`

// chain is everything between a pod and the API server: the cache on the node, the cluster's CoreDNS with
// Sealane's block, and sealane-dns.
type chain struct {
	client, cluster resolver
	upstreamCache   resolver
}

// startChain starts the three servers, and a second cache without the block that the agent adds.
func startChain(t *testing.T) chain {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("the block forwards to port 53: run this test as root")
	}
	// An address of its own, since other tests may run on this machine.
	var random [2]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatal(err)
	}
	sealane := netip.AddrFrom4([4]byte{127, 53, random[0], max(random[1], 1)})
	serve(t, fmt.Sprintf(".:53 {\n bind %s\n errors\n lighthouse {\n kubeconfig %s\n }\n}\n", sealane,
		writeKubeconfig(t, server)))

	// Nobody listens there: a query that leaves the cluster fails.
	ports := strings.NewReplacer("{upstream}", "127.0.0.1:"+freePort(t), "{health}", freePort(t), "{port}", freePort(t))
	corefile, _, err := clusterdns.Add(ports.Replace(clusterCorefile),
		clusterdns.Forward{Domains: []string{"clusterset.local"}, To: sealane})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, corefile)
	cluster := "127.0.0.1:" + ports.Replace("{port}")

	node := func(corefile string) resolver {
		port := freePort(t)
		serve(t, strings.NewReplacer("{port}", port, "{cluster}", cluster, "{upstream}",
			ports.Replace("{upstream}")).Replace(corefile))
		return resolver{t, "127.0.0.1:" + port}
	}
	return chain{
		client: node(strings.ReplaceAll(wired(t, sealane, "node-local-dns", "Corefile",
			corefileIn("node-local-dns", strings.ReplaceAll(upstreamNodeLocal, "{port}", "53"))), ":53 {", ":{port} {")),
		cluster:       resolver{t, cluster},
		upstreamCache: node(upstreamNodeLocal),
	}
}

// wired returns what the agent makes of a ConfigMap of the cluster's DNS.
func wired(t *testing.T, to netip.Addr, name, key string, objects ...*corev1.ConfigMap) string {
	t.Helper()
	w := clusterdns.Wiring{}
	found, err := w.Find(t.Context(), configMaps(objects))
	if err != nil {
		t.Fatal(err)
	}
	p := peering("clusterset.local")
	p.Spec.Phase = v1alpha1.MemberActive
	plan := w.Plan(found, p, to)
	for i := range plan.Changes {
		if want, ok := plan.Changes[i].Want.(*corev1.ConfigMap); ok && want.Name == name {
			return want.Data[key]
		}
	}
	t.Fatalf("%s is not changed: %+v", name, plan.Condition)
	return ""
}

// configMaps are all that a cluster has.
type configMaps []*corev1.ConfigMap

func (c configMaps) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, cm := range c {
		if out, ok := into.(*corev1.ConfigMap); ok && client.ObjectKeyFromObject(cm) == key {
			cm.DeepCopyInto(out)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (configMaps) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func corefileIn(name, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: map[string]string{"Corefile": text},
	}
}

// ttl is how long the cache on a node may keep an answer, and what a busy machine takes on top.
const ttl = 5*time.Second + 3*time.Second

// A pod's queries go through the node's cache and the cluster's DNS.
func TestNodeLocalDNSCache(t *testing.T) {
	m := newMember(t)
	m.create(peering("clusterset.local"))
	b := bundle(0, imported("ss", v1alpha1.Headless, exporter("c2", "", ready("10.9.1.4", "ss-0")),
		exporter("c3", "", ready("10.6.1.4", "ss-0"))),
		imported("big", v1alpha1.Headless, exporter("c2", "", pods("big", 1000)...)))
	m.create(b)
	m.create(headlessImports("ss", "big")...)
	g := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	m.report(g, map[string]v1alpha1.ConnectionStatus{"c2": v1alpha1.ConnectionConnected,
		"c3": v1alpha1.ConnectionConnected})
	c := startChain(t)

	asks := func(r resolver, name string) string { return addresses(r.ask(name, dns.TypeA, 1232)) }
	if got := asks(c.client, "kubernetes.default.svc.cluster.local."); got != "127.0.0.9" {
		t.Errorf("a name of the cluster: %q", got)
	}
	if got := c.upstreamCache.ask(ss, dns.TypeA, 1232); len(got.Answer) > 0 {
		t.Errorf("without the block the cache answers: %v", got)
	}
	until(t, "all is read", ttl, func() bool { return asks(c.cluster, ss) == "10.6.1.4 10.9.1.4" })
	if got := asks(c.client, ss); got != "10.6.1.4 10.9.1.4" {
		t.Errorf("a headless service: %q", got)
	}
	if m := c.client.ask("SS-0.c2."+ss, dns.TypeA, 0); addresses(m) != "10.9.1.4" ||
		m.Answer[0].Header().Name != "SS-0.c2."+ss {
		t.Errorf("in another case: %v", m)
	}
	t.Run("large answers", func(t *testing.T) { testLargeAnswers(t, resolver{t, c.client.address}) })

	m.report(g, map[string]v1alpha1.ConnectionStatus{"c2": v1alpha1.ConnectionConnected, "c3": v1alpha1.ConnectionError})
	behind := until(t, "the cluster's DNS leaves c3 out", 2*time.Second,
		func() bool { return asks(c.cluster, ss) == "10.9.1.4" })
	cached := until(t, "the node's cache does", ttl, func() bool { return asks(c.client, ss) == "10.9.1.4" })
	t.Logf("a disconnected cluster left the cluster's DNS after %v and the node's cache after %v", behind, behind+cached)

	if m := c.client.ask(cs, dns.TypeA, 1232); m.Rcode != dns.RcodeNameError {
		t.Errorf("before the export: %v", m)
	}
	b.Spec.Imports = append(b.Spec.Imports, imported("cs", v1alpha1.ClusterSetIP, exporter("c2", "10.99.0.1")))
	m.update(b)
	m.create(serviceImport("cs", "10.88.1.1"))
	after := until(t, "a new service is answered though it was denied a moment ago", 2*time.Second,
		func() bool { return asks(c.client, cs) == "10.88.1.1" })
	t.Logf("a new service was answered after %v", after)
}

// An answer that is too large for a datagram comes whole over TCP, through every server.
func testLargeAnswers(t *testing.T, r resolver) {
	const big = "big.sample.svc.clusterset.local."
	if m := r.ask(big, dns.TypeA, 1232); !m.Truncated || len(m.Answer) == 0 {
		t.Errorf("over UDP: %d records, truncated %v", len(m.Answer), m.Truncated)
	}
	if m := r.exchange("tcp", new(dns.Msg).SetQuestion(big, dns.TypeA)); m.Truncated || len(m.Answer) != 1000 {
		t.Errorf("over TCP: %d records, truncated %v", len(m.Answer), m.Truncated)
	}
}
