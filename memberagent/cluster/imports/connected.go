// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"slices"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// staleAfter is the age from which a Gateway's status is unknown.
	staleAfter = 90 * time.Second
	// connectingGrace is how long a cluster that was connected counts as such while its tunnel is
	// being set up anew, as when the node agent restarts over a cable that lives in the kernel.
	connectingGrace = 15 * time.Second
)

// Reach is what is known about the way to one remote cluster.
type Reach struct {
	Connected bool
	// ConnectingSince is when a connected cluster's tunnels all turned to Connecting, else zero.
	ConnectingSince time.Time
}

// Reaches holds the remote clusters about which something is known.
type Reaches map[string]Reach

// Connected says whether a cluster's endpoints should be used. Unknown is not down.
func (r Reaches) Connected(cluster string) bool {
	known, ok := r[cluster]
	return !ok || known.Connected
}

// Next returns what is known after the Gateways' last reports, and when to look again (0: at the next
// report). A cluster on which no fresh report of an active gateway has a word keeps its state.
func (r Reaches) Next(gateways []v1alpha1.Gateway, now time.Time) (Reaches, time.Duration) {
	out := Reaches{}
	for cluster, known := range r {
		out[cluster] = known
	}
	var again time.Duration
	for cluster, status := range reports(gateways, now) {
		known, ok := r[cluster]
		switch status {
		case v1alpha1.ConnectionConnected:
			out[cluster] = Reach{Connected: true}
		case v1alpha1.ConnectionConnecting:
			if !ok || !known.Connected {
				out[cluster] = Reach{}
				break
			}
			if known.ConnectingSince.IsZero() {
				known.ConnectingSince = now
			}
			left := connectingGrace - now.Sub(known.ConnectingSince)
			if left <= 0 {
				out[cluster] = Reach{}
				break
			}
			out[cluster] = known
			if again == 0 || left < again {
				again = left
			}
		default:
			out[cluster] = Reach{}
		}
	}
	return out, again
}

// Equal says whether the same clusters count as connected.
func (r Reaches) Equal(o Reaches) bool {
	for _, pair := range [][2]Reaches{{r, o}, {o, r}} {
		for cluster := range pair[0] {
			if pair[0].Connected(cluster) != pair[1].Connected(cluster) {
				return false
			}
		}
	}
	return true
}

// reports returns the best status that any fresh, active gateway reports of each remote cluster. Where no
// gateway calls itself active, all are asked.
func reports(gateways []v1alpha1.Gateway, now time.Time) map[string]v1alpha1.ConnectionStatus {
	var fresh, active []*v1alpha1.Gateway
	for i := range gateways {
		g := &gateways[i]
		if g.DeletionTimestamp != nil || g.Status.ReportedAt == nil || now.Sub(g.Status.ReportedAt.Time) > staleAfter {
			continue
		}
		fresh = append(fresh, g)
		if g.Status.HAState == v1alpha1.GatewayActive {
			active = append(active, g)
		}
	}
	if len(active) == 0 {
		active = fresh
	}
	out := map[string]v1alpha1.ConnectionStatus{}
	for _, g := range active {
		for _, c := range g.Status.Connections {
			if rank(c.Status) > rank(out[c.Cluster]) {
				out[c.Cluster] = c.Status
			}
		}
	}
	return out
}

// rank orders what gateways report: one that is connected is enough.
func rank(s v1alpha1.ConnectionStatus) int {
	return 1 + slices.Index([]v1alpha1.ConnectionStatus{v1alpha1.ConnectionError, v1alpha1.ConnectionConnecting, v1alpha1.ConnectionConnected}, s)
}
