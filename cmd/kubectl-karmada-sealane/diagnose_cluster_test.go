// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// usual is what a member has of DNS, kube-proxy and a CNI plugin.
func usual() []client.Object {
	system := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name,
			Labels: map[string]string{"k8s-app": "kube-dns"}}
	}
	slice := func(namespace, service string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-x",
				Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.8.0.2"}}},
		}
	}
	return []client.Object{
		&corev1.Service{ObjectMeta: system("kube-dns"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53}}}},
		&corev1.ConfigMap{ObjectMeta: system("coredns"), Data: map[string]string{"Corefile": ".:53 {\n}\n"}},
		&corev1.ConfigMap{ObjectMeta: system("kube-proxy"), Data: map[string]string{"config.conf": "mode: nftables\n"}},
		&appsv1.DaemonSet{ObjectMeta: system("kube-flannel-ds")},
		slice(metav1.NamespaceSystem, "kube-dns"), slice(v1alpha1.Namespace, dnsName),
	}
}

func clusterFlaws() []flaw {
	const c1 = "c1"
	says := func(kind string, status metav1.ConditionStatus, reason, message string) func(*testing.T, *snapshot) {
		return func(t *testing.T, s *snapshot) {
			m := the[*v1alpha1.Member](t, &s.karmada, c1)
			m.Status.Conditions = append(m.Status.Conditions, condition(kind, status, reason, message))
		}
	}
	proxy := func(text string) func(*testing.T, *snapshot) {
		return func(t *testing.T, s *snapshot) {
			the[*corev1.ConfigMap](t, s.member(c1), "kube-proxy").Data["config.conf"] = text
		}
	}
	small := func(mtu int32, message string) func(*testing.T, *snapshot) {
		return func(t *testing.T, s *snapshot) {
			c := &the[*v1alpha1.Gateway](t, s.member(c1), "c1-gw").Status.Connections[0]
			c.Reason, c.MTU, c.Message = v1alpha1.ReasonPathMTULow, mtu, message
		}
	}
	both := func(t *testing.T, s *snapshot) {
		small(1400, "packets larger than 1400 bytes are lost")(t, s)
		c := &the[*v1alpha1.Gateway](t, s.member("c2"), "c2-gw").Status.Connections[0]
		c.Reason, c.MTU = v1alpha1.ReasonPathMTULow, 1380
	}
	return []flaw{
		{"a zone that is taken", "dns", c1, says(v1alpha1.PeeringDNSConfigured, metav1.ConditionFalse,
			v1alpha1.ReasonDomainTaken, "the Corefile serves local"), verdictFail, "DomainTaken: the Corefile serves local",
			"forwards Sealane's domains", "docs/dns.md"},
		{"a zone that nobody asked for yet", "dns", c1, says(v1alpha1.PeeringDNSConfigured, metav1.ConditionUnknown, "Asking",
			""), verdictWarn, "DNSConfigured=Unknown", "forwards Sealane's domains", "docs/dns.md"},
		{"no cluster DNS", "dns", c1, func(_ *testing.T, s *snapshot) { s.member(c1).without("kube-dns") }, verdictWarn,
			"no Service of a cluster DNS", "that Sealane knows", "forward the domains yourself"},
		{"no pod of the cluster DNS", "dns", c1, func(_ *testing.T, s *snapshot) { s.member(c1).without("kube-dns-x") },
			verdictFail, "there is none", "behind Service kube-system/kube-dns", "-n kube-system get pods"},
		{"no pod of Sealane's", "dns", c1, func(t *testing.T, s *snapshot) {
			ready := false
			the[*discoveryv1.EndpointSlice](t, s.member(c1), dnsName+"-x").Endpoints[0].Conditions.Ready = &ready
		}, verdictFail, "there is none", "behind Service sealane-system/sealane-dns", "-n sealane-system get pods"},
		{"an untested mode", "kube-proxy", c1, proxy("mode: userspace\n"), verdictWarn, "mode userspace",
			"iptables, nftables or ipvs", "set mode"},
		{"no kube-proxy", "kube-proxy", c1, func(_ *testing.T, s *snapshot) { s.member(c1).without("kube-proxy") },
			verdictWarn, "no ConfigMap kube-system/kube-proxy", "iptables, nftables or ipvs", "how Services are served"},
		{"what may not be read", "kube-proxy", c1, func(_ *testing.T, s *snapshot) {
			s.member(c1).misses("ConfigMap", "forbidden: no")
		}, verdictWarn, "forbidden: no", "to read", "ask for the right"},
		{"no plugin", "cni", c1, func(_ *testing.T, s *snapshot) { s.member(c1).without("kube-flannel-ds") }, verdictWarn,
			"no DaemonSet of a CNI plugin", "a CNI plugin", "docs/cni.md"},
		{"an underlay", "cni", c1, says(v1alpha1.PeeringUnderlayRouted, metav1.ConditionFalse,
			v1alpha1.ReasonPublishRefused, "10.9.0.0/16"), verdictFail, "PublishRefused: 10.9.0.0/16", "of an underlay",
			"make the pods anew"},
		{"an underlay that nobody can tell", "cni", c1, says(v1alpha1.PeeringUnderlayRouted, metav1.ConditionUnknown,
			v1alpha1.ReasonNotPublished, "10.9.0.0/16"), verdictWarn, "NotPublished", "of an underlay", "make the pods anew"},
		{"too many networks", "cni", c1, func(_ *testing.T, s *snapshot) {
			n := &v1alpha1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "c1-w1"}}
			n.Spec.LeftOut = 3
			s.member(c1).objects = append(s.member(c1).objects, n)
		}, verdictFail, "3 more", "at most 4096 networks of pods on node c1-w1", "next to each other"},
		{"a black hole", "mtu", c1, small(1400, "packets larger than 1400 bytes are lost"), verdictWarn,
			"larger than 1400 bytes are lost; from the other end packets of full size pass",
			"packets of 1420 bytes to pass from c1-gw to c2-gw of c2", "tracepath -n 172.30.9.9"},
		{"a black hole both ways", "mtu", c1, both, verdictWarn, "from the other end 1380 bytes pass", "1420 bytes",
			"ICMP errors"},
		{"a black hole, and the other end goes by a relay", "mtu", c1, func(t *testing.T, s *snapshot) {
			both(t, s)
			the[*v1alpha1.Gateway](t, s.member("c2"), "c2-gw").Status.Connections[0].Through = "c5"
		}, verdictWarn, "the other end has no such tunnel", "1420 bytes", "ICMP errors"},
		{"one that swallows all", "mtu", c1, small(1280, "packets of 1280 bytes, which every path has to carry, are lost"),
			verdictFail, "every path has to carry", "1420 bytes", "ICMP errors"},
		{"a gateway's word", "mtu", c1, func(t *testing.T, s *snapshot) {
			g := the[*v1alpha1.Gateway](t, s.member(c1), "c1-gw")
			g.Status.Conditions = []metav1.Condition{condition(v1alpha1.GatewayFullSize, metav1.ConditionFalse,
				v1alpha1.ReasonPathMTULow, "c9-gw of c9: packets are lost")}
		}, verdictWarn, "c9-gw of c9", "packets of full size to pass from c1-gw", "as it says"},
	}
}

func serviceFlaws() []flaw {
	const c1, services = "c1", "services"
	export := func(conditions ...metav1.Condition) func(*testing.T, *snapshot) {
		return func(_ *testing.T, s *snapshot) {
			e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}
			e.Status.Conditions = conditions
			s.member(c1).objects = append(s.member(c1).objects, e)
		}
	}
	return []flaw{
		{"an export", services, c1, export(condition(exportValid, metav1.ConditionFalse, "NoService", "no such Service")),
			verdictFail, "ServiceExport shop/cart: NoService", "exported alike", "show services"},
		{"an export that waits", services, c1, export(), verdictWarn,
			"ServiceExport shop/cart: the ServiceExport is there, the cluster agent has not reported it yet", "exported alike",
			"show services"},
		{"what may not be read", services, c1, func(_ *testing.T, s *snapshot) {
			s.member(c1).misses("ServiceImport", "forbidden: no")
		}, verdictWarn, "forbidden: no", "every ServiceImport", "ask for the right"},
	}
}
