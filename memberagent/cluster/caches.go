// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"unique"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// cacheOptions keep the caches small: nowhere what the API server or kubectl keeps for itself, and of nodes, Services
// and pods only what is read.
func cacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: strip,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Transform: stripNode},
			&corev1.Pod{}:  {Transform: stripPod},
			// Those of the gateways' node agents, and the leader's.
			&coordinationv1.Lease{}:      {Namespaces: map[string]cache.Config{v1alpha1.Namespace: {}}},
			&corev1.Service{}:            {Transform: stripService},
			&discoveryv1.EndpointSlice{}: {Transform: stripSlice},
			&v1alpha1.Bundle{}:           {Transform: stripBundle},
		},
	}
}

// strip drops what the API server and kubectl keep for themselves: a second and a third copy of the object.
func strip(in any) (any, error) {
	if i, ok := in.(*mcs.ServiceImport); ok {
		in = i.DeepCopy() // lists that are decoded from JSON have room for more
	}
	o, err := meta.Accessor(in)
	if err != nil {
		return nil, fmt.Errorf("strip %T: %w", in, err)
	}
	o.SetManagedFields(nil)
	delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	o.SetNamespace(shared(o.GetNamespace()))
	o.SetLabels(sharedLabels(o.GetLabels()))
	return in, nil
}

// shared returns equal text in the same memory. There are tens of thousands of objects with the same few words.
func shared[T ~string](text T) T { return unique.Make(text).Value() }

// sharedLabels have their keys shared, and values that many objects have.
func sharedLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return labels
	}
	out := make(map[string]string, len(labels))
	for key, value := range labels {
		switch key {
		case v1alpha1.LabelManagedBy, discoveryv1.LabelManagedBy, mcs.LabelSourceCluster:
			value = shared(value)
		}
		out[shared(key)] = value
	}
	return out
}

// stripBundle keeps no more memory than the imports need.
func stripBundle(in any) (any, error) {
	b, ok := in.(*v1alpha1.Bundle)
	if !ok {
		return strip(in)
	}
	b = b.DeepCopy()
	for i := range b.Spec.Imports {
		shareImport(&b.Spec.Imports[i])
	}
	return strip(b)
}

func shareImport(i *v1alpha1.Import) {
	i.Namespace = shared(i.Namespace)
	s := &i.Settings
	s.Type, s.SessionAffinity = shared(s.Type), shared(s.SessionAffinity)
	for n := range s.Ports {
		s.Ports[n].Name, s.Ports[n].Protocol = shared(s.Ports[n].Name), shared(s.Ports[n].Protocol)
	}
	for n := range s.IPFamilies {
		s.IPFamilies[n] = shared(s.IPFamilies[n])
	}
	for n := range i.Clusters {
		c := &i.Clusters[n]
		c.Cluster = shared(c.Cluster)
		for k := range c.Ports {
			c.Ports[k] = shared(c.Ports[k])
		}
		for k := range c.Backends {
			for l := range c.Backends[k].Ports {
				p := &c.Backends[k].Ports[l]
				p.Name, p.Protocol = shared(p.Name), shared(p.Protocol)
			}
			for l := range c.Backends[k].Addresses {
				a := &c.Backends[k].Addresses[l]
				a.Node, a.Zone = shared(a.Node), shared(a.Zone)
			}
		}
	}
}

func stripService(in any) (any, error) {
	// Of those in the agent's own namespace it is read whether load balancers have an address.
	if s, ok := in.(*corev1.Service); ok && s.Namespace != v1alpha1.Namespace {
		s.Status = corev1.ServiceStatus{}
	}
	return strip(in)
}

func stripNode(in any) (any, error) {
	if n, ok := in.(*corev1.Node); ok {
		sources, named := n.Annotations[v1alpha1.AnnotationPublicIP]
		if n.ManagedFields, n.Annotations = nil, nil; named {
			n.Annotations = map[string]string{v1alpha1.AnnotationPublicIP: sources}
		}
		n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses, Conditions: n.Status.Conditions}
	}
	return in, nil
}

func stripPod(in any) (any, error) {
	p, ok := in.(*corev1.Pod)
	switch {
	case !ok:
		return strip(in)
	case p.Namespace != v1alpha1.Namespace:
		return pods.Essential(p), nil
	}
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Affinity: p.Spec.Affinity, HostNetwork: p.Spec.HostNetwork}
	p.Status = corev1.PodStatus{Conditions: p.Status.Conditions, ContainerStatuses: p.Status.ContainerStatuses,
		Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs}
	return strip(in)
}

func stripSlice(in any) (any, error) {
	if s, ok := in.(*discoveryv1.EndpointSlice); ok {
		s.Endpoints = slices.Clip(slices.Clone(s.Endpoints))
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			for _, text := range []*string{e.NodeName, e.Zone} {
				if text != nil {
					*text = shared(*text)
				}
			}
			e.DeprecatedTopology = nil
			// Pods keep their global addresses by their names.
			if e.TargetRef != nil {
				e.TargetRef = &corev1.ObjectReference{Kind: e.TargetRef.Kind, Name: e.TargetRef.Name}
			}
		}
	}
	return strip(in)
}
