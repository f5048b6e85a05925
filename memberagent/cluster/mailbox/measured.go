// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/coarse"
	"github.com/sealane-io/sealane/internal/reach"
)

// worsePace is the least time between a write of a report and the next where all that is new is that a connection has
// become worse, and measuredPace where it is only better, or carries more or less. As the broker asks for a report
// about every 5 min, the latter causes no write of its own while the broker runs.
const (
	worsePace    = time.Minute
	measuredPace = 10 * time.Minute
)

// measure says of connections that are up what they are like.
func measure(connections []v1alpha1.MemberConnection, in Input) {
	last := map[string]*v1alpha1.Measurements{}
	for _, c := range in.Peering.Status.Connections {
		last[c.Cluster] = c.Measured
	}
	tunnels := map[string][]v1alpha1.Connection{}
	for _, g := range reach.Reporting(existing(in), in.Now) {
		for _, c := range g.Status.Connections {
			if c.Status == v1alpha1.ConnectionConnected {
				tunnels[c.Cluster] = append(tunnels[c.Cluster], c)
			}
		}
	}
	for i := range connections {
		c := &connections[i]
		if measured, ok := sumUp(tunnels[c.Cluster]); ok && c.Status == v1alpha1.ConnectionConnected {
			c.Measured = coarse.Next(last[c.Cluster], measured)
		}
	}
}

// sumUp is the worst of the tunnels to a cluster that are in use, or of all of them if none is, and the traffic of all.
func sumUp(tunnels []v1alpha1.Connection) (out v1alpha1.Measurements, ok bool) {
	inUse := false
	for _, t := range tunnels {
		inUse = inUse || t.Active
	}
	for _, t := range tunnels {
		if t.Traffic != nil {
			if out.Traffic == nil {
				out.Traffic = &v1alpha1.Traffic{}
			}
			out.Traffic.ReceivedBytesPerSecond += max(t.Traffic.ReceivedBytesPerSecond, 0)
			out.Traffic.SentBytesPerSecond += max(t.Traffic.SentBytesPerSecond, 0)
		}
		if inUse && !t.Active || t.RTT == nil {
			continue // without an answer within a minute nothing is measured, as of a tunnel that is not probed
		}
		ok = true
		out.RTTMicroseconds = max(out.RTTMicroseconds, t.RTT.Avg)
		out.LossPercent = max(out.LossPercent, t.LossPercent)
	}
	return out, ok
}

// worsened says whether any connection is measured to be worse than before.
func worsened(before, after []v1alpha1.MemberConnection) bool {
	was := make(map[string]*v1alpha1.Measurements, len(before))
	for _, c := range before {
		was[c.Cluster] = c.Measured
	}
	for _, c := range after {
		if coarse.Worse(was[c.Cluster], c.Measured) {
			return true
		}
	}
	return false
}
