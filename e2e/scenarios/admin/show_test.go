// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/sealane"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestShowServicesFollowsAnExport from one that has no Service to one that is imported.
func TestShowServicesFollowsAnExport(t *testing.T) {
	shows := func(words ...string) {
		t.Helper()
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			out, err := suite.TryPlugin(ctx, "show", "services", "-n", "sample", "-o", "wide")
			for _, word := range words {
				if err == nil && !strings.Contains(strings.Join(strings.Fields(out), " "), word) {
					err = fmt.Errorf("expected %q in\n%s", word, out)
				}
			}
			return err
		})
	}
	if err := sealane.Apply(t.Context(), suite.Lab(), "karmada", []byte("{apiVersion: v1, kind: Namespace, metadata: "+
		"{name: sample}}")); err != nil {
		t.Fatal(err)
	}
	out := suite.Plugin(t, "export", "whereami-cs", "-n", "sample", "-C", "c1,c2", "--import-clusters", "c2")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := suite.TryPlugin(ctx, "unexport", "whereami-cs", "-n", "sample"); err != nil {
			t.Error(err)
		}
	})
	if want := "exported by c1, c2, and imported by c2 besides"; !strings.Contains(out, want) {
		t.Errorf("expected %q in\n%s", want, out)
	}
	shows("sample whereami-cs ClusterSetIP c1 exported 1 c1,c2 - http:80/TCP ClusterSetIP - c2",
		"sample whereami-cs ClusterSetIP c2 exported 3 c1,c2")
	suite.Exported(t, "c1", "absent", "--allow-missing")
	shows("sample absent - c1 failed - - NoService")
}

// TestShowTellsTheTruth is scenario 4 of the walkthrough: each table names what really is.
func TestShowTellsTheTruth(t *testing.T) {
	for command, words := range map[string][]string{
		"clusterset":  {"default"},
		"connections": {"c1", "c2", "c3", "c1-gw", "c2-gw", "c3-gw", "Connected"},
		"endpoints":   {"c1-gw", "c2-gw", suite.Lab().NodeAddress("c1-gw", "IPv4"), suite.Lab().NodeAddress("c2-gw", "IPv4")},
		"gateways":    {"c1-gw", "c2-gw", "c3-gw", "Active", "Userspace"},
		"networks":    {"10.8.0.0/16", "10.88.0.0/16", "10.9.0.0/16", "10.99.0.0/16", "10.110.0.0/16"},
		"versions":    {"c1", "c2", "c3"},
	} {
		t.Run(command, func(t *testing.T) {
			out := suite.Plugin(t, "show", command)
			for _, word := range words {
				if !strings.Contains(out, word) {
					t.Errorf("show %s: expected %q in\n%s", command, word, out)
				}
			}
		})
	}
}

// TestShowSaysThatTheControllerIsGone, instead of what it said last.
func TestShowSaysThatTheControllerIsGone(t *testing.T) {
	suite.Outage(t, "sealane-controller", 0, func() {
		for subject, words := range map[string][]string{
			"problems":   {"ControllerNotRunning", "Lease sealane-system/sealane-controller"},
			"clusterset": {"Unknown", "no sealane-controller has renewed"},
		} {
			suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
				out, err := suite.TryPlugin(ctx, "show", subject)
				for _, word := range words {
					if err == nil && !strings.Contains(out, word) {
						err = fmt.Errorf("show %s: expected %q in\n%s", subject, word, out)
					}
				}
				return err
			})
		}
	})
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.TryPlugin(ctx, "show", "problems")
		if err == nil && strings.Contains(out, "ControllerNotRunning") {
			err = fmt.Errorf("the controller runs, found\n%s", out)
		}
		return err
	})
}
