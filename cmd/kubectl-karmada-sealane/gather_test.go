// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// The keys and tokens are made up for this test.
const (
	aPrivateKey = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="
	aToken      = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJnYXRoZXIifQ.c2lnbmF0dXJlLW9mLWdhdGhlcg"
	aPEM        = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"
	aPassword   = "correct-horse-battery"
)

// unpacked are the files of an archive.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for in := tar.NewReader(zipped); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(header.Name, archiveDir+"/")] = string(text)
	}
}

// kubelet serves logs of a node, and nothing else.
func (k *karmada) kubelet(t *testing.T, node, log string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/containerLogs/") {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, strings.Repeat("old line\n", 20)+"previous="+r.URL.Query().Get("previous")+"\n"+log)
	}))
	t.Cleanup(s.Close)
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node,
		Annotations: map[string]string{"k3s.io/node-args": `["server","--token","` + aPassword + `"]`}}}
	k.create(t, n)
	k.goes(t, n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	if err := k.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// goes at the end of the test.
func (k *karmada) goes(t *testing.T, objects ...client.Object) {
	t.Helper()
	t.Cleanup(func() {
		for _, o := range objects {
			_ = k.Delete(context.WithoutCancel(t.Context()), o, client.GracePeriodSeconds(0))
		}
	})
}

// secretive makes objects that hold keys and tokens, of every kind that gather reads and which may.
func (k *karmada) secretive(t *testing.T) {
	t.Helper()
	system := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}
	pod := &corev1.Pod{ObjectMeta: ours("sealane-node-x")}
	pod.Labels = map[string]string{"app.kubernetes.io/name": nodeAgentName}
	pod.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"x":"` + aPassword + `"}`}
	pod.Spec.NodeName = "gathered"
	pod.Spec.Containers = []corev1.Container{{Name: "node", Image: "agent", Args: []string{"--password", aPassword},
		Env: []corev1.EnvVar{{Name: "ANY", Value: aPassword}}}}
	objects := []client.Object{
		&corev1.Secret{ObjectMeta: ours("some-token"), StringData: map[string]string{"token": aToken, "key": aPEM}},
		&corev1.ConfigMap{ObjectMeta: system, Data: map[string]string{"config.conf": "mode: nftables\n",
			"kubeconfig.conf": "users:\n- user:\n    token: " + aToken + "\n    client-key-data: " +
				base64.StdEncoding.EncodeToString([]byte(aPEM)) + "\n    password: " + aPassword + "\n"}},
		pod,
		&corev1.Event{ObjectMeta: ours("some-event"), Message: "said Bearer " + aToken + " and " + aPrivateKey,
			Reason:         "Said",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "x", Namespace: v1alpha1.Namespace}},
	}
	for _, o := range objects {
		k.create(t, o)
	}
	k.goes(t, objects...)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node", RestartCount: 1,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	if err := k.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// TestGatherHoldsNoKeyAndIsJudgedAsTheLiveState, by a member with a context of its own and one that cannot be asked.
func TestGatherHoldsNoKeyAndIsJudgedAsTheLiveState(t *testing.T) {
	k := newKarmada(t)
	k.kubeconfig = writeKubeconfig(t, server, "karmada", "c1", "lost-member")
	k.install(t)
	k.report(t, []string{"c1", "c2"}, connected()...)
	k.kubelet(t, "gathered", "a token: "+aPassword+"\nAuthorization: Bearer "+aToken+"\n"+aPEM+"\nkey "+aPrivateKey+
		"\nthe newest line\n")
	k.secretive(t)
	file := filepath.Join(t.TempDir(), "gather.tgz")
	live, liveCode := k.plugin(t, "diagnose", "all", "--member-timeout=2s", "--host-context=lost-member")
	said := k.succeeds(t, "gather", "-o", file, "--member-timeout=2s", "--host-context=lost-member", "--log-bytes=400")

	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want a file that only its owner may read", info, err)
	}
	files := unpacked(t, file)
	var all strings.Builder
	for name, text := range files {
		all.WriteString(name + "\n" + text + "\n")
	}
	for _, secret := range []string{aPrivateKey, aToken, aToken[:40], aPassword, "MIIEvQIBADANB", "LS0tLS1CRUdJTi",
		server.BearerToken, "kind: Secret"} {
		if strings.Contains(all.String(), secret) {
			t.Errorf("%q is in the archive", secret)
		}
	}
	for _, want := range []struct{ file, text string }{
		{"karmada/objects/ClusterSet/default.yaml", "clusterAffinity"},
		{"karmada/objects/Member/c2.yaml", "clusterSet: default"},
		{"members/c1/objects/Node/gathered.yaml", `"--token",[redacted]`},
		{"members/c1/objects/ConfigMap/kube-system_kube-proxy.yaml", "mode: nftables"},
		{"members/c1/objects/Pod/sealane-system_sealane-node-x.yaml", "name: ANY"},
		{"members/c1/events.txt", "Said Pod/x x1: said Bearer [redacted] and [redacted]"},
		{"members/c1/logs/sealane-node-x_node.log", "the newest line"},
		{"members/c1/logs/sealane-node-x_node.previous.log", "previous=true"},
		{manifestFile, "path: members/c1/nodes/gathered_sealane-node-x.txt"},
		{manifestFile, "unasked: "},
	} {
		if !strings.Contains(files[want.file], want.text) {
			t.Errorf("no %q in %s:\n%s", want.text, want.file, files[want.file])
		}
	}
	if log := files["members/c1/logs/sealane-node-x_node.log"]; len(log) > 400 || !strings.HasPrefix(log, "old line\n") {
		t.Errorf("want at most 400 bytes of whole lines, the newest:\n%s", log)
	}
	for _, want := range []string{"members/c2: ", "could not be read; manifest.yaml", "wrote " + file} {
		if !strings.Contains(said, want) {
			t.Errorf("gather does not say %q", want)
		}
	}

	back, code := k.plugin(t, "diagnose", "all", "--from", file, "--kubeconfig=/nonexistent")
	if back != live || code != liveCode {
		t.Errorf("live (%d):\n%s\nfrom the file (%d):\n%s", liveCode, live, code, back)
	}
	if some, _ := k.plugin(t, "diagnose", "kube-proxy", "--from", file, "-C", "c1"); !strings.Contains(some, "nftables") {
		t.Error("one subject of one member is not told from the file")
	}
	k.fails(t, []string{`"c9"`}, "diagnose", "all", "--from", file, "-C", "c9")
	k.fails(t, []string{"leave NAME out"}, "diagnose", "dns", "web", "--from", file)
	k.fails(t, []string{"file exists", "with -o"}, "gather", "-o", file, "--member-timeout=2s")
	k.fails(t, []string{"no such file"}, "diagnose", "all", "--from", file+"x")
	k.fails(t, []string{"--logs-since"}, "gather", "--logs-since=-1s")
}
