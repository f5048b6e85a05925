// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/sealane"
)

// diagnosed repeats a diagnosis until it ends at the step, with all the words; "" is a path that is whole.
func diagnosed(t *testing.T, step string, words []string, args ...string) {
	t.Helper()
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		out, err := shared.Run(ctx, append([]string{"diagnose", "dns"}, args...)...)
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
	exported(t, "c2", "whereami-cs")
	for _, name := range []string{whereami, "c2." + whereami, "_http._tcp." + whereami, "dns-version.clusterset.local"} {
		diagnosed(t, "", []string{"From c1:", "From c2:", "look-up        the cluster's own DNS answers"}, name)
	}
	diagnosed(t, "", []string{whereami, "derived Service", "connected through c1-gw", "c2 has 3"}, "whereami-cs", "-n", "sample", "--context", "c1")
}

// TestDiagnoseSaysWhatIsWrongWithAName that is not asked for as it should be, or that nobody exports.
func TestDiagnoseSaysWhatIsWrongWithAName(t *testing.T) {
	diagnosed(t, "name", []string{"ask for " + whereami}, "whereami-cs.sample.svc.cluster.local")
	diagnosed(t, "name", []string{"perhaps " + whereami + " is meant"}, "whereami-cs.sample.clusterset.local")
	diagnosed(t, "export", []string{"no ServiceExport in any member", "export whereami-cs -n sample"}, whereami, "--context", "c1")
	exported(t, "c2", "whereami-cs")
	diagnosed(t, "export", []string{"exported are: whereami-cs.sample"}, "whereami.sample", "-C", "c1")
	diagnosed(t, "export", []string{"cluster c1 to export it"}, "c1."+whereami, "-C", "c2")
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
	if err := sealane.Apply(t.Context(), shared.Lab, "c2", []byte(manifests)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, cluster := range []string{"c1", "c2"} {
			if _, err := try(ctx, "--context", cluster, "delete", "namespace", "diagnosed", "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		}
	})
	diagnosed(t, "namespace", []string{"there is none", "kubectl --context c1 create namespace diagnosed"}, "web.diagnosed", "--context", "c1")
	eventually(t, 10*time.Second, func(ctx context.Context) error {
		out, err := shared.Run(ctx, "show", "imports", "-n", "diagnosed", "--context", "c1")
		if err == nil && !strings.Contains(out, "NamespaceMissing") {
			err = fmt.Errorf("expected NamespaceMissing in\n%s", out)
		}
		return err
	})
	kubectl(t, "--context", "c1", "create", "namespace", "diagnosed")
	diagnosed(t, "endpoints", []string{"c2 has 0", "kubectl --context c2 -n diagnosed get endpointslices"}, "web.diagnosed", "--context", "c1")
}

// TestShowServicesFollowsAnExport from one that has no Service to one that is imported.
func TestShowServicesFollowsAnExport(t *testing.T) {
	shows := func(words ...string) {
		t.Helper()
		eventually(t, 30*time.Second, func(ctx context.Context) error {
			out, err := shared.Run(ctx, "show", "services", "-n", "sample", "-o", "wide")
			for _, word := range words {
				if err == nil && !strings.Contains(strings.Join(strings.Fields(out), " "), word) {
					err = fmt.Errorf("expected %q in\n%s", word, out)
				}
			}
			return err
		})
	}
	if err := sealane.Apply(t.Context(), shared.Lab, "karmada", []byte("{apiVersion: v1, kind: Namespace, metadata: {name: sample}}")); err != nil {
		t.Fatal(err)
	}
	out := plugin(t, "export", "whereami-cs", "-n", "sample", "-C", "c1,c2", "--import-clusters", "c2")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := shared.Run(ctx, "unexport", "whereami-cs", "-n", "sample"); err != nil {
			t.Error(err)
		}
	})
	if want := "exported by c1, c2, and imported by c2 besides"; !strings.Contains(out, want) {
		t.Errorf("expected %q in\n%s", want, out)
	}
	shows("sample whereami-cs ClusterSetIP c1 exported 1 c1,c2 - http:80/TCP ClusterSetIP - c2",
		"sample whereami-cs ClusterSetIP c2 exported 3 c1,c2")
	exported(t, "c1", "absent", "--allow-missing")
	shows("sample absent - c1 failed - - NoService")
}
