// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestPreflightNamesWhatIsInTheWay: one API server plays Karmada and two clusters. First nothing is as it should be,
// then, for c1 alone, everything is.
func TestPreflightNamesWhatIsInTheWay(t *testing.T) {
	k := newKarmada(t)
	k.kubeconfig = writeKubeconfig(t, server, "karmada", "lost-member", "c1", "c2")
	proxy := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"},
		Data:       map[string]string{"config.conf": "mode: userspace\nclusterCIDR: 10.8.0.0/16\n"},
	}
	other := submariner()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "preflight"}}
	k.temporary(t, proxy, other, node)
	out, code := k.plugin(t, "preflight", "-C", "c1,c2", "-o", "json")
	got := verdictsOf(t, out)
	if code == 0 {
		t.Error("exit code 0")
	}
	for name, want := range map[string]verdict{
		"/karmada": verdictOK, "/kubernetes": verdictOK, "/rights": verdictOK,
		"c1/cluster": verdictFail, "c1/kernel": verdictWarn, "c1/nodes": verdictFail, "c1/kube-proxy": verdictWarn,
		"c1/cni": verdictWarn, "c1/cluster-dns": verdictFail, "c1/in-the-way": verdictFail, "c1/networks": verdictOK,
		"c1/overlaps": verdictFail, "c2/overlaps": verdictFail, "c1": verdictFail, "": verdictOK,
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	table, _ := k.plugin(t, "preflight", "-C", "c1,c2")
	for _, text := range []string{"mode userspace", "CRDs of Submariner", "10.8.0.0/16 of c2", "spec.globalnet.mode: Auto",
		"expected:", "to do:", "c1: fail"} {
		if !strings.Contains(table, text) {
			t.Errorf("no %q", text)
		}
	}
	k.makeFit(t, proxy, node)
	if err := k.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := until(t.Context(), func(ctx context.Context) (bool, error) {
		return gone(k.Get(ctx, client.ObjectKeyFromObject(other), other)), nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, v := range verdictsOf(t, k.succeeds(t, "preflight", "-C", "c1", "-o", "json")) {
		if v != verdictOK {
			t.Errorf("%s is %q once everything is in place", name, v)
		}
	}
}

// TestPreflightOfK3s: kube-proxy and flannel run in the process of k3s, so that Nodes alone tell of them.
func TestPreflightOfK3s(t *testing.T) {
	k := newKarmada(t)
	k.kubeconfig = writeKubeconfig(t, server, "karmada", "c1")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "k3s", Annotations: map[string]string{
		"k3s.io/node-args": `["server","--disable","traefik"]`, "flannel.alpha.coreos.com/backend-type": "vxlan"}}}
	k.temporary(t, node)
	judges := func(version string, want verdict) {
		t.Helper()
		node.Status.NodeInfo.KubeletVersion = version
		if err := k.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		out, _ := k.plugin(t, "preflight", "-C", "c1", "-o", "json")
		if got := verdictsOf(t, out); got["c1/kube-proxy"] != want || got["c1/cni"] != verdictOK {
			t.Errorf("%s: expected kube-proxy %s and cni ok, found %v", version, want, got)
		}
	}
	judges("v1.34.1", verdictWarn)
	judges("v1.34.1+k3s1", verdictOK)
	node.Annotations["k3s.io/node-args"] = `["server","--disable-kube-proxy"]`
	if err := k.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	judges("v1.34.1+k3s1", verdictWarn)
}

// TestPreflightOfAClusterThatCannotBeReached warns, as what Karmada knows can be checked all the same.
func TestPreflightOfAClusterThatCannotBeReached(t *testing.T) {
	k := newKarmada(t)
	out, _ := k.plugin(t, "preflight", "-C", "c3", "-o", "json")
	if got := verdictsOf(t, out); got["c3/reached"] != verdictWarn || got["c3/networks"] != "" {
		t.Errorf("verdicts %v", got)
	}
	k.fails(t, []string{"c9"}, "preflight", "-C", "c9")
}

func TestOverlapsWithNodesOfOthers(t *testing.T) {
	got := overlapsOf([]candidate{
		{name: "c1", networks: v1alpha1.Networks{PodCIDRs: []string{"10.8.0.0/16"}}},
		{name: "c2", networks: v1alpha1.Networks{PodCIDRs: []string{"10.9.0.0/16"}}, nodes: []string{"10.8.3.4/32"}},
	})
	if c := got["c1"][0]; c.Verdict != verdictFail || !strings.Contains(c.Found, "10.8.3.4/32 of c2") {
		t.Errorf("c1: %+v", c)
	}
	if c := got["c2"][0]; c.Verdict != verdictOK {
		t.Errorf("c2: %+v", c)
	}
}

func submariner() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "clusters.submariner.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "submariner.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "clusters", Kind: "Cluster"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &preserve}},
			}},
		},
	}
}

// temporary creates objects that go with the test.
func (k *karmada) temporary(t *testing.T, objects ...client.Object) {
	t.Helper()
	k.create(t, objects...)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		for _, o := range objects {
			if err := k.Delete(ctx, o); err != nil && !gone(err) {
				t.Error(err)
			}
		}
	})
}

// makeFit gives the API server all that a member should have, and Karmada's c1 is ready.
func (k *karmada) makeFit(t *testing.T, proxy *corev1.ConfigMap, node *corev1.Node) {
	t.Helper()
	proxy.Data["config.conf"] = "mode: ipvs\nclusterCIDR: 10.8.0.0/16\n"
	if err := k.Update(t.Context(), proxy); err != nil {
		t.Fatal(err)
	}
	k.get(t, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.7.1"}}
	node.Status.NodeInfo.KernelVersion, node.Status.NodeInfo.OperatingSystem = "6.8.0-31-generic", "linux"
	if err := k.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	c1 := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	k.get(t, c1)
	c1.Status.Conditions = []metav1.Condition{condition(clusterv1alpha1.ClusterConditionReady, metav1.ConditionTrue,
		"ClusterReady", "")}
	if err := k.Status().Update(t.Context(), c1); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"k8s-app": "kube-dns"}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "coredns", Image: "coredns:1.12",
				Args:         []string{"-conf", "/etc/coredns/Corefile"},
				VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/coredns"}}}},
			Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "coredns"}}}}},
		},
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name, Labels: labels}
	}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	k.temporary(t,
		&corev1.Service{ObjectMeta: meta("kube-dns"), Spec: corev1.ServiceSpec{Selector: labels,
			Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}}},
		&corev1.ConfigMap{ObjectMeta: meta("coredns"), Data: map[string]string{"Corefile": ".:53 {\n  errors\n}\n"}},
		&appsv1.Deployment{ObjectMeta: meta("coredns"), Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}},
		&appsv1.DaemonSet{ObjectMeta: meta("kube-flannel-ds"), Spec: appsv1.DaemonSetSpec{Selector: selector,
			Template: template}},
	)
}

// verdictsOf reads "cluster/check" and "cluster" for its own from what -o json printed.
func verdictsOf(t *testing.T, out string) map[string]verdict {
	t.Helper()
	var read map[string][]clusterVerdict
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&read); err != nil {
		t.Fatal(err)
	}
	got := map[string]verdict{}
	for _, list := range read {
		for _, v := range list {
			got[v.Cluster] = v.Verdict
			for _, c := range v.Checks {
				got[v.Cluster+"/"+c.Name] = c.Verdict
			}
		}
	}
	return got
}
