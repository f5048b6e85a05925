// SPDX-License-Identifier: Apache-2.0

package globalips

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/external"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
	"github.com/sealane-io/sealane/memberagent/cluster/exports"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// Reconciler keeps the GlobalAllocation of every exported service, which holds the service's address or, if it is
// headless, those of its pods; and a GlobalIngressIP, named as the service, that tells the service's users of them.
type Reconciler struct {
	client.Client
	// Live reads past the caches: what the leader before wrote last may not be in them.
	Live client.Reader
	// Now is the clock.
	Now func() time.Time

	mu        sync.Mutex
	allocator *Allocator
}

// Reconcile makes, updates or removes the allocation of one service, and the GlobalIngressIP that tells of it. An
// address is in the allocation before anybody is told of it. What a GlobalIngressIP says decides nothing: tenants may
// write it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	peering, err := index.Peering(ctx, r)
	if err != nil || peering == nil {
		return ctrl.Result{}, err // nothing is known, so nothing changes
	}
	allocator, err := r.addresses(ctx, peering.Spec)
	if err != nil {
		return ctrl.Result{}, err
	}
	allocation, err := Allocation(ctx, r, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	object, err := r.object(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted, err := r.wanted(ctx, req.NamespacedName, &peering.Spec)
	if err != nil {
		return ctrl.Result{}, err
	}
	leaving := peering.Spec.Phase == v1alpha1.MemberLeaving
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case allocation == nil && (!wanted.exported || leaving || !allocator.Block().IsValid()),
		allocation != nil && (leaving || !wanted.exported && r.graceOver(allocation.Spec.Ingress)):
		allocator.ReleaseAll(req.NamespacedName, r.Now())
		return ctrl.Result{}, r.remove(ctx, object, allocation)
	case allocation == nil:
		if allocation, err = r.begin(ctx, req.NamespacedName); err != nil {
			return ctrl.Result{}, err
		}
	}
	v := decide(allocator, req.NamespacedName, *allocation.Spec.Ingress, wanted, r.Now())
	if !equality.Semantic.DeepEqual(*allocation.Spec.Ingress, v.IngressAllocation) {
		changed := allocation.DeepCopy()
		changed.Spec.Ingress = &v.IngressAllocation
		if err := r.Patch(ctx, changed, client.MergeFrom(allocation)); err != nil {
			allocator.ReleaseUnwritten(req.NamespacedName, *allocation.Spec.Ingress, r.Now())
			return ctrl.Result{}, fmt.Errorf("write GlobalAllocation %s: %w", allocation.Name, err)
		}
	}
	return ctrl.Result{RequeueAfter: v.again}, r.tell(ctx, req.NamespacedName, object, v)
}

// Allocation returns what a service has, nil if it has nothing.
func Allocation(ctx context.Context, c client.Reader,
	service types.NamespacedName) (*v1alpha1.GlobalAllocation, error) {
	o := &v1alpha1.GlobalAllocation{}
	name := ownerOf(service).Allocation()
	switch err := c.Get(ctx, types.NamespacedName{Name: name}, o); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get GlobalAllocation %s: %w", name, err)
	case o.Spec.Owner != ownerOf(service) || o.Spec.Ingress == nil:
		return nil, fmt.Errorf("GlobalAllocation %s says that it is for %s %s/%s", name, o.Spec.Owner.Kind,
			o.Spec.Owner.Namespace, o.Spec.Owner.Name)
	}
	return o, nil
}

func ownerOf(service types.NamespacedName) v1alpha1.GlobalOwner {
	return v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: service.Namespace, Name: service.Name}
}

// begin makes the allocation of a service that has none yet.
func (r *Reconciler) begin(ctx context.Context, service types.NamespacedName) (*v1alpha1.GlobalAllocation, error) {
	o := v1alpha1.NewGlobalAllocation(ownerOf(service))
	o.Spec.Ingress = &v1alpha1.IngressAllocation{}
	if err := r.Create(ctx, o); apierrors.IsAlreadyExists(err) { // the cache does not know yet
		return Allocation(ctx, r.Live, service)
	} else if err != nil {
		return nil, fmt.Errorf("create GlobalAllocation %s: %w", o.Name, err)
	}
	return o, nil
}

// remove takes away what tells of a service's addresses, and then what it has.
func (r *Reconciler) remove(ctx context.Context, object *v1alpha1.GlobalIngressIP, a *v1alpha1.GlobalAllocation) error {
	if object != nil {
		if err := r.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete GlobalIngressIP %s/%s: %w", object.Namespace, object.Name, err)
		}
	}
	if a != nil {
		if err := r.Delete(ctx, a); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete GlobalAllocation %s: %w", a.Name, err)
		}
	}
	return nil
}

// tell brings the GlobalIngressIP of a service up to date, which is made if it is not there and the service is
// exported.
func (r *Reconciler) tell(ctx context.Context, service types.NamespacedName, object *v1alpha1.GlobalIngressIP,
	v verdict) error {
	if object == nil && v.ReleasedAt != nil {
		return nil
	}
	if object == nil {
		object = &v1alpha1.GlobalIngressIP{
			ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name,
				Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
			Spec: v1alpha1.GlobalIngressIPSpec{Service: service.Name},
		}
		if err := r.Create(ctx, object); err != nil {
			return ignoreGone(fmt.Errorf("create GlobalIngressIP %s: %w", service, err), err)
		}
	}
	changed := object.DeepCopy()
	changed.Status = v1alpha1.GlobalIngressIPStatus{IP: v.IP, IPv6: v.IPv6, Ports: v.Ports, Pods: v.Pods,
		ReleasedAt: v.ReleasedAt, Conditions: changed.Status.Conditions}
	v.condition.ObservedGeneration = object.Generation
	meta.SetStatusCondition(&changed.Status.Conditions, v.condition)
	if equality.Semantic.DeepEqual(object.Status, changed.Status) {
		return nil
	}
	if err := r.Status().Patch(ctx, changed, client.MergeFrom(object)); err != nil {
		return ignoreGone(fmt.Errorf("write the status of GlobalIngressIP %s: %w", service, err), err)
	}
	return nil
}

// ignoreGone returns what an error means, but nothing where the object or its namespace is gone, or going.
func ignoreGone(meaning, err error) error {
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return meaning
}

// addresses returns the allocator of the cluster's block, which is made anew when the block is another.
func (r *Reconciler) addresses(ctx context.Context, spec v1alpha1.PeeringSpec) (*Allocator, error) {
	block, ipv6 := blocks(spec)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.allocator != nil && r.allocator.Block() == block {
		r.allocator.ipv6 = ipv6
		return r.allocator, nil
	}
	var list v1alpha1.GlobalAllocationList
	if err := r.Live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list GlobalAllocations: %w", err)
	}
	r.allocator = NewAllocator(block, list.Items)
	r.allocator.ipv6 = ipv6
	return r.allocator, nil
}

// blocks are the cluster's block and what it has of IPv6; invalid where there is none.
func blocks(spec v1alpha1.PeeringSpec) (block, ipv6 netip.Prefix) {
	block, err := netfacts.ParseGlobal(spec.GlobalCIDR)
	if err != nil {
		return netip.Prefix{}, netip.Prefix{}
	}
	if ipv6, err = globalnet.ParseIPv6(spec.GlobalIPv6CIDR, block); err != nil {
		return block, netip.Prefix{}
	}
	return block, ipv6
}

func (r *Reconciler) object(ctx context.Context, key types.NamespacedName) (*v1alpha1.GlobalIngressIP, error) {
	o := &v1alpha1.GlobalIngressIP{}
	if err := r.Get(ctx, key, o); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get GlobalIngressIP %s: %w", key, err)
	}
	return o, nil
}

// wanted is what a service is to have.
type wanted struct {
	// exported says that it has an address, or that its pods have.
	exported, headless bool
	ports              []v1alpha1.GlobalPort
	// affinity is ClientIP, or empty.
	affinity corev1.ServiceAffinity
	pods     []v1alpha1.GlobalPod
	// refused says of a host outside the cluster why it has none.
	refused error
}

func (r *Reconciler) wanted(ctx context.Context, key types.NamespacedName,
	peering *v1alpha1.PeeringSpec) (wanted, error) {
	export := &mcs.ServiceExport{}
	if err := r.Get(ctx, key, export); apierrors.IsNotFound(err) {
		return wanted{}, nil
	} else if err != nil {
		return wanted{}, fmt.Errorf("get ServiceExport %s: %w", key, err)
	}
	service, err := index.Service(ctx, r, key)
	if err != nil || export.DeletionTimestamp != nil || !exports.Exportable(export, service) {
		return wanted{}, err
	}
	endpoints, err := index.SlicesOf(ctx, r, key)
	if err != nil {
		return wanted{}, err
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		names, err := r.podNames(ctx, key.Namespace, endpoints)
		if err != nil {
			return wanted{}, err
		}
		outside, err := r.outside(ctx, peering)
		pods, refused := Pods(endpoints, peering.Networks.PodCIDRs, names, outside)
		return wanted{exported: true, headless: true, pods: pods, refused: refused}, err
	}
	w := wanted{exported: true, ports: Ports(service, endpoints)}
	if service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		w.affinity = corev1.ServiceAffinityClientIP
	}
	return w, nil
}

// podNames returns the pods of a namespace among endpoints, by address, and "" for those of others.
func (r *Reconciler) podNames(ctx context.Context, namespace string,
	endpoints []discoveryv1.EndpointSlice) (map[netip.Addr]string, error) {
	out := map[netip.Addr]string{}
	for i := range endpoints {
		for _, e := range endpoints[i].Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			ip, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				continue
			}
			p, err := index.PodAt(ctx, r, ip)
			if err != nil {
				return nil, err
			}
			switch {
			case p != nil && p.Namespace == namespace:
				out[ip] = p.Name
			case p != nil:
				out[ip] = ""
			}
		}
	}
	return out, nil
}

// outside are the hosts outside the cluster that may be exported.
func (r *Reconciler) outside(ctx context.Context, peering *v1alpha1.PeeringSpec) (external.Hosts, error) {
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return external.Hosts{}, fmt.Errorf("list Nodes: %w", err)
	}
	apiServers, err := index.APIServers(ctx, r)
	hosts, _ := external.For(peering, nodes.Items, apiServers) // gateways tell what is wrong with the ranges
	return hosts, err
}

func (r *Reconciler) graceOver(a *v1alpha1.IngressAllocation) bool {
	return a.IP == "" && len(a.Pods) == 0 || a.ReleasedAt != nil && r.Now().Sub(a.ReleasedAt.Time) >= Grace
}

// Tell adds to an export the global address of its service or, if it is headless, those of its pods: those that are
// in the cluster's block, and of families that the service or the pod has.
func Tell(ctx context.Context, c client.Reader, e *v1alpha1.Export, spec v1alpha1.PeeringSpec) error {
	block, ipv6 := blocks(spec)
	if !block.IsValid() {
		return nil
	}
	o, err := Allocation(ctx, c, types.NamespacedName{Namespace: e.Namespace, Name: e.Name})
	if err != nil || o == nil || o.Spec.Ingress.ReleasedAt != nil {
		return err
	}
	has := o.Spec.Ingress
	in := func(block netip.Prefix, text string) bool {
		ip, err := netip.ParseAddr(text)
		if !block.IsValid() || err != nil {
			return false
		}
		_, ok := globalnet.Number(block, ip)
		return ok
	}
	if e.Settings.Type == v1alpha1.ClusterSetIP {
		if in(block, has.IP) {
			e.GlobalIP = has.IP
		}
		if in(ipv6, has.IPv6) && slices.Contains(e.Settings.IPFamilies, corev1.IPv6Protocol) {
			e.GlobalIPv6 = has.IPv6
		}
		return nil
	}
	of := make(map[string]string, 2*len(has.Pods))
	for _, p := range has.Pods {
		if p.ReleasedAt == nil && in(block, p.GlobalIP) {
			of[p.IP] = p.GlobalIP
		}
		if p.ReleasedAt == nil && in(ipv6, p.GlobalIPv6) {
			of[p.IPv6] = p.GlobalIPv6
		}
	}
	for i := range e.Backends {
		for j := range e.Backends[i].Addresses {
			b := &e.Backends[i].Addresses[j]
			b.GlobalIP = of[b.IP]
		}
	}
	return nil
}
