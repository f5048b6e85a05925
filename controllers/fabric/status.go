// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// maxProblems is how many problems a ClusterSet shows.
const maxProblems = 50

// memberStatus is the new record of one member.
func memberStatus(s *state, states []*state, now time.Time) v1alpha1.MemberStatus {
	status := *s.Record.Status.DeepCopy()
	if s.Report.Known {
		status.ObservedRevision = s.Report.Status.ObservedRevision
		status.AgentVersion = clip.Text(s.Report.Status.AgentVersion, maxVersion)
		status.Connections = connections(s, states)
		for _, t := range []string{v1alpha1.MemberMCSAPI, v1alpha1.PeeringDNSConfigured, v1alpha1.PeeringNodesProgrammed,
			v1alpha1.PeeringNetworksAccepted} {
			copyCondition(&status.Conditions, s.Report.Status.Conditions, t)
		}
	}
	if !s.active() {
		// It has released its networks, and somebody else may have them when it comes back.
		status.AcceptedAt = nil
		if cleaned(s) {
			meta.SetStatusCondition(&status.Conditions, metav1.Condition{
				Type: v1alpha1.MemberCleaned, Status: metav1.ConditionTrue, Reason: v1alpha1.MemberCleaned,
				Message:            "the cluster has answered that its nodes are clean",
				ObservedGeneration: s.Record.Generation, LastTransitionTime: metav1.NewTime(now),
			})
		}
		return status
	}
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.MemberCleaned)
	if s.accepted {
		networks := s.force.Networks()
		status.Networks, status.NodeCIDRs, status.Endpoints = networks, s.force.NodeCIDRs(), s.endpoints
		status.PodNetworks = strings.Join(networks.PodCIDRs, ",")
		status.ServiceNetworks = strings.Join(networks.ServiceCIDRs, ",")
		if status.AcceptedAt == nil {
			at := metav1.NewMicroTime(now)
			status.AcceptedAt = &at
		}
	}
	set := func(kind string, ok bool, reason, message string) {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: s.Record.Generation, LastTransitionTime: metav1.NewTime(now),
		}
		if ok {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	set(v1alpha1.MemberAccepted, s.accepted, s.reason, s.message)
	if s.Report.Known {
		set(v1alpha1.MemberReported, true, v1alpha1.ReasonReported, "the agent reports")
	} else {
		set(v1alpha1.MemberReported, false, v1alpha1.ReasonUnknown,
			"there is no current report; what was last known stays in force")
	}
	missing := unconnected(s, states, status.Connections)
	if s.accepted && len(missing) == 0 {
		set(v1alpha1.MemberConnected, true, v1alpha1.ReasonConnected, "connected to every other accepted member")
	} else {
		set(v1alpha1.MemberConnected, false, v1alpha1.ReasonNotConnected, "not connected to: "+strings.Join(missing, ", "))
	}
	return status
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
		s.Report.Known && s.Report.Status.Cleaned && s.Report.Status.ObservedRevision >= s.Sent.Revision
}

// complain takes over what a member itself says is wrong there.
func complain(s *state) {
	if !s.active() || !s.Report.Known {
		return
	}
	for _, c := range s.Report.Status.Conditions {
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
	case v1alpha1.PeeringNetworksAccepted:
		return []string{v1alpha1.ReasonNetworksRefused}
	case v1alpha1.PeeringExportsAccepted:
		return []string{v1alpha1.ReasonExportsRefused}
	case v1alpha1.PeeringImportsApplied:
		return []string{v1alpha1.ReasonNameTaken, v1alpha1.ReasonImportRefused}
	case v1alpha1.PeeringDNSConfigured:
		return []string{v1alpha1.ReasonNoCorefile, v1alpha1.ReasonInvalidCorefile, v1alpha1.ReasonMarkersBroken,
			v1alpha1.ReasonDomainTaken}
	}
	return nil
}

// connections keeps of a report what concerns members of the set.
func connections(s *state, states []*state) []v1alpha1.MemberConnection {
	var out []v1alpha1.MemberConnection
	for _, c := range s.Report.Status.Connections {
		switch c.Status {
		case v1alpha1.ConnectionConnecting, v1alpha1.ConnectionConnected, v1alpha1.ConnectionError:
		default:
			continue
		}
		known := slices.ContainsFunc(states, func(o *state) bool { return o != s && o.name() == c.Cluster })
		if known && !slices.ContainsFunc(out, func(o v1alpha1.MemberConnection) bool { return o.Cluster == c.Cluster }) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.MemberConnection) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

// unconnected names the other accepted members that a member reports no connection to.
func unconnected(s *state, states []*state, reported []v1alpha1.MemberConnection) []string {
	var missing []string
	for _, other := range states {
		if other == s || !other.accepted || !other.active() {
			continue
		}
		if !slices.Contains(reported, v1alpha1.MemberConnection{Cluster: other.name(),
			Status: v1alpha1.ConnectionConnected}) {
			missing = append(missing, other.name())
		}
	}
	slices.Sort(missing)
	return missing
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

// ofServices are the reasons of problems with a service: these concern its owner.
var ofServices = []string{v1alpha1.ReasonExportsRefused, v1alpha1.ReasonNameTaken, v1alpha1.ReasonImportRefused}

// setStatus sums up the members.
func setStatus(in Input, states []*state, statuses map[string]v1alpha1.MemberStatus) v1alpha1.ClusterSetStatus {
	status := *in.Set.Status.DeepCopy()
	status.ObservedGeneration = in.Set.Generation
	status.Members, status.AcceptedMembers, status.ConnectedMembers = int32(len(in.Joining)), 0, 0
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

	// What is wrong with a service does not decide whether the network is ready.
	problems = slices.DeleteFunc(slices.Clone(problems), func(p v1alpha1.Problem) bool {
		return slices.Contains(ofServices, p.Reason)
	})
	ready, reason, message := true, v1alpha1.ReasonReady, "every selected cluster is an accepted member"
	switch {
	case len(problems) > 0:
		messages := make([]string, 0, len(problems))
		for _, p := range problems {
			messages = append(messages, p.Message)
			if p.Reason == v1alpha1.ReasonInvalidSettings {
				reason = v1alpha1.ReasonInvalidSettings
			}
		}
		ready, message = false, bounded(strings.Join(messages, "; "))
		if reason == v1alpha1.ReasonReady {
			reason = v1alpha1.ReasonProblems
		}
	case len(waiting) > 0:
		ready, reason, message = false, v1alpha1.ReasonWaitingForFacts, bounded("waiting for the first report of: "+
			strings.Join(waiting, ", "))
	}
	setCondition(&status, in, v1alpha1.ClusterSetReady, ready, reason, message)
	if status.ConnectedMembers == status.Members {
		setCondition(&status, in, v1alpha1.ClusterSetConnected, true, v1alpha1.ReasonConnected,
			fmt.Sprintf("%d members are connected to each other", status.Members))
	} else {
		setCondition(&status, in, v1alpha1.ClusterSetConnected, false, v1alpha1.ReasonNotConnected,
			fmt.Sprintf("%d of %d members are connected to every other", status.ConnectedMembers, status.Members))
	}
	return status
}

func setCondition(status *v1alpha1.ClusterSetStatus, in Input, kind string, ok bool, reason, message string) {
	c := metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: in.Set.Generation, LastTransitionTime: metav1.NewTime(in.Now),
	}
	if ok {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, c)
}
