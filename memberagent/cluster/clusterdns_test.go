// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// dnsProgram is the Service of a cluster's DNS and a Deployment that mounts these ConfigMaps, the first for a Corefile.
// It returns the Service.
func (m *member) dnsProgram(service, deployment, container string, mounts ...string) *corev1.Service {
	m.t.Helper()
	app := map[string]string{"k8s-app": "kube-dns"}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: service, Labels: app}}
	s.Spec.Selector = app
	s.Spec.Ports = []corev1.ServicePort{{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: deployment}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: app}
	d.Spec.Template.Labels = app
	c := corev1.Container{Name: container, Image: "x"}
	for i, name := range mounts {
		at := "/etc/coredns/custom"
		if i == 0 {
			c.Args, at = []string{"-conf", "/etc/coredns/Corefile"}, "/etc/coredns"
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at})
		d.Spec.Template.Spec.Volumes = append(d.Spec.Template.Spec.Volumes, corev1.Volume{Name: name,
			VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name},
			}}})
	}
	d.Spec.Template.Spec.Containers = []corev1.Container{c}
	m.create(d)
	m.create(s)
	return s
}

func (m *member) dnsConfig(name string, data map[string]string) *corev1.ConfigMap {
	m.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: data}
	m.create(cm)
	return cm
}

// hasData waits until a ConfigMap has exactly this.
func (m *member) hasData(name string, want map[string]string) {
	m.t.Helper()
	m.eventually("ConfigMap "+name, func(ctx context.Context) error {
		cm := &corev1.ConfigMap{}
		if err := m.Get(ctx, types.NamespacedName{Namespace: "kube-system", Name: name}, cm); err != nil {
			return err
		}
		return expect("data", fmt.Sprintf("%q", cm.Data), fmt.Sprintf("%q", want))
	})
}

// leave has the member leave, and waits until nothing of the cluster's DNS is left to be removed.
func (m *member) leave() {
	m.t.Helper()
	change(m, &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}}, func(p *v1alpha1.Peering) {
		p.Spec.Phase = v1alpha1.MemberLeaving
	})
	m.peeringCondition("DNSConfigured", metav1.ConditionFalse, "Removed", "")
}

// dnsMember is a member with an agent at work once prepare has made the cluster's DNS, and the address of Sealane's.
func dnsMember(t *testing.T, prepare func(m *member)) (m *member, address string) {
	t.Helper()
	m = newMember(t)
	prepare(m)
	m.start(m.config)
	m.peering(1)
	dns := &corev1.Service{}
	if err := m.Get(t.Context(), types.NamespacedName{Namespace: v1alpha1.Namespace, Name: "sealane-dns"},
		dns); err != nil {
		t.Fatal(err)
	}
	return m, dns.Spec.ClusterIP
}

const serverBlock = "clusterset.local:53 {\n    errors\n    forward . %s\n}\n"

func markedBlock(address string) string {
	return "# BEGIN sealane\n" + fmt.Sprintf(serverBlock, address) + "# END sealane\n"
}

const importing = ".:53 {\n    kubernetes cluster.local\n    reload\n    import /etc/coredns/custom/*.override\n}\n" +
	"import /etc/coredns/custom/*.server\n"

// TestClusterDNSOfK3s: its Corefile, which is written anew at each restart, is left alone.
func TestClusterDNSOfK3s(t *testing.T) {
	m, address := dnsMember(t, func(m *member) {
		m.dnsProgram("kube-dns", "coredns", "coredns", "coredns", "coredns-custom")
		m.dnsConfig("coredns", map[string]string{"Corefile": importing})
	})
	m.hasData("coredns-custom", map[string]string{"sealane.server": markedBlock(address)})
	m.peeringCondition("DNSConfigured", metav1.ConditionTrue, "Configured", "ConfigMap kube-system/coredns-custom")
	custom := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns-custom"}}
	m.delete(custom.DeepCopy())
	m.hasData("coredns-custom", map[string]string{"sealane.server": markedBlock(address)})
	m.leave()
	m.gone(custom)
	m.hasData("coredns", map[string]string{"Corefile": importing})
}

// TestClusterDNSOfAKS: the ConfigMap is there, and others have keys in it.
func TestClusterDNSOfAKS(t *testing.T) {
	corp := map[string]string{"corp.server": "corp.example:53 {\n    forward . 10.0.0.1\n}\n"}
	m, address := dnsMember(t, func(m *member) {
		m.dnsProgram("kube-dns", "coredns", "coredns", "coredns", "coredns-custom")
		m.dnsConfig("coredns", map[string]string{"Corefile": strings.ReplaceAll(importing, "/etc/coredns/", "")})
		m.dnsConfig("coredns-custom", corp)
	})
	m.hasData("coredns-custom", map[string]string{"sealane.server": markedBlock(address),
		"corp.server": corp["corp.server"]})
	m.leave()
	m.hasData("coredns-custom", corp)
}

// TestClusterDNSOfAnotherName: RKE2's, and what a tool puts back again and again.
func TestClusterDNSOfAnotherName(t *testing.T) {
	const name = "rke2-coredns-rke2-coredns"
	m, address := dnsMember(t, func(m *member) {
		m.dnsProgram(name, name, "coredns", name)
		m.dnsConfig(name, map[string]string{"Corefile": corefile})
	})
	m.hasData(name, map[string]string{"Corefile": markedBlock(address) + corefile})
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
	for i := range 20 {
		change(m, cm, func(c *corev1.ConfigMap) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, "argocd.argoproj.io/tracking-id", "dns")
			c.Data["Corefile"] = corefile
		})
		if i < 19 {
			m.hasData(name, map[string]string{"Corefile": markedBlock(address) + corefile})
		}
	}
	m.peeringCondition("DNSConfigured", metav1.ConditionFalse, "DNSPutBack", `Argo CD "dns"`)
	m.peeringCondition("DNSConfigured", metav1.ConditionFalse, "DNSPutBack", fmt.Sprintf(serverBlock, address))
	m.hasData(name, map[string]string{"Corefile": corefile})
	byHand := fmt.Sprintf(serverBlock, address) + corefile
	change(m, cm, func(c *corev1.ConfigMap) { c.Data["Corefile"] = byHand })
	m.peeringCondition("DNSConfigured", metav1.ConditionTrue, "Configured", "")
	m.leave()
	m.hasData(name, map[string]string{"Corefile": byHand})
}

// TestClusterDNSOfGKE: kube-dns, with stub domains of somebody else.
func TestClusterDNSOfGKE(t *testing.T) {
	const corp = "{\n  \"corp.example\": [\"10.0.0.1\"]\n}\n"
	m, address := dnsMember(t, func(m *member) {
		m.dnsProgram("kube-dns", "kube-dns", "kubedns")
		m.dnsConfig("kube-dns", map[string]string{"stubDomains": corp})
	})
	ours := fmt.Sprintf("\"clusterset.local\": [%q]", address)
	m.hasData("kube-dns", map[string]string{"stubDomains": "{" + ours + ", " + strings.TrimPrefix(corp, "{")})
	m.peeringCondition("DNSConfigured", metav1.ConditionTrue, "Configured", "stubDomains")
	kubeDNS := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}}
	m.delete(kubeDNS.DeepCopy())
	m.hasData("kube-dns", map[string]string{"stubDomains": "{" + ours + "}"})
	m.leave()
	m.gone(kubeDNS)
}

// TestClusterDNSOfNodes: NodeLocal DNSCache comes later, and is forwarded by, too.
func TestClusterDNSOfNodes(t *testing.T) {
	const cache = "cluster.local:53 {\n    cache 30\n    bind __PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__\n" +
		"    forward . __PILLAR__CLUSTER__DNS__ {\n        force_tcp\n    }\n}\n.:53 {\n    forward . " +
		"__PILLAR__UPSTREAM__SERVERS__\n}\n"
	m, address := dnsMember(t, func(m *member) {
		m.dnsProgram("kube-dns", "coredns", "coredns", "coredns")
		m.dnsConfig("coredns", map[string]string{"Corefile": corefile})
	})
	m.hasData("coredns", map[string]string{"Corefile": markedBlock(address) + corefile})
	m.dnsConfig("node-local-dns", map[string]string{"Corefile": cache})
	block := strings.Replace(markedBlock(address), "    errors\n",
		"    errors\n    bind __PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__\n", 1)
	m.hasData("node-local-dns", map[string]string{"Corefile": block + cache})
	m.peeringCondition("DNSConfigured", metav1.ConditionTrue, "Configured", "NodeLocal DNSCache")
	m.leave()
	m.hasData("node-local-dns", map[string]string{"Corefile": cache})
	m.hasData("coredns", map[string]string{"Corefile": corefile})
}

// dnsesCRD is the part that matters of OpenShift's, github.com/openshift/api operator/v1.
const dnsesCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: dnses.operator.openshift.io
spec:
  group: operator.openshift.io
  names: {kind: DNS, listKind: DNSList, plural: dnses, singular: dns}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              logLevel: {type: string}
              servers:
                type: array
                items:
                  type: object
                  properties:
                    name: {type: string}
                    zones: {type: array, items: {type: string}}
                    forwardPlugin:
                      type: object
                      properties:
                        upstreams: {type: array, maxItems: 15, items: {type: string}}
                        policy: {type: string, default: Random}
          status:
            type: object
            properties:
              clusterDomain: {type: string}
`

// TestClusterDNSOfOpenShift: the operator's object has one server more.
func TestClusterDNSOfOpenShift(t *testing.T) {
	dns := &unstructured.Unstructured{}
	m, address := dnsMember(t, func(m *member) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal([]byte(dnsesCRD), crd); err != nil {
			m.t.Fatal(err)
		}
		m.create(crd)
		dns.SetGroupVersionKind(schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"})
		dns.SetName("default")
		dns.Object["spec"] = map[string]any{"logLevel": "Normal", "servers": []any{map[string]any{
			"name": "corp", "zones": []any{"corp.example"}, "forwardPlugin": map[string]any{"upstreams": []any{"10.0.0.1"}},
		}}}
		m.eventually("the operator's object", func(ctx context.Context) error {
			err := m.Create(ctx, dns.DeepCopy())
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	})
	servers := func(want string) {
		t.Helper()
		m.eventually("servers "+want, func(ctx context.Context) error {
			have := dns.DeepCopy()
			if err := m.Get(ctx, client.ObjectKeyFromObject(dns), have); err != nil {
				return err
			}
			list, _, err := unstructured.NestedSlice(have.Object, "spec", "servers")
			var got []string
			for _, s := range list {
				name, _, _ := unstructured.NestedString(s.(map[string]any), "name")
				zones, _, _ := unstructured.NestedStringSlice(s.(map[string]any), "zones")
				to, _, _ := unstructured.NestedStringSlice(s.(map[string]any), "forwardPlugin", "upstreams")
				got = append(got, fmt.Sprintf("%s%v%v", name, zones, to))
			}
			return errors.Join(err, expect("servers", strings.Join(got, " "), want))
		})
	}
	const corp = "corp[corp.example][10.0.0.1]"
	servers(corp + " sealane[clusterset.local][" + address + "]")
	m.peeringCondition("DNSConfigured", metav1.ConditionTrue, "Configured", "dnses.operator.openshift.io default")
	m.leave()
	servers(corp)
}

// TestClusterDNSThatCannotBePutBack: a member whose agent has lost its rights does not count as clean.
func TestClusterDNSThatCannotBePutBack(t *testing.T) {
	m, address := dnsMember(t, func(m *member) {
		m.dnsProgram("kube-dns", "coredns", "coredns", "coredns")
		m.dnsConfig("coredns", map[string]string{"Corefile": corefile})
	})
	m.hasData("coredns", map[string]string{"Corefile": markedBlock(address) + corefile})
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sealane-cluster-agent"}}
	verbs := func(from, to string) {
		change(m, role, func(r *rbacv1.ClusterRole) {
			for i := range r.Rules {
				if slices.Contains(r.Rules[i].ResourceNames, "node-local-dns") {
					r.Rules[i].Verbs = slices.DeleteFunc(r.Rules[i].Verbs, func(v string) bool { return v == from })
					if to != "" {
						r.Rules[i].Verbs = append(r.Rules[i].Verbs, to)
					}
				}
			}
		})
	}
	verbs("patch", "")
	change(m, &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}}, func(p *v1alpha1.Peering) {
		p.Spec.Phase = v1alpha1.MemberLeaving
	})
	m.peeringCondition("DNSConfigured", metav1.ConditionFalse, "Pending", "could not be changed")
	verbs("", "patch")
	// A watch tells of any change.
	change(m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}},
		func(c *corev1.ConfigMap) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, "a", "b") })
	m.peeringCondition("DNSConfigured", metav1.ConditionFalse, "Removed", "")
}

// TestClusterDNSThatIsUnknown: the condition names what was found and the block to add.
func TestClusterDNSThatIsUnknown(t *testing.T) {
	m, address := dnsMember(t, func(m *member) {
		m.dnsProgram("kube-dns", "coredns", "unbound")
	})
	m.peeringCondition("DNSConfigured", metav1.ConditionFalse, "UnknownClusterDNS", "Deployment kube-system/coredns "+
		"with the image x")
	m.peeringCondition("DNSConfigured", metav1.ConditionFalse, "UnknownClusterDNS", fmt.Sprintf(serverBlock, address))
}
