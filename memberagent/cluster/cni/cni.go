// SPDX-License-Identifier: Apache-2.0

// Package cni reads the addresses of a cluster's pods from the objects of CNI plugins.
package cni

import (
	"context"
	"fmt"
	"net/netip"

	"go4.org/netipx"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is how many objects are asked for at a time: some plugins keep one or more of a node.
const pageSize = 500

// Ranges are what the objects of the installed plugins state, each list empty where they state nothing.
type Ranges struct {
	// Pods are the ranges that the addresses of the cluster's pods are from, sorted and disjoint. They may contain
	// addresses of nodes, where these share a network with the pods.
	Pods []netip.Prefix
	// OnNodes are those that a node has for its pods alone, by the node's name, sorted and disjoint.
	OnNodes map[string][]netip.Prefix
	// Skipped names objects that cannot be read, and why.
	Skipped []string
}

// kind of object that states ranges.
type kind struct {
	schema.GroupVersionKind
	// read adds what an object states.
	read func(*unstructured.Unstructured, *stated) error
}

// kinds are never changed. A plugin that gives each node a range out of its spec.podCIDRs, such as flannel, needs none.
var kinds = [...]kind{
	{calico("IPPool"), readCalicoPool},
	{calico("BlockAffinity"), readCalicoBlock},
	{schema.GroupVersionKind{Group: "cilium.io", Version: "v2", Kind: "CiliumNode"}, readCiliumNode},
	{schema.GroupVersionKind{Group: "kubeovn.io", Version: "v1", Kind: "Subnet"}, readKubeOVNSubnet},
	{spiderpool("SpiderIPPool"), readSpiderPool},
	{spiderpool("SpiderSubnet"), readSpiderSubnet},
}

func calico(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: kind}
}

func spiderpool(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "spiderpool.spidernet.io", Version: "v2beta1", Kind: kind}
}

// Read asks for every kind that is installed. A kind that is not, or may not be read, states nothing; any other error
// ends the attempt, since half an answer would be taken for the whole.
func Read(ctx context.Context, live client.Reader) (Ranges, error) {
	var s stated
	for _, k := range kinds {
		if err := s.list(ctx, live, k); err != nil {
			return Ranges{}, fmt.Errorf("list %s of %s: %w", k.Kind, k.Group, err)
		}
	}
	return s.ranges()
}

// stated is what was read so far.
type stated struct {
	pods, calicoBlocks netipx.IPSetBuilder
	// otherUses are ranges from which no pod gets an address.
	otherUses netipx.IPSetBuilder
	onNodes   map[string]*netipx.IPSetBuilder
	skipped   []string
}

// node returns where to put what a node has.
func (s *stated) node(name string) *netipx.IPSetBuilder {
	if s.onNodes == nil {
		s.onNodes = map[string]*netipx.IPSetBuilder{}
	}
	b := s.onNodes[name]
	if b == nil {
		b = &netipx.IPSetBuilder{}
		s.onNodes[name] = b
	}
	return b
}

func (s *stated) list(ctx context.Context, live client.Reader, k kind) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
	for {
		err := live.List(ctx, list, client.Limit(pageSize), client.Continue(list.GetContinue()))
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			s.note(k, &list.Items[i])
		}
		if list.GetContinue() == "" {
			return nil
		}
	}
}

// note what an object states.
func (s *stated) note(k kind, o *unstructured.Unstructured) {
	if err := k.read(o, s); err != nil {
		s.skipped = append(s.skipped, fmt.Sprintf("%s %s: %v", k.Kind, o.GetName(), err))
	}
}

// ranges puts together what was read.
func (s *stated) ranges() (Ranges, error) {
	other, err := s.otherUses.IPSet()
	if err != nil {
		return Ranges{}, err
	}
	s.calicoBlocks.RemoveSet(other)
	blocks, err := s.calicoBlocks.IPSet()
	if err != nil {
		return Ranges{}, err
	}
	s.pods.AddSet(blocks)
	pods, err := s.pods.IPSet()
	if err != nil {
		return Ranges{}, err
	}
	out := Ranges{Pods: pods.Prefixes(), OnNodes: map[string][]netip.Prefix{}, Skipped: s.skipped}
	for name, b := range s.onNodes {
		b.RemoveSet(other)
		set, err := b.IPSet()
		if err != nil {
			return Ranges{}, err
		}
		if list := set.Prefixes(); len(list) > 0 {
			out.OnNodes[name] = list
		}
	}
	return out, nil
}

// decode fills a struct with the fields of an object that it has.
func decode(o *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)
}
