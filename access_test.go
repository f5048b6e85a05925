// SPDX-License-Identifier: Apache-2.0

package sealane_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	appsv1alpha1 "github.com/karmada-io/karmada/pkg/apis/apps/v1alpha1"
	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// server reaches a member's API server as an administrator.
var server *rest.Config

func TestMain(m *testing.M) {
	path, err := apiserver.CRDs()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(apiserver.Main(m, &server, path))
}

// How a write ends: done, refused for lack of a right, or refused by a ValidatingAdmissionPolicy.
const (
	done     = "done"
	noRight  = "no right"
	byPolicy = "refused by policy"
)

func outcome(err error) string {
	switch {
	case err == nil:
		return done
	case err != nil && strings.Contains(err.Error(), "resulted in error"):
		return err.Error() // refused, but because an expression failed
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
		return byPolicy
	case apierrors.IsForbidden(err):
		return noRight
	}
	return err.Error()
}

// write is one request, and how it is to end.
type write struct {
	what string
	want string
	do   func(c client.Client) error
}

func connect(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, mcs.Install,
		appsv1alpha1.Install, clusterv1alpha1.Install, policyv1alpha1.Install, workv1alpha1.Install,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// installAll creates every object of the manifests that match.
func installAll(t *testing.T, c client.Client, pattern string) {
	t.Helper()
	files, err := fs.Glob(sealane.Artifacts, pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %s, %v", pattern, err)
	}
	var namespaces, others []client.Object
	for _, file := range files {
		data, err := sealane.Artifacts.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			o := new(unstructured.Unstructured)
			if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if o.GetKind() == "Namespace" {
				namespaces = append(namespaces, o)
			} else {
				others = append(others, o)
			}
		}
	}
	create(t, c, append(namespaces, others...)...)
}

// create objects; one that exists stays.
func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); client.IgnoreAlreadyExists(err) != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// token of a service account in a member; with a pod it is bound to that, as kubelet's are.
func token(t *testing.T, account string, pod *corev1.Pod) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
		}
	}
	return tokenOf(t, server, account, request)
}

// tokenOf asks an API server for a token of a service account in sealane-system.
func tokenOf(t *testing.T, config *rest.Config, account string, request *authenticationv1.TokenRequest) string {
	t.Helper()
	return accountToken(t, config, v1alpha1.Namespace, account, request)
}

// accountToken asks an API server for a token of any service account.
func accountToken(t *testing.T, config *rest.Config, namespace, account string,
	request *authenticationv1.TokenRequest) string {
	t.Helper()
	if request == nil {
		request = &authenticationv1.TokenRequest{}
	}
	answer, err := kubernetes.NewForConfigOrDie(config).CoreV1().ServiceAccounts(namespace).
		CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// with connects with a token and no other credential.
func with(t *testing.T, token, userAgent string) client.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(server)
	config.BearerToken, config.UserAgent = token, userAgent
	return connect(t, config)
}

// podOn creates a node, and on it a pod of a service account.
func podOn(t *testing.T, admin client.Client, node, name, account string) *corev1.Pod {
	t.Helper()
	create(t, admin, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.Namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": account},
		},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}
	create(t, admin, pod)
	return pod
}

// enforced waits until the API server enforces a policy: until then it lets a write pass that it must refuse.
func enforced(t *testing.T, refused func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for outcome(refused()) != byPolicy {
		if time.Now().After(deadline) {
			t.Fatalf("not enforced within 30 s: %v", refused())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func expect(t *testing.T, c client.Client, writes []write) {
	t.Helper()
	for _, w := range writes {
		t.Run(w.what, func(t *testing.T) {
			err := w.do(c)
			if got := outcome(err); got != w.want {
				t.Errorf("%s, want %s (%v)", got, w.want, err)
			}
		})
	}
}

// patch is a merge patch of an object.
func patch(t *testing.T, o client.Object, text string) func(client.Client) error {
	return func(c client.Client) error {
		return c.Patch(t.Context(), o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(text)))
	}
}

// patchUpdate reads an object, changes it and writes it whole.
func patchUpdate[T client.Object](t *testing.T, o T, change func(T)) func(client.Client) error {
	return func(c client.Client) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			have := o.DeepCopyObject().(T)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), have); err != nil {
				return err
			}
			change(have)
			return c.Update(t.Context(), have)
		})
	}
}

// patchUpdateAs reads an object, changes it and sends the difference as a merge patch, as the controller and the agents
// do with what others have written, too.
func patchUpdateAs[T client.Object](t *testing.T, o T, change func(T)) func(client.Client) error {
	return func(c client.Client) error {
		have := o.DeepCopyObject().(T)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), have); err != nil {
			return err
		}
		changed := have.DeepCopyObject().(T)
		change(changed)
		return c.Patch(t.Context(), changed, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
	}
}

// patchStatus is one of its status.
func patchStatus(t *testing.T, o client.Object, text string) func(client.Client) error {
	return func(c client.Client) error {
		merge := client.RawPatch(types.MergePatchType, []byte(text))
		return c.Status().Patch(t.Context(), o.DeepCopyObject().(client.Object), merge)
	}
}

func creates(t *testing.T, o client.Object, opts ...client.CreateOption) func(client.Client) error {
	return func(c client.Client) error { return c.Create(t.Context(), o.DeepCopyObject().(client.Object), opts...) }
}

// reviewsToken asks whose a token is, reviewsRight whether somebody may read metrics.
func reviewsToken(t *testing.T) func(client.Client) error {
	return creates(t, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "t"}})
}

func reviewsRight(t *testing.T) func(client.Client) error {
	return creates(t, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "u", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}})
}

func deletes(t *testing.T, o client.Object) func(client.Client) error {
	return func(c client.Client) error { return c.Delete(t.Context(), o.DeepCopyObject().(client.Object)) }
}
