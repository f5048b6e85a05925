// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Objects are what the agent needs to know of its cluster.
type Objects struct {
	// Peering is nil while there is none.
	Peering  *v1alpha1.Peering
	Gateways []v1alpha1.Gateway
	Nodes    []corev1.Node
}

// gateway returns the Gateway of a node, nil if it is none.
func (o Objects) gateway(node string) *v1alpha1.Gateway {
	for i, g := range o.Gateways {
		if g.Name == node {
			return &o.Gateways[i]
		}
	}
	return nil
}

func (o Objects) node(name string) *corev1.Node {
	for i, n := range o.Nodes {
		if n.Name == name {
			return &o.Nodes[i]
		}
	}
	return nil
}

// NodeState is the annotation on the agent's own pod that tells the cluster agent how its node is.
const NodeState = "sealane.io/node-state"

// The values of NodeState. NodeError is followed by a colon, the node's name, and what went wrong first.
const (
	NodeProgrammed = "programmed"
	NodeCleaned    = "cleaned"
	NodeError      = "error"
)

// Cluster is the API server of the agent's cluster.
type Cluster interface {
	// Objects returns copies from caches; false while not all of them are loaded.
	Objects(ctx context.Context) (Objects, bool, error)
	// SetGatewayStatus replaces the status of the gateway.
	SetGatewayStatus(ctx context.Context, gateway string, status v1alpha1.GatewayStatus) error
	// SetNodeState annotates the agent's pod.
	SetNodeState(ctx context.Context, state string) error
	// LoadBalancer returns the addresses that a Service of Sealane's namespace is given from outside.
	LoadBalancer(ctx context.Context, service string) ([]string, error)
	// Uninstalled says whether the agent's DaemonSet is gone, or the agent's rights with it. An error
	// leaves it open.
	Uninstalled(ctx context.Context) (bool, error)
	// Event tells people of a transition.
	Event(gateway *v1alpha1.Gateway, warning bool, reason, message string)
}
