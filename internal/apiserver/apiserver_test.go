// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
)

func TestStartServesInstalledCRDs(t *testing.T) {
	var paths []string
	for _, find := range []func() (string, error){CRDs, KarmadaCRDs, MCSCRDs} {
		path, err := find()
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	config := Start(t, paths...)
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range []string{"sealane.io/v1alpha1", "work.karmada.io/v1alpha1", "policy.karmada.io/v1alpha1",
		"multicluster.x-k8s.io/v1alpha1"} {
		if _, err := d.ServerResourcesForGroupVersion(gv); err != nil {
			t.Errorf("%s: %v", gv, err)
		}
	}
}

// TestEtcdIsCompacted, so that it has forgotten older revisions, and defragmented: all is served on.
func TestEtcdIsCompacted(t *testing.T) {
	s, err := LaunchWith(t.Context(), Options{Services: "172.20.0.0/20"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	maps := c.CoreV1().ConfigMaps("default")
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Data: map[string]string{"x": strings.Repeat("x", 1<<19)}}
	if m, err = maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first := map[string]any{"key": "AA==", "revision": m.ResourceVersion}
	for range 20 { // each of which etcd keeps
		m.Data["x"] += "x"
		if m, err = maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ask(t.Context(), "/v3/kv/range", first, nil); err != nil {
		t.Fatalf("the first revision, before: %v", err)
	}
	before, _, err := s.Stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if revision, err := s.Compact(t.Context()); err != nil || revision == "" {
		t.Fatalf("compact to revision %q: %v", revision, err)
	}
	if err := s.Defragment(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, used, err := s.Stored(t.Context()); err != nil || after > before/2 || used == 0 || used > after {
		t.Errorf("etcd stores %d bytes, of which %d are used, after %d; %v", after, used, before, err)
	}
	if err := s.ask(t.Context(), "/v3/kv/range", first, nil); err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Errorf("the first revision, after: %v, want it to be gone", err)
	}
	m.Data["x"] = "short"
	if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Errorf("after that: %v", err)
	}
	service, err := c.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || !strings.HasPrefix(service.Spec.ClusterIP, "172.20.") {
		t.Errorf("the Service kubernetes: %v, %v", service.Spec.ClusterIPs, err)
	}
}
