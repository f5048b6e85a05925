// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// completed are the words that a shell gets for a command line, without what they mean, and the directive.
func completed(kubeconfig string, words ...string) string {
	var out, said bytes.Buffer
	line := append([]string{"kubectl-karmada-sealane", "__complete", "--kubeconfig=" + kubeconfig}, words...)
	code := run(line, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &said})
	var values []string
	for line := range strings.Lines(out.String()) {
		value, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		values = append(values, value)
	}
	if code != 0 {
		values = append(values, fmt.Sprintf("exit code %d: %s", code, said.String()))
	}
	return strings.Join(values, " ")
}

// TestCompletionOfWhatThereIs, on the Karmada API.
func TestCompletionOfWhatThereIs(t *testing.T) {
	k := newKarmada(t)
	k.install(t)
	k.report(t, []string{"c1", "c2"}, connected()...)
	here := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	export, service := &mcsv1alpha1.ServiceExport{ObjectMeta: here}, &corev1.Service{ObjectMeta: here,
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	k.namespace(t, here.Namespace)
	k.create(t, export, service)
	k.goes(t, export, service)
	for _, c := range []struct{ line, want string }{
		{"join |", "c1 c2 c3 :4"},
		{"join c1 c|", "c2 c3 :4"},
		{"leave |", "c1 c2 :4"},
		{"show connections -C |", "c1 c2 :4"},
		{"show connections -C c1,|", "c1,c2 :4"},
		{"show connections --clusters=c|", "c1 c2 :4"},
		{"show services -n sh|", "shop :4"},
		{"export -n shop |", "web :4"},
		{"unexport --namespace shop w|", "web :4"},
		{"unexport -n shop web |", ":4"},
		{"diagnose dns -n shop |", "web :4"},
		{"export web -n shop --import-clusters c|", "c1 c2 :4"},
		{"export web --mode |", "ClusterIP ClusterSetIP :4"},
		{"bench latency c1 |", "c2 :4"},
		{"bench latency c1 c2 |", ":4"},
		{"status --clusterset |", "default :4"},
		{"status --wait=c|", "connected :4"},
		{"status |", ":4"},
		{"show con|", "connections :4"},
		{"show connections -o |", "json table wide yaml :4"},
		{"--karmada-context |", "karmada lost-member :4"},
		{"install --host-context l|", "lost-member :4"},
		{"gather -o |", ":0"},
	} {
		words := strings.Split(strings.TrimSuffix(c.line, "|"), " ")
		if got := completed(k.kubeconfig, words...); got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}

// TestCompletionWithoutAnAPIServer returns nothing, soon, and no text that a shell would offer.
func TestCompletionWithoutAnAPIServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(deadEnd+"current-context: karmada-apiserver\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, kubeconfig := range []string{file, "/nonexistent"} {
		if got := completed(kubeconfig, "show", "connections", "-C", ""); got != ":4" {
			t.Errorf("%s: %q", kubeconfig, got)
		}
	}
	if took := time.Since(began); took > 4*completionTime {
		t.Errorf("took %s", took)
	}
}

// TestKubectlFindsTheCompletion: the program that it asks passes the words on as they are.
func TestKubectlFindsTheCompletion(t *testing.T) {
	dir := t.TempDir()
	stub := "#!/bin/sh\nprintf '<%s>' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl-karmada-sealane"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "completion/kubectl_complete-karmada-sealane", "export", "a b", "")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "<__complete><export><a b><>" {
		t.Errorf("%v: %q", err, out)
	}
}
