// SPDX-License-Identifier: Apache-2.0

package sealane_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1alpha1 "github.com/karmada-io/karmada/pkg/apis/apps/v1alpha1"
	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/internal/credential"
	"github.com/sealane-io/sealane/internal/installation"
	"github.com/sealane-io/sealane/internal/redial"
)

// work carries the manifests, given as JSON, to cluster c1.
func work(name string, manifests ...string) *workv1alpha1.Work {
	w := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{
		Namespace: "karmada-es-c1", Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": v1alpha1.ManagedBy},
	}}
	for _, text := range manifests {
		w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests,
			workv1alpha1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(text)}})
	}
	return w
}

func manifest(apiVersion, kind, name string) string {
	return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"` + name + `"},"spec":{}}`
}

// TestControllerTokenIsNoAdministrator: what the controller's token can write on the Karmada API.
func TestControllerTokenIsNoAdministrator(t *testing.T) {
	var paths []string
	for _, find := range []func() (string, error){apiserver.CRDs, apiserver.KarmadaCRDs, apiserver.ClusterCRD} {
		path, err := find()
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	karmada := apiserver.Start(t, paths...)
	admin := connect(t, karmada)
	installAll(t, admin, "artifacts/controller/karmada.yaml")
	const own = v1alpha1.Namespace
	peering, bundle := manifest("sealane.io/v1alpha1", "Peering", "sealane"), manifest("sealane.io/v1alpha1",
		"Bundle", "sealane-3")
	users := work("users", manifest("apps/v1", "Deployment", "web"))
	users.Labels = nil
	relabelled := work("relabelled", manifest("v1", "Secret", "web"))
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"},
		Spec: clusterv1alpha1.ClusterSpec{SyncMode: "Push"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "key"}}
	foreign := propagates("foreign", "Deployment", "shop", "web")
	create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "karmada-es-c1"}}, users, relabelled, set,
		cluster, secret,
		foreign)
	templates, err := installation.Templates(sealane.Artifacts, installation.Images{})
	if err != nil {
		t.Fatal(err)
	}

	config := rest.AnonymousClientConfig(karmada)
	config.BearerToken = tokenOf(t, karmada, "sealane-controller", nil)
	controller := connect(t, config)
	enforced(t, func() error { return creates(t, work("w", manifest("v1", "Secret", "s")))(controller) })

	member := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: v1alpha1.MemberSpec{ClusterSet: "default",
		Phase: v1alpha1.MemberActive}}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "gone", UID: "gone"}}
	installed := installation.Policies(templates, []string{"c2"})[1]
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "sealane-controller"}}
	elsewhere, unlabelled := work("elsewhere", peering), work("unlabelled", peering)
	elsewhere.Namespace, unlabelled.Labels = "default", nil
	carrier := work("sealane-peering", peering)
	workOfBundle := func(name string) *workv1alpha1.Work {
		return work(name, manifest("sealane.io/v1alpha1", "Bundle", name))
	}
	swap := func(w *workv1alpha1.Work) { w.Spec.Workload.Manifests[0].Raw = []byte(manifest("v1", "Secret", "s")) }
	expect(t, controller, []write{
		{"a Work of a Peering", done, creates(t, carrier)},
		{"a Work of a Bundle", done, creates(t, work("sealane-bundle", bundle))},
		{"a Work of the Bundle of a half", done, creates(t, workOfBundle(v1alpha1.HalfName(v1alpha1.BundleName(63), "01")))},
		{"a Work of a Bundle of deltas", done, creates(t, workOfBundle(v1alpha1.DeltaName(v1alpha1.MaxDeltas-1)))},
		{"a Work of the Bundle for answers", done, creates(t, workOfBundle(v1alpha1.AnswersName))},
		{"another revision of it", done, patchUpdate(t, carrier, func(w *workv1alpha1.Work) {
			w.Spec.Workload.Manifests[0].Raw = []byte(strings.Replace(peering, `"spec":{}`, `"spec":{"revision":2}`, 1))
		})},
		{"a Member", done, creates(t, member)},
		{"a Member's status", done, patchStatus(t, member, `{"status":{"agentVersion":"v"}}`)},
		{"a ClusterSet's status", done, patchStatus(t, set, `{"status":{"members":1}}`)},
		{"a ClusterSet's finalizer", done, patchUpdateAs(t, set,
			func(s *v1alpha1.ClusterSet) { s.Finalizers = []string{"sealane.io/members"} })},
		{"the policy of the bundle", done, creates(t, installed)},
		{"the members that it goes to", done, patchUpdate(t, installed, func(p *policyv1alpha1.ClusterPropagationPolicy) {
			p.Spec.Placement.ClusterAffinity.ClusterNames = append(p.Spec.Placement.ClusterAffinity.ClusterNames, "c1")
		})},
		{"the scheduling of an export", done, creates(t, rebalancer("multicluster.x-k8s.io/v1alpha1", "ServiceExport"))},
		{"its lease", done, creates(t, lease)},

		{"a Work of a Deployment", byPolicy, creates(t, work("w", manifest("apps/v1", "Deployment", "d")))},
		{"a Work of a Secret", byPolicy, creates(t, work("w", manifest("v1", "Secret", "s")))},
		{"a Work of a Gateway", byPolicy, creates(t, work("w", manifest("sealane.io/v1alpha1", "Gateway", "g")))},
		{"a Work of somebody else's Peering", byPolicy,
			creates(t, work("w", manifest("example.org/v1", "Peering", "sealane")))},
		{"a Work of a Peering of another name", byPolicy,
			creates(t, work("w", manifest("sealane.io/v1alpha1", "Peering", "x")))},
		{"a Work of two manifests", byPolicy, creates(t, work("w", peering, bundle))},
		{"a Work of a Peering and a Secret", byPolicy, creates(t, work("w", peering, manifest("v1", "Secret", "s")))},
		{"a Work of nothing", byPolicy, creates(t, work("w"))},
		{"a Work outside the execution namespaces", byPolicy, creates(t, elsewhere)},
		{"a Work without the label", byPolicy, creates(t, unlabelled)},
		{"another manifest in its Work", byPolicy, patchUpdate(t, carrier, swap)},
		{"another's Work", byPolicy, patchUpdate(t, users, func(w *workv1alpha1.Work) {
			w.Labels, w.Spec = carrier.Labels, carrier.Spec
		})},
		{"another's Work, deleted", byPolicy, deletes(t, users)},
		{"another's Work with our label, deleted", byPolicy, deletes(t, relabelled)},
		{"an owner of a ClusterSet", byPolicy,
			patchUpdateAs(t, set, func(s *v1alpha1.ClusterSet) { s.OwnerReferences = owner })},
		{"an annotation of a ClusterSet", byPolicy, patchUpdateAs(t, set, func(s *v1alpha1.ClusterSet) {
			s.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "x"}
		})},
		{"another's finalizer of a ClusterSet", byPolicy, patchUpdateAs(t, set, func(s *v1alpha1.ClusterSet) {
			s.Finalizers = append(s.Finalizers, "example.org/f")
		})},
		{"an owner of its policy", byPolicy, patchUpdate(t, installed,
			func(p *policyv1alpha1.ClusterPropagationPolicy) { p.OwnerReferences = owner })},
		{"a token of its own for eight days", byPolicy, func(c client.Client) error {
			return c.SubResource("token").Create(t.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "sealane-controller"}},
				credential.Request(8*24*time.Hour))
		}},
		{"the settings of a ClusterSet", byPolicy, patchUpdateAs(t, set,
			func(s *v1alpha1.ClusterSet) { s.Spec.Cable.Port = 4600 })},
		{"a ClusterSet as a whole", noRight, patchUpdate(t, set, func(s *v1alpha1.ClusterSet) { s.Finalizers = nil })},
		{"a ClusterSet", noRight, creates(t, &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "mine"}})},
		{"where a Cluster is reached", noRight, patch(t, cluster, `{"spec":{"apiEndpoint":"https://example.org"}}`)},
		{"a label of a Cluster", noRight, patch(t, cluster, `{"metadata":{"labels":{"env":"prod"}}}`)},
		{"a Cluster's status", noRight, patchStatus(t, cluster, `{"status":{"kubernetesVersion":"v1.0.0"}}`)},
		{"a Deployment", noRight, creates(t, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "d"}})},
		{"a DaemonSet", noRight, creates(t, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "d"}})},
		{"a ClusterRole", noRight, creates(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sealane-node"}})},
		{"a ClusterRoleBinding", noRight, creates(t,
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "sealane-node"}})},
		{"a Role", noRight, creates(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "sealane-node"}})},
		{"a policy of another name", byPolicy, creates(t, propagates("mine", "Deployment", "sealane-system", "sealane-dns"))},
		{"a policy of a Secret", byPolicy, creates(t, propagates("sealane", "Secret", "sealane-system", "sealane-dns"))},
		{"a policy of another Deployment", byPolicy, creates(t, propagates("sealane", "Deployment", "shop", "sealane-dns"))},
		{"a policy of all Deployments", byPolicy, creates(t, propagates("sealane", "Deployment", "sealane-system", ""))},
		{"a policy of another ClusterRole", byPolicy, creates(t, propagates("sealane", "ClusterRole", "", "cluster-admin"))},
		{"a policy of what a Deployment refers to", byPolicy, patchUpdate(t, installed,
			func(p *policyv1alpha1.ClusterPropagationPolicy) { p.Spec.PropagateDeps = true })},
		{"somebody's policy", byPolicy, patchUpdate(t, foreign, func(p *policyv1alpha1.ClusterPropagationPolicy) {
			p.Spec.Placement.ClusterAffinity.ClusterNames = []string{"c1"}
		})},
		{"the scheduling of a Deployment", byPolicy, creates(t, rebalancer("apps/v1", "Deployment"))},
		{"a Secret, read", noRight, func(c client.Client) error {
			return c.Get(t.Context(),
				client.ObjectKeyFromObject(secret), secret)
		}},
		{"Secrets, listed", noRight, func(c client.Client) error { return c.List(t.Context(), &corev1.SecretList{}) }},
		{"a ServiceAccount", noRight, creates(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: own,
			Name: "root"}})},
		{"a review of a token", noRight, reviewsToken(t)},
		{"a review of a right", noRight, reviewsRight(t)},
		{"a token of another account", noRight, func(c client.Client) error {
			return c.SubResource("token").Create(t.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "default"}},
				credential.Request(time.Hour))
		}},

		{"the end of its Work", done, deletes(t, carrier)},
	})
	t.Run("it renews its token", func(t *testing.T) { testRenewal(t, karmada, config) })
	t.Run("it renews its token as a Deployment", func(t *testing.T) {
		t.Parallel()
		testDeployedRenewal(t, karmada, config)
	})
	t.Run("it goes on with the token in its file", func(t *testing.T) {
		t.Parallel()
		testRenewedFile(t, karmada)
	})
}

// testRenewal: with nothing but its own token the controller gets the next one before that expires, and that works.
func testRenewal(t *testing.T, karmada, own *rest.Config) {
	core, err := corev1client.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	renewer := &credential.Renewer{
		Accounts: core, Store: credential.File(filepath.Join(t.TempDir(), "token")),
		Lifetime: 10 * time.Minute, // the shortest that an API server grants
		Expiry:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "expiry"}),
		Now:      func() time.Time { return now },
	}
	first := tokenOf(t, karmada, "sealane-controller", credential.Request(10*time.Minute))
	if err := renewer.Store.Write(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	stored := func() string {
		token, err := renewer.Store.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	if _, err := renewer.Renew(t.Context()); err != nil || stored() != first {
		t.Errorf("a fresh token was replaced: %v", err)
	}
	now = now.Add(6 * time.Minute)
	next, err := renewer.Renew(t.Context())
	if err != nil || stored() == first {
		t.Fatalf("a token with four minutes left was not replaced: %v", err)
	}
	if left := time.Until(next); left < 4*time.Minute || left > 5*time.Minute {
		t.Errorf("the next renewal is in %s, want half of ten minutes", left)
	}
	renewed := rest.AnonymousClientConfig(karmada)
	renewed.BearerToken = stored()
	if err := connect(t, renewed).List(t.Context(), &v1alpha1.MemberList{}); err != nil {
		t.Errorf("the new token does not work: %v", err)
	}
}

// testDeployedRenewal: the Deployment keeps the token in its Secret on the host, with the rights that host.yaml gives
// it.
func testDeployedRenewal(t *testing.T, karmada, own *rest.Config) {
	const namespace, name = "sealane-controller", "sealane-controller-kubeconfig"
	host := apiserver.Start(t)
	admin := connect(t, host)
	installAll(t, admin, "artifacts/controller/host.yaml")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	read := func() string {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			t.Fatal(err)
		}
		return string(secret.Data[credential.TokenKey])
	}
	first := tokenOf(t, karmada, "sealane-controller", credential.Request(10*time.Minute))
	read()
	secret.Data = map[string][]byte{"kubeconfig": []byte("untouched"), credential.TokenKey: []byte(first)}
	if err := admin.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}
	create(t, admin, other)

	account := rest.AnonymousClientConfig(host)
	account.BearerToken = accountToken(t, host, namespace, "sealane-controller", nil)
	secrets, err := corev1client.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, connect(t, account), []write{
		{"another Secret, read", noRight, func(c client.Client) error {
			return c.Get(t.Context(), client.ObjectKeyFromObject(other), other.DeepCopy())
		}},
		{"another Secret, written", noRight, patch(t, other, `{"data":{"token":"eA=="}}`)},
		{"Secrets, listed", noRight, func(c client.Client) error {
			return c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace))
		}},
		{"a Secret", noRight, creates(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "new"}})},
		{"the end of its Secret", noRight, deletes(t, secret)},
	})

	core, err := corev1client.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	renewer := &credential.Renewer{
		Accounts: core, Store: credential.Secret{Secrets: secrets.Secrets(namespace), Name: name},
		Lifetime: 10 * time.Minute,
		Expiry:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "expiry"}),
		Now:      func() time.Time { return now },
	}
	if _, err := renewer.Renew(t.Context()); err != nil || read() != first {
		t.Errorf("a fresh token was replaced: %v", err)
	}
	now = now.Add(6 * time.Minute)
	if _, err := renewer.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := read()
	if parsed, err := credential.Parse(next); err != nil || next == first || parsed.Account.Name != "sealane-controller" {
		t.Errorf("the Secret has %+v, %v, want a new token of sealane-controller", parsed, err)
	}
	if string(secret.Data["kubeconfig"]) != "untouched" {
		t.Errorf("the kubeconfig beside the token is now %q", secret.Data["kubeconfig"])
	}
	elsewhere := credential.Secret{Secrets: secrets.Secrets(namespace), Name: other.Name}
	if _, err := elsewhere.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "get Secret other") {
		t.Errorf("another Secret: %v", err)
	}
	if err := elsewhere.Write(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "patch Secret other") {
		t.Errorf("another Secret: %v", err)
	}
}

// testRenewedFile: a client that reads its token from a file goes on with the next one when the API server takes the
// first no longer, without a restart.
func testRenewedFile(t *testing.T, karmada *rest.Config) {
	admin := connect(t, karmada)
	holder := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "holder"}}
	create(t, admin, holder)
	request := credential.Request(10 * time.Minute)
	// The token ends with this Secret: none is granted for less than ten minutes.
	request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
		Kind: "Secret", APIVersion: "v1", Name: holder.Name, UID: holder.UID,
	}
	first := tokenOf(t, karmada, "sealane-controller", request)
	file := credential.File(filepath.Join(t.TempDir(), "token"))
	if err := file.Write(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	fromFile, fixed := rest.AnonymousClientConfig(karmada), rest.AnonymousClientConfig(karmada)
	fromFile.BearerTokenFile, fixed.BearerToken = string(file), first
	fromFile.Wrap(redial.Transport)
	list := func(c client.Client) error { return c.List(t.Context(), &v1alpha1.MemberList{}) }
	running, old := connect(t, fromFile), connect(t, fixed)
	for _, c := range []client.Client{running, old} {
		if err := list(c); err != nil {
			t.Fatalf("the first token does not work: %v", err)
		}
	}
	next := tokenOf(t, karmada, "sealane-controller", credential.Request(10*time.Minute))
	if err := file.Write(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	// The API server remembers for ten seconds that a token was good.
	within(t, time.Minute, "the first token is refused", func() bool { return apierrors.IsUnauthorized(list(old)) })
	// The file is read every minute.
	within(t, 70*time.Second, "the client uses the next token", func() bool { return list(running) == nil })
}

// within waits for a condition.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// propagates is a ClusterPropagationPolicy of one object, or of all of a kind where its name is empty.
func propagates(policy, kind, namespace, name string) *policyv1alpha1.ClusterPropagationPolicy {
	return &policyv1alpha1.ClusterPropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec: policyv1alpha1.PropagationSpec{
			ResourceSelectors: []policyv1alpha1.ResourceSelector{{
				APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name,
			}},
			Placement: policyv1alpha1.Placement{ClusterAffinity: &policyv1alpha1.ClusterAffinity{ClusterNames: []string{"c2"}}},
		},
	}
}

func rebalancer(apiVersion, kind string) *appsv1alpha1.WorkloadRebalancer {
	return &appsv1alpha1.WorkloadRebalancer{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "sealane-"},
		Spec: appsv1alpha1.WorkloadRebalancerSpec{
			Workloads: []appsv1alpha1.ObjectReference{{APIVersion: apiVersion, Kind: kind, Namespace: "shop", Name: "web"}},
		},
	}
}
