// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions that a node agent sets on its own Pod, through its status: what the cluster agent sums up in the
// conditions of the same names of the Peering.
const (
	// PodNodeProgrammed: the node's network is as the cluster's objects ask. False with ReasonNodeCleaned once
	// nothing of Sealane is left there, with ReasonProgrammingFailed where the message says what went wrong.
	PodNodeProgrammed = "sealane.io/NodeProgrammed"
	// PodNetworksAccepted: the node has left out nothing of what the cluster's objects ask for. False with
	// ReasonNetworksRefused otherwise.
	PodNetworksAccepted = "sealane.io/NetworksAccepted"
	// PodNodeKey: the message is the NodeKey of the node, in JSON.
	PodNodeKey = "sealane.io/NodeKey"
	// PodNodesReached, of a node of a mesh: the message is a JSON object that holds, by name of a cluster, to how many of
	// its nodes this one sends without gateways.
	PodNodesReached = "sealane.io/NodesReached"
	// PodGatewaysReached: the gateways of the node's own cluster answer its probes over the overlay. False with
	// ReasonGatewaysUnreached, and a message that is the names of those that have not for 10 s, separated by commas.
	PodGatewaysReached = "sealane.io/GatewaysReached"
	// PodMayProgram: the agent programs the node, or waits for another to end and has rehearsed to do as much. It is a
	// readiness gate: a roll-out ends the other agent only then.
	PodMayProgram = "sealane.io/MayProgram"
)

// NodeKey is what other clusters' nodes need of a node, beside what its Node object says.
type NodeKey struct {
	// PublicKey is as in a MeshNode, and so is MTU.
	PublicKey string `json:"publicKey"`
	MTU       int32  `json:"mtu,omitempty"`
}

// Reasons of these conditions, besides ReasonProgrammingFailed and ReasonNetworksRefused.
const (
	ReasonNodeProgrammed   = "Programmed"
	ReasonNodeCleaned      = "Cleaned"
	ReasonNetworksAccepted = "Accepted"
	// Of PodNodeKey and PodNodesReached.
	ReasonKeyPublished = "Published"
	// Of PodGatewaysReached.
	ReasonGatewaysReached   = "Reached"
	ReasonGatewaysUnreached = "NotReached"
	// Of PodMayProgram: it programs; it does, and has died lately, more than once; it waits and could; it waits, and
	// another node's of the same revision has failed; it waits and could, and it is not yet its cluster's turn, or that is
	// over before its time; it waits and could, and another gateway comes first; it waits and could not.
	ReasonProgramming  = "Programming"
	ReasonCrashing     = "Crashing"
	ReasonRehearsed    = "Rehearsed"
	ReasonHeld         = "Held"
	ReasonUnreleased   = "Unreleased"
	ReasonQueued       = "Queued"
	ReasonNotRehearsed = "NotRehearsed"
)
