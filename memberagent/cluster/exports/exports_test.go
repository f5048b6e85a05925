// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
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
	s := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}}}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}})
	}
	return s
}

func described(t *testing.T, export *mcs.ServiceExport, service *corev1.Service,
	endpoints ...discoveryv1.EndpointSlice) v1alpha1.Export {
	t.Helper()
	return Describe(export, service, endpoints, Routes{}, nil)
}

func TestBackendsDoNotDependOnTheSlices(t *testing.T) {
	one := []discoveryv1.EndpointSlice{slice(8080, true, "10.8.0.1", "10.8.0.2", "10.8.0.10"),
		slice(9090, true, "10.8.0.3"), slice(8080, false, "10.8.0.9")}
	other := []discoveryv1.EndpointSlice{slice(9090, true, "10.8.0.3"), slice(8080, true, "10.8.0.10", "10.8.0.1"),
		slice(8080, true, "10.8.0.2", "10.8.0.2", "junk")}
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
	e := described(t, &mcs.ServiceExport{}, service, slice(8080, true, ips...))
	if got := len(e.Backends[0].Addresses); got != backendCap+1 {
		t.Errorf("%d backends", got)
	}
	service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	e = described(t, &mcs.ServiceExport{}, service, slice(8080, true, ips...))
	if len(e.Backends[0].Addresses) != 300 || len(e.ClusterIPs) != 0 || e.Settings.Type != v1alpha1.Headless {
		t.Errorf("headless: %d backends, %v", len(e.Backends[0].Addresses), e.ClusterIPs)
	}
}

func TestBackendsCarryTheirConditions(t *testing.T) {
	yes, no := true, false
	s := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for i, c := range []discoveryv1.EndpointConditions{
		{}, {Ready: &yes}, {Ready: &no}, {Ready: &no, Serving: &no, Terminating: &yes},
		{Ready: &no, Serving: &yes, Terminating: &yes},  // shuts down, and still serves
		{Ready: &yes, Serving: &no, Terminating: &no},   // publishNotReadyAddresses
		{Ready: &yes, Serving: &yes, Terminating: &yes}, // and on its way out
	} {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.8.0.%d", i)},
			Conditions: c})
	}
	got := ""
	for _, b := range Backends([]discoveryv1.EndpointSlice{s})[0].Addresses {
		got += fmt.Sprintf("%s %t/%t/%t\n", b.IP, b.Ready, b.Serving, b.Terminating)
	}
	want := "10.8.0.0 true/true/false\n10.8.0.1 true/true/false\n10.8.0.4 false/true/true\n10.8.0.5 " +
		"true/false/false\n10.8.0.6 true/true/true\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestModeAndScopeFromAnnotations(t *testing.T) {
	const mode, clusters, selector = v1alpha1.AnnotationServiceMode, v1alpha1.AnnotationImportClusters,
		v1alpha1.AnnotationImportSelector
	for _, c := range []struct {
		name        string
		annotations map[string]string
		want        string // mode, clusters, selector
		says        string // what the Valid condition mentions
	}{
		{"none", nil, " everybody", ""},
		{"a mode", map[string]string{mode: "ClusterIP"}, "ClusterIP everybody", ""},
		{"an unknown mode is left out", map[string]string{mode: "clusterip"}, " everybody", mode},
		{"clusters, sorted and once", map[string]string{clusters: " c3, c1,c3"}, " [c1 c3] nothing selected", ""},
		{"no cluster is nobody", map[string]string{clusters: " "}, " [] nothing selected", ""},
		{"labels", map[string]string{selector: "env in (b,a), tier!=db,gpu"}, " [] env in (a,b),gpu,tier notin (db)", ""},
		{"both", map[string]string{clusters: "c1", selector: "env=prod"}, " [c1] env in (prod)", ""},
		{"a name that is none", map[string]string{clusters: "c1;c2"}, " [] nothing selected",
			`"c1;c2" is no name of a cluster`},
		{"a comma too many", map[string]string{clusters: "c1,"}, " [] nothing selected", `"" is no name of a cluster`},
		{"upper case", map[string]string{clusters: "C1"}, " [] nothing selected", `"C1" is no name`},
		{"an empty selector, which selects everything", map[string]string{selector: ""}, " [] nothing selected",
			"would select every cluster"},
		{"an operator that selectors lack", map[string]string{selector: "n>3"}, " [] nothing selected", "does not work"},
		{"half a selector", map[string]string{selector: "env in (a"}, " [] nothing selected", "env in (a"},
		{"two values of one label are nothing", map[string]string{selector: "env=a,env=b"}, " [] env in (a),env in (b)", ""},
		{"one good and one bad", map[string]string{clusters: "c1", selector: "="}, " [] nothing selected", selector},
		{"too many clusters", map[string]string{clusters: many(1001)}, " [] nothing selected", "1001 names"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
			if got := shown(t, described(t, e, &corev1.Service{})); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			v := valid(e, &corev1.Service{})
			if v.Status != metav1.ConditionTrue || len(v.Message) > 600 || !strings.Contains(v.Message, c.says) ||
				strings.Contains(v.Message, "left out") != (c.says != "") {
				t.Errorf("%s says %q, want %q", v.Status, v.Message, c.says)
			}
		})
	}
}

// TestRemarks: what is left out of an export is reported with it.
func TestRemarks(t *testing.T) {
	names := slice(8080, true, "db.example.org")
	names.Name, names.AddressType = "db-by-hand", discoveryv1.AddressTypeFQDN
	e := new(mcs.ServiceExport)
	e.Annotations = map[string]string{v1alpha1.AnnotationServiceMode: "clusterip"}
	got := described(t, e, &corev1.Service{}, slice(8080, true, "10.8.0.1"), names)
	want := []string{
		`the annotation sealane.io/service-mode should be ClusterSetIP or ClusterIP and is "clusterip"; correct or remove it`,
		"the EndpointSlice db-by-hand is ignored: it has names, and only addresses are exported; write one of the address " +
			"type IPv4 or IPv6",
	}
	if !slices.Equal(got.Remarks, want) || len(got.Backends) != 1 {
		t.Errorf("got %q and %v", got.Remarks, got.Backends)
	}
	if got := described(t, &mcs.ServiceExport{}, &corev1.Service{}, slice(8080, true, "10.8.0.1")).Remarks; got != nil {
		t.Errorf("of an export that is whole: %q", got)
	}
}

// TestAMalformedScopeShowsTheServiceToNobodyNew: nor does it take the service from those who use it.
func TestAMalformedScopeShowsTheServiceToNobodyNew(t *testing.T) {
	e := new(mcs.ServiceExport)
	e.Annotations = map[string]string{v1alpha1.AnnotationImportClusters: "c2;c3"}
	inForce := &v1alpha1.Export{Scope: &v1alpha1.ImportScope{ClusterNames: []string{"c2"}}}
	for want, last := range map[string]*v1alpha1.Export{
		" [] nothing selected":   nil,
		" [c2] nothing selected": inForce,
		" everybody":             {},
	} {
		if got := shown(t, Describe(e, &corev1.Service{}, nil, Routes{}, last)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	e.Annotations[v1alpha1.AnnotationImportClusters] = "c3"
	if got := shown(t, Describe(e, &corev1.Service{}, nil, Routes{}, inForce)); got != " [c3] nothing selected" {
		t.Errorf("one that is well-formed: got %q", got)
	}
}

func many(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	return strings.Join(names, ",")
}

func shown(t *testing.T, e v1alpha1.Export) string {
	t.Helper()
	if e.Scope == nil {
		return string(e.Mode) + " everybody"
	}
	text := fmt.Sprint(string(e.Mode), " ", e.Scope.ClusterNames, " ")
	if e.Scope.ClusterSelector == nil {
		return text + "nothing selected"
	}
	s, err := metav1.LabelSelectorAsSelector(e.Scope.ClusterSelector)
	if err != nil {
		t.Fatal(err)
	}
	return text + s.String()
}

func TestExportedLabels(t *testing.T) {
	e := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		v1alpha1.AnnotationExportedLabels: `{"a":"b"}`, v1alpha1.AnnotationExportedAnnotations: `[1]`,
	}}}
	service := &corev1.Service{}
	if got := described(t, e, service).Settings; got.Labels["a"] != "b" || got.Annotations != nil {
		t.Errorf("from annotations: %v %v", got.Labels, got.Annotations)
	}
	if v := valid(e, service); v.Status != metav1.ConditionTrue ||
		!strings.Contains(v.Message, v1alpha1.AnnotationExportedAnnotations) {
		t.Errorf("a bad annotation is told: %s", v.Message)
	}
	e.Annotations[v1alpha1.AnnotationExportedLabels] = `{"a":"b","n":1,"o":{},"x":null}`
	if got := described(t, e, service).Settings.Labels; fmt.Sprint(got) != "map[a:b]" {
		t.Errorf("a bad label costs the others nothing: %v", got)
	}
	if v := valid(e, service); v.Status != metav1.ConditionTrue ||
		!strings.Contains(v.Message, v1alpha1.AnnotationExportedLabels+
			` the label "n" is no string, label "o" is no string`) {
		t.Errorf("a bad label is told: %s", v.Message)
	}
	e.Spec.ExportedLabels = map[string]string{"c": "d"}
	if got := described(t, e, service).Settings.Labels; fmt.Sprint(got) != "map[c:d]" {
		t.Errorf("the spec wins: %v", got)
	}
}

func TestConditions(t *testing.T) {
	external := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}
	labelled := metav1.ObjectMeta{Namespace: "sample", Name: "mine", Labels: map[string]string{
		v1alpha1.LabelImport: "web", v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
	}}
	derived, users := &corev1.Service{ObjectMeta: labelled}, &corev1.Service{ObjectMeta: labelled}
	derived.Name = v1alpha1.DerivedName("sample", "web")
	verdict := []v1alpha1.ExportCondition{
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Exported"}, {Type: "Conflict", Status: metav1.ConditionFalse,
			Reason: "NoConflicts"},
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
		{"a user's Service with our labels", users, verdict, false, "Valid=True/Valid Ready=True/Exported " +
			"Conflict=False/NoConflicts "},
		{"before the broker spoke", &corev1.Service{}, nil, false, "Valid=True/Valid Ready=False/Pending "},
		{"after", &corev1.Service{}, verdict, false, "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts "},
		{"a scope that is malformed", &corev1.Service{}, verdict, false, "Valid=True/Valid Ready=True/Exported " +
			"Conflict=False/NoConflicts "},
		{"leaving", &corev1.Service{}, verdict, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			if strings.HasPrefix(c.name, "a scope") {
				e.Annotations = map[string]string{v1alpha1.AnnotationImportClusters: "c1;c2"}
			}
			e.Status.Conditions = []metav1.Condition{{Type: "Theirs", Status: metav1.ConditionTrue},
				{Type: "Conflict", Status: metav1.ConditionTrue}}
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
