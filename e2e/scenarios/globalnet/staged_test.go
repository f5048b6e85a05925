// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestALiveClusterGetsABlock: the way that the guide tells of. A cluster whose mode is changed keeps its networks until
// it leaves and joins, by when all others know it by its block; and a connection between two others goes on all the
// while. The way back is the same.
func TestALiveClusterGetsABlock(t *testing.T) {
	before, err := suite.JSONPath(t.Context(), "karmada", "{.spec.clusters}", "clusterset", "default")
	if err != nil {
		t.Fatal(err)
	}
	suite.RestoreAfter(t, []string{"join", "c1"})
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx := context.Background()
		_, err := suite.TryKubectl(ctx, "--context", "karmada", "patch", "clusterset", "default", "--type=merge", "-p",
			`{"spec":{"clusters":`+before+`}}`)
		if _, left := suite.TryPlugin(ctx, "leave", "c1"); err != nil || left != nil {
			t.Error(errors.Join(err, left))
		}
	})
	setMode := func(mode v1alpha1.GlobalnetMode) {
		suite.Update(suite.Namespace{T: t}, "karmada", &v1alpha1.ClusterSet{ObjectMeta: suite.Named("default")},
			func(s *v1alpha1.ClusterSet) {
				s.Spec.Clusters = slices.DeleteFunc(s.Spec.Clusters,
					func(c v1alpha1.ClusterOverride) bool { return c.Name == "c1" })
				if mode != "" {
					s.Spec.Clusters = append(s.Spec.Clusters, v1alpha1.ClusterOverride{Name: "c1",
						Globalnet: v1alpha1.GlobalnetOverride{Mode: mode}})
				}
			})
	}
	again := func(block bool) {
		suite.Plugin(t, "leave", "c1")
		suite.Plugin(t, "join", "c1")
		if got := memberSays(t, "c1", "globalCIDR"); got != "" != block {
			t.Errorf("c1 has the block %q", got)
		}
	}
	for _, c := range suite.Members() {
		suite.Exported(t, c, "whereami-cs")
	}
	to := submariner{namespace{suite.Namespace{T: t, Name: "sample"}}, "g1", "g2"}.globalIP("g2", "whereami-cs") + ":80"
	suite.Connection{Cluster: "g1", Node: "g1-worker", To: to}.Survives(t, time.Second, suite.Undisturbed, func() {
		setMode(v1alpha1.GlobalnetOn)
		suite.WaitContains(t, "karmada", "{.status.conditions}", []string{"clusterset", "default"},
			"c1 keeps its own networks until it leaves and joins")
		again(true)
		for _, twin := range []string{"g1", "g2"} {
			answered(t, "c1", "client-c1-gw", twin+"."+suite.Whereami, twin, append(seenFrom(t, "c1", "", true), ofGateways))
			pod, byBlock := "client-"+twin+"-worker", memberSays(t, twin, "globalScope") == string(v1alpha1.GlobalToAll)
			answered(t, twin, pod, "c1."+suite.Whereami, "c1", seenFrom(t, twin, pod, byBlock))
		}
		setMode("")
		again(false)
	})
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		for _, twin := range []string{"g1", "g2"} {
			out, err := suite.Lab().InNode(ctx, twin+"-worker", "ip", "route", "show", "table", "5100", "10.8.0.0/16")
			if err == nil && len(out) == 0 {
				err = errors.New(twin + " has no route to c1's own networks")
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
