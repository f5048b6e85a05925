// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/reach"
)

// transitions knows when the status of a connection last changed, where the reports of this agent do not say.
type transitions struct {
	// former is what the agent before this one reported last. As cables outlive agents, and each agent begins to probe
	// anew, a connection that is back at the former status before the given time has not changed.
	former []v1alpha1.Connection
	until  time.Time
}

// newTransitions of an agent that is about to report for the first time, by the status that it finds. What is as old as
// to be unknown says nothing of the time since.
func newTransitions(last v1alpha1.GatewayStatus, now time.Time) transitions {
	if last.ReportedAt == nil || now.Sub(last.ReportedAt.Time) >= reach.ReportLifetime {
		return transitions{}
	}
	return transitions{slices.Clone(last.Connections), now.Add(reach.ConnectingGrace)}
}

// stamp writes into connections when their statuses last changed; before are those of the last report of this agent.
func (t *transitions) stamp(connections, before []v1alpha1.Connection, now time.Time) {
	t.former = slices.DeleteFunc(t.former, func(f v1alpha1.Connection) bool {
		b := sameConnection(before, f)
		return !now.Before(t.until) || b != nil && b.Status != v1alpha1.ConnectionConnecting
	})
	at := metav1.NewTime(now.Truncate(time.Second))
	for i := range connections {
		c := &connections[i]
		c.LastTransitionTime = &at
		for _, list := range [][]v1alpha1.Connection{before, t.former} {
			if last := sameConnection(list, *c); last != nil && last.Status == c.Status && last.LastTransitionTime != nil {
				c.LastTransitionTime = last.LastTransitionTime
				break
			}
		}
	}
}

// sameConnection is the one in a list that leads to the same cluster by the same gateway; nil if none does.
func sameConnection(list []v1alpha1.Connection, c v1alpha1.Connection) *v1alpha1.Connection {
	i := slices.IndexFunc(list, func(o v1alpha1.Connection) bool {
		return o.Cluster == c.Cluster && o.Gateway == c.Gateway && o.Through == c.Through
	})
	if i < 0 {
		return nil
	}
	return &list[i]
}
