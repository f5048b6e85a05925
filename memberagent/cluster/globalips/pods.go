// SPDX-License-Identifier: Apache-2.0

package globalips

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/external"
)

// maxPods is the limit of the CRD.
const maxPods = 1000

// Pods returns the pods behind a headless Service that are ready, or serve while they end, by name and sorted by it:
// those with an address in the cluster's pod networks, one of each family at most, and hosts outside that may be
// exported. names are those of the pods of the Service's namespace by address, and empty for pods of others. What is
// none of these has no address of its own: neither pods of the host network, which have their node's, nor what somebody
// has written into an EndpointSlice, which may be another namespace's pod. Of two of one name and family that which is
// ready comes first, and then that which does not end. The error says of the first host outside, by address, why it may
// not be exported.
func Pods(endpoints []discoveryv1.EndpointSlice, podCIDRs []string, names map[netip.Addr]string,
	outside external.Hosts) ([]v1alpha1.GlobalPod, error) {
	var networks []netip.Prefix
	for _, text := range podCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, p)
		}
	}
	type pod struct {
		name string
		ip   netip.Addr
		rank int
	}
	var all []pod
	refused := map[netip.Addr]error{}
	for i := range endpoints {
		for _, e := range endpoints[i].Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			ip, err := netip.ParseAddr(e.Addresses[0])
			inside := slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
			ready := ptr.Deref(e.Conditions.Ready, true)
			if err != nil || !ready && !ptr.Deref(e.Conditions.Serving, false) {
				continue
			}
			name, isPod := names[ip]
			switch {
			case inside && name != "":
			case inside || isPod || e.TargetRef != nil && e.TargetRef.Kind == "Pod" || !ip.Is4() || !outside.Outside(ip):
				continue
			default:
				if err := outside.Check(ip); err != nil {
					refused[ip] = err
					continue
				}
				name = external.Name(ip)
			}
			p := pod{name, ip, 0}
			if !ready {
				p.rank += 2
			}
			if ptr.Deref(e.Conditions.Terminating, false) {
				p.rank++
			}
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b pod) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.rank, b.rank), a.ip.Compare(b.ip))
	})
	var out []v1alpha1.GlobalPod
	for _, p := range all {
		if len(out) == 0 || out[len(out)-1].Name != p.name {
			out = append(out, v1alpha1.GlobalPod{Name: p.name})
		}
		last := &out[len(out)-1]
		if own := ofFamily(last, p.ip); *own == "" {
			*own = p.ip.String()
		}
	}
	if len(refused) == 0 {
		return out, nil
	}
	return out, refused[slices.MinFunc(slices.Collect(maps.Keys(refused)), netip.Addr.Compare)]
}

// ofFamily is where the address of a pod belongs.
func ofFamily(p *v1alpha1.GlobalPod, ip netip.Addr) *string {
	if ip.Is4() {
		return &p.IP
	}
	return &p.IPv6
}

// assignPods gives each of a service's pods its address. before is what the service's object says. For who is not among
// the pods any more its address is kept. It returns how many have none, after how long the first of those kept is not
// kept any more, 0 being never, and why no address is left.
func assignPods(a *Allocator, service types.NamespacedName, before, pods []v1alpha1.GlobalPod,
	now time.Time) (out []v1alpha1.GlobalPod, without int, again time.Duration, why error) {
	gone := release(a, service, before, pods, now)
	has := func(p v1alpha1.GlobalPod) bool { _, ok := a.of[podOf(service, p.Name)]; return ok }
	pods = slices.Clone(pods)
	// Those that have an address come first: of very many, they keep it.
	slices.SortStableFunc(pods, func(x, y v1alpha1.GlobalPod) int {
		switch {
		case has(x) == has(y):
			return 0
		case has(x):
			return -1
		}
		return 1
	})
	for i, p := range pods {
		if i >= maxPods {
			without++
			continue
		}
		p.GlobalIP = ""
		// Once none is left it is not sought for every other pod.
		if why == nil || has(p) {
			ip, err := a.Assign(podOf(service, p.Name), now)
			if err == nil {
				p.GlobalIP = ip.String()
			} else {
				why = err
			}
		}
		if p.GlobalIP == "" {
			without++
		}
		out = append(out, p)
	}
	for _, p := range gone {
		left := Grace - now.Sub(p.ReleasedAt.Time)
		if left <= 0 || len(out) >= maxPods || !a.keeps(p.GlobalIP, podOf(service, p.Name)) {
			continue
		}
		if again == 0 || left < again {
			again = left
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(x, y v1alpha1.GlobalPod) int { return cmp.Compare(x.Name, y.Name) })
	return out, without, again, why
}

// release takes back the addresses of those of an object's pods that are there no more, and returns these, the last to
// go first.
func release(a *Allocator, service types.NamespacedName, before, pods []v1alpha1.GlobalPod,
	now time.Time) []v1alpha1.GlobalPod {
	there := make(map[string]bool, len(pods))
	for _, p := range pods {
		there[p.Name] = true
	}
	var gone []v1alpha1.GlobalPod
	for _, p := range before {
		if there[p.Name] {
			continue
		}
		if p.ReleasedAt == nil {
			at := metav1.NewTime(now.Truncate(time.Second))
			p.ReleasedAt = &at
		}
		a.Release(podOf(service, p.Name), p.ReleasedAt.Time)
		p.IP, p.IPv6 = "", ""
		gone = append(gone, p)
	}
	slices.SortStableFunc(gone, func(x, y v1alpha1.GlobalPod) int { return y.ReleasedAt.Compare(x.ReleasedAt.Time) })
	return gone
}
