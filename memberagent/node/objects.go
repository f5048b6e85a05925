// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Objects are what the agent needs to know of its cluster.
type Objects struct {
	// Peering is nil while there is none.
	Peering  *v1alpha1.Peering
	Gateways []v1alpha1.Gateway
	// Nodes are those of the cluster. Without a Peering there may be none.
	Nodes []corev1.Node
	// NodeNetworks are those of all nodes on a gateway, and elsewhere that of the agent's own node, if there is one.
	NodeNetworks []v1alpha1.NodeNetwork
	// GlobalAllocations are the ledger of global addresses.
	GlobalAllocations []v1alpha1.GlobalAllocation
	// ClusterGlobalEgressIP is nil while there is none.
	ClusterGlobalEgressIP *v1alpha1.ClusterGlobalEgressIP
	// APIServers are the addresses of the cluster's API servers, and the one that the agent dials.
	APIServers []netip.Addr
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

// NodeState is what an agent tells of its node, as conditions of its own pod.
type NodeState struct {
	// Programmed is the reason of v1alpha1.PodNodeProgrammed: ReasonNodeProgrammed, ReasonNodeCleaned or
	// ReasonProgrammingFailed. Message says what went wrong first.
	Programmed, Message string
	// Refused says what the node has left out, and why; empty if nothing.
	Refused string
	// Key of the node for other clusters' nodes; zero while it is not known.
	Key v1alpha1.NodeKey
	// NodesReached is the message of v1alpha1.PodNodesReached; empty where there is no mesh.
	NodesReached string
	// Unreached are the gateways of the own cluster that have not answered for a while, separated by commas.
	Unreached string
}

// Cluster is the API server of the agent's cluster.
type Cluster interface {
	// Objects returns copies from caches; false while not all of them are loaded.
	Objects(ctx context.Context) (Objects, bool, error)
	// SetGatewayStatus replaces the status of the gateway.
	SetGatewayStatus(ctx context.Context, gateway string, status v1alpha1.GatewayStatus) error
	// Alive is called about once a second while the loop goes round: what was last given to SetGatewayStatus holds, once
	// it is written. It does not wait.
	Alive(gateway *v1alpha1.Gateway)
	// SetNodeState sets conditions of the agent's pod.
	SetNodeState(ctx context.Context, state NodeState) error
	// SetTurn sets the condition of the agent's pod that says whether it may program the node.
	SetTurn(ctx context.Context, turn Turn) error
	// LoadBalancer returns where a Service of Sealane's namespace is reached from outside: addresses, and names of hosts.
	LoadBalancer(ctx context.Context, service string) ([]string, error)
	// Uninstalled says whether the agent's DaemonSet is known to be gone, or going. An error, such as a
	// refusal, leaves it open.
	Uninstalled(ctx context.Context) (bool, error)
	// Event tells people of a transition.
	Event(gateway *v1alpha1.Gateway, warning bool, reason, message string)
}
