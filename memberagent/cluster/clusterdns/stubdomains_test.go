// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestStubDomains: dnsmasq, with the flags that kube-dns makes of the ConfigMap, asks Sealane's DNS for the names of
// the clusterset, by UDP and TCP, and for no others; once the member has left, for none.
func TestStubDomains(t *testing.T) {
	sealane := nameServer(t, "192.0.2.1", 53)
	kubedns, corp, upstream := nameServer(t, "192.0.2.2", 0), nameServer(t, "192.0.2.3", 0), nameServer(t, "192.0.2.4", 0)
	at := &cluster{objects: append(programOfDNS("kube-dns", "kube-dns", "kubedns"), configMap("kube-dns",
		map[string]string{"stubDomains": fmt.Sprintf(`{"corp.example": [%q]}`, corp),
			"upstreamNameservers": fmt.Sprintf("[%q]", upstream)}))}
	wire := func(phase v1alpha1.MemberPhase) []string {
		t.Helper()
		found, err := Wiring{}.Find(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		peering := member()
		peering.Spec.Phase = phase
		at.apply(Wiring{}.Plan(found, peering, sealane.Addr()))
		return kubeDNSFlags(t, at.objects[2].(*corev1.ConfigMap).Data, kubedns)
	}
	of := map[string]string{
		"kubernetes.default.svc.cluster.local.": "192.0.2.2", "1.0.96.10.in-addr.arpa.": "192.0.2.2",
		"www.corp.example.": "192.0.2.3", "example.org.": "192.0.2.4", "notclusterset.local.": "192.0.2.4",
		"clusterset.local.example.": "192.0.2.4",
	}
	ours := []string{"whereami.sample.svc.clusterset.local.", "c2.WhereAmI.sample.SVC.ClusterSet.local.",
		"clusterset.local.", "_http._tcp.whereami.sample.svc.clusterset.local."}
	for _, name := range ours {
		of[name] = "192.0.2.1"
	}
	dnsmasq := runDNSMasq(t, wire(v1alpha1.MemberActive))
	for name, want := range of {
		for _, network := range []string{"udp", "tcp"} {
			if got := dnsmasq.ask(t, network, name); got != want {
				t.Errorf("%s by %s: answered by %s, want %s", name, network, got, want)
			}
		}
	}
	if got := dnsmasq.ask(t, "udp", "none.sample.svc.clusterset.local."); got != "NXDOMAIN" {
		t.Errorf("a name that does not exist: %s", got)
	}
	dnsmasq = runDNSMasq(t, wire(v1alpha1.MemberLeaving))
	for _, name := range ours {
		if got := dnsmasq.ask(t, "udp", name); got != "192.0.2.4" {
			t.Errorf("%s, after the member left: answered by %s", name, got)
		}
	}
}

// kubeDNSFlags are those that kube-dns runs dnsmasq with: the ones of its Deployment
// (https://github.com/kubernetes/kubernetes/blob/v1.34.2/cluster/addons/dns/kube-dns/kube-dns.yaml.in), then what
// dnsmasq-nanny makes of the ConfigMap, Nanny.Configure in
// https://github.com/kubernetes/dns/blob/32d8ea9a0b79d372ed89d225825c46093d5ef24e/pkg/dnsmasq/nanny.go. A ConfigMap
// that Config.Validate in pkg/dns/config/config.go of that repository refuses fails the test.
func kubeDNSFlags(t *testing.T, data map[string]string, kubedns netip.AddrPort) []string {
	t.Helper()
	flags := []string{"-k", "--cache-size=1000", "--no-negcache", "--dns-forward-max=1500", "--log-facility=-"}
	port := func(s string) string { // dnsmasq's separator of the port is #
		if strings.Count(s, ":") == 1 {
			return strings.Replace(s, ":", "#", 1)
		}
		return s
	}
	for _, zone := range []string{"cluster.local", "in-addr.arpa", "ip6.arpa"} {
		flags = append(flags, "--server=/"+zone+"/"+port(kubedns.String()))
	}
	var stubs map[string][]string
	var upstreams []string
	for key, into := range map[string]any{"stubDomains": &stubs, "upstreamNameservers": &upstreams} {
		if err := json.Unmarshal([]byte(data[key]), into); err != nil {
			t.Fatalf("kube-dns refuses %s: %v", key, err)
		}
	}
	for domain, servers := range stubs {
		if problems := validation.IsDNS1123Subdomain(domain); len(problems) > 0 {
			t.Fatalf("kube-dns refuses the domain %q: %q", domain, problems)
		}
		for _, s := range servers {
			flags = append(flags, "--server", "/"+domain+"/"+port(s))
		}
	}
	for _, s := range upstreams {
		flags = append(flags, "--server", port(s))
	}
	if len(upstreams) > 0 {
		flags = append(flags, "--no-resolv")
	}
	return flags
}

// dnsMasq is a dnsmasq that runs.
type dnsMasq struct {
	address netip.AddrPort
	output  *bytes.Buffer
}

// runDNSMasq on a free port, until the test ends.
func runDNSMasq(t *testing.T, flags []string) dnsMasq {
	t.Helper()
	free, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", net.JoinHostPort(loopback().String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	d := dnsMasq{address: netip.MustParseAddrPort(free.LocalAddr().String()), output: &bytes.Buffer{}}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	// What it would read and write of the machine's, and its user, are none of a test's.
	flags = append(flags, "--conf-file=/dev/null", "--no-hosts", "--pid-file=", "--user=root", "--bind-interfaces",
		"--listen-address="+d.address.Addr().String(), fmt.Sprintf("--port=%d", d.address.Port()))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, "dnsmasq", flags...)
	cmd.Stdout, cmd.Stderr = d.output, d.output
	if err := cmd.Start(); err != nil {
		t.Fatalf("run dnsmasq: %v; make test-deps installs it", err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("dnsmasq %s:\n%s", strings.Join(flags, " "), d.output)
		}
	})
	return d
}

// ask for the address of a name, again while dnsmasq does not listen yet, and return it or the code of the answer.
func (d dnsMasq) ask(t *testing.T, network, name string) string {
	t.Helper()
	client := dns.Client{Net: network, Timeout: time.Second}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		answer, _, err := client.ExchangeContext(t.Context(), new(dns.Msg).SetQuestion(name, dns.TypeA),
			d.address.String())
		switch {
		case err != nil && time.Now().After(deadline):
			t.Fatalf("ask dnsmasq for %s: %v", name, err)
		case err != nil:
		case len(answer.Answer) == 0:
			return dns.RcodeToString[answer.Rcode]
		default:
			return answer.Answer[0].(*dns.A).A.String()
		}
	}
}

// nameServer answers every name with an address, but for those that begin with "none.", which do not exist, on a port
// of a loopback address that is free; 0 is any port.
func nameServer(t *testing.T, answer string, port uint16) netip.AddrPort {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		m := new(dns.Msg).SetReply(query)
		m.Authoritative = true
		if name := query.Question[0].Name; strings.HasPrefix(name, "none.") {
			m.Rcode = dns.RcodeNameError
		} else {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5},
				A: net.ParseIP(answer)}}
		}
		_ = w.WriteMsg(m)
	})
	for try := 0; ; try++ {
		at := netip.AddrPortFrom(loopback(), port)
		tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at.String())
		if err == nil {
			at = netip.MustParseAddrPort(tcp.Addr().String())
			var udp net.PacketConn
			if udp, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp", at.String()); err == nil {
				for _, s := range []*dns.Server{{Listener: tcp, Handler: handler}, {PacketConn: udp, Handler: handler}} {
					go func() { _ = s.ActivateAndServe() }()
				}
				t.Cleanup(func() { _, _ = tcp.Close(), udp.Close() })
				return at
			}
			_ = tcp.Close()
		}
		if try == 10 {
			t.Fatalf("listen on a loopback address: %v", err)
		}
	}
}

// loopback is any address of the loopback network that is nobody's by custom.
func loopback() netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(64 + rand.IntN(128)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
}
