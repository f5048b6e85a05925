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
)

// Reasons of these conditions, besides ReasonProgrammingFailed and ReasonNetworksRefused.
const (
	ReasonNodeProgrammed   = "Programmed"
	ReasonNodeCleaned      = "Cleaned"
	ReasonNetworksAccepted = "Accepted"
)
