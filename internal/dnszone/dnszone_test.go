// SPDX-License-Identifier: Apache-2.0

package dnszone

import (
	"strings"
	"testing"
)

func TestAllowed(t *testing.T) {
	for _, good := range []string{"clusterset.local", "mesh.example.org", "cluster.local.example.org", "a.b.c.d",
		"mycluster.local", "arpa.example"} {
		if err := Allowed(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "local", "com", "cluster.local", "svc.cluster.local", "mesh.svc.cluster.local", "arpa", "in-addr.arpa",
		"10.in-addr.arpa", "ip6.arpa", strings.Repeat("a", 64) + ".org",
	} {
		if Allowed(bad) == nil {
			t.Errorf("%q is allowed", bad)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"clusterset.local", "clusterset.local", true},
		{"mesh.corp.example", "corp.example", true},
		{"clusterset.local", "cluster.local", false},
		{"mycorp.example", "corp.example", false},
		{"corp.example", "", true},
	} {
		if Overlap(c.a, c.b) != c.want || Overlap(c.b, c.a) != c.want {
			t.Errorf("%q and %q: want %v", c.a, c.b, c.want)
		}
	}
	if got := Normalize("ClusterSet.Local."); got != "clusterset.local" {
		t.Errorf("got %s", got)
	}
}
