// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		},
	}
}

// strip drops what the API server and kubectl keep for themselves: a second and a third copy of the object.
func strip(in any) (any, error) {
	o, err := meta.Accessor(in)
	if err != nil {
		return nil, fmt.Errorf("strip %T: %w", in, err)
	}
	o.SetManagedFields(nil)
	delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	return in, nil
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
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			e.DeprecatedTopology = nil
			// Pods keep their global addresses by their names.
			if e.TargetRef != nil {
				e.TargetRef = &corev1.ObjectReference{Kind: e.TargetRef.Kind, Name: e.TargetRef.Name}
			}
		}
	}
	return strip(in)
}
