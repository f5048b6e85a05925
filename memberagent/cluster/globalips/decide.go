// SPDX-License-Identifier: Apache-2.0

package globalips

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// verdict is what a service is to have, why, and after how long to look again.
type verdict struct {
	v1alpha1.IngressAllocation
	condition metav1.Condition
	again     time.Duration
}

// decide returns what a service should have that had something before. An address of IPv4 has its like of IPv6, which
// nobody has to give out.
func decide(allocator *Allocator, service types.NamespacedName, before v1alpha1.IngressAllocation, w wanted,
	now time.Time) verdict {
	v := decideIPv4(allocator, service, before, w, now)
	v.IPv6 = allocator.IPv6(v.IP)
	for i := range v.Pods {
		v.Pods[i].GlobalIPv6 = allocator.IPv6(v.Pods[i].GlobalIP)
	}
	return v
}

func decideIPv4(allocator *Allocator, service types.NamespacedName, before v1alpha1.IngressAllocation, w wanted,
	now time.Time) verdict {
	v := verdict{IngressAllocation: v1alpha1.IngressAllocation{IP: before.IP}}
	set := func(ok metav1.ConditionStatus, reason, message string) {
		v.condition = metav1.Condition{Type: v1alpha1.GlobalIPAllocated, Status: ok, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	}
	if !allocator.Block().IsValid() {
		v.IP = ""
		set(metav1.ConditionFalse, v1alpha1.ReasonNoBlock, "the cluster has no block of global addresses")
		return v
	}
	var without int
	var why error
	v.Pods, without, v.again, why = assignPods(allocator, service, before.Pods, w.pods, now)
	switch {
	case !w.exported:
		v.ReleasedAt = before.ReleasedAt
		if v.ReleasedAt == nil {
			at := metav1.NewTime(now.Truncate(time.Second))
			v.ReleasedAt = &at
		}
		allocator.Release(service, v.ReleasedAt.Time)
		if !allocator.keeps(v.IP, service) {
			v.IP = "" // another has it, where none was left
		}
		v.again = max(Grace-now.Sub(v.ReleasedAt.Time), time.Second)
		set(metav1.ConditionFalse, v1alpha1.ReasonReleased, fmt.Sprintf(
			"the service is not exported; for %s it gets the same address again", Grace))
	case w.headless:
		allocator.Release(service, now)
		v.IP = ""
		if without > 0 {
			message := fmt.Sprintf("%d of %d pods have no global address", without, len(w.pods))
			if why == nil {
				why = fmt.Errorf("at most %d pods of a service have one", maxPods)
			}
			v.again = time.Minute
			set(metav1.ConditionFalse, v1alpha1.ReasonBlockExhausted, message+": "+why.Error())
			return v
		}
		if w.refused != nil {
			v.again = time.Minute
			set(metav1.ConditionFalse, v1alpha1.ReasonHostRefused, w.refused.Error())
			return v
		}
		set(metav1.ConditionTrue, v1alpha1.ReasonAllocated, "other clusters reach each pod by its address")
	default:
		ip, err := allocator.Assign(service, now)
		if err != nil {
			v.IP, v.again = "", time.Minute
			set(metav1.ConditionFalse, v1alpha1.ReasonBlockExhausted, err.Error())
			return v
		}
		v.IP, v.Ports, v.SessionAffinity = ip.String(), w.ports, w.affinity
		set(metav1.ConditionTrue, v1alpha1.ReasonAllocated, "other clusters reach the service by the address")
	}
	return v
}
