// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/reach"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
)

// Input is all that decides about Peering.status.
type Input struct {
	Peering  *v1alpha1.Peering
	Found    discovery.Found
	Gateways []v1alpha1.Gateway
	// NodeExists says whether a node of that name does.
	NodeExists func(name string) bool
	// Members are the cluster's nodes, and Keys what the agents of nodes publish of them, by node.
	Members []corev1.Node
	Keys    map[string]v1alpha1.NodeKey
	// Elsewhere says that pods are not all where the spec.podCIDRs of nodes say: there are NodeNetworks.
	Elsewhere bool
	// Reached is to how many nodes of a cluster, by its name, the nodes here send without gateways, all together.
	Reached map[string]int32
	// Now is the time at which a Gateway's report is fresh or not.
	Now time.Time
	// Version of the agent.
	Version string
	// Limited is set where only v1alpha1 of the MCS API is served.
	Limited bool
	// DNS is the condition DNSConfigured, Nodes is NodesProgrammed, Agents is AgentsRunning, Accepted is NetworksAccepted,
	// Ready is GatewaysReady.
	DNS, Nodes, Agents, Accepted, Ready metav1.Condition
	// Routed is PodsRouted; nil while it is not known, so that what was said last stays.
	Routed *metav1.Condition
	// Underlay is UnderlayRouted, nil where it is not to be had; UnderlayKnown is not set where what was said last stays.
	Underlay      *metav1.Condition
	UnderlayKnown bool
	// FailedRevisions of the node agents, sorted.
	FailedRevisions []string
	// RollOut says how far the node agents have come with what their DaemonSet brings; nil while there are none.
	RollOut *v1alpha1.RollOutReport
	// ImportProblems are the imports that do not exist or cannot be used, sorted.
	ImportProblems []v1alpha1.ImportProblem
	// RefusedExports names the ServiceExports that are not exported as they ask, with the reasons. Sorted.
	RefusedExports []string
	// Remaining names what a leaving cluster still has to remove.
	Remaining []string
}

// PeeringStatus returns the report. It is pure.
func PeeringStatus(in Input) v1alpha1.PeeringStatus {
	out := v1alpha1.PeeringStatus{
		ObservedRevision: in.Peering.Spec.Revision,
		Networks:         in.Found.Networks,
		NodeCIDRs:        in.Found.NodeCIDRs,
		Endpoints:        endpoints(in),
		Connections:      connections(in),
		AgentVersion:     in.Version,
		ReadsParts:       true,
		ReadsText:        true,
		ReadsDeltas:      true,
		Relays:           relays(in),
		FailedRevisions:  in.FailedRevisions,
		Conditions:       slices.Clone(in.Peering.Status.Conditions),
	}
	measure(out.Connections, in)
	observe(out.Connections, in)
	wanted := []metav1.Condition{in.DNS, mcsAPI(in.Limited), applied(in.ImportProblems), networks(in.Found)}
	if in.Peering.Spec.Phase == v1alpha1.MemberLeaving {
		out.Cleaned = len(in.Remaining) == 0
		wanted = append(wanted, cleaned(in.Remaining))
	} else {
		out.RollOut = in.RollOut
		wanted = append(wanted, in.Nodes, in.Agents, in.Accepted, in.Ready, exported(in.RefusedExports))
		if in.Routed != nil {
			wanted = append(wanted, *in.Routed)
		}
		if in.Underlay != nil {
			wanted = append(wanted, *in.Underlay)
		} else if in.UnderlayKnown {
			meta.RemoveStatusCondition(&out.Conditions, v1alpha1.PeeringUnderlayRouted)
		}
		if meshed(in.Peering) {
			var published metav1.Condition
			out.Nodes, published = meshNodes(in)
			countPairs(out.Connections, in, len(out.Nodes))
			wanted = append(wanted, published)
		} else {
			meta.RemoveStatusCondition(&out.Conditions, v1alpha1.PeeringNodesPublished)
		}
		meta.RemoveStatusCondition(&out.Conditions, v1alpha1.MemberCleaned)
	}
	for _, c := range wanted {
		c.ObservedGeneration = in.Peering.Generation
		meta.SetStatusCondition(&out.Conditions, c)
	}
	return out
}

// endpoints of the gateways whose nodes exist. A gateway that has gone quiet stays: whether it works is for
// the tunnels' probes to say.
func endpoints(in Input) []v1alpha1.Endpoint {
	var out []v1alpha1.Endpoint
	for i := range in.Gateways {
		g := &in.Gateways[i]
		if !published(in, g) {
			continue
		}
		e := *g.Status.Endpoint
		e.Gateway, e.Slot = g.Name, g.Spec.Slot
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b v1alpha1.Endpoint) int { return cmp.Compare(a.Slot, b.Slot) })
	return out
}

// published says that others are told of a gateway.
func published(in Input, g *v1alpha1.Gateway) bool {
	return g.DeletionTimestamp == nil && g.Status.Endpoint != nil && g.Status.Endpoint.PublicKey != "" &&
		in.NodeExists(g.Name)
}

// connections to each remote cluster: the best that the gateways whose word counts report. One of which none of them
// says anything is connecting; where no gateway's word counts all are unknown.
func connections(in Input) []v1alpha1.MemberConnection {
	gateways := existing(in)
	best := reach.Connections(gateways, in.Now)
	silent := v1alpha1.MemberConnection{Status: v1alpha1.ConnectionConnecting, Reason: v1alpha1.ReasonNotReported}
	if why := unheard(gateways, in.Now); why != "" {
		silent.Status, silent.Reason = v1alpha1.ConnectionUnknown, why
	}
	var out []v1alpha1.MemberConnection
	for _, r := range in.Peering.Spec.RemoteClusters {
		c := silent
		if b, ok := best[r.Name]; ok {
			c.Status, c.Reason = b.Status, b.Reason
		}
		if c.Status == v1alpha1.ConnectionConnected && cableSilent(gateways, r.Name, in.Now) {
			c.Reason = v1alpha1.ReasonCableSilent
		}
		c.Cluster, c.Through, c.MTU = r.Name, r.Relay, smallest(gateways, r.Name, in.Now)
		c.LastTransitionTime = lastTransition(in, gateways, c)
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b v1alpha1.MemberConnection) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

// cableSilent says that a gateway sends to another cluster by another cable than the pair's, which does not answer.
func cableSilent(gateways []v1alpha1.Gateway, cluster string, now time.Time) bool {
	return slices.ContainsFunc(reach.Reporting(gateways, now), func(g *v1alpha1.Gateway) bool {
		return slices.ContainsFunc(g.Status.Connections, func(c v1alpha1.Connection) bool {
			return c.Cluster == cluster && c.Status == v1alpha1.ConnectionConnected && c.Reason == v1alpha1.ReasonCableSilent
		})
	})
}

// relays is the digest of what the cluster was told to pass on, once all gateways have it in force that others are told
// of: a silent one's cables may carry on. Until then it is that of one which has not; empty if an agent does not know
// of relays.
func relays(in Input) string {
	digest, told := "", v1alpha1.DigestOfRelays(in.Peering.Spec.Relays)
	for i := range in.Gateways {
		g := &in.Gateways[i]
		if !published(in, g) {
			continue
		}
		has := g.Status.RelaysInForce()
		if has == "" {
			return ""
		}
		if digest == "" || digest == told {
			digest = has
		}
	}
	return digest
}

// smallest is the largest size that passes by all tunnels of a cluster to another, where larger ones are lost; else 0.
func smallest(gateways []v1alpha1.Gateway, cluster string, now time.Time) int32 {
	var out int32
	for _, g := range reach.Reporting(gateways, now) {
		for _, c := range g.Status.Connections {
			if c.Cluster == cluster && c.Status == v1alpha1.ConnectionConnected && c.MTU > 0 && (out == 0 || c.MTU < out) {
				out = c.MTU
			}
		}
	}
	return out
}

// lastTransition is when a connection came to its status: as was reported before if it has not changed, else as those
// gateways say whose word counts, and where none does, now. One tunnel that is connected is enough, so that the first
// counts; anything else takes all of them, so that the last does.
func lastTransition(in Input, gateways []v1alpha1.Gateway, c v1alpha1.MemberConnection) *metav1.Time {
	for _, last := range in.Peering.Status.Connections {
		if last.Cluster == c.Cluster && last.Status == c.Status && last.LastTransitionTime != nil {
			return last.LastTransitionTime
		}
	}
	now := metav1.NewTime(in.Now.Truncate(time.Second))
	var found *metav1.Time
	for _, g := range reach.Reporting(gateways, in.Now) {
		for _, t := range g.Status.Connections {
			at := t.LastTransitionTime
			if t.Cluster != c.Cluster || t.Status != c.Status || at == nil {
				continue
			}
			if found == nil || at.Before(found) == (c.Status == v1alpha1.ConnectionConnected) {
				found = at
			}
		}
	}
	if found == nil || now.Before(found) {
		return &now
	}
	return found
}

// unheard says why no gateway's word counts, as the reason of unknown connections; "" if one's does.
func unheard(gateways []v1alpha1.Gateway, now time.Time) string {
	why := v1alpha1.ReasonNoGateway
	for i := range gateways {
		g := &gateways[i]
		switch {
		case reach.Fresh(g, now):
			return ""
		case g.DeletionTimestamp != nil:
		case g.Status.ReportedAt != nil || g.Status.SilentSince != nil:
			why = v1alpha1.ReasonAgentSilent
		case why == v1alpha1.ReasonNoGateway:
			why = v1alpha1.ReasonNotReported
		}
	}
	return why
}

// existing are the gateways whose nodes exist.
func existing(in Input) []v1alpha1.Gateway {
	return slices.DeleteFunc(slices.Clone(in.Gateways), func(g v1alpha1.Gateway) bool { return !in.NodeExists(g.Name) })
}

func condition(kind string, ok bool, reason, format string, args ...any) metav1.Condition {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func mcsAPI(limited bool) metav1.Condition {
	if limited {
		return condition(v1alpha1.MemberMCSAPI, false, v1alpha1.ReasonMCSAPILimited, "the cluster serves only v1alpha1 of "+
			"ServiceExport and ServiceImport, installed by somebody else: "+
			"exported labels come from annotations, IP families and one of two addresses are left out; "+
			"install the CustomResourceDefinitions of sigs.k8s.io/mcs-api v0.5.2, "+
			"or delete those there and Sealane installs its own")
	}
	return condition(v1alpha1.MemberMCSAPI, true, "Served", "the cluster serves v1beta1 of ServiceExport and "+
		"ServiceImport")
}

// applied names the imports with the most urgent reason: what a person must decide about comes before what a namespace
// lacks.
func applied(problems []v1alpha1.ImportProblem) metav1.Condition {
	if len(problems) == 0 {
		return condition(v1alpha1.PeeringImportsApplied, true, "Applied", "every import exists and can be used")
	}
	first := slices.MinFunc(problems, func(a, b v1alpha1.ImportProblem) int {
		return cmp.Compare(urgency(a.Reason),
			urgency(b.Reason))
	}).Reason
	var texts, namespaces []string
	for _, p := range problems {
		if p.Reason != first {
			continue
		}
		namespaces = append(namespaces, p.Namespace)
		names := make([]string, 0, len(p.Names))
		for _, name := range p.Names {
			names = append(names, p.Namespace+"/"+name)
		}
		texts = append(texts, some(names)+": "+p.Message)
	}
	if first == v1alpha1.ReasonNamespaceMissing {
		return condition(v1alpha1.PeeringImportsApplied, false, first,
			"services are imported into namespaces that do not exist here: %s; create them to use the services",
			some(namespaces))
	}
	return condition(v1alpha1.PeeringImportsApplied, false, first, "%s", strings.Join(texts[:min(len(texts), 5)], "; "))
}

// urgency orders the reasons of problems; the lowest comes first.
func urgency(reason string) int {
	order := []string{v1alpha1.ReasonNameTaken, v1alpha1.ReasonImportRefused, v1alpha1.ReasonImportPending,
		v1alpha1.ReasonImportWithheld, v1alpha1.ReasonNamespaceMissing}
	if at := slices.Index(order, reason); at >= 0 {
		return at
	}
	return len(order)
}

func exported(refused []string) metav1.Condition {
	if len(refused) > 0 {
		return condition(v1alpha1.PeeringExportsAccepted, false, v1alpha1.ReasonExportsRefused, "see the conditions of the "+
			"ServiceExports %s", some(refused))
	}
	return condition(v1alpha1.PeeringExportsAccepted, true, v1alpha1.ReasonAccepted,
		"no ServiceExport is refused or in conflict")
}

func networks(f discovery.Found) metav1.Condition {
	if f.Problem != "" {
		return condition(v1alpha1.PeeringNetworksDiscovered, false, "TooMany", "%s", f.Problem)
	}
	n := f.Networks
	var missing []string
	if len(n.PodCIDRs) == 0 {
		missing = append(missing, "podCIDRs")
	}
	if len(n.ServiceCIDRs) == 0 {
		missing = append(missing, "serviceCIDRs")
	}
	if len(missing) > 0 {
		return condition(v1alpha1.PeeringNetworksDiscovered, false, "Unknown", "nothing in the cluster states its %s; set "+
			"them in the ClusterSet under spec.clusters[].networks", strings.Join(missing, " and "))
	}
	return condition(v1alpha1.PeeringNetworksDiscovered, true, "Discovered", "pod and service networks are known")
}

func cleaned(remaining []string) metav1.Condition {
	if len(remaining) > 0 {
		return condition(v1alpha1.MemberCleaned, false, "Cleaning", "still there: %s", some(remaining))
	}
	return condition(v1alpha1.MemberCleaned, true, "Cleaned", "nothing of Sealane is left on the nodes")
}

// some of a list that may be long.
func some(list []string) string { return clip.List(list, 10) }
