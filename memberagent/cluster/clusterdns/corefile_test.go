// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

var forward = Forward{Domains: []string{"clusterset.local"}, To: netip.MustParseAddr("10.96.0.7")}

const (
	stock = ".:53 {\n    errors\n    kubernetes cluster.local in-addr.arpa ip6.arpa {\n       pods insecure\n    }\n    " +
		"reload\n}\n"
	ours = "# BEGIN sealane\nclusterset.local:53 {\n    errors\n    forward . 10.96.0.7\n}\n# END sealane\n"
)

func TestAdd(t *testing.T) {
	for _, c := range []struct {
		name, have string
		f          Forward
		want       string
		err        error
	}{
		{"stock", stock, forward, ours + stock, nil},
		{"again", ours + stock, forward, ours + stock, nil},
		{"no newline at the end", strings.TrimSuffix(stock, "\n"), forward, ours + strings.TrimSuffix(stock, "\n"), nil},
		{"empty", "", forward, ours, nil},
		{"moved by somebody", stock + ours + "# mine\n", forward, stock + ours + "# mine\n", nil},
		{"edited inside the marks", "# BEGIN sealane\nnonsense\n# END sealane\n" + stock, forward, ours + stock, nil},
		{"another address", strings.ReplaceAll(ours, "10.96.0.7", "10.96.0.8") + stock, forward, ours + stock, nil},
		{"two domains", stock, Forward{Domains: []string{"clusterset.local", "supercluster.local"},
			To: netip.MustParseAddr("fd00::7")},
			"# BEGIN sealane\nclusterset.local:53 supercluster.local:53 {\n" +
				"    errors\n    forward . fd00::7\n}\n# END sealane\n" + stock, nil},
		{"another port", ".:1053 {\n}\n", forward, strings.ReplaceAll(ours, ":53", ":1053") + ".:1053 {\n}\n", nil},
		{"begin without end", "# BEGIN sealane\n" + stock, forward, "", ErrMarkers},
		{"end without begin", stock + "# END sealane\n", forward, "", ErrMarkers},
		{"end before begin", "# END sealane\n" + stock + "# BEGIN sealane\n", forward, "", ErrMarkers},
		{"two blocks", ours + stock + ours, forward, "", ErrMarkers},
		{"the domain is taken", stock + "clusterset.local:53 {\n    forward . 1.2.3.4\n}\n", forward, "", ErrDomainTaken},
		{"the domain is taken, otherwise written", stock + "dns://ClusterSet.Local. example.org {\n    forward . " +
			"1.2.3.4\n}\n", forward, "", ErrDomainTaken},
		{"the domain in a directive", ".:53 {\n    cache 30 clusterset.local\n    log clusterset.local {\n        class " +
			"all\n    }\n}\n", forward,
			ours + ".:53 {\n    cache 30 clusterset.local\n    log clusterset.local {\n        class all\n    }\n}\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := Add(c.have, c.f)
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v; want %q, %v", got, err, c.want, c.err)
			}
		})
	}
}

func TestRemoveUndoesAdd(t *testing.T) {
	for _, have := range []string{stock, "", "# mine", strings.TrimSuffix(stock, "\n"), "\r\n.:53 {\r\n}\r\n"} {
		with, _, err := Add(have, forward)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Remove(with); got != have || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, have)
		}
	}
}

// FuzzCorefile: whatever a Corefile holds, adding and removing restore it to the byte, adding twice is
// adding once, and what cannot be told apart is refused both ways.
func FuzzCorefile(f *testing.F) {
	for _, seed := range []string{stock, ours + stock, stock + ours, "# BEGIN sealane\n", "{{}}", "a{$X} {\n}\n",
		"(snip) {\n}\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, have string) {
		without, err := Remove(have)
		if err != nil {
			if _, _, err := Add(have, forward); !errors.Is(err, ErrMarkers) {
				t.Fatalf("add to a broken Corefile: %v", err)
			}
			return
		}
		with, _, err := Add(have, forward)
		if err != nil {
			return
		}
		if again, _, err := Add(with, forward); err != nil || again != with {
			t.Fatalf("add twice: %q, %v; want %q", again, err, with)
		}
		if got, err := Remove(with); err != nil || got != without {
			t.Fatalf("remove: %q, %v; want %q", got, err, without)
		}
	})
}
