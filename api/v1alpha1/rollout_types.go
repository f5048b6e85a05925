// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RollOutSpec says in which order members get new node agents.
type RollOutSpec struct {
	// Canary is the cluster that gets new node agents first; the others follow in the order of their names. Default: the
	// one whose name comes first.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Canary string `json:"canary,omitempty"`
}

// RollOutTurn is what the broker allows the node agents of a member.
type RollOutTurn struct {
	// Revision of the node agents' DaemonSet (the label controller-revision-hash of its pods) whose agents may take nodes
	// over from those of other revisions; empty: none may. One that has no other before it needs no turn.
	Revision string `json:"revision"`
}

// RollOutReport is how far a member has come with the agents that its DaemonSet brings. Nodes that are not ready do not
// count.
type RollOutReport struct {
	// Revision of the DaemonSet's newest pods.
	// +kubebuilder:validation:MaxLength=63
	Revision string `json:"revision"`
	// Nodes that have an agent; Updated are those that an agent of Revision has programmed, Outdated those that one of
	// another revision is still on.
	Nodes    int32 `json:"nodes"`
	Updated  int32 `json:"updated"`
	Outdated int32 `json:"outdated"`
	// LastNode is the node that an agent of Revision took over last.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	LastNode string `json:"lastNode,omitempty"`
	// Failing says what is wrong with agents of Revision, and on which nodes. What is wrong with those of other revisions
	// is what they may repair.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Failing string `json:"failing,omitempty"`
}

// RollOutState is where a member stands in a roll-out.
// +kubebuilder:validation:Enum=Done;Waiting;Turn;Stopped
type RollOutState string

// The states of a member.
const (
	// RollOutDone: every node has the agent that the DaemonSet brings, and the next member may follow.
	RollOutDone RollOutState = "Done"
	// RollOutWaiting: new agents wait beside the old ones for the member's turn.
	RollOutWaiting RollOutState = "Waiting"
	// RollOutInTurn: nodes get new agents, or had the last one moments ago.
	RollOutInTurn RollOutState = "Turn"
	// RollOutStopped: something went wrong in the member's turn, and nothing goes on, there or elsewhere.
	RollOutStopped RollOutState = "Stopped"
)

// MemberRollOut is what the broker keeps of a member's part in a roll-out.
type MemberRollOut struct {
	// Report of the member.
	Report RollOutReport `json:"report"`
	// State of the member, and Message what it is about.
	State RollOutState `json:"state"`
	// +optional
	Message string `json:"message,omitempty"`
	// Released is the revision that the member was told last; see RollOutTurn.
	// +optional
	Released string `json:"released,omitempty"`
	// SeenAt is when the broker first heard of the revision, and ProgressedAt when the number of nodes that have it
	// changed.
	SeenAt       metav1.Time `json:"seenAt"`
	ProgressedAt metav1.Time `json:"progressedAt"`
	// TurnAt is when the member got its turn in the roll-out that goes on; not set outside one.
	// +optional
	TurnAt *metav1.Time `json:"turnAt,omitempty"`
	// UnwellSince is since when something has been wrong in its turn.
	// +optional
	UnwellSince *metav1.Time `json:"unwellSince,omitempty"`
	// Repairs says that its turn with another revision was stopped: it goes first.
	// +optional
	Repairs bool `json:"repairs,omitempty"`
	// Connected are the clusters that it was connected to, as both saw it, when it got its turn.
	// +listType=atomic
	// +optional
	Connected []string `json:"connected,omitempty"`
}

// ClusterSetRolledOut is a condition: in all members that tell, every node has the agent that the member's DaemonSet
// brings.
const ClusterSetRolledOut = "RolledOut"

// Reasons of ClusterSetRolledOut; the second is one of problems, too.
const (
	ReasonRolledOut      = "RolledOut"
	ReasonRollOutStopped = "RollOutStopped"
	ReasonRollingOut     = "RollingOut"
)
