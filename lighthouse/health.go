// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// reportLifetime is how long a Gateway's report says anything; see GatewayStatus.ReportedAt.
	reportLifetime = 90 * time.Second
	// connectingGrace is how long a connection that was up may be Connecting before it counts as down: a
	// node agent that restarts reports Connecting until its first probe is answered.
	connectingGrace = 10 * time.Second
)

// gatewayReport is what one Gateway says about the remote clusters.
type gatewayReport struct {
	active bool
	// expires is when the report becomes unknown; zero for one without a time.
	expires time.Time
	// upUntil is, per remote cluster, until when it counts as connected: forever while a tunnel is
	// connected, for a moment after it was, never for one that is down.
	upUntil map[string]time.Time
}

// forever is later than any moment that matters.
func forever() time.Time { return time.Unix(1<<40, 0) }

// parseGateway reads a Gateway's report, which follows on the last one of the same Gateway.
func parseGateway(g *v1alpha1.Gateway, last gatewayReport, now time.Time) gatewayReport {
	r := gatewayReport{
		active:  g.Status.HAState == v1alpha1.GatewayActive,
		upUntil: make(map[string]time.Time, len(g.Status.Connections)),
	}
	if g.Status.ReportedAt != nil {
		r.expires = g.Status.ReportedAt.Add(reportLifetime)
	}
	for i := range g.Status.Connections {
		c := &g.Status.Connections[i]
		until := time.Time{}
		switch c.Status {
		case v1alpha1.ConnectionConnected:
			until = forever()
		case v1alpha1.ConnectionConnecting:
			until = last.upUntil[c.Cluster]
			if until.Equal(forever()) {
				until = now.Add(connectingGrace)
			}
		}
		if seen, ok := r.upUntil[c.Cluster]; !ok || until.After(seen) {
			r.upUntil[c.Cluster] = until
		}
	}
	return r
}

// disconnected returns the clusters that the active gateway's current reports agree are down, never this
// cluster itself, and when that may change without a new report (zero: never). Without a report nothing is
// known, and what is unknown is not down.
func disconnected(reports map[string]gatewayReport, self string, now time.Time) (down map[string]struct{}, next time.Time) {
	up := map[string]bool{}
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(forever()) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, r := range reports {
		if !r.active || !r.expires.After(now) {
			continue
		}
		sooner(r.expires)
		for name, until := range r.upUntil {
			sooner(until)
			up[name] = up[name] || until.After(now)
		}
	}
	down = map[string]struct{}{}
	for name, connected := range up {
		if !connected && name != self {
			down[name] = struct{}{}
		}
	}
	return down, next
}
