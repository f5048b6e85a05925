// SPDX-License-Identifier: Apache-2.0

package nodenetworks

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/pods"
)

// lost is a pod that is not reached from other clusters, at one of its addresses.
type lost struct {
	pod *corev1.Pod
	ip  netip.Addr
}

// missed are the pods that are not reached, in any order.
type missed struct {
	// outside are those with an address outside the cluster's pod networks, noRoom those whose node's NodeNetwork has no
	// room for them.
	outside, noRoom []lost
}

// notRouted finds the pods that other clusters do not reach by what was decided. An address of a family of which the
// cluster has no network counts only where the pod has no other.
func notRouted(in input, decided map[string]v1alpha1.NodeNetworkSpec) missed {
	exists, full := map[string]bool{}, false
	for i := range in.nodes {
		name := in.nodes[i].Name
		exists[name] = true
		full = full || decided[name].LeftOut > 0
	}
	networks := setOf(in.networks)
	of4, of6 := families(in.networks)
	var located Located
	if full {
		located = Locate(in.nodes, decided, in.networks)
	}
	var out missed
	for i := range in.pods {
		p := &in.pods[i]
		node, addresses := p.Spec.NodeName, pods.Addresses(p)
		if !exists[node] {
			continue
		}
		for _, ip := range addresses {
			if !networks.Contains(ip) {
				if len(addresses) == 1 || (of4 && ip.Is4()) || (of6 && ip.Is6()) {
					out.outside = append(out.outside, lost{p, ip})
					break
				}
			} else if decided[node].LeftOut > 0 && !located.On(node, ip) {
				out.noRoom = append(out.noRoom, lost{p, ip})
				break
			}
		}
	}
	return out
}

// families says which of the two some networks are of.
func families(networks []netip.Prefix) (of4, of6 bool) {
	for _, p := range networks {
		of4, of6 = of4 || p.Addr().Is4(), of6 || p.Addr().Is6()
	}
	return of4, of6
}

// condition PodsRouted.
func (m missed) condition() metav1.Condition {
	var texts []string
	if len(m.outside) > 0 {
		texts = append(texts, fmt.Sprintf("%s with addresses outside the cluster's pod networks: %s: set networks that hold "+
			"them in the ClusterSet under spec.clusters[].networks.podCIDRs", Count(len(m.outside)), oldest(m.outside)))
	}
	if len(m.noRoom) > 0 {
		texts = append(texts, fmt.Sprintf("%s on nodes with more networks than there is room for (%d): %s: give the pods of "+
			"a node addresses next to each other", Count(len(m.noRoom)), v1alpha1.MaxNodePodCIDRs, oldest(m.noRoom)))
	}
	if len(texts) == 0 {
		return metav1.Condition{Type: v1alpha1.PeeringPodsRouted, Status: metav1.ConditionTrue, Reason: "Routed",
			Message: "every pod has addresses that other clusters route to its node"}
	}
	return metav1.Condition{Type: v1alpha1.PeeringPodsRouted, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonPodsNotRouted, Message: "not reached from other clusters: " + strings.Join(texts, "; ")}
}

// Count pods in words: exactly as long as they are few, since each other text is a write that travels to Karmada.
func Count(n int) string {
	if n == 1 {
		return "1 pod"
	}
	if n < 10 {
		return fmt.Sprintf("%d pods", n)
	}
	floor := 10
	for n/10 >= floor {
		floor *= 10
	}
	return fmt.Sprintf("%d pods or more", floor)
}

// few pods are named.
const few = 2

// oldest pods, which are likely to stay.
func oldest(list []lost) string {
	slices.SortFunc(list, func(a, b lost) int {
		return cmp.Or(a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time),
			cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	var out []string
	for _, l := range list[:min(len(list), few)] {
		out = append(out, fmt.Sprintf("%s/%s (%s on node %s)", l.pod.Namespace, l.pod.Name, l.ip, l.pod.Spec.NodeName))
	}
	return strings.Join(out, ", ")
}
