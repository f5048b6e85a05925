// SPDX-License-Identifier: Apache-2.0

package globalegress

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// input is all that decides.
type input struct {
	// block is invalid without one, and ipv6 is what it has of IPv6.
	block, ipv6 netip.Prefix
	// cluster is the ClusterGlobalEgressIP, its zero value where there is none yet.
	cluster     v1alpha1.ClusterGlobalEgressIP
	allocations []v1alpha1.EgressAllocation
	objects     []v1alpha1.GlobalEgressIP
	pods        []corev1.Pod
	gateways    []v1alpha1.Gateway
	now         time.Time
}

// decision is what the objects are to say, those of the input in the order of their age.
type decision struct {
	cluster v1alpha1.ClusterGlobalEgressIPStatus
	objects []v1alpha1.GlobalEgressIP
	// again is when to look again if nothing changes; 0 is never.
	again time.Duration
}

func decide(in input) decision {
	now := in.now.Truncate(time.Second)
	d := decision{objects: byAge(in.objects)}
	d.cluster.Conditions = slices.Clone(in.cluster.Status.Conditions)
	if !in.block.IsValid() {
		const why = "the cluster has no block of global addresses"
		setCondition(&d.cluster.Conditions, in.cluster.Generation, v1alpha1.ReasonNoBlock, why, now)
		for i := range d.objects {
			o := &d.objects[i]
			o.Status = v1alpha1.GlobalEgressIPStatus{Conditions: slices.Clone(o.Status.Conditions)}
			setCondition(&o.Status.Conditions, o.Generation, v1alpha1.ReasonNoBlock, why, now)
		}
		return d
	}
	r := newRanges(in.block, in.allocations, now)
	wanted := map[string]bool{theCluster: true}
	for _, o := range d.objects {
		wanted[ownerOf(o)] = true
	}
	r.releaseOthers(wanted, now)
	exhausted := map[string]error{}
	size := int(cmp.Or(in.cluster.Spec.NumberOfIPs, int32(r.reserved)))
	if _, _, err := r.assign(request{theCluster, size}, now); err != nil {
		exhausted[theCluster] = err
	}
	for _, o := range d.objects {
		if _, _, err := r.assign(request{ownerOf(o), int(max(o.Spec.NumberOfIPs, 1))}, now); err != nil {
			exhausted[ownerOf(o)] = err
		}
	}
	d.cluster.CIDR, d.cluster.Allocations = in.block.String(), r.allocations()
	d.cluster.Range, d.cluster.Addresses = r.told(theCluster, in)
	reason, message := v1alpha1.ReasonAllocated, "all connections to other clusters come from these addresses that no "+
		"GlobalEgressIP says anything of"
	if err := exhausted[theCluster]; err != nil {
		reason, message = v1alpha1.ReasonEgressExhausted, err.Error()
	}
	setCondition(&d.cluster.Conditions, in.cluster.Generation, reason, message, now)
	d.pools(in, r, exhausted, now)
	d.again = again(d.cluster.Allocations, len(exhausted) > 0, now)
	return d
}

// pools says of each GlobalEgressIP which addresses it has, and for which pods.
func (d *decision) pools(in input, r *ranges, exhausted map[string]error, now time.Time) {
	s := newSelection(d.objects, func(o v1alpha1.GlobalEgressIP) bool { first, _ := r.of(ownerOf(o)); return first > 0 })
	of, count := s.assign(in.pods, in.ipv6.IsValid())
	for i := range d.objects {
		o := &d.objects[i]
		conditions := slices.Clone(o.Status.Conditions)
		o.Status = v1alpha1.GlobalEgressIPStatus{Pods: of[i]}
		o.Status.Range, o.Status.Addresses = r.told(ownerOf(*o), in)
		reason, message := v1alpha1.ReasonAllocated, fmt.Sprintf("connections of %d pods come from these addresses",
			count[i])
		switch err := exhausted[ownerOf(*o)]; {
		case s.invalid[i] != nil:
			reason, message = v1alpha1.ReasonInvalidSelector, fmt.Sprintf("spec.podSelector: %v; correct it, until then no pod "+
				"has these addresses", s.invalid[i])
		case err != nil:
			reason, message = v1alpha1.ReasonEgressExhausted, err.Error()
		case s.beyond[i] > 0:
			reason, message = v1alpha1.ReasonTooManyPods, fmt.Sprintf("%d pods more are meant than the %d that one "+
				"GlobalEgressIP translates; they connect as if there were none: make several, with a podSelector each",
				s.beyond[i], v1alpha1.MaxEgressPods)
		}
		setCondition(&conditions, o.Generation, reason, message, now)
		o.Status.Conditions = conditions
	}
}

// told returns the range of an owner, and the addresses that it has on each gateway.
func (r *ranges) told(owner string, in input) (*v1alpha1.EgressRange, []v1alpha1.GatewayAddresses) {
	first, last := r.of(owner)
	if first == 0 {
		return nil, nil
	}
	gateways := slices.Clone(in.gateways)
	slices.SortFunc(gateways, func(a, b v1alpha1.Gateway) int { return cmp.Compare(a.Spec.Slot, b.Spec.Slot) })
	var out []v1alpha1.GatewayAddresses
	for _, g := range gateways {
		if g.Spec.Slot < 0 || g.Spec.Slot > v1alpha1.MaxSlot || len(out) > v1alpha1.MaxSlot {
			continue
		}
		from, to := globalnet.Egress(r.block, int(g.Spec.Slot), first, last)
		a := v1alpha1.GatewayAddresses{Gateway: g.Name, First: from.String(), Last: to.String()}
		if in.ipv6.IsValid() {
			from, to = globalnet.Egress(in.ipv6, int(g.Spec.Slot), first, last)
			a.FirstIPv6, a.LastIPv6 = from.String(), to.String()
		}
		out = append(out, a)
	}
	return &v1alpha1.EgressRange{First: int32(first), Last: int32(last)}, out
}

func setCondition(conditions *[]metav1.Condition, generation int64, reason, message string, now time.Time) {
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonAllocated {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(conditions, metav1.Condition{Type: v1alpha1.GlobalIPAllocated, Status: status, Reason: reason,
		Message: message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now)})
}

// again returns after how long the next of the addresses that are kept is free.
func again(allocations []v1alpha1.EgressAllocation, exhausted bool, now time.Time) time.Duration {
	var next time.Duration
	for _, a := range allocations {
		if a.ReleasedAt == nil {
			continue
		}
		if left := max(Grace-now.Sub(a.ReleasedAt.Time), time.Second); next == 0 || left < next {
			next = left
		}
	}
	if exhausted && next > 0 {
		next = min(next, Least)
	}
	return next
}

// selection is which pods which objects mean.
type selection struct {
	selectors []labels.Selector // nil: all of the namespace
	by        map[string][]int  // objects by namespace: those that select first, the older before the younger
	invalid   []error
	beyond    []int
}

// newSelection returns what objects mean, those that have addresses.
func newSelection(objects []v1alpha1.GlobalEgressIP, has func(v1alpha1.GlobalEgressIP) bool) *selection {
	s := &selection{selectors: make([]labels.Selector, len(objects)), by: map[string][]int{},
		invalid: make([]error, len(objects)), beyond: make([]int, len(objects))}
	for i, o := range objects {
		if o.Spec.PodSelector != nil {
			selector, err := metav1.LabelSelectorAsSelector(o.Spec.PodSelector)
			if s.invalid[i] = err; err != nil {
				continue
			}
			if !selector.Empty() {
				s.selectors[i] = selector
			}
		}
		if has(o) {
			s.by[o.Namespace] = append(s.by[o.Namespace], i)
		}
	}
	for _, of := range s.by {
		slices.SortStableFunc(of, func(a, b int) int {
			return cmp.Compare(b2i(s.selectors[a] == nil), b2i(s.selectors[b] == nil))
		})
	}
	return s
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// assign returns the addresses of each object's pods, sorted, and how many pods these are. The pods are all of the
// cluster: of two with one address the first by pods.Compare has it, in whatever namespace. Those of IPv6 are among
// them where the block has some.
func (s *selection) assign(all []corev1.Pod, ipv6 bool) (out [][]string, count []int) {
	order := make([]*corev1.Pod, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortFunc(order, pods.Compare)
	out, count = make([][]string, len(s.selectors)), make([]int, len(s.selectors))
	taken := make(map[netip.Addr]bool, len(all))
	for _, p := range order {
		own := slices.DeleteFunc(addressesOf(p), func(ip netip.Addr) bool {
			return taken[ip] || !ip.Is4() && !ipv6
		})
		if len(own) == 0 {
			continue
		}
		for _, ip := range own {
			taken[ip] = true
		}
		for _, i := range s.by[p.Namespace] {
			if s.selectors[i] != nil && !s.selectors[i].Matches(labels.Set(p.Labels)) {
				continue
			}
			if count[i] == v1alpha1.MaxEgressPods {
				s.beyond[i]++
				continue
			}
			count[i]++
			for _, ip := range own {
				out[i] = append(out[i], ip.String())
			}
			break
		}
	}
	for i := range out {
		slices.Sort(out[i])
	}
	return out, count
}
