// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestTheFirstOfSeveralIsHeard: what is found at once is what a look through the whole report and record finds first,
// whatever a member repeats or makes up.
func TestTheFirstOfSeveralIsHeard(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	statuses := []v1alpha1.ConnectionStatus{v1alpha1.ConnectionConnected, v1alpha1.ConnectionError, "Invented", ""}
	list := func() []v1alpha1.MemberConnection {
		out := make([]v1alpha1.MemberConnection, random.IntN(12))
		for i := range out {
			out[i] = v1alpha1.MemberConnection{Cluster: fmt.Sprint("c", random.IntN(4)),
				Status: statuses[random.IntN(len(statuses))], NodePairs: random.Int32N(5) - 1,
				StraightNodePairs: random.Int32N(5) - 1}
			if random.IntN(2) == 0 {
				at := metav1.Unix(int64(i), 0)
				out[i].LastTransitionTime = &at
			}
		}
		return out
	}
	found, none := 0, 0
	for range 500 {
		s := &state{Member: known(1)}
		s.Report.Status.Connections, s.Record.Status.Connections = list(), list()
		s.listen()
		for n := range 4 {
			cluster := fmt.Sprint("c", n)
			first := func(list []v1alpha1.MemberConnection,
				is func(*v1alpha1.MemberConnection) bool) *v1alpha1.MemberConnection {
				k := slices.IndexFunc(list, func(c v1alpha1.MemberConnection) bool { return c.Cluster == cluster && is(&c) })
				if k < 0 {
					none++
					return nil
				}
				found++
				return &list[k]
			}
			reported := s.Report.Status.Connections
			want := first(reported, func(c *v1alpha1.MemberConnection) bool { return badness(c.Status) >= 0 })
			if got := s.heard[cluster].connection; got != want {
				t.Errorf("%s in %+v: %+v, want %+v", cluster, reported, got, want)
			}
			want = first(reported, func(c *v1alpha1.MemberConnection) bool {
				return c.StraightNodePairs >= 0 && c.StraightNodePairs <= c.NodePairs
			})
			if got := s.heard[cluster].meshed; got != want {
				t.Errorf("nodes of %s in %+v: %+v, want %+v", cluster, reported, got, want)
			}
			recorded := s.Record.Status.Connections
			for _, status := range statuses {
				want := first(recorded, func(c *v1alpha1.MemberConnection) bool {
					return c.Status == status && c.LastTransitionTime != nil
				})
				got := s.since[connectionStatus{cluster, status}]
				if (got == nil) != (want == nil) || want != nil && got != want.LastTransitionTime {
					t.Errorf("%s %s in %+v: since %v, want %+v", cluster, status, recorded, got, want)
				}
			}
		}
	}
	if found < 1000 || none < 1000 {
		t.Errorf("%d were found and %d not: too few were tried", found, none)
	}
}
