// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Input is all that decides about one shard.
type Input struct {
	// Shard, from 0, of the ClusterSet's Shards.
	Shard, Shards int32
	// Members are the accepted, active members of the ClusterSet, in any order. One that is not listed
	// exports nothing and gets no Bundle.
	Members []Member
}

// Member is one cluster as the broker knows it.
type Member struct {
	// Cluster is the member's name. It comes from the namespace of its Works, never from what it reports.
	Cluster string
	// Pods, Services and Nodes are the networks accepted: Member.status.networks and .nodeCIDRs.
	Pods, Services, Nodes []netip.Prefix
	// Known says that Exports is the member's report on this shard, at the current revision. When it is
	// false Exports is ignored: what the Bundles last written say of the member stays.
	Known   bool
	Exports []v1alpha1.Export
	// Last is the spec last written for this member and shard, nil when there is none. Where a Work has
	// been deleted by hand and the spec is still remembered, pass that.
	Last *v1alpha1.BundleSpec
}

// Decision is what each member's Bundle should say. Its values share memory with each other and with the
// Input: they are to be read only.
type Decision struct {
	// Bundles by cluster, one for every member, without a revision.
	Bundles map[string]v1alpha1.BundleSpec
	// Problems with what members report, sorted by cluster, at most maxProblems of each.
	Problems []v1alpha1.Problem
	// Services that are exported, and those of them whose exports conflict.
	Services, Conflicts int
}
