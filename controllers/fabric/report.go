// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/json"
	"fmt"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// Limits on what a member may report; they are those of the CRD, which a hostile member's API server
// does not enforce.
const (
	maxStatusBytes = 1 << 20
	maxPodCIDRs    = 1024
	maxServices    = 64
	maxNodeCIDRs   = 10240
	maxEndpoints   = 16
	maxConnections = 1024
	maxConditions  = 16
	maxMessage     = 1024
	maxVersion     = 64
)

// Report is what the Work of a member's Peering says about it.
type Report struct {
	// Known says that the member has reported. An unknown report is never the same as an empty one.
	Known bool
	// Status reported, of limited size and otherwise unchecked; empty, with revision 0, if the report is unknown.
	Status v1alpha1.PeeringStatus
	// Problem is a reason of MemberAccepted and a message if the report was thrown away as a whole.
	Problem *v1alpha1.Problem
}

// ParseReport decodes the raw status of a member's Peering. A report that cannot be used leaves a
// Problem and is unknown; the floor is the newest revision the member has answered before: what answers
// an older one comes from the past, say from a restored backup, and is unknown too.
func ParseReport(cluster string, raw []byte, floor int64) Report {
	if len(raw) == 0 {
		return Report{}
	}
	if len(raw) > maxStatusBytes {
		return unusable(cluster, v1alpha1.ReasonStatusTooLarge, fmt.Sprintf(
			"the status of Peering sealane in %s has %d bytes, at most %d are read; see what writes it there", cluster, len(raw),
			maxStatusBytes))
	}
	var status v1alpha1.PeeringStatus
	if err := json.Unmarshal(raw, &status); err != nil {
		return unusable(cluster, v1alpha1.ReasonInvalidNetworks, bounded(fmt.Sprintf(
			"the status of Peering sealane in %s cannot be decoded: %v; is the agent of a matching version?", cluster, err)))
	}
	for _, l := range []struct {
		what     string
		got, max int
	}{
		{"pod CIDRs", len(status.Networks.PodCIDRs), maxPodCIDRs},
		{"service CIDRs", len(status.Networks.ServiceCIDRs), maxServices},
		{"node CIDRs", len(status.NodeCIDRs), maxNodeCIDRs},
		{"endpoints", len(status.Endpoints), maxEndpoints},
		{"nodes", len(status.Nodes), v1alpha1.MaxMeshNodes},
		{"connections", len(status.Connections), maxConnections},
		{"conditions", len(status.Conditions), maxConditions},
		{"failed revisions", len(status.FailedRevisions), v1alpha1.MaxFailedRevisions},
	} {
		if l.got > l.max {
			return unusable(cluster, v1alpha1.ReasonStatusTooLarge, fmt.Sprintf(
				"%s reports %d %s, at most %d are accepted", cluster, l.got, l.what, l.max))
		}
	}
	if status.ObservedRevision < 1 || status.ObservedRevision < floor {
		return Report{}
	}
	return Report{Known: true, Status: status}
}

func unusable(cluster, reason, message string) Report {
	return Report{Problem: &v1alpha1.Problem{Cluster: cluster, Reason: reason, Message: message}}
}

// bounded limits a message that a member had a part in, to one line too.
func bounded(message string) string { return clip.Line(clip.Text(message, maxMessage)) }
