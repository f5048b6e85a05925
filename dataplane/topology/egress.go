// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// ReasonNotInShare says that numbers of addresses are not among those that each gateway has for connections.
const ReasonNotInShare = "NotInShare"

// EgressRange is a range of addresses by their numbers in each gateway's share of the block: 0 is not one of them.
type EgressRange struct{ First, Last int }

// EgressPool is a range that the connections of some pods come from.
type EgressPool struct {
	EgressRange
	// Pods by their addresses, sorted. Each is in one pool.
	Pods []netip.Addr
	// Namespace says that the pods were not selected: one that is known by an address of its own stays so.
	Namespace bool
}

// buildEgress takes the addresses that connections come from. Of two ranges that overlap the older stays, and none
// takes what the cluster has. A pod is in the pool that selects it, or else in that of its namespace; of two, the
// older.
func (b *builder) buildEgress(cluster *v1alpha1.ClusterGlobalEgressIP,
	allocations []v1alpha1.GlobalAllocation) {
	block := b.Local.Global
	if !block.IsValid() {
		return
	}
	reserved := EgressRange{1, globalnet.ClusterEgress(block)}
	b.Local.ClusterEgress = reserved
	if cluster != nil && cluster.Status.Range != nil && cluster.Status.CIDR == block.String() {
		if r, f := b.egressRange(cluster.Status.Range, nil); f != nil {
			b.left("ClusterGlobalEgressIP/"+cluster.Name, "status.range", f)
		} else {
			b.Local.ClusterEgress = r
		}
	}
	owners := make([]string, globalnet.EgressSize(block)+1)
	take(owners, reserved, "the cluster")
	take(owners, b.Local.ClusterEgress, "the cluster")
	pools := having(allocations, func(s v1alpha1.GlobalAllocationSpec) bool { return s.Egress != nil })
	slices.SortFunc(pools, func(x, y *v1alpha1.GlobalAllocation) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), oldest(x, y))
	})
	pooled := map[netip.Addr]bool{}
	for _, p := range pools {
		ref, egress := "GlobalEgressIP/"+p.Spec.Owner.Namespace+"/"+p.Spec.Owner.Name, p.Spec.Egress
		r, f := b.egressRange(&egress.EgressRange, owners)
		if f != nil {
			b.left(ref, "status.range", f)
			continue
		}
		take(owners, r, ref)
		pool := EgressPool{EgressRange: r, Pods: b.egressPods(ref, egress.Pods, pooled), Namespace: rank(p) > 0}
		if len(pool.Pods) > 0 {
			b.Local.Egress = append(b.Local.Egress, pool)
		}
	}
	slices.SortFunc(b.Local.Egress, func(x, y EgressPool) int { return cmp.Compare(x.First, y.First) })
}

// rank is 0 for what selects pods, and 1 for a whole namespace.
func rank(a *v1alpha1.GlobalAllocation) int {
	if a.Spec.Egress.Selected {
		return 0
	}
	return 1
}

func (b *builder) egressRange(of *v1alpha1.EgressRange, owners []string) (EgressRange, *fault) {
	r, size := EgressRange{int(of.First), int(of.Last)}, globalnet.EgressSize(b.Local.Global)
	if r.First < 1 || r.Last < r.First || r.Last > size {
		return r, faultf(ReasonNotInShare, "%d to %d is not a range of the addresses 1 to %d that each gateway has of %s",
			r.First, r.Last, size, b.Local.Global)
	}
	for n := r.First; n <= r.Last && n < len(owners); n++ {
		if owners[n] != "" {
			return r, faultf(ReasonDuplicate, "address %d of each gateway, of %d to %d, is that of %s", n, r.First, r.Last,
				owners[n])
		}
	}
	return r, nil
}

// take notes who has a range, by numbers.
func take(owners []string, r EgressRange, owner string) {
	for n := r.First; n <= r.Last; n++ {
		owners[n] = owner
	}
}

// egressPods returns those addresses that are of pods and in no pool yet. What else there is makes one problem, but for
// those of IPv6 where the cluster or its block has none.
func (b *builder) egressPods(ref string, texts []string, pooled map[netip.Addr]bool) []netip.Addr {
	var out []netip.Addr
	var first *fault
	wrong := 0
	ipv6 := b.Local.GlobalIPv6.IsValid() && slices.ContainsFunc(b.Local.Pods, func(p netip.Prefix) bool {
		return p.Addr().Is6()
	})
	for _, text := range texts {
		ip, f := b.podAddress(text)
		switch {
		case ip.Is6() && !ipv6:
		case f != nil:
			if wrong++; first == nil {
				first = f
			}
		case !pooled[ip]:
			pooled[ip] = true
			out = append(out, ip)
		}
	}
	if wrong > 1 {
		first.message += fmt.Sprintf(", nor are %d more", wrong-1)
	}
	if first != nil {
		b.left(ref, "status.pods", first)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
