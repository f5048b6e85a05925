// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/external"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// memberGlobals are whose the global addresses of a member are: the ledger by which its gateways translate, and what
// its users are told of who has none.
type memberGlobals struct {
	allocations []v1alpha1.GlobalAllocation
	cluster     []v1alpha1.ClusterGlobalEgressIP
	ingress     []v1alpha1.GlobalIngressIP
	egress      []v1alpha1.GlobalEgressIP
}

// memberGlobals reads the global addresses of a member; of one whose version has none there are none.
func (a *api) memberGlobals(ctx context.Context, namespace string) (*memberGlobals, error) {
	var allocations v1alpha1.GlobalAllocationList
	var cluster v1alpha1.ClusterGlobalEgressIPList
	var ingress v1alpha1.GlobalIngressIPList
	var egress v1alpha1.GlobalEgressIPList
	for what, list := range map[string]client.ObjectList{"globalallocations": &allocations,
		"clusterglobalegressips": &cluster} {
		if err := a.List(ctx, list); err != nil && !gone(err) {
			return nil, fmt.Errorf("list %s: %w", what, err)
		}
	}
	for what, list := range map[string]client.ObjectList{"globalingressips": &ingress, "globalegressips": &egress} {
		if err := a.List(ctx, list, client.InNamespace(namespace)); err != nil && !gone(err) {
			return nil, fmt.Errorf("list %s: %w", what, err)
		}
	}
	return &memberGlobals{allocations.Items, cluster.Items, ingress.Items, egress.Items}, nil
}

// States of a global address.
const (
	globalInUse = "InUse"
	globalKept  = "Kept"
	globalNone  = "None"
)

// Kinds of who has a global address.
const (
	globalService = "Service"
	globalPod     = "Pod"
	globalHost    = "Host"
)

type globalIPRow struct {
	Cluster string `json:"cluster"`
	// Address, or the first and the last of a range.
	Address string `json:"address,omitempty"`
	Last    string `json:"lastAddress,omitempty"`
	// IPv6 and LastIPv6 are those of IPv6 that stand for them; empty where the cluster gives none.
	IPv6     string `json:"ipv6Address,omitempty"`
	LastIPv6 string `json:"lastIPv6Address,omitempty"`
	// Kind is Service, Pod, Host, GlobalEgressIP or ClusterGlobalEgressIP. Name is that of the service, or of the object.
	// Behind a headless service, Pod is the name of the pod, or Host the address of the host outside the clusters.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Host      string `json:"host,omitempty"`
	// State is InUse, Kept for an hour for who had the address, None of who has none, or why the cluster was not asked.
	State string `json:"state"`
	// Gateway whose connections have the address, of those that connections come from.
	Gateway string   `json:"gateway,omitempty"`
	PodIPs  []string `json:"podIPs,omitempty"`
	Ports   []string `json:"ports,omitempty"`
	Message string   `json:"message,omitempty"`
}

func (r globalIPRow) cells() []string {
	name := r.Name
	if behind := cmp.Or(r.Pod, r.Host); behind != "" {
		name += "/" + behind
	}
	return []string{r.Cluster, fromTo(r.Address, r.Last), fromTo(r.IPv6, r.LastIPv6), r.Kind, r.Namespace, name, r.State,
		r.Message, r.Gateway, list(r.PodIPs), list(r.Ports)}
}

// fromTo is an address, or the range to the last one.
func fromTo(first, last string) string {
	if last == "" || last == first {
		return first
	}
	return first + "-" + last
}

func globalIPTable(f *fleet) table {
	t := newTable("globalips", globalIPRows(f), 8, "CLUSTER", "ADDRESS", "IPV6", "KIND", "NAMESPACE", "NAME", "STATE",
		"MESSAGE", "GATEWAY", "PODS", "PORTS")
	t.within = f.within()
	return t
}

// globalIPRows are sorted by cluster and address; who has none comes last.
func globalIPRows(f *fleet) []globalIPRow {
	var rows []globalIPRow
	for i := range f.members {
		m := &f.members[i]
		if m.err != nil {
			rows = append(rows, globalIPRow{Cluster: m.Name, State: refusal(m.err), Message: m.err.Error()})
			continue
		}
		own := slices.Concat(allocatedRows(f, m), clusterEgressRows(f, m))
		own = append(own, withoutRows(m, own)...)
		slices.SortStableFunc(own, func(a, b globalIPRow) int {
			return cmp.Or(compareAddresses(a.Address, b.Address), cmp.Compare(a.Kind, b.Kind),
				cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pod, b.Pod),
				cmp.Compare(a.Host, b.Host))
		})
		rows = append(rows, own...)
	}
	return rows
}

// compareAddresses has what is none last.
func compareAddresses(a, b string) int {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	switch {
	case errX != nil && errY != nil:
		return cmp.Compare(a, b)
	case errX != nil:
		return 1
	case errY != nil:
		return -1
	}
	return x.Compare(y)
}

// allocatedRows are the addresses of services, of their pods and hosts, and of GlobalEgressIPs.
func allocatedRows(f *fleet, m *fleetMember) []globalIPRow {
	if m.globals == nil {
		return nil
	}
	var rows []globalIPRow
	for i := range m.globals.allocations {
		spec := &m.globals.allocations[i].Spec
		if f.namespace != "" && spec.Owner.Namespace != f.namespace {
			continue
		}
		row := globalIPRow{Cluster: m.Name, Namespace: spec.Owner.Namespace, Name: spec.Owner.Name, State: globalInUse}
		if spec.Ingress != nil {
			rows = append(rows, ingressRows(row, spec.Ingress)...)
		}
		if spec.Egress != nil {
			row.Kind, row.PodIPs = string(v1alpha1.GlobalEgress), spec.Egress.Pods
			rows = append(rows, rangeRows(row, m, spec.Egress.EgressRange)...)
		}
	}
	return rows
}

// ingressRows are the addresses of a service: its own, and those of its pods and hosts if it is headless.
func ingressRows(row globalIPRow, has *v1alpha1.IngressAllocation) []globalIPRow {
	var rows []globalIPRow
	if has.IP != "" {
		service := row
		service.Kind, service.Address, service.IPv6 = globalService, has.IP, has.IPv6
		if has.ReleasedAt != nil {
			service.State, service.Message = globalKept, "exported no more"
		}
		for _, p := range has.Ports {
			service.Ports = append(service.Ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
			for _, b := range p.Backends {
				if !slices.Contains(service.PodIPs, b.IP) {
					service.PodIPs = append(service.PodIPs, b.IP)
				}
			}
		}
		rows = append(rows, service)
	}
	for _, p := range has.Pods {
		one := row
		one.Address, one.IPv6 = p.GlobalIP, p.GlobalIPv6
		host, ok := external.HostOf(p)
		if ok {
			one.Kind, one.Host = globalHost, host.String()
		} else {
			one.Kind, one.Pod = globalPod, p.Name
		}
		switch {
		case p.GlobalIP == "":
			one.State, one.Message = globalNone, "no address of the cluster's block is left"
		case p.ReleasedAt != nil || has.ReleasedAt != nil:
			one.State = globalKept
			one.Message = "for the " + strings.ToLower(one.Kind) + " of that name, if it comes back"
		}
		for _, ip := range []string{p.IP, p.IPv6} {
			if ip != "" && ip != one.Host {
				one.PodIPs = append(one.PodIPs, ip)
			}
		}
		rows = append(rows, one)
	}
	return rows
}

// clusterEgressRows are the addresses that all other connections of the cluster come from, unless a namespace was asked
// for.
func clusterEgressRows(f *fleet, m *fleetMember) []globalIPRow {
	if m.globals == nil || f.namespace != "" {
		return nil
	}
	var rows []globalIPRow
	for i := range m.globals.cluster {
		o := &m.globals.cluster[i]
		row := globalIPRow{Cluster: m.Name, Kind: "ClusterGlobalEgressIP", Name: o.Name, State: globalInUse}
		if o.Status.Range != nil {
			rows = append(rows, rangeRows(row, m, *o.Status.Range)...)
		} else if o.Status.CIDR != "" {
			rows = append(rows, withoutAddress(row, o.Status.Conditions))
		}
	}
	return rows
}

// rangeRows are the addresses of a range of numbers, of each gateway's share of the block. Where that is not known the
// numbers are told.
func rangeRows(row globalIPRow, m *fleetMember, r v1alpha1.EgressRange) []globalIPRow {
	var rows []globalIPRow
	for i := range m.globals.cluster {
		block, err := netfacts.ParseGlobal(m.globals.cluster[i].Status.CIDR)
		if err != nil || r.First < 1 || r.Last < r.First || int(r.Last) > globalnet.EgressSize(block) {
			continue
		}
		for j := range m.gateways {
			g := &m.gateways[j]
			if g.Spec.Slot < 0 || g.Spec.Slot > v1alpha1.MaxSlot {
				continue
			}
			first, last := globalnet.Egress(block, int(g.Spec.Slot), int(r.First), int(r.Last))
			one := row
			one.Gateway, one.Address, one.Last = g.Name, first.String(), last.String()
			if ipv6, err := globalnet.ParseIPv6(m.Status.GlobalIPv6CIDR, block); err == nil {
				first, last = globalnet.Egress(ipv6, int(g.Spec.Slot), int(r.First), int(r.Last))
				one.IPv6, one.LastIPv6 = first.String(), last.String()
			}
			rows = append(rows, one)
		}
	}
	if len(rows) == 0 {
		row.Message = fmt.Sprintf("numbers %d to %d of each gateway's share, of which there is none", r.First, r.Last)
		rows = append(rows, row)
	}
	return rows
}

// withoutRows are the objects that say that they have no address, and that are not shown with one.
func withoutRows(m *fleetMember, shown []globalIPRow) []globalIPRow {
	if m.globals == nil {
		return nil
	}
	var rows []globalIPRow
	add := func(kind string, o client.Object, conditions []metav1.Condition) {
		c := meta.FindStatusCondition(conditions, v1alpha1.GlobalIPAllocated)
		if c == nil || c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonReleased {
			return
		}
		if !slices.ContainsFunc(shown, func(r globalIPRow) bool {
			return r.Namespace == o.GetNamespace() && r.Name == o.GetName() && (kind == r.Kind || kind == globalService &&
				(r.Kind == globalPod || r.Kind == globalHost))
		}) {
			rows = append(rows, withoutAddress(globalIPRow{Cluster: m.Name, Kind: kind, Namespace: o.GetNamespace(),
				Name: o.GetName()}, conditions))
		}
	}
	for i := range m.globals.ingress {
		add(globalService, &m.globals.ingress[i], m.globals.ingress[i].Status.Conditions)
	}
	for i := range m.globals.egress {
		add(string(v1alpha1.GlobalEgress), &m.globals.egress[i], m.globals.egress[i].Status.Conditions)
	}
	return rows
}

// withoutAddress says why somebody has none.
func withoutAddress(row globalIPRow, conditions []metav1.Condition) globalIPRow {
	row.State = globalNone
	if c := meta.FindStatusCondition(conditions, v1alpha1.GlobalIPAllocated); c != nil {
		row.Message = strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
	}
	return row
}

// asked is an error that names the members that could not be asked: whose an address is may be known to them alone.
func (f *fleet) asked() error {
	var silent []string
	for i := range f.members {
		if m := &f.members[i]; m.err != nil {
			silent = append(silent, m.Name+": "+m.unavailable())
		}
	}
	if len(silent) == 0 {
		return nil
	}
	return &finding{
		expected: "every member to say which global addresses it has given to whom",
		found:    strings.Join(silent, "\n"),
		remedy: "add kubeconfig contexts of the members' names, which Karmada's cluster proxy does not reach, as those in " +
			"pull mode; or leave them out with --clusters",
	}
}
