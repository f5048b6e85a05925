// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

const (
	// maxProblems is how many problems a ClusterSet shows.
	maxProblems = 50
	// maxNamed is how many clusters or pairs the message of a condition names.
	maxNamed = 8
)

// memberStatus is the new record of one member; down are the pairs that are not connected.
func memberStatus(s *state, states []*state, ways fabric, down []pair, now time.Time) v1alpha1.MemberStatus {
	before := s.Record.Status
	before.Connections, before.Nodes = nil, nil // those are listed anew
	status := *before.DeepCopy()
	if s.Report.Known {
		takeOver(&status, s.Report.Status)
	}
	status.Connections, status.Nodes = connections(s, states, ways, now), s.nodes
	status.FailedRevisions = s.failed
	status.GlobalCIDR, status.GlobalScope = s.global()
	status.GlobalIPv6CIDR = s.globalIPv6()
	status.OverlappingClusters = slices.Sorted(maps.Keys(s.rivals))
	if !s.active() {
		status.AcceptedAt = nil // it has released its networks, and somebody else may have them when it comes back
		s.leavingConditions(&status.Conditions, now)
		return status
	}
	if s.accepted {
		networks := s.force.Networks()
		status.Networks, status.NodeCIDRs, status.Endpoints = networks, s.force.NodeCIDRs(), s.told()
		status.PodNetworks = strings.Join(networks.PodCIDRs, ",")
		status.ServiceNetworks = strings.Join(networks.ServiceCIDRs, ",")
		if status.AcceptedAt == nil {
			at := metav1.NewMicroTime(now)
			status.AcceptedAt = &at
		}
	}
	s.activeConditions(&status.Conditions, down, now)
	return status
}

// takeOver records what a member's current report says of the member.
func takeOver(status *v1alpha1.MemberStatus, report v1alpha1.PeeringStatus) {
	status.ObservedRevision = report.ObservedRevision
	status.ReadsParts, status.ReadsText, status.ReadsDeltas = report.ReadsParts, report.ReadsText, report.ReadsDeltas
	status.ReadsRelays = report.Relays != ""
	status.AgentVersion = clip.Line(clip.Text(report.AgentVersion, maxVersion))
	for _, t := range []string{v1alpha1.MemberMCSAPI, v1alpha1.PeeringDNSConfigured, v1alpha1.PeeringNodesProgrammed,
		v1alpha1.PeeringAgentsRunning, v1alpha1.PeeringGatewaysReady, v1alpha1.PeeringNetworksAccepted,
		v1alpha1.PeeringPodsRouted, v1alpha1.PeeringUnderlayRouted} {
		copyCondition(&status.Conditions, report.Conditions, t)
	}
	if meta.FindStatusCondition(report.Conditions, v1alpha1.PeeringUnderlayRouted) == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.PeeringUnderlayRouted) // it is an underlay no more
	}
}

// leavingConditions are those of a member that is to leave, or has left.
func (s *state) leavingConditions(conditions *[]metav1.Condition, now time.Time) {
	s.condition(conditions, v1alpha1.MemberConnected, false, v1alpha1.ReasonLeaving,
		"the cluster leaves, and no member is told of it any more", now)
	if cleaned(s) {
		s.condition(conditions, v1alpha1.MemberCleaned, true, v1alpha1.MemberCleaned,
			"the cluster has answered that its nodes are clean", now)
	}
}

// activeConditions are those of a member that is to be connected; down are the pairs that are not.
func (s *state) activeConditions(conditions *[]metav1.Condition, down []pair, now time.Time) {
	meta.RemoveStatusCondition(conditions, v1alpha1.MemberCleaned)
	s.condition(conditions, v1alpha1.MemberAccepted, s.accepted, s.reason, s.message, now)
	if s.Report.Known {
		s.condition(conditions, v1alpha1.MemberReported, true, v1alpha1.ReasonReported, "the agent reports", now)
	} else {
		s.condition(conditions, v1alpha1.MemberReported, false, v1alpha1.ReasonUnknown,
			"there is no current report; what was last known stays in force", now)
	}
	c := connectedCondition(s, down)
	c.ObservedGeneration, c.LastTransitionTime = s.Record.Generation, metav1.NewTime(now)
	meta.SetStatusCondition(conditions, c)
}

// condition sets one that is true or false of the member's record.
func (s *state) condition(to *[]metav1.Condition, kind string, ok bool, reason, message string, now time.Time) {
	c := metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: s.Record.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	if ok {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(to, c)
}

// networksChanged says which networks an accepted member takes and gives up; "" if there are none, and of one
// that was not accepted before.
func networksChanged(before, after v1alpha1.MemberStatus) string {
	if before.AcceptedAt == nil || after.AcceptedAt == nil {
		return ""
	}
	list := func(n v1alpha1.Networks) []string { return slices.Concat(n.PodCIDRs, n.ServiceCIDRs) }
	without := func(list, other []string) string {
		return strings.Join(slices.DeleteFunc(list, func(s string) bool { return slices.Contains(other, s) }), ", ")
	}
	taken := without(list(after.Networks), list(before.Networks))
	given := without(list(before.Networks), list(after.Networks))
	if taken == "" && given == "" {
		return ""
	}
	return bounded(fmt.Sprintf("networks taken: %s; given up: %s", cmp.Or(taken, "none"), cmp.Or(given, "none")))
}

// cleaned says that a member was told that it leaves, and has answered that its nodes are clean.
func cleaned(s *state) bool {
	return s.Sent != nil && s.Sent.Phase == v1alpha1.MemberLeaving &&
		s.Report.Status.Cleaned && s.Report.Status.ObservedRevision >= s.Sent.Revision
}

// complain takes over what a member itself says is wrong there.
func complain(s *state) {
	if !s.active() {
		return
	}
	for _, c := range s.Report.Status.Conditions {
		if c.Type == v1alpha1.PeeringNodesPublished && !s.wantsMesh {
			continue // what is automatic bothers nobody
		}
		if c.Status == metav1.ConditionFalse && slices.Contains(troubles(c.Type), c.Reason) {
			s.problem(c.Reason, fmt.Sprintf("%s reports: %s", s.name(), c.Message))
		}
	}
}

// troubles are the reasons of a member's conditions that need a person; what else is not so yet comes in time.
func troubles(kind string) []string {
	switch kind {
	case v1alpha1.PeeringNodesProgrammed:
		return []string{v1alpha1.ReasonProgrammingFailed}
	case v1alpha1.PeeringAgentsRunning:
		return []string{v1alpha1.ReasonAgentsFailing}
	case v1alpha1.PeeringGatewaysReady:
		return []string{v1alpha1.ReasonGatewaysNotReady, v1alpha1.ReasonGatewayLabelIgnored,
			v1alpha1.ReasonNoIPsecContainer}
	case v1alpha1.PeeringNetworksAccepted:
		return []string{v1alpha1.ReasonNetworksRefused}
	case v1alpha1.PeeringPodsRouted:
		return []string{v1alpha1.ReasonPodsNotRouted}
	case v1alpha1.PeeringUnderlayRouted:
		return []string{v1alpha1.ReasonPublishRefused}
	case v1alpha1.PeeringNodesPublished:
		return []string{v1alpha1.ReasonTooManyNodes}
	case v1alpha1.PeeringExportsAccepted:
		return []string{v1alpha1.ReasonExportsRefused}
	case v1alpha1.PeeringImportsApplied:
		return []string{v1alpha1.ReasonNameTaken, v1alpha1.ReasonImportRefused}
	case v1alpha1.PeeringDNSConfigured:
		return []string{v1alpha1.ReasonNoCorefile, v1alpha1.ReasonInvalidCorefile, v1alpha1.ReasonMarkersBroken,
			v1alpha1.ReasonDomainTaken, v1alpha1.ReasonUnknownClusterDNS, v1alpha1.ReasonDNSNotAllowed,
			v1alpha1.ReasonDNSPutBack}
	}
	return nil
}

// connectedCondition sums up the pairs that a member is one of.
func connectedCondition(s *state, pairs []pair) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.MemberConnected, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected,
		Message: "connected to every other accepted member"}
	var broken, unknown []string
	for _, p := range pairs {
		if p.a != s && p.b != s {
			continue
		}
		switch w := p.worse(); w.status {
		case v1alpha1.ConnectionConnected:
		case v1alpha1.ConnectionUnknown:
			unknown = append(unknown, fmt.Sprintf("%s (%s)", p.other(s), w.reason))
		default:
			broken = append(broken, fmt.Sprintf("%s (%s)", p.other(s), w.reason))
		}
	}
	switch {
	case !s.accepted:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotConnected
		c.Message = "not accepted, so connected to nobody"
	case len(broken) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotConnected
		c.Message = "not connected to: " + clip.List(broken, maxNamed)
		if len(unknown) > 0 {
			c.Message += "; not known of: " + clip.List(unknown, maxNamed)
		}
	case len(unknown) > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonConnectionUnknown
		c.Message = "not known whether connected to: " + clip.List(unknown, maxNamed)
	}
	c.Message = bounded(c.Message)
	return c
}

// copyCondition takes over a condition that the member itself is the authority of, if it is well formed.
func copyCondition(into *[]metav1.Condition, from []metav1.Condition, kind string) {
	c := meta.FindStatusCondition(from, kind)
	if c == nil {
		return
	}
	switch c.Status {
	case metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown:
	default:
		return
	}
	if !isReason(c.Reason) {
		return
	}
	meta.SetStatusCondition(into, metav1.Condition{
		Type: kind, Status: c.Status, Reason: c.Reason, Message: bounded(c.Message),
		LastTransitionTime: metav1.NewTime(c.LastTransitionTime.Truncate(time.Second)),
	})
}

func isReason(s string) bool {
	ok, err := regexp.MatchString(`^[A-Za-z]([A-Za-z0-9_,:]{0,254}[A-Za-z0-9_])?$`, s)
	return ok && err == nil
}

// bearable are the reasons of problems that leave the network ready: with a service, which concern its owner, of a mesh
// whose traffic goes by gateways instead, of a label that does nothing, and of pods that have addresses from elsewhere.
var bearable = []string{v1alpha1.ReasonExportsRefused, v1alpha1.ReasonNameTaken, v1alpha1.ReasonImportRefused,
	v1alpha1.ReasonTooManyNodes, v1alpha1.ReasonMeshTooLarge, v1alpha1.ReasonNodeAddressesShared,
	v1alpha1.ReasonNodeFamiliesDiffer, v1alpha1.ReasonNodesNotPublished, v1alpha1.ReasonMeshNotConnected,
	v1alpha1.ReasonGlobalAddresses, v1alpha1.ReasonGatewayLabelIgnored, v1alpha1.ReasonPodsNotRouted}

// setStatus sums up the members.
func setStatus(in Input, states []*state, t tally, statuses map[string]v1alpha1.MemberStatus,
) v1alpha1.ClusterSetStatus {
	status := *in.Set.Status.DeepCopy()
	status.ObservedGeneration = in.Set.Generation
	status.Members, status.AcceptedMembers, status.ConnectedMembers = int32(len(in.Joining)), 0, 0
	setPairs(in, &status, t)
	problems := slices.Clone(in.Problems)
	waiting := slices.Clone(in.Joining)
	for _, s := range states {
		problems = append(problems, s.problems...)
		if !s.active() {
			continue
		}
		status.Members++
		if s.accepted {
			status.AcceptedMembers++
		} else {
			waiting = append(waiting, s.name())
		}
		if meta.IsStatusConditionTrue(statuses[s.name()].Conditions, v1alpha1.MemberConnected) {
			status.ConnectedMembers++
		}
	}
	slices.SortStableFunc(problems, func(a, b v1alpha1.Problem) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	problems = slices.Compact(problems)
	status.Problems = problems[:min(len(problems), maxProblems)]
	slices.Sort(waiting)

	problems = slices.DeleteFunc(slices.Clone(problems), func(p v1alpha1.Problem) bool {
		return slices.Contains(bearable, p.Reason)
	})
	ready := metav1.Condition{Type: v1alpha1.ClusterSetReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message: "every selected cluster is an accepted member, and they reach each other"}
	switch {
	case len(problems) > 0:
		messages := make([]string, 0, len(problems))
		for _, p := range problems {
			messages = append(messages, p.Message)
			if p.Reason == v1alpha1.ReasonInvalidSettings {
				ready.Reason = v1alpha1.ReasonInvalidSettings
			}
		}
		ready.Status, ready.Message = metav1.ConditionFalse, bounded(strings.Join(messages, "; "))
		if ready.Reason == v1alpha1.ReasonReady {
			ready.Reason = v1alpha1.ReasonProblems
		}
	case len(waiting) > 0:
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonWaitingForFacts
		ready.Message = bounded("waiting for the first report of: " + strings.Join(waiting, ", "))
	case status.Members == 0:
		ready.Status = metav1.ConditionFalse
		ready.Reason, ready.Message = deserted(in)
	case len(t.down) > 0:
		ready.Status, ready.Reason, ready.Message = unreached(t)
	}
	for _, c := range []metav1.Condition{ready, membersConnected(in, t, status)} {
		c.ObservedGeneration, c.LastTransitionTime = in.Set.Generation, metav1.NewTime(in.Now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

// membersConnected is ClusterSetConnected by the members that are counted already.
func membersConnected(in Input, t tally, status v1alpha1.ClusterSetStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ClusterSetConnected, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonConnected, Message: fmt.Sprintf("%d members are connected to each other", status.Members)}
	switch {
	case status.Members == 0:
		c.Status = metav1.ConditionFalse
		c.Reason, c.Message = deserted(in)
	case status.ConnectedMembers != status.Members:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotConnected
		if status.AcceptedMembers == status.Members {
			c.Status, c.Reason, _ = unreached(t)
		}
		c.Message = fmt.Sprintf("%d of %d members are connected to every other, %d of %d pairs are connected",
			status.ConnectedMembers, status.Members, status.ConnectedPairs, status.Pairs)
	}
	return c
}

// deserted says why a ClusterSet has no member, and what to do.
func deserted(in Input) (reason, message string) {
	if !in.Set.DeletionTimestamp.IsZero() {
		return v1alpha1.ReasonDeleting, "the ClusterSet is being deleted, and its members have left; it goes when " +
			"Karmada has taken the agents out of their clusters, and can be created anew then"
	}
	return v1alpha1.ReasonNoMembers, "the ClusterSet has no member: spec.clusterAffinity selects no cluster of Karmada " +
		"that is not another's; correct it, or join clusters to Karmada"
}

// setRolledOut takes over whether all members have their new node agents; nil is of a ClusterSet none of whose members
// tells.
func setRolledOut(status *v1alpha1.ClusterSetStatus, c *metav1.Condition, in Input) {
	if c == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ClusterSetRolledOut)
		return
	}
	c.Message = bounded(c.Message)
	c.ObservedGeneration, c.LastTransitionTime = in.Set.Generation, metav1.NewTime(in.Now)
	meta.SetStatusCondition(&status.Conditions, *c)
}

// usualCablePort is that of a ClusterSet that says none.
const usualCablePort = 4500

// setPairs counts the pairs, and lists those that are not connected as far as there is room.
func setPairs(in Input, status *v1alpha1.ClusterSetStatus, t tally) {
	status.Pairs, status.ConnectedPairs = int32(t.connected+len(t.down)), int32(t.connected)
	status.UnconnectedPairs = nil
	for _, p := range t.down[:min(len(t.down), v1alpha1.MaxPairs)] {
		status.UnconnectedPairs = append(status.UnconnectedPairs, p.public(in))
	}
	status.UnlistedPairs = int32(len(t.down) - len(status.UnconnectedPairs))
}

// unreached says of pairs that are not all connected what a condition that needs them all is.
func unreached(t tally) (status metav1.ConditionStatus, reason, message string) {
	list, what := t.down, "are not known to reach each other"
	status, reason = metav1.ConditionUnknown, v1alpha1.ReasonConnectionUnknown
	if t.broken() > 0 {
		list, what = t.down[:t.broken()], "do not reach each other"
		status, reason = metav1.ConditionFalse, v1alpha1.ReasonNotConnected
	}
	var names []string
	for _, p := range list {
		names = append(names, fmt.Sprintf("%s and %s (%s)", p.a.name(), p.b.name(), p.worse().reason))
	}
	return status, reason, bounded(fmt.Sprintf("%d of %d pairs of members %s: %s", len(list),
		t.connected+len(t.down), what, clip.List(names, maxNamed)))
}
