// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

// memberCorefile is what kubeadm writes, but for the port; the answer of the resolver behind is made up.
const memberCorefile = `.:{port} {
    errors
    template IN PTR 2.0.192.in-addr.arpa {
        answer "{{ .Name }} 60 IN PTR outside.example."
    }
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
}
`

// Through the cluster's own DNS the address of an import has the name of the service, and the cluster's own Services
// keep theirs, also while sealane-dns does not run.
func TestReverseNamesThroughTheClustersDNS(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("the block forwards to port 53: run this test as root")
	}
	m := newMember(t)
	own := service("own", nil)
	derived := service("sl-0123456789", map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: "cs",
	})
	m.create(own, derived)
	p := peering("clusterset.local")
	cidr := netip.MustParsePrefix(own.Spec.ClusterIP + "/16").Masked()
	if !cidr.Contains(netip.MustParseAddr(derived.Spec.ClusterIP)) {
		t.Fatalf("the ClusterIPs %s and %s are of two networks", own.Spec.ClusterIP, derived.Spec.ClusterIP)
	}
	p.Spec.Networks = v1alpha1.Networks{PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{cidr.String()}}
	m.create(p, bundle(0, imported("cs", v1alpha1.ClusterSetIP, exporter("c2", "10.99.0.1"))),
		serviceImport("cs", derived.Spec.ClusterIP))

	var random [2]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatal(err)
	}
	sealane := netip.AddrFrom4([4]byte{127, 54, random[0], max(random[1], 1)})
	kubeconfig := writeKubeconfig(t, server)
	stop := start(t, fmt.Sprintf(".:53 {\n bind %s\n lighthouse {\n kubeconfig %s\n }\n}\n", sealane, kubeconfig))

	port := freePort(t)
	corefile, unforwarded, err := clusterdns.Add(strings.ReplaceAll(memberCorefile, "{port}", port),
		clusterdns.Forward{Domains: []string{"clusterset.local"}, To: sealane, Networks: p.Spec.Networks})
	if err != nil || unforwarded != nil {
		t.Fatal(err, unforwarded)
	}
	// In a cluster the plugin finds the API server by the pod it runs in.
	const opened = "in-addr.arpa ip6.arpa {\n"
	corefile = strings.ReplaceAll(corefile, opened, opened+" kubeconfig "+kubeconfig+"\n")
	start(t, corefile)
	cluster := resolver{t, "127.0.0.1:" + port}

	nobody := cidr.Addr().Next()
	for nobody.String() == own.Spec.ClusterIP || nobody.String() == derived.Spec.ClusterIP ||
		nameOf(cluster, nobody.String()) != "NXDOMAIN" {
		nobody = nobody.Next()
	}
	cases := []struct{ what, ip, up, down string }{
		{"a Service of the cluster", own.Spec.ClusterIP, "own.sample.svc.cluster.local.", "own.sample.svc.cluster.local."},
		{"an import", derived.Spec.ClusterIP, "cs.sample.svc.clusterset.local.", "SERVFAIL"},
		{"an address without a Service", nobody.String(), "NXDOMAIN", "SERVFAIL"},
		{"an address elsewhere", "192.0.2.1", "outside.example.", "outside.example."},
	}
	for _, c := range cases {
		until(t, c.what+" has its name", 10*time.Second, func() bool { return nameOf(cluster, c.ip) == c.up })
	}
	stop()
	for _, c := range cases {
		if got := nameOf(cluster, c.ip); got != c.down {
			t.Errorf("without sealane-dns %s is %s, want %s", c.what, got, c.down)
		}
	}
}

func service(name string, labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: name, Labels: labels},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

// nameOf returns the name of an address, or the code of the answer.
func nameOf(r resolver, ip string) string {
	r.t.Helper()
	name, err := dns.ReverseAddr(ip)
	if err != nil {
		r.t.Fatal(err)
	}
	m := r.ask(name, dns.TypePTR, 0)
	if len(m.Answer) == 0 {
		return dns.RcodeToString[m.Rcode]
	}
	return m.Answer[0].(*dns.PTR).Ptr
}
