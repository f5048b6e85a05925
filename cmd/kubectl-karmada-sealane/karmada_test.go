// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// karmada is a real API server with Karmada's CRDs. No controller of Karmada's runs; what the tests need
// of kube-controller-manager is in controllerManager.
type karmada struct {
	*api
	kubeconfig string
}

// server is the one API server of all tests; each leaves it as it found it.
var server *rest.Config

func TestMain(m *testing.M) {
	crds, err := apiserver.KarmadaCRDs()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(apiserver.Main(m, &server, crds, "testdata/clusters.yaml"))
}

func newKarmada(t *testing.T) *karmada {
	t.Helper()
	a, err := newAPI(server, "karmada")
	if err != nil {
		t.Fatal(err)
	}
	k := &karmada{api: a, kubeconfig: writeKubeconfig(t, server, "karmada", "lost-member")}
	for _, name := range []string{"c1", "c2", "c3"} {
		c := &clusterv1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Push},
		}
		k.create(t, c)
		t.Cleanup(func() { _ = k.Delete(context.WithoutCancel(t.Context()), c) })
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		controllerManager(ctx, a)
	}()
	t.Cleanup(func() {
		if err := k.dropMembers(ctx); err != nil && !gone(err) {
			t.Error(err)
		}
		//nolint:contextcheck // the command makes its own, of the process
		k.succeeds(t, "uninstall", "--host-context=lost-member")
		cancel()
		<-done
	})
	return k
}

// writeKubeconfig gives one API server several context names.
func writeKubeconfig(t *testing.T, config *rest.Config, contexts ...string) string {
	t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	for _, name := range contexts {
		kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, InsecureSkipTLSVerify: true}
		kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "admin"}
	}
	kubeconfig.CurrentContext = contexts[0]
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// controllerManager does two jobs of kube-controller-manager until ctx ends: tokens for ServiceAccount
// Secrets, and the end of terminating namespaces.
func controllerManager(ctx context.Context, a *api) {
	clientset := kubernetes.NewForConfigOrDie(a.config)
	_ = until(ctx, func(ctx context.Context) (bool, error) {
		var secrets corev1.SecretList
		_ = a.List(ctx, &secrets)
		for i := range secrets.Items {
			s := &secrets.Items[i]
			if s.Type == corev1.SecretTypeServiceAccountToken && len(s.Data[corev1.ServiceAccountTokenKey]) == 0 {
				account := s.Annotations[corev1.ServiceAccountNameKey]
				token, err := clientset.CoreV1().ServiceAccounts(s.Namespace).CreateToken(ctx, account,
					&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
				if err == nil {
					s.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token.Status.Token)}
					_ = a.Update(ctx, s)
				}
			}
		}
		var namespaces corev1.NamespaceList
		_ = a.List(ctx, &namespaces)
		for i := range namespaces.Items {
			if ns := &namespaces.Items[i]; ns.DeletionTimestamp != nil {
				ns.Spec.Finalizers = nil
				_, _ = clientset.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
			}
		}
		return false, nil
	})
}

func (k *karmada) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := k.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

func (k *karmada) get(t *testing.T, object client.Object) {
	t.Helper()
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatalf("get %T %s: %v", object, object.GetName(), err)
	}
}

// plugin runs a command line and returns what it printed and its exit code.
func (k *karmada) plugin(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
	line := []string{"kubectl-karmada-sealane", "--kubeconfig=" + k.kubeconfig, "--karmada-context=karmada",
		"--timeout=3m"}
	code := run(append(line, args...), streams)
	t.Logf("%s → %d\n%s", strings.Join(args, " "), code, out.String())
	return out.String(), code
}

func (k *karmada) succeeds(t *testing.T, args ...string) string {
	t.Helper()
	out, code := k.plugin(t, args...)
	if code != 0 {
		t.Fatalf("%v: exit code %d, expected 0", args, code)
	}
	return out
}

func (k *karmada) fails(t *testing.T, words []string, args ...string) {
	t.Helper()
	out, code := k.plugin(t, args...)
	if code == 0 {
		t.Errorf("%v succeeded, expected an error", args)
	}
	for _, word := range append(words, "expected", "found:", "to do:") {
		if !strings.Contains(out, word) {
			t.Errorf("%v: the error does not say %q", args, word)
		}
	}
}

func (k *karmada) install(t *testing.T, more ...string) (controllerKubeconfig string) {
	t.Helper()
	controllerKubeconfig = filepath.Join(t.TempDir(), "controller.kubeconfig")
	k.succeeds(t,
		append([]string{"install", "--controller=external", "--wait=false",
			"--controller-kubeconfig=" + controllerKubeconfig}, more...)...)
	return controllerKubeconfig
}

// report plays the controller: it takes the clusters in and records a condition for each.
func (k *karmada) report(t *testing.T, clusters []string, conditions ...metav1.Condition) {
	t.Helper()
	for _, name := range clusters {
		m := &v1alpha1.Member{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.MemberSpec{ClusterSet: "default", Phase: v1alpha1.MemberActive},
		}
		if err := k.Create(t.Context(), m); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		k.get(t, m)
		m.Status.Conditions = conditions
		if err := k.Status().Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	k.get(t, set)
	set.Status.ObservedGeneration, set.Status.Members = set.Generation, int32(len(clusters))
	if err := k.Status().Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
}

func connected() []metav1.Condition {
	return []metav1.Condition{
		condition(v1alpha1.MemberAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, ""),
		condition(v1alpha1.MemberConnected, metav1.ConditionTrue, "Connected", ""),
		condition(v1alpha1.PeeringNodesProgrammed, metav1.ConditionTrue, "Programmed", ""),
		condition(v1alpha1.PeeringDNSConfigured, metav1.ConditionTrue, "Answers", ""),
	}
}
