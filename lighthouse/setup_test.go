// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/coredns/caddy"
)

func TestDirective(t *testing.T) {
	tests := map[string]struct {
		zones []string
		ttl   uint32
		err   string
	}{
		"lighthouse": {nil, 5, ""},
		"lighthouse ClusterSet.local b.example.org.":       {[]string{"clusterset.local.", "b.example.org."}, 5, ""},
		"lighthouse {\nttl 30\nkubeconfig /a c1\n}":        {nil, 30, ""},
		"lighthouse {\nfallthrough\n}":                     {nil, 5, ""},
		"lighthouse {\nservice sealane-system/dns\n}":      {nil, 5, ""},
		"lighthouse {\nservice\n}":                         {err: "service takes a namespace and a name"},
		"lighthouse {\nservice dns\n}":                     {err: `service "dns" is not a namespace and a name`},
		"lighthouse {\nservice a/b/c\n}":                   {err: "is not a namespace and a name"},
		"lighthouse {\nttl\n}":                             {err: "ttl takes a number"},
		"lighthouse {\nttl 3601\n}":                        {err: "from 0 to 3600"},
		"lighthouse {\nttl -1\n}":                          {err: "from 0 to 3600"},
		"lighthouse {\nkubeconfig\n}":                      {err: "kubeconfig takes a path"},
		"lighthouse {\nnonsense\n}":                        {err: `unknown property "nonsense"`},
		"lighthouse under_score":                           {err: "is not a domain name"},
		"lighthouse .":                                     {err: "is not a domain name"},
		"lighthouse " + strings.Repeat("a", 64) + ".local": {err: "is not a domain name"},
		"lighthouse\nlighthouse":                           {err: "only be used once"},
	}
	for input, want := range tests {
		set, err := parseDirective(caddy.NewTestController("dns", input))
		if want.err != "" {
			if err == nil || !strings.Contains(err.Error(), want.err) {
				t.Errorf("%q: error %v, want %q", input, err, want.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", input, err)
		}
		if !slices.Equal(set.zones, want.zones) || ptr.Deref(set.ttl, defaultTTL) != want.ttl {
			t.Errorf("%q: zones %v, ttl %d, want %v and %d", input, set.zones, ptr.Deref(set.ttl, defaultTTL),
				want.zones, want.ttl)
		}
	}
}

func TestSetupSaysWhatIsMissing(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if err := Setup(caddy.NewTestController("dns", "lighthouse")); err == nil ||
		!strings.Contains(err.Error(), "no kubeconfig is given") {
		t.Errorf("outside a pod: %v", err)
	}
	if err := Setup(caddy.NewTestController("dns", "lighthouse {\nkubeconfig /nonexistent\n}")); err == nil ||
		!strings.Contains(err.Error(), "read kubeconfig /nonexistent") {
		t.Errorf("without the file: %v", err)
	}
}
