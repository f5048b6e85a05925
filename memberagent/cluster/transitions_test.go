// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// events are the agent's Events on an object, in no order, as "Warning NotServed message".
func (m *member) events(ctx context.Context, kind, namespace, name string) ([]string, error) {
	list := &corev1.EventList{}
	if err := m.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Source.Component == component {
			for range max(e.Count, 1) {
				out = append(out, strings.Join([]string{e.Type, e.Reason, e.Message}, " "))
			}
		}
	}
	return out, nil
}

// tells waits until there are these Events on an object, each by how it starts, and no others.
func (m *member) tells(kind, namespace, name string, want ...string) {
	m.t.Helper()
	m.eventually(fmt.Sprintf("the events of %s %s/%s", kind, namespace, name), func(ctx context.Context) error {
		got, err := m.events(ctx, kind, namespace, name)
		if err != nil {
			return err
		}
		left := append([]string(nil), want...)
		for _, g := range got {
			for i, w := range left {
				if strings.HasPrefix(g, w) {
					left = append(left[:i], left[i+1:]...)
					break
				}
			}
		}
		if len(left) > 0 || len(got) != len(want) {
			return fmt.Errorf("expected %q, found %q", want, got)
		}
		return nil
	})
}

const stockCorefile = ".:53 {\n    kubernetes cluster.local\n    reload\n}\n"

// TestEventsTellOfTransitions where users look for them, and of nothing that was so before the agent started.
func TestEventsTellOfTransitions(t *testing.T) {
	m := newMember(t)
	m.dnsProgram("kube-dns", "coredns", "coredns", "coredns")
	cm := m.dnsConfig("coredns", map[string]string{"Corefile": stockCorefile})
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	m.exports("")
	m.tells("ConfigMap", "kube-system", "coredns", "Normal ForwardingClusterSet the clusterset's names are forwarded to ")

	m.export("sample", "web")
	m.tells("ServiceExport", "sample", "web", "Warning NoService there is no Service web")
	m.service("sample", "web", "10.8.0.5")
	m.condition("sample", "web", "Valid", metav1.ConditionTrue, "Valid")
	change(m, bundle(0), func(b *v1alpha1.Bundle) {
		b.Spec.Revision = 2
		b.Spec.ExportConditions = []v1alpha1.ExportCondition{
			{Namespace: "sample", Name: "web", Type: "Ready", Status: metav1.ConditionTrue, Reason: "Exported",
				Message: "exported"},
			{Namespace: "sample", Name: "web", Type: "Conflict", Status: metav1.ConditionTrue, Reason: "PortConflict",
				Message: "c2 differs\n" + strings.Repeat("x", 2000)},
		}
		b.Spec.Imports = []v1alpha1.Import{imported("sample", "shop", map[string][]string{"c2": {"10.9.0.5"},
			"c3": {"10.7.0.1"}})}
	})
	exported := []string{"Warning NoService", "Normal Valid", "Normal Exported", "Warning PortConflict c2 differs x"}
	m.tells("ServiceExport", "sample", "web", exported...)
	m.endpoints(key("sample", "shop"), "c2 10.9.0.5:8080, c3 10.7.0.1:8080")

	m.gatewayReports(v1alpha1.ConnectionConnected)
	m.gatewayReports(v1alpha1.ConnectionError)
	m.endpoints(key("sample", "shop"), "c3 10.7.0.1:8080")
	m.imports(imported("sample", "shop", map[string][]string{"c2": {"10.9.0.5"}}))
	m.endpoints(key("sample", "shop"), "")
	m.gatewayReports(v1alpha1.ConnectionConnected)
	m.endpoints(key("sample", "shop"), "c2 10.9.0.5:8080")
	served := []string{"Normal ServedBy connections go to c3; before, to c2, c3", "Warning NotServed no cluster",
		"Normal ServedBy connections go to c2"}
	m.tells("ServiceImport", "sample", "shop", served...)

	change(m, cm, func(cm *corev1.ConfigMap) {
		cm.Data = map[string]string{"Corefile": stockCorefile}
	})
	repaired := []string{"Normal ForwardingClusterSet", "Normal ForwardingRepaired somebody had undone it"}
	m.tells("ConfigMap", "kube-system", "coredns", repaired...)

	t.Log("another agent finds all as it is, and tells of what comes then alone")
	m.stop()
	m.start(m.config)
	m.imports(imported("sample", "shop", map[string][]string{"c3": {"10.7.0.1"}}))
	m.tells("ServiceImport", "sample", "shop", append(served, "Normal ServedBy connections go to c3; before, to c2")...)
	m.tells("ServiceExport", "sample", "web", exported...)
	m.tells("ConfigMap", "kube-system", "coredns", repaired...)
	m.leave()
	m.tells("ConfigMap", "kube-system", "coredns", append(repaired, "Normal ForwardingRemoved")...)
}
