// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/sealane"
	"github.com/sealane-io/sealane/e2e/suite"
)

// diagnosed repeats a diagnosis until it ends at the step, with all the words; "" is a path that is whole.
func diagnosed(t *testing.T, step string, words []string, args ...string) {
	t.Helper()
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.TryPlugin(ctx, append([]string{"diagnose", "dns"}, args...)...)
		if err != nil && step == "" {
			return err
		}
		if err == nil && step != "" {
			return fmt.Errorf("expected a break at %q and its exit code, found a path that is whole\n%s", step, out)
		}
		words := slices.Clone(words)
		if step != "" {
			words = append(words, "BROKEN  "+step+"\n", "expected:", "found:", "to do:")
		}
		for _, word := range words {
			if !strings.Contains(out, word) {
				return fmt.Errorf("expected %q in\n%s", word, out)
			}
		}
		return nil
	})
}

// TestDiagnoseFollowsANameThatWorks, of each shape and from either member.
func TestDiagnoseFollowsANameThatWorks(t *testing.T) {
	suite.Exported(t, "c2", "whereami-cs")
	for _, name := range []string{suite.Whereami, "c2." + suite.Whereami, "_http._tcp." + suite.Whereami,
		"dns-version.clusterset.local"} {
		diagnosed(t, "", []string{"From c1:", "From c2:", "look-up        the cluster's own DNS answers"}, name)
	}
	diagnosed(t, "", []string{suite.Whereami, "derived Service", "connected through c1-gw", "c2 has 3"}, "whereami-cs",
		"-n", "sample", "--context", "c1")
}

// TestDiagnoseSaysWhatIsWrongWithAName that is not asked for as it should be, or that nobody exports.
func TestDiagnoseSaysWhatIsWrongWithAName(t *testing.T) {
	diagnosed(t, "name", []string{"ask for " + suite.Whereami}, "whereami-cs.sample.svc.cluster.local")
	diagnosed(t, "name", []string{"perhaps " + suite.Whereami + " is meant"}, "whereami-cs.sample.clusterset.local")
	diagnosed(t, "export", []string{"no ServiceExport in any member", "export whereami-cs -n sample"}, suite.Whereami,
		"--context", "c1")
	suite.Exported(t, "c2", "whereami-cs")
	diagnosed(t, "export", []string{"exported are: whereami-cs.sample"}, "whereami.sample", "-C", "c1")
	diagnosed(t, "export", []string{"cluster c1 to export it"}, "c1."+suite.Whereami, "-C", "c2")
}

// TestDiagnoseSaysWhichWayIsShut: with nothing wrong diagnose all ends with exit code 0. What is sent to a gateway does
// not arrive, and what it sends does: both clusters say so, and that the tunnel is down.
func TestDiagnoseSaysWhichWayIsShut(t *testing.T) {
	whole := func() {
		t.Helper()
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			out, err := suite.TryPlugin(ctx, "diagnose", "all")
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
			return err
		})
	}
	whole()
	const table = "oneway"
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		// The test may have deleted it already.
		_, _ = suite.Lab().InNode(ctx, "c1-gw", "nft", "delete", "table", "inet", table)
	})
	if _, err := suite.Lab().InNode(t.Context(), "c1-gw", "nft", "table inet "+table+
		" { chain in { type filter hook prerouting priority -500; udp dport 4500 drop; }\n}"); err != nil {
		t.Fatal(err)
	}
	for subject, words := range map[string][]string{
		"connections": {"c1-gw to c2-gw of c2", "expected:", "to do:"},
		"firewall": {"from c2-gw of c2 to arrive at UDP 4500 of c1-gw", "arrives: this way alone is shut",
			"packets from c2-gw to arrive at c1-gw of c1"},
	} {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			out, err := suite.TryPlugin(ctx, "diagnose", subject)
			if err == nil {
				return fmt.Errorf("expected diagnose %s to fail, found\n%s", subject, out)
			}
			for _, word := range words {
				if !strings.Contains(out, word) {
					return fmt.Errorf("expected %q in\n%s", word, out)
				}
			}
			return nil
		})
	}
	if _, err := suite.Lab().InNode(t.Context(), "c1-gw", "nft", "delete", "table", "inet", table); err != nil {
		t.Fatal(err)
	}
	whole()
}

// TestDiagnoseFindsAMissingNamespace in the member that is to import.
func TestDiagnoseFindsAMissingNamespace(t *testing.T) {
	const manifests = `
apiVersion: v1
kind: Namespace
metadata: {name: diagnosed}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: diagnosed}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: web, namespace: diagnosed}
`
	if err := sealane.Apply(t.Context(), suite.Lab(), "c2", []byte(manifests)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, cluster := range []string{"c1", "c2"} {
			if _, err := suite.TryKubectl(ctx, "--context", cluster, "delete", "namespace", "diagnosed",
				"--ignore-not-found"); err != nil {
				t.Error(err)
			}
		}
	})
	diagnosed(t, "namespace", []string{"there is none", "kubectl --context c1 create namespace diagnosed"},
		"web.diagnosed", "--context", "c1")
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.TryPlugin(ctx, "show", "imports", "-n", "diagnosed", "--context", "c1")
		if err == nil && !strings.Contains(out, "NamespaceMissing") {
			err = fmt.Errorf("expected NamespaceMissing in\n%s", out)
		}
		return err
	})
	suite.Kubectl(t, "--context", "c1", "create", "namespace", "diagnosed")
	diagnosed(t, "endpoints", []string{"c2 has 0", "kubectl --context c2 -n diagnosed get endpointslices"},
		"web.diagnosed", "--context", "c1")
}
