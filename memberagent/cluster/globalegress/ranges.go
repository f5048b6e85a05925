// SPDX-License-Identifier: Apache-2.0

// Package globalegress gives the cluster, namespaces and selected pods the global addresses that their connections to
// other clusters come from, and tells gateways which pods have which.
package globalegress

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// Grace is how long addresses that somebody had go to no other as long as there are others. Where no others are left
// those go that have been kept for longest, but none before Least has passed. Those that are kept for another namespace
// go to none that has its fair part already: else whoever uses up the shares had what others give up, and with it what
// firewalls elsewhere allow them.
const (
	Grace = time.Hour
	Least = time.Minute
)

// theCluster is the owner of what nothing else is said of.
const theCluster = ""

// request is for a range of so many addresses.
type request struct {
	owner string
	size  int
}

// number is one address of each gateway's share.
type number struct {
	owner string
	// owned, or else kept for the owner since released if that is set.
	owned    bool
	released time.Time
}

func (n number) free() bool { return !n.owned && n.released.IsZero() }

// ranges are whose the addresses of a block's shares are. The first ones are the cluster's in any case: gateways use
// them while they know no better.
type ranges struct {
	block    netip.Prefix
	numbers  []number // by number; 0 is not used
	reserved int
}

// newRanges returns what allocations say. What they cannot mean, such as two owners of one address, is left out: the
// first has it.
func newRanges(block netip.Prefix, allocations []v1alpha1.EgressAllocation, now time.Time) *ranges {
	r := &ranges{block: block, numbers: make([]number, globalnet.EgressSize(block)+1),
		reserved: globalnet.ClusterEgress(block)}
	has := map[string]bool{}
	for _, a := range allocations {
		first, last := int(a.First), int(a.Last)
		if first < 1 || last < first || last >= len(r.numbers) {
			continue
		}
		switch {
		case a.ReleasedAt != nil && now.Sub(a.ReleasedAt.Time) < Grace:
			for n := first; n <= last; n++ {
				if r.numbers[n].free() {
					r.numbers[n] = number{owner: a.Owner, released: a.ReleasedAt.Time}
				}
			}
		case a.ReleasedAt == nil && !has[a.Owner] && r.available(a.Owner, first, last):
			has[a.Owner] = true
			r.take(a.Owner, first, last)
		}
	}
	return r
}

// available says whether nobody else has an address of a range, and whether it is for this owner.
func (r *ranges) available(owner string, first, last int) bool {
	if first < 1 || last >= len(r.numbers) || owner != theCluster && first <= r.reserved {
		return false
	}
	return !slices.ContainsFunc(r.numbers[first:last+1], func(n number) bool { return n.owned && n.owner != owner })
}

// unkept says whether a range is kept for nobody else.
func (r *ranges) unkept(owner string, first, last int) bool {
	return !slices.ContainsFunc(r.numbers[first:last+1], func(n number) bool {
		return !n.owned && !n.free() && n.owner != owner
	})
}

// unkeptBeyond says whether a range is kept for no other namespace.
func (r *ranges) unkeptBeyond(owner string, first, last int) bool {
	return !slices.ContainsFunc(r.numbers[first:last+1], func(n number) bool {
		return !n.owned && !n.free() && namespaceOf(n.owner) != namespaceOf(owner)
	})
}

// withinShare says whether a namespace has, with what is asked for, no more than if all that have something of the
// shares had as much. The cluster's own are not shared.
func (r *ranges) withinShare(q request) bool {
	namespace := namespaceOf(q.owner)
	of := map[string]int{namespace: q.size}
	for _, x := range r.numbers {
		if !x.free() && x.owner != theCluster && x.owner != q.owner {
			of[namespaceOf(x.owner)]++
		}
	}
	return q.owner == theCluster || of[namespace] <= (len(r.numbers)-1-r.reserved)/len(of)
}

func namespaceOf(owner string) string {
	namespace, _, _ := strings.Cut(owner, "/")
	return namespace
}

func (r *ranges) take(owner string, first, last int) {
	for n := first; n <= last; n++ {
		r.numbers[n] = number{owner: owner, owned: true}
	}
}

// of returns the range of an owner, 0 if there is none.
func (r *ranges) of(owner string) (first, last int) {
	for n, x := range r.numbers {
		if x.owned && x.owner == owner {
			if first == 0 {
				first = n
			}
			last = n
		}
	}
	return first, last
}

// release keeps what an owner has outside of a range, which may be empty.
func (r *ranges) release(owner string, first, last int, now time.Time) {
	for n, x := range r.numbers {
		if x.owned && x.owner == owner && (n < first || n > last) {
			r.numbers[n] = number{owner: owner, released: now}
		}
	}
}

// releaseOthers takes back what those have that want nothing any more.
func (r *ranges) releaseOthers(wanted map[string]bool, now time.Time) {
	for n, x := range r.numbers {
		if x.owned && !wanted[x.owner] {
			r.numbers[n] = number{owner: x.owner, released: now}
		}
	}
}

// assign gives an owner as many addresses as it asks for, in one range: those that it has, with what follows them;
// those that it had; the first that nobody has nor had lately; and at last those that have been kept for longest. The
// error says that there is no such range. Then the owner has what it had.
func (r *ranges) assign(q request, now time.Time) (first, last int, err error) {
	first, last = r.of(q.owner)
	if first, ok := r.find(q, first, now); ok {
		last := first + q.size - 1
		r.release(q.owner, first, last, now)
		r.take(q.owner, first, last)
		return first, last, nil
	}
	size := len(r.numbers) - 1
	has := "it has none"
	if first > 0 {
		has = fmt.Sprintf("it keeps the %d that it has", last-first+1)
	}
	return first, last, fmt.Errorf("no %d addresses in a row are left of the %d that each gateway has of %s: %d are the "+
		"cluster's, and others in use, or were within the last %s, or are kept for namespaces that have fewer; %s: ask for "+
		"fewer, remove another GlobalEgressIP, or have this cluster leave and join with a wider block (globalnet in the "+
		"ClusterSet)", q.size, size, r.block,
		r.reserved, Least, has)
}

// find returns the first number of the best range for a request of one who has a range from a number on, or 0.
func (r *ranges) find(q request, has int, now time.Time) (int, bool) {
	fits := func(first int) bool {
		last := first + q.size - 1
		return r.available(q.owner, first, last) && r.unkept(q.owner, first, last)
	}
	if q.owner == theCluster && (q.size <= r.reserved || fits(1)) {
		return 1, true
	}
	if has > 0 && fits(has) {
		return has, true
	}
	for n, x := range r.numbers {
		if !x.owned && !x.free() && x.owner == q.owner && fits(n) {
			return n, true
		}
	}
	best, since, others := 0, time.Time{}, r.withinShare(q)
	for n := 1; n+q.size <= len(r.numbers); n++ {
		if !r.available(q.owner, n, n+q.size-1) || !others && !r.unkeptBeyond(q.owner, n, n+q.size-1) {
			continue
		}
		// The last that was released decides how long all have been kept.
		var at time.Time
		for _, x := range r.numbers[n : n+q.size] {
			if x.owner != q.owner && x.released.After(at) {
				at = x.released
			}
		}
		if now.Sub(at) >= Least && (best == 0 || at.Before(since)) {
			best, since = n, at
		}
	}
	return best, best > 0
}

// allocations are what there is, sorted.
func (r *ranges) allocations() []v1alpha1.EgressAllocation {
	var out []v1alpha1.EgressAllocation
	for n := 1; n < len(r.numbers); n++ {
		x := r.numbers[n]
		if x.free() {
			continue
		}
		if n > 1 && r.numbers[n-1] == x {
			out[len(out)-1].Last = int32(n)
			continue
		}
		a := v1alpha1.EgressAllocation{EgressRange: v1alpha1.EgressRange{First: int32(n), Last: int32(n)}, Owner: x.owner}
		if !x.owned {
			at := metav1.NewTime(x.released)
			a.ReleasedAt = &at
		}
		out = append(out, a)
	}
	return out
}

// recovered adds to allocations the ranges of a ledger's entries, for those of whom the allocations say nothing:
// somebody has deleted the ClusterGlobalEgressIP.
func recovered(allocations []v1alpha1.EgressAllocation,
	ledger []v1alpha1.GlobalAllocation) []v1alpha1.EgressAllocation {
	out, known := slices.Clone(allocations), map[string]bool{}
	for _, a := range allocations {
		known[a.Owner] = known[a.Owner] || a.ReleasedAt == nil
	}
	ledger = slices.Clone(ledger)
	slices.SortFunc(ledger, func(x, y v1alpha1.GlobalAllocation) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	for _, a := range ledger {
		owner := a.Spec.Owner.Namespace + "/" + a.Spec.Owner.Name
		if a.Spec.Egress != nil && !known[owner] {
			out = append(out, v1alpha1.EgressAllocation{EgressRange: a.Spec.Egress.EgressRange, Owner: owner})
		}
	}
	return out
}

func ownerOf(o v1alpha1.GlobalEgressIP) string { return o.Namespace + "/" + o.Name }

// byAge sorts objects, the oldest first.
func byAge(objects []v1alpha1.GlobalEgressIP) []v1alpha1.GlobalEgressIP {
	out := slices.Clone(objects)
	slices.SortFunc(out, func(x, y v1alpha1.GlobalEgressIP) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Namespace, y.Namespace),
			cmp.Compare(x.Name, y.Name))
	})
	return out
}
