// SPDX-License-Identifier: Apache-2.0

// Package reach decides which remote clusters can be reached, from what the gateways of the local cluster report
// of their tunnels. The cluster agent applies it to endpoints, the DNS server to its answers and the plugin to what
// it shows, so that all three name the same clusters. It is pure.
package reach

import (
	"slices"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// RenewEvery is how often the node agent of a gateway renews its Lease. One that is not renewed for SilentAfter, and
	// that the API server then shows unchanged for SilentConfirm more, belongs to an agent that is silent.
	RenewEvery    = 3 * time.Second
	SilentAfter   = 10 * time.Second
	SilentConfirm = 2 * time.Second
	// ReportLifetime is the age from which a Gateway's status is unknown even so: that of an agent without a Lease, or in
	// a cluster whose cluster agent does not run. The node agent writes it at least every 60 s.
	ReportLifetime = 90 * time.Second
	// ConnectingGrace is how long a cluster that was connected counts as such while its tunnels are being set up
	// anew: a node agent that restarts reports Connecting until its first probe is answered.
	ConnectingGrace = 15 * time.Second
)

// Cluster is what is known about the way to one remote cluster.
type Cluster struct {
	Connected bool
	// ConnectingSince is when the tunnels of a connected cluster all turned to Connecting, else zero.
	ConnectingSince time.Time
}

// Clusters holds the remote clusters about which something is known, by name.
type Clusters map[string]Cluster

// Connected says whether a cluster can be reached. One about which nothing is known is taken to be.
func (c Clusters) Connected(cluster string) bool {
	known, ok := c[cluster]
	return !ok || known.Connected
}

// Next returns what is known after the Gateways' last reports, and after what time to ask again if there is no
// other report (0: never). A cluster that no fresh report names keeps its state.
func (c Clusters) Next(gateways []v1alpha1.Gateway, now time.Time) (Clusters, time.Duration) {
	out := Clusters{}
	for cluster, known := range c {
		out[cluster] = known
	}
	again := Expiry(gateways, now)
	for cluster, status := range Reports(gateways, now) {
		known := c[cluster]
		switch {
		case status == v1alpha1.ConnectionConnected:
			out[cluster] = Cluster{Connected: true}
		case status != v1alpha1.ConnectionConnecting || !known.Connected:
			out[cluster] = Cluster{}
		default:
			if known.ConnectingSince.IsZero() {
				known.ConnectingSince = now
			}
			left := ConnectingGrace - now.Sub(known.ConnectingSince)
			if left <= 0 {
				out[cluster] = Cluster{}
				break
			}
			out[cluster] = known
			again = Sooner(again, left)
		}
	}
	return out, again
}

// Equal says whether the same clusters count as connected.
func (c Clusters) Equal(o Clusters) bool {
	for _, pair := range [][2]Clusters{{c, o}, {o, c}} {
		for cluster := range pair[0] {
			if pair[0].Connected(cluster) != pair[1].Connected(cluster) {
				return false
			}
		}
	}
	return true
}

// Fresh says whether what a Gateway reports holds at a time.
func Fresh(g *v1alpha1.Gateway, now time.Time) bool {
	return g.DeletionTimestamp == nil && g.Status.SilentSince == nil && g.Status.ReportedAt != nil &&
		now.Sub(g.Status.ReportedAt.Time) < ReportLifetime
}

// Reporting returns the Gateways whose word counts: those that are fresh and active, and where none is active all
// that are fresh.
func Reporting(gateways []v1alpha1.Gateway, now time.Time) []*v1alpha1.Gateway {
	var fresh, active []*v1alpha1.Gateway
	for i := range gateways {
		g := &gateways[i]
		if !Fresh(g, now) {
			continue
		}
		fresh = append(fresh, g)
		if g.Status.HAState == v1alpha1.GatewayActive {
			active = append(active, g)
		}
	}
	if len(active) > 0 {
		return active
	}
	return fresh
}

// Reports returns the best status that a Gateway whose word counts reports of each remote cluster: one tunnel that
// works is enough.
func Reports(gateways []v1alpha1.Gateway, now time.Time) map[string]v1alpha1.ConnectionStatus {
	out := map[string]v1alpha1.ConnectionStatus{}
	for cluster, c := range Connections(gateways, now) {
		out[cluster] = c.Status
	}
	return out
}

// Connections returns the same with the reasons: of each remote cluster the first connection of the best status.
func Connections(gateways []v1alpha1.Gateway, now time.Time) map[string]v1alpha1.Connection {
	out := map[string]v1alpha1.Connection{}
	for _, g := range Reporting(gateways, now) {
		for _, c := range g.Status.Connections {
			before, ok := out[c.Cluster]
			if !ok || Better(before.Status, c.Status) != before.Status {
				out[c.Cluster] = c
			}
		}
	}
	return out
}

// Better returns the better of two statuses, either of which may be empty: not reported.
func Better(a, b v1alpha1.ConnectionStatus) v1alpha1.ConnectionStatus {
	worstFirst := []v1alpha1.ConnectionStatus{
		v1alpha1.ConnectionError, v1alpha1.ConnectionConnecting, v1alpha1.ConnectionConnected,
	}
	if slices.Index(worstFirst, b) > slices.Index(worstFirst, a) || a == "" {
		return b
	}
	return a
}

// Badness orders what the two clusters of a pair report of each other: the lower, the worse, and the pair is as the
// worse of the two. That a connection fails is worse than that nobody reports of it: the side that measures it is to be
// believed. It is negative for what is no status.
func Badness(s v1alpha1.ConnectionStatus) int {
	return slices.Index([]v1alpha1.ConnectionStatus{v1alpha1.ConnectionError, v1alpha1.ConnectionConnecting,
		v1alpha1.ConnectionUnknown, v1alpha1.ConnectionConnected}, s)
}

// Expiry is after what time the first of the fresh reports becomes unknown; 0 without one.
func Expiry(gateways []v1alpha1.Gateway, now time.Time) (soonest time.Duration) {
	for i := range gateways {
		if g := &gateways[i]; Fresh(g, now) {
			soonest = Sooner(soonest, g.Status.ReportedAt.Add(ReportLifetime).Sub(now))
		}
	}
	return soonest
}

// Sooner returns the shorter of two times of which 0 is never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
