// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// agentOn is the pod of a node agent that reaches all gateways.
func agentOn(node string) client.Object {
	pod := &corev1.Pod{ObjectMeta: ours("sealane-node-" + node)}
	pod.Labels = map[string]string{"app.kubernetes.io/name": nodeAgentName}
	pod.Spec.NodeName = node
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: v1alpha1.PodNodeProgrammed, Status: corev1.ConditionTrue},
		{Type: v1alpha1.PodGatewaysReached, Status: corev1.ConditionTrue}}
	return pod
}

// onCloud has a node be a provider's.
func onCloud(p *place, providerID string) {
	p.objects = append(p.objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"},
		Spec: corev1.NodeSpec{ProviderID: providerID}})
}

func firewallFlaws() []flaw {
	const c1, c2, firewall = "c1", "c2", "firewall"
	tunnel := func(t *testing.T, s *snapshot, cluster string) *v1alpha1.Connection {
		return &the[*v1alpha1.Gateway](t, s.member(cluster), cluster+"-gw").Status.Connections[0]
	}
	cut := func(here, there *bool) func(*testing.T, *snapshot) {
		return func(t *testing.T, s *snapshot) {
			for cluster, heard := range map[string]*bool{c1: here, c2: there} {
				c := tunnel(t, s, cluster)
				c.Status, c.Heard, c.Link = v1alpha1.ConnectionError, heard, "sl-c2"
			}
		}
	}
	yes, no := ptr.To(true), ptr.To(false)
	unreached := func(change func(g *v1alpha1.Gateway, s *snapshot)) func(*testing.T, *snapshot) {
		return func(t *testing.T, s *snapshot) {
			pod := the[*corev1.Pod](t, s.member(c1), "sealane-node-c1-w1")
			pod.Status.Conditions[2].Status, pod.Status.Conditions[2].Message = corev1.ConditionFalse, "c1-gw"
			change(the[*v1alpha1.Gateway](t, s.member(c1), "c1-gw"), s)
		}
	}
	noContainer := func(t *testing.T, s *snapshot, cluster string) {
		for _, in := range []string{c1, c2} {
			tunnel(t, s, in).Link, tunnel(t, s, in).Cable = "sl-ci2", v1alpha1.CableIPsec
			tunnel(t, s, in).Reason = v1alpha1.ReasonNoHandshake
		}
		c := tunnel(t, s, cluster)
		c.Reason, c.Message = v1alpha1.ReasonNoIPsecContainer, "this node has no container that runs ipsec"
	}
	// silent has the pair go by WireGuard, where it is to go by another cable.
	silent := func(driver v1alpha1.CableDriver) func(*testing.T, *snapshot) {
		return func(t *testing.T, s *snapshot) {
			set := of[*v1alpha1.ClusterSet](&s.karmada)[0]
			set.Spec.Cable.Driver, set.Spec.Cable.Unencrypted = driver, driver == v1alpha1.CableVXLAN
			c := tunnel(t, s, c1)
			c.Reason, c.Message = v1alpha1.ReasonCableSilent, "traffic goes by wireguard"
		}
	}
	return []flaw{
		{"one way", firewall, c1, cut(no, yes), verdictFail,
			"what c1-gw sends to 172.30.9.9:4500 arrives: this way alone is shut",
			"from c2-gw of c2 to arrive at UDP 4502 of c1-gw (172.30.1.11, 192.0.2.7)", "open UDP 4502 of c1-gw"},
		{"the other way", firewall, c1, cut(yes, no), verdictFail,
			"arrives here, and what c1-gw sends to 172.30.9.9:4500 does not arrive: this way alone is shut",
			"packets from c1-gw to arrive at c2-gw of c2", "open UDP to 172.30.9.9:4500"},
		{"both ways", firewall, c1, cut(no, no), verdictFail, "both ways are shut", "UDP 4502", "firewalls of both clusters"},
		{"both ways, at the other end", firewall, c2, cut(no, no), verdictFail, "both ways are shut",
			"from c1-gw of c1 to arrive at UDP 4502 of c2-gw", "open UDP 4502 of c2-gw"},
		{"by IPsec", firewall, c1, func(t *testing.T, s *snapshot) {
			cut(no, no)(t, s)
			tunnel(t, s, c1).Link, tunnel(t, s, c1).Cable = "sl-ci2", v1alpha1.CableIPsec
		}, verdictFail, "both ways are shut", "to arrive at UDP 4534 of c1-gw", "open UDP 4534 of c1-gw"},
		{"no container for IPsec here", firewall, c1, func(t *testing.T, s *snapshot) {
			cut(no, no)(t, s)
			noContainer(t, s, c1)
		}, verdictWarn, "as c1-gw says: this node has no container", "whether UDP 4534 passes", "do what that says"},
		{"no container for IPsec there", firewall, c2, func(t *testing.T, s *snapshot) {
			cut(no, no)(t, s)
			noContainer(t, s, c1)
		}, verdictWarn, "as c1-gw of c1 says: this node has no container", "whether UDP 4534 passes", "do what that says"},
		{"within the tunnel", firewall, c1, cut(yes, yes), verdictFail, "UDP passes both ways", "probes within the tunnel",
			"sl-c*"},
		{"both ways, on AWS", firewall, c1, func(t *testing.T, s *snapshot) {
			cut(no, no)(t, s)
			onCloud(s.member(c1), "aws:///eu-west-1a/i-0a1b2c3d")
		}, verdictFail, "both ways are shut", "UDP 4502", "AWS: the security groups of the instances"},
		{"between nodes on Azure", firewall, c1, func(t *testing.T, s *snapshot) {
			unreached(func(*v1alpha1.Gateway, *snapshot) {})(t, s)
			onCloud(s.member(c1), "azure:///subscriptions/x/virtualMachines/y")
		}, verdictFail, "UDP 4800", "c1-gw", "Azure: the network security groups"},
		{"a silent cable by IPsec", firewall, c1, silent(v1alpha1.CableIPsec), verdictWarn, "traffic goes by wireguard",
			"by UDP 4534, from c1-gw to c2-gw of c2", "open UDP 4534 between the two"},
		{"a silent cable by VXLAN", firewall, c1, func(t *testing.T, s *snapshot) {
			silent(v1alpha1.CableVXLAN)(t, s)
			onCloud(s.member(c1), "gce://project/europe-west1-b/node-1")
		}, verdictWarn, "traffic goes by wireguard", "by UDP 4533", "canIpForward of the instances may stay off"},
		{"too early", firewall, c1, cut(nil, yes), verdictWarn, "too early", "UDP 4502", "half a minute"},
		{"one end does not say", firewall, c1, func(t *testing.T, s *snapshot) {
			cut(yes, yes)(t, s)
			*s.member(c2) = place{name: c2, context: c2, unread: map[string]string{everything: "unreachable"}}
		}, verdictFail, "arrives here; whether what c1-gw sends", "from c1-gw to arrive at c2-gw of c2", "ask both"},
		{"one end is silent", firewall, c1, func(t *testing.T, s *snapshot) {
			cut(no, yes)(t, s)
			at := metav1.NewTime(s.taken.Add(-time.Minute))
			the[*v1alpha1.Gateway](t, s.member(c2), "c2-gw").Status.SilentSince = &at
		}, verdictFail, "whether what c1-gw sends to 172.30.9.9:4500 arrives is not known", "UDP 4502", "open"},
		{"one end goes by a relay", firewall, c1, func(t *testing.T, s *snapshot) {
			cut(no, no)(t, s)
			tunnel(t, s, c2).Through = "c5"
		}, verdictFail, "whether what c1-gw sends to 172.30.9.9:4500 arrives is not known", "UDP 4502", "open"},
		{"from a node to a gateway", firewall, c1, unreached(func(g *v1alpha1.Gateway, _ *snapshot) {
			g.Status.UnheardNodes = []string{"c1-w1"}
		}), verdictFail, "UDP 4800 from c1-w1 does not arrive at c1-gw", "gateway c1-gw to answer what node c1-w1 sends",
			"open UDP 4800"},
		{"from a gateway to a node", firewall, c1, unreached(func(*v1alpha1.Gateway, *snapshot) {}), verdictFail,
			"UDP 4800 from c1-w1 arrives at c1-gw, and the answers do not arrive at c1-w1", "c1-gw", "open UDP 4800"},
		{"another VXLAN port", firewall, c1, unreached(func(_ *v1alpha1.Gateway, s *snapshot) {
			for _, set := range of[*v1alpha1.ClusterSet](&s.karmada) {
				set.Spec.Cable.VXLANPort = 4789
			}
		}), verdictFail, "UDP 4789 from c1-w1 arrives", "c1-gw", "open UDP 4789"},
		{"a silent gateway", firewall, c1, unreached(func(g *v1alpha1.Gateway, s *snapshot) {
			at := metav1.NewTime(s.taken.Add(-time.Minute))
			g.Status.SilentSince = &at
		}), verdictFail, "its agent is silent", "c1-gw", "diagnose deployment"},
		{"a gateway that was", firewall, c1, unreached(func(_ *v1alpha1.Gateway, s *snapshot) {
			s.member(c1).without("c1-gw")
		}), verdictWarn, "no such gateway any more", "c1-gw", "open UDP 4800"},
		{"many nodes", firewall, c1, unreached(func(g *v1alpha1.Gateway, _ *snapshot) {
			g.Status.UnheardNodes = strings.Split(strings.Repeat("c1-w9,", v1alpha1.MaxUnheardNodes-1)+"c1-w9", ",")
		}), verdictFail, "does not name all", "c1-gw", "open UDP 4800"},
		{"an older agent", firewall, c1, func(t *testing.T, s *snapshot) {
			pod := the[*corev1.Pod](t, s.member(c1), "sealane-node-c1-w1")
			pod.Status.Conditions = pod.Status.Conditions[:2]
		}, verdictWarn, "c1-w1 do not: they are of an older version", "which gateways", "diagnose versions"},
	}
}

// TestFirewallOfIPsec: its port is named where a cable by IPsec is, and nowhere else.
func TestFirewallOfIPsec(t *testing.T) {
	for _, f := range firewallFlaws() {
		s := well()
		f.change(t, s)
		text := fmt.Sprint(checkFirewall(s))
		if got, want := strings.Contains(text, "4534"), strings.Contains(f.name, "IPsec"); got != want {
			t.Errorf("%s: names UDP 4534 %v, want %v: %s", f.name, got, want, text)
		}
	}
	if text := fmt.Sprint(checkFirewall(well())); strings.Contains(text, "4534") {
		t.Error(text)
	}
}

// TestFirewallNamesThePortsThatAreUsed: where all is well it says so of these alone. WireGuard's may be shut beside a
// cable by IPsec.
func TestFirewallNamesThePortsThatAreUsed(t *testing.T) {
	for link, want := range map[string]string{"sl-c2": "UDP 4500 and up passes", "sl-ci2": "UDP 4534 passes",
		"sl-cv2": "UDP 4533 passes"} {
		s := well()
		for i := range s.members {
			for _, g := range of[*v1alpha1.Gateway](&s.members[i]) {
				for j := range g.Status.Connections {
					g.Status.Connections[j].Link = link
				}
			}
		}
		for _, c := range checkFirewall(s) {
			if c.Verdict != verdictOK || !strings.Contains(c.Found, want) {
				t.Errorf("by %s: %+v, want %q", link, c, want)
			}
		}
	}
}
