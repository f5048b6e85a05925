// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// kubeadm is the Corefile of kubeadm, and of kind, byte for byte.
const kubeadm = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
`

// k3s is the Corefile of k3s, which imports files that are not in the ConfigMap.
const k3s = `.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
      pods insecure
      fallthrough in-addr.arpa ip6.arpa
    }
    hosts /etc/coredns/NodeHosts {
      ttl 60
      reload 15s
      fallthrough
    }
    prometheus :9153
    cache 30
    loop
    reload
    loadbalance
    import /etc/coredns/custom/*.override
    forward . /etc/resolv.conf
}
import /etc/coredns/custom/*.server
`

// nodeLocal is the Corefile of NodeLocal DNSCache after its placeholders were replaced.
const nodeLocal = `cluster.local:53 {
    errors
    cache {
            success 9984 30
            denial 9984 5
    }
    reload
    loop
    bind 169.254.20.10 10.96.0.10
    forward . 10.96.211.3 {
            force_tcp
    }
    prometheus :9253
    health 169.254.20.10:8080
    }
in-addr.arpa:53 {
    errors
    forward . 10.96.211.3
    }
ip6.arpa:53 {
    errors
    forward . 10.96.211.3
    }
.:53 {
    errors
    cache 30
    forward . 10.96.211.4
    }
`

// company has stub domains, hosts and zones of every kind, as grown over years.
const company = `(common) {
    errors
    cache 30
}
corp.example:53 example.net:53 {
    import common
    forward . 10.0.0.1 10.0.0.2
}
.:53 {
    import common
    kubernetes k8s.acme.internal in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
    }
    hosts {
        10.0.0.7 vault.secrets.example gitlab.example.com
        fallthrough
    }
    rewrite stop {
        name suffix .old.example .new.example
    }
    rewrite name exact db.legacy.example db.prod.svc.k8s.acme.internal
    rewrite name suffix .global.example .svc.k8s.acme.internal
    file /etc/coredns/db.lab lab.example
    auto lan.example {
        directory /etc/coredns/zones
    }
    template ANY ANY wild.example {
        rcode NXDOMAIN
    }
    route53 aws.example.:Z1Z2Z3
    k8s_external ext.example
    multicluster mc.example
    forward stub.example 10.0.0.3
    forward . /etc/resolv.conf
}
`

func TestADomainMustBeFreeInTheWholeCorefile(t *testing.T) {
	for _, c := range []struct {
		name, corefile, domain, search string
		// taken is part of what is said, "" where the domain is free.
		taken string
	}{
		{"kubeadm", kubeadm, "clusterset.local", "", ""},
		{"k3s", k3s, "clusterset.local", "", ""},
		{"NodeLocal", nodeLocal, "clusterset.local", "", ""},
		{"company", company, "clusterset.local", "", ""},
		{"the cluster's domain", kubeadm, "cluster.local", "", "cluster.local"},
		{"below it", k3s, "mesh.svc.cluster.local", "", "cluster.local"},
		{"above it", kubeadm, "local", "", "one label"},
		{"a top-level domain", kubeadm, "com", "", "one label"},
		{"reverse names", kubeadm, "10.in-addr.arpa", "", "arpa"},
		{"another cluster domain", company, "k8s.acme.internal", "", "k8s.acme.internal, which is served by the plugin " +
			"kubernetes in the server block .:53"},
		{"below another cluster domain", company, "set.k8s.acme.internal", "", "the plugin kubernetes"},
		{"above another cluster domain", company, "acme.internal", "", "the plugin kubernetes"},
		{"a cluster domain that only the kubelet knows", kubeadm, "x.k8s.acme.internal", "k8s.acme.internal", "the kubelet"},
		{"a server block", company, "corp.example", "", "the server block corp.example:53"},
		{"below a server block", company, "mesh.example.net", "", "the server block example.net:53"},
		{"a name of hosts", company, "secrets.example", "", "vault.secrets.example, which is served by the plugin hosts"},
		{"beside a name of hosts", company, "mesh.vault.secrets.example", "", ""},
		{"a rewritten name", company, "legacy.example", "", "the plugin rewrite"},
		{"a rewritten suffix", company, "a.global.example", "", "the plugin rewrite"},
		{"a file", company, "lab.example", "", "the plugin file"},
		{"auto", company, "x.lan.example", "", "the plugin auto"},
		{"template", company, "wild.example", "", "the plugin template"},
		{"a cloud's zone", company, "mesh.aws.example", "", "the plugin route53"},
		{"k8s_external", company, "ext.example", "", "the plugin k8s_external"},
		{"a plugin that nobody knows here", company, "mc.example", "", "the plugin multicluster"},
		{"forward of a zone", company, "stub.example", "", "the plugin forward"},
		{"a sibling", company, "mesh.example", "", ""},
		{"a suffix of a label", company, "mycorp.example", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Forward{Domains: []string{c.domain}, To: netip.MustParseAddr("10.96.0.7"), ClusterDomain: c.search}
			with, _, err := Add(c.corefile, f)
			if c.taken == "" {
				if err != nil || !strings.HasSuffix(with, c.corefile) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if with != "" || !errors.Is(err, ErrDomainTaken) || !strings.Contains(err.Error(), c.taken) {
				t.Fatalf("got %q, %v; want %q", with, err, c.taken)
			}
		})
	}
}

func TestOneDomainThatIsTakenWritesNothing(t *testing.T) {
	f := forward
	f.Domains = []string{"clusterset.local", "corp.example"}
	if with, _, err := Add(company, f); with != "" || !errors.Is(err, ErrDomainTaken) {
		t.Errorf("got %q, %v", with, err)
	}
}

func TestAnInvalidCorefileIsLeftAlone(t *testing.T) {
	for _, corefile := range []string{".:53 {\n errors\n", ".:53 {\n import nothing more\n}\n(a) {\n}\n(a) {\n}\n"} {
		if with, _, err := Add(corefile, forward); with != "" || !errors.Is(err, ErrInvalidCorefile) {
			t.Errorf("%q: got %q, %v", corefile, with, err)
		}
	}
}

func TestImportedFilesAreNotRead(t *testing.T) {
	served, err := ServedBy(".:53 {\n import /etc/passwd\n \"import\" /etc/hostname\n forward corp.example " +
		"10.0.0.1\n}\nimport /etc/passwd\n")
	if err != nil || len(served) != 2 || served[1].Zone != "corp.example" {
		t.Errorf("got %+v, %v", served, err)
	}
}

func TestTheClusterDomainOfAPod(t *testing.T) {
	for text, want := range map[string]string{
		"search sealane-system.svc.k8s.acme svc.k8s.acme k8s.acme corp.example\n" +
			"nameserver 10.96.0.10\noptions ndots:5\n": "k8s.acme",
		"nameserver 192.0.2.1\nsearch corp.example\n": "",
		"":              "",
		"search svc.\n": "",
	} {
		if got := SearchedClusterDomain(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestTheNodesCacheHasABlock(t *testing.T) {
	with := nodeLocal + "clusterset.local:53 {\n    forward . 10.96.211.3\n}\n"
	if HasBlock(nodeLocal, "clusterset.local") || !HasBlock(with, "clusterset.local") ||
		HasBlock(with, "x.clusterset.local") {
		t.Error("the server block is not told from others")
	}
}

// FuzzServed: a Corefile is anybody's text. What a server block's key or the kubernetes plugin names is never missed
// by Add.
func FuzzServed(f *testing.F) {
	for _, seed := range []string{kubeadm, k3s, nodeLocal, company, "a b {\n kubernetes c\n}", "import x\n",
		"{$A} {\n}\n"} {
		f.Add(seed, "clusterset.local")
	}
	f.Fuzz(func(t *testing.T, corefile, domain string) {
		served, err := ServedBy(corefile)
		if err != nil {
			return
		}
		with, _, err := Add(corefile, Forward{Domains: []string{domain}, To: netip.MustParseAddr("10.96.0.7")})
		without, removed := Remove(corefile)
		if err == nil && removed == nil && without == corefile && with != corefile &&
			slices.ContainsFunc(served, func(s Served) bool { return s.Zone == domain && domain != "" }) {
			t.Fatalf("%s is served and was taken", domain)
		}
	})
}
