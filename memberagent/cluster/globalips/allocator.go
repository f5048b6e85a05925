// SPDX-License-Identifier: Apache-2.0

// Package globalips gives exported services their addresses in the cluster's block of global addresses, and keeps
// them in GlobalAllocations, from which gateways translate and the cluster's report tells.
package globalips

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// Grace is how long the address of a service that is exported no more, or of a pod that is gone, goes to no other as
// long as there are others: clients may still know it. Where none is left the one goes that has been kept for longest,
// but none before Least has passed, after which no answer of DNS names it. One that is kept for another namespace goes
// to none that has its fair part of the block already: else whoever uses up the block had what others give up, and with
// it what firewalls and clients elsewhere allow them.
const (
	Grace = time.Hour
	Least = time.Minute
)

// Allocator knows whose the addresses of a block are and, of those that nobody has, for whom they are kept. What it is
// built from is what is written in the allocations; beyond that it remembers what was decided and is not written yet,
// and whose objects went without notice.
type Allocator struct {
	block netip.Prefix
	// ipv6 is what the block has of IPv6; invalid if there is none.
	ipv6   netip.Prefix
	owners map[netip.Addr]types.NamespacedName
	of     map[types.NamespacedName]netip.Addr
	// freed are the addresses without owner that one had.
	freed map[netip.Addr]kept
}

// kept is for whom an address is kept, and until when.
type kept struct {
	owner types.NamespacedName
	until time.Time
}

// NewAllocator returns what allocations say of the addresses of a block. Of two with one address the one has it that
// it is not only kept for, or else the older.
func NewAllocator(block netip.Prefix, allocations []v1alpha1.GlobalAllocation) *Allocator {
	a := &Allocator{block: block, owners: map[netip.Addr]types.NamespacedName{},
		of: map[types.NamespacedName]netip.Addr{}, freed: map[netip.Addr]kept{}}
	allocations = slices.Clone(allocations)
	slices.SortFunc(allocations, func(x, y v1alpha1.GlobalAllocation) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	for _, o := range allocations {
		service, ok := ServiceOf(&o)
		if !ok || o.Spec.Ingress == nil {
			continue
		}
		a.restore(service, o.Spec.Ingress.IP, o.Spec.Ingress.ReleasedAt)
		for _, p := range o.Spec.Ingress.Pods {
			at := p.ReleasedAt
			if at == nil {
				at = o.Spec.Ingress.ReleasedAt
			}
			a.restore(podOf(service, p.Name), p.GlobalIP, at)
		}
	}
	return a
}

func (a *Allocator) restore(owner types.NamespacedName, text string, released *metav1.Time) {
	ip, err := netip.ParseAddr(text)
	if _, ok := globalnet.Number(a.block, ip); err != nil || !ok {
		return
	}
	_, taken := a.owners[ip]
	_, had := a.freed[ip]
	_, has := a.of[owner]
	switch {
	case taken || has:
	case released == nil:
		a.take(owner, ip)
	case !had:
		a.freed[ip] = kept{owner, released.Add(Grace)}
	}
}

// keeps says whether an address is kept for one who had it.
func (a *Allocator) keeps(text string, owner types.NamespacedName) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && a.freed[ip].owner == owner
}

// podOf is what a pod behind a headless service is called among those that have addresses: no service is called so.
func podOf(service types.NamespacedName, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: service.Namespace, Name: service.Name + "/" + name}
}

// Block that the addresses are of.
func (a *Allocator) Block() netip.Prefix { return a.block }

// IPv6 returns the address of IPv6 that stands for one of the block's; "" if there is none.
func (a *Allocator) IPv6(text string) string {
	ip, err := netip.ParseAddr(text)
	if err != nil || !ip.Is4() || !a.ipv6.IsValid() {
		return ""
	}
	return globalnet.IPv6Addr(a.ipv6, ip).String()
}

func (a *Allocator) take(service types.NamespacedName, ip netip.Addr) {
	a.owners[ip], a.of[service] = service, ip
	delete(a.freed, ip)
}

// Assign returns the address of a service or a pod. One that has none gets that which it had before, or the first free
// one after a place that its name determines: so a name that comes back after long has the same most likely, and
// addresses are not reused soon. The error says that none is left.
func (a *Allocator) Assign(service types.NamespacedName, now time.Time) (netip.Addr, error) {
	if ip, ok := a.of[service]; ok {
		return ip, nil
	}
	for ip, k := range a.freed {
		if k.owner == service {
			a.take(service, ip)
			return ip, nil
		}
	}
	size := globalnet.IngressSize(a.block)
	h := fnv.New32a()
	_, _ = h.Write([]byte(service.String())) // never fails
	first := int(h.Sum32() % uint32(size))
	for i := range size {
		ip := globalnet.At(a.block, 1+(first+i)%size)
		if _, taken := a.owners[ip]; taken || now.Before(a.freed[ip].until) {
			continue
		}
		a.take(service, ip)
		return ip, nil
	}
	if ip, ok := a.longestKept(service.Namespace, now); ok {
		a.take(service, ip)
		return ip, nil
	}
	return netip.Addr{}, fmt.Errorf("no global address is left for %s: all %d for services in %s are in use (%d), or "+
		"were within the last %s, or are kept for namespaces that have fewer; export fewer services or pods, or have "+
		"this cluster leave and join with a wider block (globalnet in the ClusterSet)", service, size, a.block,
		len(a.owners), Least)
}

// longestKept returns the address that has been without owner for longest of those that may go to a namespace, if that
// is Least.
func (a *Allocator) longestKept(namespace string, now time.Time) (netip.Addr, bool) {
	var out netip.Addr
	others := a.belowShare(namespace)
	for ip, k := range a.freed {
		if !others && k.owner.Namespace != namespace {
			continue
		}
		order := k.until.Compare(a.freed[out].until)
		if !out.IsValid() || order < 0 || order == 0 && ip.Less(out) {
			out = ip
		}
	}
	return out, out.IsValid() && now.Sub(a.freed[out].until.Add(-Grace)) >= Least
}

// belowShare says whether a namespace has less of the block than if all that have something of it had as much.
func (a *Allocator) belowShare(namespace string) bool {
	of := map[string]int{namespace: 0}
	for _, owner := range a.owners {
		of[owner.Namespace]++
	}
	for _, k := range a.freed {
		of[k.owner.Namespace]++
	}
	return of[namespace] < globalnet.IngressSize(a.block)/len(of)
}

// Release takes the address of a service or a pod back, as of a time from which on it is kept. It does nothing for one
// that has none.
func (a *Allocator) Release(service types.NamespacedName, now time.Time) {
	ip, ok := a.of[service]
	if !ok {
		return
	}
	delete(a.of, service)
	delete(a.owners, ip)
	for ip, k := range a.freed {
		if !now.Before(k.until) {
			delete(a.freed, ip)
		}
	}
	a.freed[ip] = kept{service, now.Add(Grace)}
}

// ReleaseAll takes back the address of a service and those of its pods.
func (a *Allocator) ReleaseAll(service types.NamespacedName, now time.Time) {
	a.Release(service, now)
	a.ReleaseUnwritten(service, v1alpha1.IngressAllocation{}, now)
}

// ReleaseUnwritten takes back the addresses of those of a service's pods that are not among what is written: what could
// not be written says nothing of pods that are gone when it can be.
func (a *Allocator) ReleaseUnwritten(service types.NamespacedName, written v1alpha1.IngressAllocation, now time.Time) {
	listed := make(map[types.NamespacedName]bool, len(written.Pods))
	for _, p := range written.Pods {
		listed[podOf(service, p.Name)] = true
	}
	for owner := range a.of {
		if owner.Namespace == service.Namespace && strings.HasPrefix(owner.Name, service.Name+"/") && !listed[owner] {
			a.Release(owner, now)
		}
	}
}
