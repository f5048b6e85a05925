// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"testing"

	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// reverseOf asks for the name of an address: the name, or what the answer is instead.
func reverseOf(t *testing.T, l *Lighthouse, ip string) string {
	t.Helper()
	name, err := dns.ReverseAddr(ip)
	if err != nil {
		t.Fatal(err)
	}
	w := &recorder{}
	code, _ := l.ServeDNS(t.Context(), w, new(dns.Msg).SetQuestion(name, dns.TypePTR))
	switch {
	case w.msg == nil:
		return dns.RcodeToString[code]
	case len(w.msg.Answer) == 0:
		return dns.RcodeToString[w.msg.Rcode]
	}
	return w.msg.Answer[0].(*dns.PTR).Ptr
}

// recorder keeps a reply.
type recorder struct {
	test.ResponseWriter
	msg *dns.Msg
}

func (r *recorder) WriteMsg(m *dns.Msg) error {
	r.msg = m
	return nil
}

// The name of an address exists exactly where the name has the address.
func TestReverseNamesFollowTheImports(t *testing.T) {
	x := sample()
	l := serve(t, x)
	expect := func(what, ip, want string) {
		t.Helper()
		if got := reverseOf(t, l, ip); got != want {
			t.Errorf("%s: %s is %s, want %s", what, ip, got, want)
		}
	}
	publish := func() { l.current.Store(serve(t, x).current.Load()) }
	expect("a ClusterSetIP", "10.88.1.1", cs)
	expect("in another cluster", "10.99.0.7", "REFUSED")

	x.setServiceImport(&serviceImport{name: "cs", namespace: "sample", ips: []string{"10.88.1.4"}})
	x.setServiceImport(&serviceImport{name: "both", namespace: "sample", ips: []string{"10.88.1.1"}})
	publish()
	expect("after it moved", "10.88.1.4", cs)
	expect("the address, used again", "10.88.1.1", both)
	expect("the family that went", "fd00:88::1", "REFUSED")

	b := bundle("sealane-0", clusterIP("cs", exporter("c2", "10.99.0.7")))
	b.Spec.Imports[0].Mode = v1alpha1.ServiceModeClusterIP
	x.setBundle(b)
	publish()
	expect("in ClusterIP mode", "10.88.1.4", "REFUSED")

	x.deleteServiceImport("both", "sample")
	publish()
	expect("without its import", "10.88.1.1", "REFUSED")
	x.replaceServiceImports(nil)
	publish()
	expect("without any import", "10.88.1.3", "REFUSED")
}

// Of what is not imported, only addresses of the cluster's own Services are said to have no name.
func TestReverseNamesOfOtherAddresses(t *testing.T) {
	x := sample()
	p := peering("c1", v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}})
	p.Spec.Networks.ServiceCIDRs = []string{"10.88.0.0/20", "nonsense", "fd00:88::/112"}
	x.setPeering(p)
	l := serve(t, x)
	for ip, want := range map[string]string{
		"10.88.1.1": cs, "10.88.15.9": "NXDOMAIN", "fd00:88::9": "NXDOMAIN",
		"10.88.16.1": "REFUSED", "192.0.2.1": "REFUSED", "fd00:99::1": "REFUSED",
	} {
		if got := reverseOf(t, l, ip); got != want {
			t.Errorf("%s is %s, want %s", ip, got, want)
		}
	}
	l.next = test.NextHandler(dns.RcodeNotImplemented, nil)
	for ip, want := range map[string]string{"10.88.1.1": cs, "10.88.15.9": "NOTIMP", "192.0.2.1": "NOTIMP"} {
		if got := reverseOf(t, l, ip); got != want {
			t.Errorf("with another plugin behind: %s is %s, want %s", ip, got, want)
		}
	}
	unread := *l.current.Load()
	unread.ready = false
	l.current.Store(&unread)
	l.next = nil
	if got := reverseOf(t, l, "10.88.15.9"); got != "SERVFAIL" {
		t.Errorf("before all is read: %s", got)
	}
}
