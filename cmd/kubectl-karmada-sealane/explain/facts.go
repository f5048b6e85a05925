// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/dnspath"
	"github.com/sealane-io/sealane/dataplane/topology"
)

// Fleet is all that an explanation goes by.
type Fleet struct {
	Now time.Time
	// Plugin is this command as the user types it.
	Plugin  string
	Members []Member
}

// Member is what one cluster's API server holds, and its Bundles.
type Member struct {
	Name string
	// Kubectl is the command that reaches it, as the user types it.
	Kubectl string
	// Unread says why its API server could not be asked, or which kind that the way depends on could not be read; ""
	// where all was.
	Unread string
	// Network are the objects that the node agents build their topology from.
	Network topology.Input
	// Bundles with their status, as the Karmada API has them.
	Bundles        []v1alpha1.Bundle
	ServiceImports []mcsv1beta1.ServiceImport
	// Slices are the EndpointSlices of imports.
	Slices []discoveryv1.EndpointSlice
	// Agents are the pods of the node agents, whose conditions say what each node makes of the objects.
	Agents []corev1.Pod
}

// Endpoint is one end of a packet's way: a pod or a node.
type Endpoint struct {
	Cluster string
	// What it is, for people: "pod shop/web-0", "node w1", "10.8.1.5".
	What string
	// Node that it is on; "" where that follows from the address.
	Node string
	// Host says that it is on the node's own network, where packets get the node's address in its pod network as source.
	Host bool
	// Addresses of the pod, at most one a family; none of a Host.
	Addresses []netip.Addr
}

func (e *Endpoint) String() string { return e.What + " of " + e.Cluster }

// Request says which packet is explained. Exactly one of Name, To and Address is set.
type Request struct {
	From Endpoint
	// Name are the facts about the name that the packet is for.
	Name *dnspath.Facts
	To   *Endpoint
	// Address as a number.
	Address netip.Addr
	Port    Port
}

// Port that a packet is for.
type Port struct {
	// Number is 0 for whatever the service has first.
	Number   uint16
	Protocol corev1.Protocol
}

func (f *Fleet) member(name string) *Member {
	for i := range f.Members {
		if f.Members[i].Name == name {
			return &f.Members[i]
		}
	}
	return nil
}

// imported is an import of a member.
func (m *Member) imported(namespace, name string) *v1alpha1.Import {
	for i := range m.Bundles {
		for j := range m.Bundles[i].Spec.Imports {
			if im := &m.Bundles[i].Spec.Imports[j]; im.Namespace == namespace && im.Name == name {
				return im
			}
		}
	}
	return nil
}

// exported is what a member reports of a service that it exports.
func (m *Member) exported(namespace, name string) *v1alpha1.Export {
	for i := range m.Bundles {
		for j := range m.Bundles[i].Status.Exports {
			if e := &m.Bundles[i].Status.Exports[j]; e.Namespace == namespace && e.Name == name {
				return e
			}
		}
	}
	return nil
}

// exportAt returns the export of a member that has an address as ClusterIP or as global address.
func (m *Member) exportAt(a netip.Addr) *v1alpha1.Export {
	for i := range m.Bundles {
		for j := range m.Bundles[i].Status.Exports {
			e := &m.Bundles[i].Status.Exports[j]
			for _, text := range append([]string{e.GlobalIP, e.GlobalIPv6}, e.ClusterIPs...) {
				if ip, err := netip.ParseAddr(text); err == nil && ip == a {
					return e
				}
			}
		}
	}
	return nil
}

// importAt returns the ServiceImport of a member that has an address.
func (m *Member) importAt(a netip.Addr) *mcsv1beta1.ServiceImport {
	for i := range m.ServiceImports {
		for _, text := range m.ServiceImports[i].Spec.IPs {
			if ip, err := netip.ParseAddr(text); err == nil && ip == a && v1alpha1.OwnsServiceImport(&m.ServiceImports[i]) {
				return &m.ServiceImports[i]
			}
		}
	}
	return nil
}
