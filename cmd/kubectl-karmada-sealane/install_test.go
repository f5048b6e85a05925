// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/version"
)

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

// TestRenderNamesWhatInstallApplies, and asks no API server.
func TestRenderNamesWhatInstallApplies(t *testing.T) {
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
	if code := run([]string{"kubectl-karmada-sealane", "install", "--render", "--registry=example.net/own/",
		"--agent-image=example.org/agent:1", "--image-pull-secret=credential"},
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
		"DaemonSet sealane-system/sealane-node",
		"ClusterRole sealane-controller", "ValidatingAdmissionPolicy sealane-controller",
		"ValidatingAdmissionPolicy sealane-node",
	} {
		if !found[want] {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(out.String(), "kind: ClusterPropagationPolicy") {
		t.Error("a policy is rendered: applied again, it would take the bundle from the members that the controller named")
	}
	for _, want := range []string{"image: example.org/agent:1", "image: example.net/own/dns:" + version.Version,
		"imagePullSecrets:\n      - name: credential"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the images are not those of the flags: no %q", want)
		}
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
	k.install(t, "-C", "c1,c2", "--globalnet=Auto")
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	k.get(t, set)
	if got := set.Spec.ClusterAffinity.ClusterNames; len(got) != 2 || set.Spec.Globalnet.Mode != v1alpha1.GlobalnetAuto {
		t.Fatalf("expected c1 and c2 with globalnet Auto, found %+v", set.Spec)
	}
	set.Spec.Cable.Port = 4600
	if err := k.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	k.install(t, "-C", "c3", "--globalnet=Off")
	k.get(t, set)
	if set.Spec.Cable.Port != 4600 || len(set.Spec.ClusterAffinity.ClusterNames) != 2 ||
		set.Spec.Globalnet.Mode != v1alpha1.GlobalnetAuto {
		t.Errorf("the second install changed the ClusterSet: %+v", set.Spec)
	}
	k.fails(t, []string{"--globalnet", `"auto"`}, "install", "--controller=external", "--globalnet=auto")
	k.fails(t, []string{"c9"}, "install", "--controller=external", "-C", "c9")
	k.fails(t, []string{"karmada-host", "lost-member"}, "install")
	k.fails(t, []string{"--karmada-context"}, "install", "--karmada-context=nowhere", "--controller=external")
}

func TestInstallDeploysTheControllerOnTheHost(t *testing.T) {
	k := newKarmada(t)
	install := []string{"install", "--host-context=lost-member", "--timeout=15s",
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
	began := time.Now()
	k.fails(t, []string{"refused: 10.8.0.0/16 belongs to c1"}, install...)
	took := time.Since(began)
	k.report(t, []string{"c1", "c2"}, connected()[:3]...)
	k.fails(t, []string{"waiting for its cluster DNS to forward"}, append(install, "--timeout="+(3*took).String())...)
	k.fails(t, []string{"deadline exceeded", "within --timeout=", "a longer --timeout"},
		append(install, "--timeout="+(took/3).String())...)
}
