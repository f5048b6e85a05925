// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/choice"
)

// maxTurns bounds a rotation. Shares whose weights add up to more are rounded.
const maxTurns = 1024

// backing counts a cluster's ready backends that listen on the same ports of the service.
type backing struct {
	// ports by name, sorted.
	ports  []string
	v4, v6 int
}

// balance says which cluster answers for a service in ClusterIP mode. Only the counters in it ever change.
type balance struct {
	// v4 and v6 are for addresses: clusters that serve any port and have an address of the family.
	v4, v6 rotation
	// ports are for SRV records, in the order of service.ports.
	ports []rotation
}

// of returns the rotation of a family.
func (b *balance) of(f family) *rotation {
	if f == ipv4 {
		return &b.v4
	}
	return &b.v6
}

// rotation hands out clusters in turn, each as often as its share says and evenly spread.
type rotation struct {
	// turns are places in service.clusters.
	turns []int32
	// taken counts the turns. It goes on from Snapshot to Snapshot: one that began anew with each change
	// would prefer the first cluster.
	taken *atomic.Uint64
}

// next returns the place of the cluster whose turn it is, if there is any.
func (r *rotation) next() (place int32, ok bool) {
	if len(r.turns) == 0 {
		return 0, false
	}
	return r.turns[(r.taken.Add(1)-1)%uint64(len(r.turns))], true
}

// pick returns the cluster whose turn it is, or nil.
func (s *service) pick(r *rotation) *cluster {
	if place, ok := r.next(); ok {
		return &s.clusters[place]
	}
	return nil
}

// newRotation returns a rotation that goes on from the one before, if there was one.
func newRotation(shares []share, before *rotation) rotation {
	r := rotation{turns: turns(shares)}
	if before != nil {
		r.taken = before.taken
		return r
	}
	// At random: servers that start together should not all begin with the same cluster.
	r.taken = new(atomic.Uint64)
	r.taken.Store(rand.Uint64N(maxTurns))
	return r
}

// newBalance decides which clusters answer for a service, which may have been there before.
func newBalance(s, before *service, self string, connected func(string) bool) *balance {
	var v4, v6 *rotation
	ports := make([]*rotation, len(s.ports))
	if before != nil && before.balance != nil {
		v4, v6 = &before.balance.v4, &before.balance.v6
		for i := range s.ports {
			if at := slices.Index(before.ports, s.ports[i]); at >= 0 {
				ports[i] = &before.balance.ports[at]
			}
		}
	}
	of := func(f family) []share {
		return s.shares(self, connected, func(c *cluster) int { return c.readyBackends(f, nil) })
	}
	b := &balance{v4: newRotation(of(ipv4), v4), v6: newRotation(of(ipv6), v6)}
	for i := range s.ports {
		p := &s.ports[i]
		b.ports = append(b.ports, newRotation(s.shares(self, connected, func(c *cluster) int {
			return max(c.readyBackends(ipv4, p), c.readyBackends(ipv6, p))
		}), ports[i]))
	}
	return b
}

// share of the cluster at a place in service.clusters.
type share struct {
	place  int32
	weight int
}

// shares returns what the connected clusters that have backends answer of the queries. Each family is decided
// on its own, as the endpoints behind a ClusterSetIP are.
func (s *service) shares(self string, connected func(string) bool, backends func(*cluster) int) []share {
	candidates := make([]choice.Candidate, 0, len(s.clusters))
	for i := range s.clusters {
		c := &s.clusters[i]
		if c.name != self && !connected(c.name) {
			continue
		}
		if ready := backends(c); ready > 0 {
			candidates = append(candidates, choice.Candidate{Cluster: c.name, Local: c.name == self, Ready: ready})
		}
	}
	chosen := choice.Clusters(s.choice, candidates)
	out := make([]share, 0, len(chosen))
	for _, c := range chosen {
		place := slices.IndexFunc(s.clusters, func(o cluster) bool { return o.name == c.Cluster })
		out = append(out, share{place: int32(place), weight: c.Weight})
	}
	return out
}

// readyBackends returns how many backends serve a port, or any port with nil, behind the cluster's address of a
// family.
func (c *cluster) readyBackends(f family, p *port) (ready int) {
	if len(c.vips.of(f)) == 0 {
		return 0
	}
	for i := range c.backing {
		b := &c.backing[i]
		if p != nil && (!c.serves(p.name) || !slices.Contains(b.ports, p.name)) ||
			p == nil && !slices.ContainsFunc(b.ports, c.serves) {
			continue
		}
		if f == ipv4 {
			ready += b.v4
		} else {
			ready += b.v6
		}
	}
	if ready > 0 && c.reported > 0 {
		return c.reported
	}
	return ready
}

// turns returns the order in which the shares take turns: a smooth weighted round robin, in which each is
// taken as often as its weight says, and its turns lie as far apart as they can.
func turns(shares []share) []int32 {
	weights, total := reduce(shares)
	out := make([]int32, 0, total)
	due := make([]int, len(shares))
	for range total {
		first := 0
		for i := range due {
			due[i] += weights[i]
			if due[i] > due[first] {
				first = i
			}
		}
		due[first] -= total
		out = append(out, shares[first].place)
	}
	return out
}

// reduce returns the weights in lowest terms, rounded where they add up to more than maxTurns, and their sum.
func reduce(shares []share) (weights []int, total int) {
	divisor := 0
	for _, s := range shares {
		divisor = gcd(divisor, s.weight)
		total += s.weight
	}
	if len(shares) == 0 || divisor < 1 {
		return nil, 0
	}
	sum, total := total, 0
	for _, s := range shares {
		w := s.weight / divisor
		if sum/divisor > maxTurns {
			w = max(s.weight*maxTurns/sum, 1)
		}
		weights = append(weights, w)
		total += w
	}
	return weights, total
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// parseBacking reads the ready backends behind ClusterIPs and returns how many were rejected.
func parseBacking(groups []v1alpha1.Backends) (out []backing, rejected int) {
	for i := range groups {
		var b backing
		for j := range groups[i].Addresses {
			a := &groups[i].Addresses[j]
			ip, ok := parseAddress(a.IP)
			switch {
			case !ok:
				rejected++
			case !a.Ready:
			case ip.Is4():
				b.v4++
			default:
				b.v6++
			}
		}
		if b.v4+b.v6 == 0 {
			continue
		}
		for _, p := range groups[i].Ports {
			b.ports = append(b.ports, lower(p.Name))
		}
		slices.Sort(b.ports)
		out = append(out, b)
	}
	return out, rejected
}
