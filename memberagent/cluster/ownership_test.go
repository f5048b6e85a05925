// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestUsersObjectsWithOurLabels: ownership is name and label together. What a user made under another name, with any of
// Sealane's labels, is neither changed nor deleted nor taken for something else.
func TestUsersObjectsWithOurLabels(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	p := m.peering(1)
	web, own := key("sample", "web"), key("sample", "own")
	labelled := func(name, managedBy, imported string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "sample", Name: name, Labels: map[string]string{
			managedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: imported,
		}}
	}
	port := []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}

	service := &corev1.Service{ObjectMeta: labelled("sl-mine", v1alpha1.LabelManagedBy, "web"),
		Spec: corev1.ServiceSpec{Ports: port}}
	exported := &corev1.Service{ObjectMeta: labelled("own", v1alpha1.LabelManagedBy, "own"),
		Spec: corev1.ServiceSpec{Ports: port}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: labelled("own-by-hand", discoveryv1.LabelManagedBy, "web"), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.8.0.77"}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"),
			Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))}},
	}
	slice.Labels[discoveryv1.LabelServiceName] = "own"
	foreign := &mcs.ServiceImport{ObjectMeta: labelled("foreign", v1alpha1.LabelManagedBy, "web")}
	foreign.Spec.Type, foreign.Spec.Ports = mcs.ClusterSetIP, []mcs.ServicePort{{Port: 1}}
	users := []client.Object{service, exported, slice, foreign}
	for _, o := range users {
		m.create(o)
	}
	m.create(&mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "own"}})

	m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}), imported("sample", "foreign",
		map[string][]string{"c2": {"10.9.0.5"}}))
	_, derived := m.derived(web)
	m.endpoints(web, "c2 10.9.0.4:8080")
	m.peeringCondition("ImportsApplied", metav1.ConditionFalse, "NameTaken", "sample/foreign")

	claims := slice.DeepCopy()
	claims.ObjectMeta = metav1.ObjectMeta{Namespace: "sample", Name: "claims", Labels: map[string]string{
		discoveryv1.LabelServiceName: derived.Name, discoveryv1.LabelManagedBy: v1alpha1.ManagedBy,
	}}
	m.create(claims)
	ready := func(want string) {
		m.imported(web, func(i *mcs.ServiceImport) error {
			c := meta.FindStatusCondition(i.Status.Conditions, "Ready")
			return expect(want, c != nil && c.Status == metav1.ConditionTrue &&
				strings.Contains(c.Message, "claims") == (want != ""), true)
		})
	}
	ready("the slice that claims the derived Service is told")
	m.delete(claims)
	ready("")

	m.eventually("the user's slice is exported", func(ctx context.Context) error {
		b := bundle(0)
		if err := m.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		for _, e := range b.Status.Exports {
			if e.Name == own.Name && len(e.Backends) == 1 {
				return expect("address", e.Backends[0].Addresses[0].IP, "10.8.0.77")
			}
		}
		return errors.New("not yet")
	})
	m.imports()
	m.expired(web)
	change(m, p, func(p *v1alpha1.Peering) { p.Spec.Phase = v1alpha1.MemberLeaving })
	m.reports("nothing of the user's is waited for", func(s *v1alpha1.PeeringStatus) error {
		return expect("cleaned",
			s.Cleaned, true)
	})
	for _, o := range users {
		have := o.DeepCopyObject().(client.Object)
		if err := m.Get(t.Context(), client.ObjectKeyFromObject(o), have); err != nil || have.GetUID() != o.GetUID() {
			t.Errorf("%T %s: %v", o, o.GetName(), err)
			continue
		}
		if !equality.Semantic.DeepEqual(have.GetLabels(), o.GetLabels()) || have.GetGeneration() != o.GetGeneration() {
			t.Errorf("%T %s was changed: %v", o, o.GetName(), have)
		}
	}
}
