// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestDiagnoseAsksKarmadaAndTheMembers: one API server plays Karmada and c1, and c2 cannot be asked. What fails makes
// the exit code 1, what is a warning does not.
func TestDiagnoseAsksKarmadaAndTheMembers(t *testing.T) {
	k := newKarmada(t)
	k.kubeconfig = writeKubeconfig(t, server, "karmada", "lost-member", "c1")
	k.install(t, "-C", "c1,c2")
	k.report(t, []string{"c1", "c2"}, connected()...)
	gateway := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "c1-gw"}}
	k.temporary(t, gateway, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"},
		Data:       map[string]string{"config.conf": "mode: nftables\n"}})
	tunnel := v1alpha1.Connection{Cluster: "c2", Gateway: "c2-gw", Link: "sl-c3", Address: "192.0.2.2:4500",
		Status: v1alpha1.ConnectionError, Reason: v1alpha1.ReasonProbesLost, Heard: ptr.To(false)}
	report := func(c v1alpha1.Connection) {
		t.Helper()
		k.get(t, gateway)
		gateway.Status = v1alpha1.GatewayStatus{ReportedAt: ptr.To(metav1.Now()), Version: "v0.0.1",
			Connections: []v1alpha1.Connection{c}, UnheardNodes: []string{"c1-w1"}}
		if err := k.Status().Update(t.Context(), gateway); err != nil {
			t.Fatal(err)
		}
	}
	report(tunnel)
	for subject, words := range map[string][]string{
		"connections": {"c1-gw to c2-gw of c2: Error ProbesLost", "c2: warn", "reached"},
		"firewall":    {"UDP 4503 of c1-gw", "whether what c1-gw sends to 192.0.2.2:4500 arrives is not known"},
		"karmada":     {"Karmada finds it not ready", "brings the cluster its Peering"},
	} {
		out, code := k.plugin(t, "diagnose", subject)
		for _, word := range append(words, "expected: ", "to do: ", "error: diagnose: ") {
			if code != 1 || !strings.Contains(out, word) {
				t.Errorf("diagnose %s: exit code %d, or it does not say %q", subject, code, word)
			}
		}
	}
	out, code := k.plugin(t, "diagnose", "all", "-C", "c1", "-o", "json")
	got := verdictsOf(t, out)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	for check, want := range map[string]verdict{"c1": verdictFail, "c1/connections": verdictFail,
		"c1/kube-proxy": verdictOK, "c1/services": verdictOK, "c2": ""} {
		if got[check] != want {
			t.Errorf("%q is %q, want %q", check, got[check], want)
		}
	}
	for _, subject := range diagnoseSubjects() {
		if got["c1/"+subject.name] == "" {
			t.Errorf("nothing is said of %s", subject.name)
		}
	}
	tunnel.Status, tunnel.Reason, tunnel.Heard = v1alpha1.ConnectionConnected, "", nil
	report(tunnel)
	for _, subject := range []string{"connections", "kube-proxy"} {
		k.succeeds(t, "diagnose", subject)
	}
	k.fails(t, []string{"did you mean c1"}, "diagnose", "mtu", "-C", "c11")
}
