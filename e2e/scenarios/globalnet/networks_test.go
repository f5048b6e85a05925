// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

var handle = regexp.MustCompile(`# handle \d+`)

// TestASecondPodNetwork: a network is added to those of a cluster while it runs. All nodes of the others route it by
// what each of them routes the first by; no rule is written anew, no agent starts anew, and a connection goes on. When
// the network is taken back, its routes go.
func TestASecondPodNetwork(t *testing.T) {
	const first, second = "10.8.0.0/16", "10.66.7.0/24"
	set := func(pods ...string) {
		suite.Update(suite.Namespace{T: t}, "karmada", &v1alpha1.ClusterSet{ObjectMeta: suite.Named("default")},
			func(s *v1alpha1.ClusterSet) {
				s.Spec.Clusters = slices.DeleteFunc(s.Spec.Clusters,
					func(c v1alpha1.ClusterOverride) bool { return c.Name == "c1" })
				if len(pods) > 0 {
					s.Spec.Clusters = append(s.Spec.Clusters, v1alpha1.ClusterOverride{Name: "c1",
						Networks: v1alpha1.Networks{PodCIDRs: pods}})
				}
			})
	}
	before, err := suite.JSONPath(t.Context(), "karmada", "{.spec.clusters}", "clusterset", "default")
	if err != nil {
		t.Fatal(err)
	}
	suite.SetClusterSetAfter(t, `{"clusters":`+before+`}`)
	nodes := []string{"g1-gw1", "g1-gw2", "g1-worker", "g2-gw1", "g2-gw2", "g2-worker"}
	routes := func(ctx context.Context, node, to string) (string, error) {
		out, err := suite.Lab().InNode(ctx, node, "ip", "route", "show", "table", "5100", to)
		return strings.TrimSpace(string(out)), err
	}
	// everywhere waits until all nodes route the second network as they route the first, or do not.
	everywhere := func(routed bool) {
		began := time.Now()
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			for _, node := range nodes {
				one, err := routes(ctx, node, first)
				if err != nil {
					return err
				}
				other, err := routes(ctx, node, second)
				want := ""
				if routed {
					want = strings.ReplaceAll(one, first, second)
				}
				if err == nil && other != want {
					err = fmt.Errorf("%s: expected of %s %q, found %q", node, second, want, other)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		t.Logf("routed: %v, after %s", routed, time.Since(began))
	}
	agents := func() (all string) {
		for _, c := range []string{"g1", "g2", "c1"} {
			text, err := suite.JSONPath(t.Context(), c, "{range .items[*]}{.metadata.uid} "+
				"{.status.containerStatuses[*].restartCount}{\"\\n\"}{end}", "pods", "-n", v1alpha1.Namespace)
			if err != nil {
				t.Fatal(err)
			}
			all += text
		}
		return all
	}
	were := agents()
	// The rules of a node with their handles, which rules that are written anew have not.
	rules := func() (all string) {
		for _, node := range nodes {
			out, err := suite.Lab().InNode(t.Context(), node, "nft", "-a", "list", "chain", "ip", "sealane", "guard")
			if err != nil {
				t.Fatal(err)
			}
			all += strings.Join(handle.FindAllString(string(out), -1), " ") + "\n"
		}
		return all
	}
	had := rules()
	to := suite.PodIP(t, "c1", "server-c1-gw") + ":8080"
	suite.Connection{Cluster: "g1", Node: "g1-worker", To: to}.Survives(t, time.Second, suite.Undisturbed, func() {
		set(first, second)
		everywhere(true)
		set()
		everywhere(false)
	})
	if has := rules(); has != had {
		t.Errorf("rules had the handles\n%s\nand have\n%s", had, has)
	}
	if now := agents(); now != were {
		t.Errorf("agents had\n%s\nand have\n%s", were, now)
	}
}
