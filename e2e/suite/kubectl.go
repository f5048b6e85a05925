// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kubectl runs kubectl and fails the test if it fails.
func Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := TryKubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryKubectl runs kubectl and returns its output, trimmed.
func TryKubectl(ctx context.Context, args ...string) (string, error) {
	out, err := Lab().Kubectl(ctx, args...)
	return strings.TrimSpace(string(out)), err
}

// Plugin runs a command of the plugin and fails the test if it fails.
func Plugin(t *testing.T, args ...string) string {
	t.Helper()
	out, err := TryPlugin(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// JSONPath reads a field of an object, given as for kubectl get.
func JSONPath(ctx context.Context, cluster, path string, object ...string) (string, error) {
	return TryKubectl(ctx, append([]string{"--context", cluster, "get", "-o", "jsonpath=" + path}, object...)...)
}

// PodIP is the address of a pod of the namespace sample.
func PodIP(t *testing.T, cluster, pod string) string {
	t.Helper()
	return ofSample(t, cluster, pod, &corev1.Pod{}).Status.PodIP
}

// ClusterIP is the address of a Service of the namespace sample.
func ClusterIP(t *testing.T, cluster, service string) string {
	t.Helper()
	return ofSample(t, cluster, service, &corev1.Service{}).Spec.ClusterIP
}

// ofSample reads an object of the namespace sample, without a process of kubectl: tests ask for hundreds.
func ofSample[T client.Object](t *testing.T, cluster, name string, into T) T {
	t.Helper()
	a, err := API(cluster)
	if err == nil {
		err = a.Get(t.Context(), client.ObjectKey{Namespace: "sample", Name: name}, into)
	}
	if err != nil {
		t.Fatalf("%s: %s: %v", cluster, name, err)
	}
	return into
}
