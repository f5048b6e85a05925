// SPDX-License-Identifier: Apache-2.0

package globalips

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/index"
)

// fields of the fake client, by kind.
type fields struct{ *fake.ClientBuilder }

func (f fields) IndexField(_ context.Context, o client.Object, field string, of client.IndexerFunc) error {
	f.WithIndex(o, field, of)
	return nil
}

// TestWritesThatFail: pods that come and go while nothing can be written use up no addresses: who has one is known by
// what is written.
func TestWritesThatFail(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, mcs.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	meta := metav1.ObjectMeta{Namespace: "sample", Name: "db"}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "db-x",
		Labels: map[string]string{discoveryv1.LabelServiceName: "db"}}, AddressType: discoveryv1.AddressTypeIPv4}
	builder := fields{fake.NewClientBuilder().WithScheme(scheme).WithObjects(slice, &mcs.ServiceExport{ObjectMeta: meta},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
		&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}, Spec: v1alpha1.PeeringSpec{
			GlobalCIDR: "120.1.0.0/24", Networks: v1alpha1.Networks{PodCIDRs: []string{"10.7.0.0/16"}}}})}
	if err := index.Register(t.Context(), builder); err != nil {
		t.Fatal(err)
	}
	c := builder.WithInterceptorFuncs(interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object,
		client.Patch, ...client.PatchOption) error {
		return errors.New("the API server is away")
	}}).Build()
	r := &Reconciler{Client: c, Live: c, Now: func() time.Time { return time.Unix(1e9, 0) }}
	for n := range 20 {
		ip := fmt.Sprintf("10.7.0.%d", n+1)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: fmt.Sprintf("db-%d", n)},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip}}
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{ip}}}
		if err := errors.Join(c.Create(t.Context(), pod), c.Update(t.Context(), slice)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "sample",
			Name: "db"}}); err == nil {
			t.Fatal("what fails was written")
		}
	}
	if len(r.allocator.owners) > 0 {
		t.Errorf("%d addresses are of pods of which nothing is written", len(r.allocator.owners))
	}
}
