// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/e2e/suite"
)

// TestACorefileThatSomebodyEdited: Sealane's block is put back, and nothing else is touched; where it cannot
// tell what is its own, it says so and keeps its hands off.
func TestACorefileThatSomebodyEdited(t *testing.T) {
	corefile := func(ctx context.Context) (string, error) {
		return suite.JSONPath(ctx, "c1", "{.data.Corefile}", "configmap", "coredns", "-n", "kube-system")
	}
	write := func(text string) {
		t.Helper()
		if err := writeCorefile(t.Context(), "c1", text); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			got, err := corefile(ctx)
			if err == nil && got != want {
				err = fmt.Errorf("expected\n%s\nfound\n%s", want, got)
			}
			return err
		})
	}
	original, err := corefile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := writeCorefile(context.Background(), "c1", original); err != nil {
			t.Error(err)
		}
	})
	const mine = "# kept by the admins\n"
	begin, end := strings.Index(original, "# BEGIN sealane"), strings.Index(original, "# END sealane")
	if begin < 0 || end < begin {
		t.Fatalf("no block of Sealane's in\n%s", original)
	}
	condition := []string{"peering", "sealane"}

	write(mine + original[:begin] + "# BEGIN sealane\nclusterset.local:53 {\n    forward . 192.0.2.1\n}\n" +
		original[end:])
	expect(mine + original)

	broken := mine + strings.Replace(original, "# END sealane", "# end", 1)
	write(broken)
	suite.WaitContains(t, "c1", suite.ConditionText("DNSConfigured"), condition, "False/MarkersBroken", "left as it is",
		"# END sealane", "remove every line")
	suite.WaitContains(t, "karmada", suite.ConditionText("DNSConfigured"), []string{"member", "c1"}, "False/MarkersBroken")
	expect(broken)

	write(mine + original[:begin] + strings.TrimPrefix(original[end:], "# END sealane\n"))
	suite.WaitContains(t, "c1", suite.ConditionText("DNSConfigured"), condition, "True/Configured")
	expect(original[begin:end] + "# END sealane\n" + mine + original[:begin] + strings.TrimPrefix(original[end:],
		"# END sealane\n"))
}

// writeCorefile replaces the Corefile of a cluster's DNS.
func writeCorefile(ctx context.Context, cluster, text string) error {
	_, err := suite.TryKubectl(ctx, "--context", cluster, "-n", "kube-system", "patch", "configmap", "coredns",
		"--type=merge",
		"-p", fmt.Sprintf(`{"data":{"Corefile":%q}}`, text+"\n"))
	return err
}
