// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/lab"
)

// WhereamiPods is the pod template of a whereami server with the label app.
func WhereamiPods(app string) corev1.PodTemplateSpec {
	grace := int64(0)
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name,
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
			Name: "whereami", Image: lab.ImageWhereami, ImagePullPolicy: corev1.PullNever,
			Env: []corev1.EnvVar{field("POD_NAME", "metadata.name"), field("NODE_NAME", "spec.nodeName")},
		}}},
	}
}

// Spread creates the Deployment, Service and ServiceExport web on the Karmada API, and one PropagationPolicy that
// propagates all of them to some clusters.
func (s Namespace) Spread(clusters ...string) {
	s.Helper()
	s.Create(lab.ContextKarmada,
		deployment(),
		Service(func(web *corev1.Service) { web.Spec.Selector = map[string]string{"app": "web"} }),
		&mcsv1alpha1.ServiceExport{ObjectMeta: Named("web")},
		SpreadPolicy(clusters...))
}

// StatefulSet of whereami servers, behind the Service of its name.
func StatefulSet(name string, replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: Named(name), Spec: appsv1.StatefulSetSpec{
		ServiceName: name, Replicas: &replicas, PodManagementPolicy: appsv1.ParallelPodManagement,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		Template: WhereamiPods(name),
	}}
}

// NewKarmadaNamespace creates a namespace on the Karmada API and waits until Karmada has propagated it to all members.
func NewKarmadaNamespace(t *testing.T) Namespace {
	t.Helper()
	s := NewNamespace(t, lab.ContextKarmada)
	for _, cluster := range Members() {
		a := s.API(cluster)
		Eventually(t, Patience, func(ctx context.Context) error {
			return a.Get(ctx, client.ObjectKey{Name: s.Name}, &corev1.Namespace{})
		})
	}
	return s
}

// deployment is web's, of two pods. A pod that is being deleted serves for 4 s more, until every kube-proxy has
// taken it out.
func deployment() *appsv1.Deployment {
	replicas, grace, pods := int32(2), int64(10), WhereamiPods("web")
	pods.Spec.TerminationGracePeriodSeconds = &grace
	pods.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 4}},
	}
	return &appsv1.Deployment{ObjectMeta: Named("web"), Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Template: pods,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}}
}

// SpreadPolicy is the PropagationPolicy that Spread creates.
func SpreadPolicy(clusters ...string) *policyv1alpha1.PropagationPolicy {
	return &policyv1alpha1.PropagationPolicy{ObjectMeta: Named("web"), Spec: policyv1alpha1.PropagationSpec{
		ResourceSelectors: []policyv1alpha1.ResourceSelector{
			{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			{APIVersion: "v1", Kind: "Service", Name: "web"},
			{APIVersion: mcsv1alpha1.GroupVersion.String(), Kind: "ServiceExport", Name: "web"},
		},
		Placement: policyv1alpha1.Placement{ClusterAffinity: &policyv1alpha1.ClusterAffinity{ClusterNames: clusters}},
	}}
}

// WaitKarmadaCondition waits for a condition of web's ServiceExport on the Karmada API, with words in its message.
func (s Namespace) WaitKarmadaCondition(
	kind mcs.ServiceExportConditionType, status metav1.ConditionStatus, words ...string,
) {
	s.Helper()
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: Named("web")}
	WaitFor(s, lab.ContextKarmada, export, func(e *mcsv1alpha1.ServiceExport) error {
		c := meta.FindStatusCondition(e.Status.Conditions, string(kind))
		if c == nil || c.Status != status {
			return fmt.Errorf("expected %s to be %s, found %+v", kind, status, e.Status.Conditions)
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return fmt.Errorf("expected %q in %s, found %s", word, kind, c.Message)
			}
		}
		return nil
	})
}
