// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util/names"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// carriedBy is what Karmada holds of a member to which it brings all.
func carriedBy(cluster string) []client.Object {
	work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{
		Namespace: names.GenerateExecutionSpaceName(cluster), Name: peeringWork()}}
	work.Status.Conditions = []metav1.Condition{condition(workv1alpha1.WorkApplied, metav1.ConditionTrue, "Applied", "")}
	ready := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	ready.Status.Conditions = []metav1.Condition{condition(clusterv1alpha1.ClusterConditionReady, metav1.ConditionTrue,
		"ClusterReady", "")}
	return []client.Object{ready, work}
}

func sealanePolicy() client.Object {
	return &policyv1alpha1.ClusterPropagationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "sealane"}}
}

func karmadaFlaws() []flaw {
	const c1, karmada = "c1", "karmada"
	return []flaw{
		{"a kind", karmada, "", func(_ *testing.T, s *snapshot) {
			s.karmada.misses("Work", "not served")
		}, verdictFail, "Work (not served)", "the kinds of Karmada", "CRDs"},
		{"no policy", karmada, "", func(_ *testing.T, s *snapshot) {
			s.karmada.without("sealane")
		}, verdictFail, "there is none", "ClusterPropagationPolicies", "run install again"},
		{"a change that nobody looked at", karmada, "", func(t *testing.T, s *snapshot) {
			the[*v1alpha1.ClusterSet](t, &s.karmada, "default").Generation = 7
		}, verdictWarn, "generation 0 of 7", "ClusterSet default", "diagnose deployment"},
		{"a ClusterSet of nobody", karmada, "", func(t *testing.T, s *snapshot) {
			the[*v1alpha1.ClusterSet](t, &s.karmada, "default").Status.Conditions = []metav1.Condition{condition(
				v1alpha1.ClusterSetReady, metav1.ConditionFalse, v1alpha1.ReasonNoMembers, "it selects no cluster")}
		}, verdictFail, "NoMembers: it selects no cluster", "select members", "edit clusterset default"},
		{"a cluster that is not ready", karmada, c1, func(t *testing.T, s *snapshot) {
			the[*clusterv1alpha1.Cluster](t, &s.karmada, c1).Status.Conditions = nil
		}, verdictFail, "finds it not ready", "a Cluster that is Ready", "kubectl --context karmada describe cluster c1"},
		{"a Work that is not applied", karmada, c1, func(t *testing.T, s *snapshot) {
			for _, w := range of[*workv1alpha1.Work](&s.karmada) {
				if w.Namespace == "karmada-es-c1" {
					w.Status.Conditions[0] = condition(workv1alpha1.WorkApplied, metav1.ConditionFalse, "AppliedFailed", "no CRD")
				}
			}
		}, verdictFail, "AppliedFailed: no CRD", "to apply Work karmada-es-c1/", "-n karmada-es-c1 describe work"},
		{"no Peering", karmada, c1, func(_ *testing.T, s *snapshot) {
			s.karmada.without(peeringWork())
		}, verdictFail, "there is none", "brings the cluster its Peering", "controller's log"},
		{"an old report", karmada, c1, func(t *testing.T, s *snapshot) {
			m := the[*v1alpha1.Member](t, &s.karmada, c1)
			m.Status.Revision, m.Status.ObservedRevision = 9, 8
		}, verdictWarn, "answers revision 8", "revision 9", "cluster agent runs"},
		{"one that leaves", karmada, c1, func(t *testing.T, s *snapshot) {
			the[*v1alpha1.Member](t, &s.karmada, c1).Spec.Phase = v1alpha1.MemberLeaving
		}, verdictWarn, "it leaves", "a member that stays", "leave c1 --force"},
	}
}

func networkFlaws() []flaw {
	const c1, networks = "c1", "networks"
	says := func(kind string, status metav1.ConditionStatus, reason, message string) func(*testing.T, *snapshot) {
		return func(t *testing.T, s *snapshot) {
			m := the[*v1alpha1.Member](t, &s.karmada, c1)
			m.Status.Conditions = []metav1.Condition{condition(kind, status, reason, message)}
		}
	}
	return []flaw{
		{"an overlap", networks, c1, says(v1alpha1.MemberAccepted, metav1.ConditionFalse, v1alpha1.ReasonCIDROverlap,
			"10.8.0.0/16 overlaps c2"), verdictFail, "CIDROverlap: 10.8.0.0/16 overlaps c2", "nobody else's", "spec.clusters"},
		{"a report that was refused", networks, c1, says(v1alpha1.MemberAccepted, metav1.ConditionTrue,
			v1alpha1.ReasonKeptLastGood, "8.0.0.0/8 is not allowed"), verdictWarn, "8.0.0.0/8", "report that is valid",
			"spec.clusters"},
		{"what a node refuses", networks, c1, says(v1alpha1.PeeringNetworksAccepted, metav1.ConditionFalse,
			v1alpha1.ReasonNetworksRefused, "8.0.0.0/8 covers the resolver"), verdictFail, "covers the resolver",
			"no node needs itself", "networks-that-a-node-refuses"},
		{"pods elsewhere", networks, c1, says(v1alpha1.PeeringPodsRouted, metav1.ConditionFalse,
			v1alpha1.ReasonPodsNotRouted, "2 pods"), verdictFail, "PodsNotRouted: 2 pods", "pods with addresses", "docs/cni.md"},
		{"what is not known yet", networks, c1, says(v1alpha1.PeeringNetworksDiscovered, metav1.ConditionUnknown, "Asking",
			""), verdictWarn, "NetworksDiscovered=Unknown", "that are known", "spec.clusters"},
		{"none", networks, c1, func(t *testing.T, s *snapshot) {
			the[*v1alpha1.Member](t, &s.karmada, c1).Status.Networks.ServiceCIDRs = nil
		}, verdictFail, "pods 10.8.0.0/16; services none", "accepted networks", "spec.clusters"},
	}
}

func connectionFlaws() []flaw {
	const c1, connections = "c1", "connections"
	tunnel := func(t *testing.T, s *snapshot) *v1alpha1.Connection {
		return &the[*v1alpha1.Gateway](t, s.member(c1), "c1-gw").Status.Connections[0]
	}
	cut := func(t *testing.T, s *snapshot) {
		c := tunnel(t, s)
		c.Status, c.Reason, c.Message = v1alpha1.ConnectionError, v1alpha1.ReasonProbesLost, "probes are not answered"
	}
	return []flaw{
		{"a tunnel", connections, c1, cut, verdictFail, "c1-gw to c2-gw of c2: Error ProbesLost: probes are not answered",
			"an answer to probes from c1-gw to c2-gw of c2", "diagnose firewall"},
		{"one tunnel of two", connections, c1, func(t *testing.T, s *snapshot) {
			g := the[*v1alpha1.Gateway](t, s.member(c1), "c1-gw")
			g.Status.Connections = append(g.Status.Connections, v1alpha1.Connection{Cluster: "c2", Gateway: "c2-gw2",
				Status: v1alpha1.ConnectionConnecting, Reason: v1alpha1.ReasonNoHandshake})
		}, verdictWarn, "c2-gw2 of c2: Connecting NoHandshake; another tunnel", "an answer", "diagnose firewall"},
		{"loss", connections, c1, func(t *testing.T, s *snapshot) {
			tunnel(t, s).LossPercent = 7
		}, verdictWarn, "7 %", "less than 5 %", "172.30.9.9:4500"},
		{"a cable that is silent", connections, c1, func(t *testing.T, s *snapshot) {
			tunnel(t, s).Reason, tunnel(t, s).Message = v1alpha1.ReasonCableSilent, "traffic goes by wireguard"
		}, verdictWarn, "traffic goes by wireguard", "c1-gw to c2-gw of c2 to be by the cable that", "driver wireguard"},
		{"no IPsec, as before", connections, c1, func(t *testing.T, s *snapshot) {
			tunnel(t, s).Reason, tunnel(t, s).Message = v1alpha1.ReasonCableSilent, "traffic goes by wireguard, as before, "+
				"until ipsec answers: this node has no container that runs ipsec"
		}, verdictWarn, "no container that runs ipsec", "that the ClusterSet has for the pair", "do what the message says"},
		{"keys that stay", connections, c1, func(t *testing.T, s *snapshot) {
			tunnel(t, s).Cable, tunnel(t, s).Reason = v1alpha1.CableIPsec, v1alpha1.ReasonKeysStay
			tunnel(t, s).Message = "traffic goes on for an hour at most, by keys that nothing renews: charon does not answer"
		}, verdictWarn, "for an hour at most", "c1-gw to c2-gw of c2 to have its keys renewed",
			"the node agent at c1-gw, or else at c2-gw of c2"},
		{"no IPv6 for IPsec", connections, c1, func(t *testing.T, s *snapshot) {
			cut(t, s)
			tunnel(t, s).Cable, tunnel(t, s).Reason = v1alpha1.CableIPsec, v1alpha1.ReasonNoIPv6
			tunnel(t, s).Message = "this node's kernel has no IPv6, which ipsec needs"
		}, verdictFail, "no IPv6, which ipsec needs", "an answer to probes from c1-gw to c2-gw of c2",
			"do what the message says"},
		{"no container for IPsec", connections, c1, func(t *testing.T, s *snapshot) {
			cut(t, s)
			tunnel(t, s).Cable, tunnel(t, s).Reason = v1alpha1.CableIPsec, v1alpha1.ReasonNoIPsecContainer
			tunnel(t, s).Message = "this node has no container that runs ipsec: run kubectl karmada sealane install again"
		}, verdictFail, "NoIPsecContainer: this node has no container", "an answer to probes from c1-gw to c2-gw of c2",
			"or give the pair the driver wireguard"},
		{"a silent gateway", connections, c1, func(t *testing.T, s *snapshot) {
			at := metav1.NewTime(s.taken.Add(-time.Minute))
			the[*v1alpha1.Gateway](t, s.member(c1), "c1-gw").Status.SilentSince = &at
		}, verdictFail, "not been heard of for 1m0s", "gateway c1-gw to report", "spec.nodeName=c1-gw"},
		{"no gateway", connections, c1, func(_ *testing.T, s *snapshot) {
			s.member(c1).without("c1-gw")
		}, verdictFail, "there is none", "a gateway in the cluster", "GatewaysReady"},
		{"a cluster that no gateway names", connections, c1, func(t *testing.T, s *snapshot) {
			m := the[*v1alpha1.Member](t, &s.karmada, c1)
			m.Status.Connections = []v1alpha1.MemberConnection{{Cluster: "c5", Status: v1alpha1.ConnectionUnknown,
				Reason: v1alpha1.ReasonNoGateway}}
		}, verdictFail, "Unknown NoGateway", "a tunnel to c5", "why-two-clusters"},
		{"nothing was reported", connections, c1, func(_ *testing.T, s *snapshot) {
			*s.member(c1) = place{name: c1, context: c1, unread: map[string]string{everything: "unreachable"}}
		}, verdictWarn, "it has reported none", "connections to the other members", "diagnose karmada"},
		{"as it last reported", connections, c1, func(t *testing.T, s *snapshot) {
			*s.member(c1) = place{name: c1, context: c1, unread: map[string]string{everything: "unreachable"}}
			m := the[*v1alpha1.Member](t, &s.karmada, c1)
			m.Status.Connections = []v1alpha1.MemberConnection{{Cluster: "c2", Status: v1alpha1.ConnectionError,
				Reason: v1alpha1.ReasonProbesLost}}
		}, verdictFail, "as it last reported: Error ProbesLost", "a connection to c2", "why-two-clusters"},
	}
}
