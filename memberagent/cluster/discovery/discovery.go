// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// every is how often the sources that are not watched are asked again.
const every = time.Minute

// Found is what the cluster's networks are.
type Found struct {
	Networks  v1alpha1.Networks
	NodeCIDRs []string
	// Underlay says that the networks of pods, as they are stated, have addresses of nodes in them.
	Underlay bool
	// Problem says why the pods' networks are not told, though something states them; else it is empty.
	Problem string
}

// Discovery answers from the cached nodes at once, and asks the other sources now and then.
type Discovery struct {
	cached client.Reader
	live   client.Client

	mu     sync.Mutex
	stated Hints
	asked  time.Time
}

// New reads nodes and the Peering from the cache, everything else with live.
func New(cached client.Reader, live client.Client) *Discovery {
	return &Discovery{cached: cached, live: live}
}

// Find returns the networks, and when to ask again.
func (d *Discovery) Find(ctx context.Context) (Found, time.Duration, error) {
	peering, err := index.Peering(ctx, d.cached)
	if err != nil {
		return Found{}, 0, err
	}
	return d.find(ctx, peering)
}

// find shares memory with the Peering, which is nil where there is none.
func (d *Discovery) find(ctx context.Context, peering *v1alpha1.Peering) (Found, time.Duration, error) {
	nodes := &corev1.NodeList{}
	if err := d.cached.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return Found{}, 0, fmt.Errorf("list Nodes: %w", err)
	}
	stated, err := d.ask(ctx)
	if err != nil {
		return Found{}, 0, err
	}
	stated.Nodes = nodes.Items
	override := v1alpha1.Networks{}
	if peering != nil {
		override = peering.Spec.Override
	}
	return bounded(Found{Networks: Networks(stated, override), NodeCIDRs: NodeCIDRs(nodes.Items),
		Underlay: underlay(stated, override)}), every, nil
}

// OnNodes returns the ranges that CNI plugins give to the pods of one node, by its name, and when to ask again.
func (d *Discovery) OnNodes(ctx context.Context) (map[string][]netip.Prefix, time.Duration, error) {
	stated, err := d.ask(ctx)
	return stated.OnNodes, every, err
}

// bounded leaves out more pod networks than there is room for in a report: some of them would leave pods unreachable
// that nobody knows of.
func bounded(f Found) Found {
	if n := len(f.Networks.PodCIDRs); n > maxPodCIDRs {
		f.Networks.PodCIDRs = nil
		f.Problem = fmt.Sprintf("the addresses of pods are in %d networks, and at most %d can be told; set networks that "+
			"hold them all in the ClusterSet under spec.clusters[].networks.podCIDRs", n, maxPodCIDRs)
	}
	return f
}

// ask the sources, unless they were asked a short while ago.
func (d *Discovery) ask(ctx context.Context) (Hints, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.asked.IsZero() && time.Since(d.asked) < every-time.Second {
		return d.stated, nil
	}
	h, err := gather(ctx, d.live)
	if err != nil {
		return Hints{}, fmt.Errorf("discover networks: %w", err)
	}
	d.stated, d.asked = Hints{StatedPods: h.StatedPods, StatedServices: h.StatedServices, CNI: h.CNI, OnNodes: h.OnNodes},
		time.Now()
	return d.stated, nil
}

// Families of the cluster's Services, primary first: that of the Service "kubernetes", then the other if
// there is a range for it.
func (d *Discovery) Families(ctx context.Context) ([]corev1.IPFamily, error) {
	peering, err := index.SharedPeering(ctx, d.cached)
	if err != nil {
		return nil, err
	}
	found, _, err := d.find(ctx, peering)
	if err != nil {
		return nil, err
	}
	kubernetes, err := index.Service(ctx, d.cached, types.NamespacedName{Namespace: metav1.NamespaceDefault,
		Name: "kubernetes"})
	if err != nil {
		return nil, err
	}
	var out []corev1.IPFamily
	if kubernetes != nil {
		out = append(out, kubernetes.Spec.IPFamilies...)
	}
	for _, f := range Families(found.Networks) {
		if len(out) == 0 || out[0] != f {
			out = append(out, f)
		}
	}
	if len(out) > 2 {
		out = out[:2]
	}
	return out, nil
}

// Read returns what the cluster agent would find in a cluster, without an override and whether the agent runs there or
// not, and the nodes that it is found from. Nothing of Sealane needs to be installed.
func Read(ctx context.Context, live client.Client) (Found, []corev1.Node, error) {
	nodes := &corev1.NodeList{}
	if err := live.List(ctx, nodes); err != nil {
		return Found{}, nil, fmt.Errorf("list Nodes: %w", err)
	}
	h, err := gather(ctx, live)
	if err != nil {
		return Found{}, nil, fmt.Errorf("discover networks: %w", err)
	}
	h.Nodes = nodes.Items
	found := Found{Networks: Networks(h, v1alpha1.Networks{}), NodeCIDRs: NodeCIDRs(nodes.Items)}
	return bounded(found), nodes.Items, nil
}
