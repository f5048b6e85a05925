// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func slice(port int32, ready bool, ips ...string) discoveryv1.EndpointSlice {
	name, protocol := "http", corev1.ProtocolTCP
	s := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}}}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}})
	}
	return s
}

func TestBackendsDoNotDependOnTheSlices(t *testing.T) {
	one := []discoveryv1.EndpointSlice{slice(8080, true, "10.8.0.1", "10.8.0.2", "10.8.0.10"), slice(9090, true, "10.8.0.3"), slice(8080, false, "10.8.0.9")}
	other := []discoveryv1.EndpointSlice{slice(9090, true, "10.8.0.3"), slice(8080, true, "10.8.0.10", "10.8.0.1"), slice(8080, true, "10.8.0.2", "10.8.0.2", "junk")}
	a, b := Backends(one), Backends(other)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%v and %v", a, b)
	}
	if len(a) != 2 || a[0].Ports[0].Port != 8080 || len(a[0].Addresses) != 3 || a[0].Addresses[2].IP != "10.8.0.10" {
		t.Errorf("got %v", a)
	}
}

func TestManyBackendsAreCapped(t *testing.T) {
	var ips []string
	for i := range 300 {
		ips = append(ips, fmt.Sprintf("10.8.%d.%d", i/200, i%200+1))
	}
	rand.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	service := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.88.0.1", ClusterIPs: []string{"10.88.0.1"}}}
	e := Describe(&mcs.ServiceExport{}, service, []discoveryv1.EndpointSlice{slice(8080, true, ips...)})
	if got := len(e.Backends[0].Addresses); got != backendCap+1 {
		t.Errorf("%d backends", got)
	}
	service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	e = Describe(&mcs.ServiceExport{}, service, []discoveryv1.EndpointSlice{slice(8080, true, ips...)})
	if len(e.Backends[0].Addresses) != 300 || len(e.ClusterIPs) != 0 || e.Settings.Type != v1alpha1.Headless {
		t.Errorf("headless: %d backends, %v", len(e.Backends[0].Addresses), e.ClusterIPs)
	}
}

func TestExportedLabels(t *testing.T) {
	e := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		v1alpha1.AnnotationExportedLabels: `{"a":"b"}`, v1alpha1.AnnotationExportedAnnotations: `[1]`,
	}}}
	service := &corev1.Service{}
	if got := Describe(e, service, nil).Settings; got.Labels["a"] != "b" || got.Annotations != nil {
		t.Errorf("from annotations: %v %v", got.Labels, got.Annotations)
	}
	if v := Verdict(e, service); v.Status != metav1.ConditionTrue || v.Message == "the Service can be exported" {
		t.Errorf("a bad annotation is told: %s", v.Message)
	}
	e.Spec.ExportedLabels = map[string]string{"c": "d"}
	if got := Describe(e, service, nil).Settings.Labels; fmt.Sprint(got) != "map[c:d]" {
		t.Errorf("the spec wins: %v", got)
	}
}

func TestConditions(t *testing.T) {
	external := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}
	derived := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelImport: "web"}}}
	verdict := []v1alpha1.ExportCondition{
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Exported"}, {Type: "Conflict", Status: metav1.ConditionFalse, Reason: "NoConflicts"},
	}
	for _, c := range []struct {
		name    string
		service *corev1.Service
		broker  []v1alpha1.ExportCondition
		leaving bool
		want    string
	}{
		{"no Service", nil, verdict, false, "Valid=False/NoService Ready=False/Pending "},
		{"ExternalName", external, nil, false, "Valid=False/InvalidServiceType Ready=False/Pending "},
		{"a derived Service", derived, nil, false, "Valid=False/InvalidServiceType Ready=False/Pending "},
		{"before the broker spoke", &corev1.Service{}, nil, false, "Valid=True/Valid Ready=False/Pending "},
		{"after", &corev1.Service{}, verdict, false, "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts "},
		{"leaving", &corev1.Service{}, verdict, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			e.Status.Conditions = []metav1.Condition{{Type: "Theirs", Status: metav1.ConditionTrue}, {Type: "Conflict", Status: metav1.ConditionTrue}}
			got := conditions(e, c.service, c.broker, c.leaving)
			if meta.FindStatusCondition(got, "Theirs") == nil {
				t.Error("a condition that is not ours was removed")
			}
			text := ""
			for _, kind := range []string{"Valid", "Ready", "Conflict"} {
				if x := meta.FindStatusCondition(got, kind); x != nil {
					text += fmt.Sprintf("%s=%s/%s ", kind, x.Status, x.Reason)
					if x.ObservedGeneration != 3 {
						t.Errorf("%s: generation %d", kind, x.ObservedGeneration)
					}
				}
			}
			if text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
		})
	}
}
