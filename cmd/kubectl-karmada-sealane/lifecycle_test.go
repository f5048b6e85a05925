// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/internal/installation"
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

func TestInstallGivesTheControllerExactlyItsRights(t *testing.T) {
	k := newKarmada(t)
	file := k.install(t)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the controller's kubeconfig: %v, %v, expected mode 0600", info, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	controller, err := newAPI(config, "controller")
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := manifests("artifacts/deploy/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crds, err := memberCRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range append(crds, bundle...) {
		if err := controller.apply(t.Context(), object); !apierrors.IsForbidden(err) {
			t.Errorf("the controller may install the members' bundle: %v", err)
		}
		if err := k.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Errorf("the bundle is not installed: %v", err)
		}
	}
	for what, err := range map[string]error{
		"secrets":             controller.List(t.Context(), &corev1.SecretList{}),
		"other cluster roles": controller.apply(t.Context(), clusterRole("sealane-everything")),
		"other CRDs": controller.Delete(t.Context(),
			&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "works.work.karmada.io"}}),
		"propagation policies": controller.List(t.Context(), &policyv1alpha1.PropagationPolicyList{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, expected forbidden", what, err)
		}
	}
}

// TestInstallAgainReplacesThePolicies: what an interrupted uninstall, or an earlier release, left in a policy would
// keep the bundle from new members.
func TestInstallAgainReplacesThePolicies(t *testing.T) {
	k := newKarmada(t)
	k.install(t)
	policy := &policyv1alpha1.ClusterPropagationPolicy{ObjectMeta: metav1.ObjectMeta{Name: installation.CRDPolicyName}}
	k.get(t, policy)
	want := policy.Spec.DeepCopy()
	policy.Spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: []string{"c1"}}
	policy.Spec.PreserveResourcesOnDeletion = ptr.To(false)
	if err := k.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	k.install(t)
	k.get(t, policy)
	if !equality.Semantic.DeepEqual(policy.Spec, *want) {
		t.Errorf("the policy is %+v, want %+v", policy.Spec, *want)
	}
}

// TestUninstallTakesTheLabelsFromClusters, which the controller would have done.
func TestUninstallTakesTheLabelsFromClusters(t *testing.T) {
	k := newKarmada(t)
	k.install(t)
	c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	k.get(t, c)
	c.Labels = map[string]string{v1alpha1.LabelMember: "true", v1alpha1.LabelClusterSet: "default", "env": "prod"}
	if err := k.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	k.succeeds(t, "uninstall", "--host-context=lost-member")
	k.get(t, c)
	if got := fmt.Sprint(c.Labels); got != "map[env:prod]" {
		t.Errorf("labels %s", got)
	}
}

// TestRenderNamesWhatInstallApplies, and asks no API server.
func TestRenderNamesWhatInstallApplies(t *testing.T) {
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
	if code := run([]string{"kubectl-karmada-sealane", "install", "--render", "--agent-image=example.org/agent:1"},
		streams); code != 0 {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	objects, err := decode(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, object := range objects {
		if found[describe(object)] {
			t.Errorf("%s twice", describe(object))
		}
		found[describe(object)] = true
	}
	for _, want := range []string{
		"Namespace sealane-system", "CustomResourceDefinition clustersets.sealane.io",
		"CustomResourceDefinition peerings.sealane.io",
		"DaemonSet sealane-system/sealane-node", "ClusterPropagationPolicy sealane", "ClusterPropagationPolicy sealane-crds",
		"ClusterRole sealane-controller", "ValidatingAdmissionPolicy sealane-controller",
		"ValidatingAdmissionPolicy sealane-node",
	} {
		if !found[want] {
			t.Errorf("no %s", want)
		}
	}
	if !strings.Contains(out.String(), "image: example.org/agent:1") {
		t.Error("the images are not those of the flags")
	}
}

func clusterRole(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
		"metadata": map[string]any{"name": name},
		"rules":    []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}},
	}}
}

func TestInstallTwiceLeavesTheClusterSetAlone(t *testing.T) {
	k := newKarmada(t)
	k.install(t, "-C", "c1,c2")
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	k.get(t, set)
	if got := set.Spec.ClusterAffinity.ClusterNames; len(got) != 2 {
		t.Fatalf("cluster names %v, expected c1 and c2", got)
	}
	set.Spec.Cable.Port = 4600
	if err := k.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	k.install(t, "-C", "c3")
	k.get(t, set)
	if set.Spec.Cable.Port != 4600 || len(set.Spec.ClusterAffinity.ClusterNames) != 2 {
		t.Errorf("the second install changed the ClusterSet: %+v", set.Spec)
	}
	k.fails(t, []string{"c9"}, "install", "--controller=external", "-C", "c9")
	k.fails(t, []string{"karmada-host", "lost-member"}, "install")
	k.fails(t, []string{"--karmada-context"}, "install", "--karmada-context=nowhere", "--controller=external")
}

func TestInstallDeploysTheControllerOnTheHost(t *testing.T) {
	k := newKarmada(t)
	install := []string{"install", "--host-context=lost-member", "--timeout=5s",
		"--controller-image=localhost/controller:dev", "--agent-image=localhost/agent:dev"}
	k.fails(t, []string{"--karmada-server"}, install...)
	k.fails(t, []string{"the controller to become available", "describe pods"},
		append(install, "--karmada-server=https://karmada.example:5443")...)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "sealane-controller", Name: "sealane-controller"}}
	k.get(t, d)
	container := d.Spec.Template.Spec.Containers[0]
	if container.Image != "localhost/controller:dev" ||
		!slices.Contains(container.Args, "--token-secret=sealane-controller/sealane-controller-kubeconfig") {
		t.Errorf("the controller's container: %+v", container)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sealane-controller",
		Name: "sealane-controller-kubeconfig"}}
	k.get(t, secret)
	config, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	token := string(secret.Data[config.AuthInfos["sealane-controller"].TokenFile])
	if config.Clusters["karmada"].Server != "https://karmada.example:5443" || token == "" ||
		token == k.config.BearerToken {
		t.Errorf("the controller's kubeconfig: %+v", config)
	}
	reviews := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "sealane-controller-metrics"}}
	k.get(t, reviews)
	if len(reviews.Subjects) != 1 || reviews.Subjects[0].Namespace != "sealane-controller" {
		t.Errorf("who reviews readers of metrics: %+v", reviews.Subjects)
	}
	k.succeeds(t, "uninstall", "--host-context=lost-member")
	if left := k.sealanes(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
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

func TestInstallWaitsForTheMembers(t *testing.T) {
	k := newKarmada(t)
	k.install(t)
	install := []string{"install", "--controller=external",
		"--controller-kubeconfig=" + filepath.Join(t.TempDir(), "kubeconfig")}
	k.report(t, []string{"c1", "c2"}, connected()...)
	out := k.succeeds(t, install...)
	if strings.Count(out, "its cluster DNS forwards") != 2 {
		t.Errorf("install does not name both members")
	}
	k.report(t, []string{"c1", "c2"},
		condition(v1alpha1.MemberAccepted, metav1.ConditionFalse, v1alpha1.ReasonCIDROverlap, "10.8.0.0/16 belongs to c1"))
	k.fails(t, []string{"refused: 10.8.0.0/16 belongs to c1"}, install...)
	k.report(t, []string{"c1", "c2"}, connected()[:3]...)
	k.fails(t, []string{"waiting for its cluster DNS to forward"}, append(install, "--timeout=2s")...)
}

func TestJoinAndLeave(t *testing.T) {
	k := newKarmada(t)
	k.install(t, "-C", "c1")
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	for range 2 {
		k.succeeds(t, "join", "c2", "--wait=false")
	}
	k.get(t, set)
	if got := fmt.Sprint(set.Spec.ClusterAffinity.ClusterNames); got != "[c1 c2]" {
		t.Errorf("cluster names after join: %s", got)
	}
	k.report(t, []string{"c1", "c2"}, connected()...)
	k.succeeds(t, "join", "c2")

	k.succeeds(t, "leave", "c2", "--force", "--wait=false")
	k.get(t, set)
	if got := fmt.Sprint(set.Spec.ClusterAffinity.ClusterNames); got != "[c1]" {
		t.Errorf("cluster names after leave: %s", got)
	}
	member := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c2"}}
	k.get(t, member)
	if member.Annotations[v1alpha1.AnnotationForceLeave] != "true" {
		t.Errorf("leave --force did not mark the member: %v", member.Annotations)
	}
	k.fails(t, []string{"c2: waiting for the controller", "leave --force"}, "leave", "c2", "--timeout=2s")
	if err := k.Delete(t.Context(), member); err != nil {
		t.Fatal(err)
	}
	k.succeeds(t, "leave", "c2")
	k.fails(t, []string{"nowhere", "[default]"}, "join", "c2", "--clusterset=nowhere")
	if out := k.succeeds(t, "leave", "c3", "--timeout=10s"); strings.Contains(out, "c3: left") ||
		!strings.Contains(out, "c3: is no member") {
		t.Errorf("leave of a cluster that is no member: %s", out)
	}

	// A name that stands for nothing changes nothing.
	k.get(t, set)
	before := set.ResourceVersion
	k.fails(t, []string{"did you mean c1", "cluster of this Karmada"}, "leave", "c11", "--wait=false")
	k.fails(t, []string{"did you mean c1"}, "join", "c11", "--wait=false")
	k.fails(t, []string{"did you mean c1"}, "export", "web", "-n", "default", "-C", "c11")
	k.fails(t, []string{"did you mean c1"}, "show", "connections", "-C", "c11")
	if k.get(t, set); set.ResourceVersion != before {
		t.Errorf("leave and join of a cluster that does not exist changed the ClusterSet: %+v", set.Spec.ClusterAffinity)
	}
	// The name of a cluster that Karmada no longer has can be taken out.
	set.Spec.ClusterAffinity.ClusterNames = []string{"c1", "former"}
	if err := k.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	k.succeeds(t, "leave", "former")
	if k.get(t, set); fmt.Sprint(set.Spec.ClusterAffinity.ClusterNames) != "[c1]" {
		t.Errorf("cluster names after leave of a cluster that is gone: %v", set.Spec.ClusterAffinity.ClusterNames)
	}
	other := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c3"},
		Spec: v1alpha1.MemberSpec{ClusterSet: "other", Phase: v1alpha1.MemberActive}}
	k.create(t, other)
	k.fails(t, []string{"leave c3 --clusterset other"}, "leave", "c3")
}

func TestDiagnoseNeedsANameAndAMember(t *testing.T) {
	k := newKarmada(t)
	k.install(t, "-C", "c1")
	k.fails(t, []string{"a member to look from"}, "diagnose", "dns", "whereami", "-n", "sample")
	k.fails(t, []string{"none of the domains clusterset.local", "the path is broken at name"}, "diagnose", "dns",
		"www.example.org")
	k.fails(t, []string{"which has a Peering"}, "diagnose", "dns", "whereami", "--context=lost-member")
	k.fails(t, []string{"no Member of that name"}, "diagnose", "dns", "whereami", "-n", "sample", "-C", "c1")
	k.fails(t, []string{"which has a Peering"}, "show", "imports", "--context=lost-member")
	if out := k.succeeds(t, "show", "imports", "-n", "sample"); !strings.Contains(out, "no imports") {
		t.Error("imports without a member")
	}
}
