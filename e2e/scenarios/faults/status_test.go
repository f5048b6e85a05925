// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// clusterSet waits until the status of the ClusterSet is as check wants it.
func clusterSet(t *testing.T, check func(v1alpha1.ClusterSetStatus) error) {
	t.Helper()
	a, err := suite.API("karmada")
	if err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		set := &v1alpha1.ClusterSet{}
		if err := a.Get(ctx, client.ObjectKey{Name: "default"}, set); err != nil {
			return err
		}
		return check(set.Status)
	})
}

// pairIs wants a pair to be listed with one of the statuses.
func pairIs(s v1alpha1.ClusterSetStatus, a, b string, statuses ...v1alpha1.ConnectionStatus) error {
	for _, p := range s.UnconnectedPairs {
		if p.Cluster == a && p.RemoteCluster == b && slices.Contains(statuses, p.Status) && p.Reason != "" {
			return nil
		}
	}
	return fmt.Errorf("expected %s and %s among the pairs as %v, found %+v", a, b, statuses, s.UnconnectedPairs)
}

// TestTheStatusIsTrueWhileNodeAgentsAreDead: those of the gateways of c1 and c2 are killed and do not come back. What
// they said last counts for no more than 15 s, what c3 sees counts as soon as c3 sees it, and all is well again after.
func TestTheStatusIsTrueWhileNodeAgentsAreDead(t *testing.T) {
	const most = 15 * time.Second
	suite.WithoutAgent(t, "c1-gw", func() {
		suite.WithoutAgent(t, "c2-gw", func() {
			killed := time.Now()
			// The cables are in the agents' processes, or in the kernel, where they go on.
			clusterSet(t, func(s v1alpha1.ClusterSetStatus) error {
				return errors.Join(
					pairIs(s, "c1", "c2", v1alpha1.ConnectionUnknown, v1alpha1.ConnectionError),
					pairIs(s, "c1", "c3", v1alpha1.ConnectionUnknown, v1alpha1.ConnectionError),
					pairIs(s, "c2", "c3", v1alpha1.ConnectionUnknown, v1alpha1.ConnectionError))
			})
			took := time.Since(killed)
			t.Logf("no pair of a member without node agents counts as connected %s after they were killed", took)
			if took > most {
				t.Errorf("expected it within %s, found %s", most, took)
			}
			clusterSet(t, func(s v1alpha1.ClusterSetStatus) error {
				for _, kind := range []string{v1alpha1.ClusterSetReady, v1alpha1.ClusterSetConnected} {
					if c := meta.FindStatusCondition(s.Conditions, kind); c == nil || c.Status == metav1.ConditionTrue {
						return fmt.Errorf("expected %s not to be True, found %+v", kind, c)
					}
				}
				return nil
			})
			suite.Contains(t, suite.Plugin(t, "show", "connections"), "Unknown", "has not been heard of")
			suite.Contains(t, suite.Plugin(t, "show", "problems"), "the pair c1 and c2 is")
		})
	})
	clusterSet(t, func(s v1alpha1.ClusterSetStatus) error {
		if s.ConnectedPairs != s.Pairs || s.Pairs == 0 ||
			!meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ClusterSetReady) {
			return fmt.Errorf("expected all pairs to be connected again, found %+v", s)
		}
		return nil
	})
}

// TestALostGatewayIsSeenFromTheOtherSide before its own side says anything: c3's cables are cut, and so is c3's API
// server, so that nothing of it reaches Karmada.
func TestALostGatewayIsSeenFromTheOtherSide(t *testing.T) {
	suite.Outage(t, "c3-apiserver", 0, func() {
		suite.Isolate(t, "c3-gw")
		cut := time.Now()
		clusterSet(t, func(s v1alpha1.ClusterSetStatus) error {
			return errors.Join(pairIs(s, "c1", "c3", v1alpha1.ConnectionError),
				pairIs(s, "c2", "c3", v1alpha1.ConnectionError))
		})
		took := time.Since(cut)
		t.Logf("seen %s after the cables were cut", took)
		if took > 10*time.Second {
			t.Errorf("expected it within 10 s, found %s", took)
		}
		suite.Reconnect(t, "c3-gw")
	})
	suite.WaitForAPI(t, "c3")
	clusterSet(t, func(s v1alpha1.ClusterSetStatus) error {
		if s.ConnectedPairs != s.Pairs || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ClusterSetReady) {
			return fmt.Errorf("expected all pairs to be connected again, found %+v", s)
		}
		return nil
	})
}
