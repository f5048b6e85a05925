// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// importing is the Corefile of AKS, but for the port, the directory and what takes an API server.
const importing = `.:{port} {
    errors
    hosts {
        127.0.0.9 kubernetes.default.svc.cluster.local
        fallthrough
    }
    import {dir}/custom/*.override
}
import {dir}/custom/*.server
`

// A CoreDNS whose Corefile imports *.server answers by the file that the agent makes, beside those of others.
func TestAnImportedFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("the block forwards to port 53: run this test as root")
	}
	m := newMember(t)
	m.create(peering("clusterset.local"), bundle(0, imported("cs", v1alpha1.ClusterSetIP, exporter("c2", "10.99.0.1"))),
		serviceImport("cs", "10.88.1.1"))
	var random [2]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatal(err)
	}
	sealane := netip.AddrFrom4([4]byte{127, 55, random[0], max(random[1], 1)})
	serve(t, fmt.Sprintf(".:53 {\n bind %s\n lighthouse {\n kubeconfig %s\n }\n}\n", sealane,
		writeKubeconfig(t, server)))

	port, dir := freePort(t), t.TempDir()
	corefile := strings.NewReplacer("{port}", port, "{dir}", dir).Replace(importing)
	files := map[string]string{
		"sealane.server": wired(t, sealane, "coredns-custom", "sealane.server", corefileIn("coredns", corefile)),
		"corp.server":    "corp.example:" + port + " {\n    hosts {\n        192.0.2.7 a.corp.example\n    }\n}\n",
		"log.override":   "minimal\n",
	}
	if err := os.Mkdir(filepath.Join(dir, "custom"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "custom", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, corefile)
	cluster := resolver{t, "127.0.0.1:" + port}
	until(t, "the import is answered", 5*time.Second, func() bool {
		return addresses(cluster.ask(cs, dns.TypeA, 1232)) == "10.88.1.1"
	})
	for name, want := range map[string]string{
		"kubernetes.default.svc.cluster.local.": "127.0.0.9", "a.corp.example.": "192.0.2.7",
	} {
		if got := addresses(cluster.ask(name, dns.TypeA, 1232)); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
