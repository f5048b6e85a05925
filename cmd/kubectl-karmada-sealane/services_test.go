// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// shop is a fleet whose members c1 and c2 can be asked and whose c3 cannot; each service is in a state of
// its own.
func shop() *fleet {
	f := &fleet{
		clusterSets: []v1alpha1.ClusterSet{{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
			Spec:       v1alpha1.ClusterSetSpec{Services: v1alpha1.ServicesSpec{Mode: v1alpha1.ServiceModeClusterSetIP}},
		}},
	}
	for _, name := range []string{"c1", "c2", "c3"} {
		f.members = append(f.members, fleetMember{
			Member: v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1alpha1.MemberSpec{ClusterSet: "default"}},
			services: &memberServices{namespaces: map[string]bool{"shop": true}},
			bundles:  []v1alpha1.Bundle{{}},
		})
	}
	f.members[2].services, f.members[2].err = nil, errors.New("cluster proxy: dial tcp: i/o timeout")
	return f
}

func webSettings(kind v1alpha1.ServiceType) v1alpha1.ServiceSettings {
	return v1alpha1.ServiceSettings{Type: kind,
		Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}}
}

// exports has members report the service with ready pods, and the broker take it in.
func (f *fleet) exports(service string, kind v1alpha1.ServiceType, ready int, clusters ...string) {
	for _, name := range clusters {
		b := &f.member(name).bundles[0]
		b.Status.Exports = append(b.Status.Exports, v1alpha1.Export{
			Namespace: "shop", Name: service, Settings: webSettings(kind), CreatedAt: metav1.NewTime(time.Unix(1700000000, 0)),
			ClusterIPs: []string{"10.96.0.9"}, Backends: podsAt("10.8.0.%d", ready),
		})
		f.says(name, service, "Ready", metav1.ConditionTrue, "Exported", "")
	}
}

// podsAt are ready backends, and one that is not.
func podsAt(pattern string, ready int) []v1alpha1.Backends {
	g := v1alpha1.Backends{Ports: []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}}}
	for i := range ready {
		g.Addresses = append(g.Addresses, v1alpha1.Backend{IP: fmt.Sprintf(pattern, i+1), Ready: true})
	}
	g.Addresses = append(g.Addresses, v1alpha1.Backend{IP: fmt.Sprintf(pattern, 250), Serving: true, Terminating: true})
	return []v1alpha1.Backends{g}
}

func (f *fleet) says(cluster, service, kind string, status metav1.ConditionStatus, reason, message string) {
	b := &f.member(cluster).bundles[0]
	for i := range b.Spec.ExportConditions {
		if c := &b.Spec.ExportConditions[i]; c.Name == service && c.Type == kind {
			c.Status, c.Reason, c.Message = status, reason, message
			return
		}
	}
	b.Spec.ExportConditions = append(b.Spec.ExportConditions, v1alpha1.ExportCondition{
		Namespace: "shop", Name: service, Type: kind, Status: status, Reason: reason, Message: message,
	})
}

// imports has the broker want the service imported, from the clusters.
func (f *fleet) imports(service string, kind v1alpha1.ServiceType, by []string, from ...string) {
	for _, name := range by {
		im := v1alpha1.Import{Namespace: "shop", Name: service, Settings: webSettings(kind)}
		for i, cluster := range from {
			c := v1alpha1.ImportCluster{Cluster: cluster, Ports: []string{"http"}}
			if cluster != name {
				c.Backends = podsAt(fmt.Sprintf("10.%d.0.%%d", 8+i), 2)
			}
			im.Clusters = append(im.Clusters, c)
		}
		f.member(name).bundles[0].Spec.Imports = append(f.member(name).bundles[0].Spec.Imports, im)
	}
}

func (f *fleet) spread(service string, targets ...string) *exportTemplate {
	t := exportTemplate{binding: &workv1alpha2.ResourceBinding{}}
	t.Namespace, t.Name = "shop", service
	for _, name := range targets {
		t.binding.Spec.Clusters = append(t.binding.Spec.Clusters, workv1alpha2.TargetCluster{Name: name})
	}
	f.templates = append(f.templates, t)
	return &f.templates[len(f.templates)-1]
}

func own(service, reason, message string) mcsv1beta1.ServiceExport {
	return mcsv1beta1.ServiceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: service},
		Status: mcsv1beta1.ServiceExportStatus{Conditions: []metav1.Condition{{Type: exportValid,
			Status: metav1.ConditionFalse, Reason: reason, Message: message}}},
	}
}

func exportedShop() *fleet {
	f := shop()
	f.exports("cart", v1alpha1.ClusterSetIP, 3, "c1", "c2")
	f.imports("cart", v1alpha1.ClusterSetIP, []string{"c1", "c2", "c3"}, "c1", "c2")
	f.member("c1").bundles[0].Status.Exports[0].Scope = &v1alpha1.ImportScope{ClusterNames: []string{"c1", "c2"},
		ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}
	f.policies = append(f.policies, v1alpha1.ServicePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"},
		Spec: v1alpha1.ServicePolicySpec{
			Choice: &v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{v1alpha1.LocalCluster,
				"c2"}, MinReadyBackends: 2}},
			Importers: &v1alpha1.ImportScope{ClusterNames: []string{"c1", "c2", "c3"}},
		},
		Status: v1alpha1.ServicePolicyStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ServicePolicyAccepted,
			Status: metav1.ConditionTrue, Reason: "Accepted"}}},
	}, v1alpha1.ServicePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "unknown"},
		Spec: v1alpha1.ServicePolicySpec{Choice: &v1alpha1.ClusterChoice{
			Weights: []v1alpha1.ClusterWeight{{Cluster: "c1", Weight: 3}, {Cluster: "c9", Weight: 1}},
		}},
		Status: v1alpha1.ServicePolicyStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ServicePolicyAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ServicePolicyReasonNoExport,
			Message: "no cluster exports shop/unknown"}}},
	})

	f.exports("conflicting", v1alpha1.ClusterSetIP, 1, "c1")
	f.says("c1", "conflicting", "Conflict", metav1.ConditionTrue, "PortConflict", "c2 exports other ports")
	f.exports("full", v1alpha1.ClusterSetIP, 101, "c2")
	f.says("c2", "full", "Ready", metav1.ConditionFalse, "BundleFull", "there is no room")
	f.exports("fresh", v1alpha1.Headless, 200, "c1")
	f.member("c1").bundles[0].Spec.ExportConditions = f.member("c1").bundles[0].Spec.ExportConditions[:3]

	spread := f.spread("mail", "c1", "c2", "c3", "c4")
	spread.binding.Status.AggregatedStatus = []workv1alpha2.AggregatedStatusItem{
		{ClusterName: "c2", AppliedMessage: "namespaces \"shop\" not found"},
		{ClusterName: "c3", Applied: true, Status: &runtime.RawExtension{Raw: []byte(`{"conditions":[
			{"type":"Valid","status":"False","reason":"NoService","message":"there is no Service mail"}]}`)}},
	}
	f.member("c1").services.exports = []mcsv1beta1.ServiceExport{own("mail", "InvalidServiceType",
		"it is of type ExternalName"), own("made-there", "NoService", "there is no Service made-there")}
	f.spread("nowhere").binding.Status.Conditions = []metav1.Condition{{Type: workv1alpha2.Scheduled,
		Status: metav1.ConditionFalse, Message: "0/3 clusters are available"}}
	f.spread("no-policy").binding = nil
	f.exports("rivalled", v1alpha1.ClusterSetIP, 1, "c1")
	f.says("c1", "rivalled", "Conflict", metav1.ConditionTrue, "PortConflict", "c2 exports other ports")
	for _, service := range []string{"conflicting", "rivalled"} {
		reason := map[string]string{"conflicting": "PortConflict", "rivalled": "PortConflict,DerivedService"}[service]
		f.spread(service, "c1").Status.Conditions = []metav1.Condition{{Type: "Conflict", Status: metav1.ConditionTrue,
			Reason: reason, Message: "on the Karmada API"}}
	}
	f.imports("gone", v1alpha1.ClusterSetIP, []string{"c3"}, "c1")
	f.says("c2", "lingering", "Ready", metav1.ConditionTrue, "Exported", "")
	f.exports("idle", v1alpha1.ClusterSetIP, 0, "c1")
	f.says("c1", "idle", "Ready", metav1.ConditionTrue, "Exported",
		v1alpha1.MessageExported+"; left out: 1 backend outside the accepted networks")
	// c1 has the import of cart and not that of idle, c2 lacks the namespace, c3 cannot be asked.
	f.imports("idle", v1alpha1.ClusterSetIP, []string{"c1"}, "c1")
	labels := func(service string) map[string]string {
		return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: service}
	}
	f.member("c1").services.imports = []mcsv1beta1.ServiceImport{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", Labels: labels("cart")},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.88.0.9"}},
	}, {
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "idle", Labels: labels("idle")},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP},
		Status: mcsv1beta1.ServiceImportStatus{Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonImportRefused,
			Message: "exceeded quota: services",
		}}},
	}}
	f.member("c2").services.namespaces = map[string]bool{}
	return f
}

func TestShowServicesSaysHowFarEachExportHasCome(t *testing.T) {
	f := exportedShop()
	for _, format := range []string{outputTable, outputWide, outputJSON} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			if err := write(&out, format, serviceTable(f)); err != nil {
				t.Fatal(err)
			}
			golden(t, "services."+format, out.Bytes())
		})
	}
}

// importedShop: each of the services is imported by c1 in another state, c2 lacks the namespace, and c3
// cannot be asked.
func importedShop() *fleet {
	f := shop()
	f.exports("cart", v1alpha1.ClusterSetIP, 3, "c3")
	f.imports("cart", v1alpha1.ClusterSetIP, []string{"c1", "c2", "c3"}, "c2", "c3")
	f.imports("ring", v1alpha1.Headless, []string{"c1"}, "c2")
	f.imports("young", v1alpha1.ClusterSetIP, []string{"c1"}, "c2")
	f.imports("taken", v1alpha1.ClusterSetIP, []string{"c1"}, "c2")
	f.member("c1").bundles[0].Spec.Imports[0].Mode = v1alpha1.ServiceModeClusterIP
	f.member("c2").services.namespaces = map[string]bool{}
	present := func(name string, kind mcsv1beta1.ServiceImportType, ips ...string) mcsv1beta1.ServiceImport {
		return mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: name,
			}},
			Spec: mcsv1beta1.ServiceImportSpec{Type: kind, IPs: ips,
				Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
			Status: mcsv1beta1.ServiceImportStatus{Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "c2"}, {Cluster: "c3"}}},
		}
	}
	ring := present("ring", mcsv1beta1.Headless)
	ring.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse,
		Reason: "IPFamilyNotSupported", Message: "the exporters have IPv6"}}
	taken := present("taken", mcsv1beta1.ClusterSetIP)
	taken.Labels = nil
	f.member("c1").services.imports = []mcsv1beta1.ServiceImport{present("cart", mcsv1beta1.ClusterSetIP, "10.88.0.9"),
		ring, taken, present("old", mcsv1beta1.ClusterSetIP, "10.88.0.10")}
	f.member("c1").services.slices = []discoveryv1.EndpointSlice{
		endpoints("cart", "c2", discoveryv1.AddressTypeIPv4, "10.9.0.1", "10.9.0.2"),
		endpoints("cart", "c2", discoveryv1.AddressTypeIPv6, "fd00::1"),
		endpoints("other", "c3", discoveryv1.AddressTypeIPv4, "10.9.0.1"),
	}
	return f
}

// endpoints is a slice of ready addresses, and one that is not.
func endpoints(service, cluster string, family discoveryv1.AddressType, addresses ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: service,
			Labels: map[string]string{mcsv1beta1.LabelServiceName: service, mcsv1beta1.LabelSourceCluster: cluster}},
		AddressType: family,
	}
	yes, no := true, false
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}})
	}
	s.Endpoints = append(s.Endpoints,
		discoveryv1.Endpoint{Addresses: []string{"10.9.0.250"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}})
	return s
}

func TestShowImportsSaysWhatIsMissing(t *testing.T) {
	f := importedShop()
	for _, format := range []string{outputTable, outputWide, outputJSON} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			if err := write(&out, format, importTable(f)); err != nil {
				t.Fatal(err)
			}
			golden(t, "imports."+format, out.Bytes())
		})
	}
	f.namespace = "elsewhere"
	f.member("c1").services.imports = nil
	if rows := importRows(f); len(rows) != 0 {
		t.Errorf("-n elsewhere shows %v", rows)
	}
}

// TestAnImportThatCannotBeLookedAtIsAsReported: what the agent saw of another revision says nothing of this one.
func TestAnImportThatCannotBeLookedAtIsAsReported(t *testing.T) {
	im := &v1alpha1.Import{Namespace: "shop", Name: "cart"}
	refused := []v1alpha1.ImportProblem{{Namespace: "shop", Names: []string{"cart"}, Reason: "Refused",
		Message: "exceeded quota"}}
	for name, tc := range map[string]struct {
		revision int64
		status   v1alpha1.BundleStatus
		want     presence
		text     string
	}{
		"never reported": {revision: 3, want: importUnknown, text: "as the broker wants it"},
		"of an older revision": {revision: 3, status: v1alpha1.BundleStatus{ObservedRevision: 2}, want: importUnknown,
			text: "as the broker wants it"},
		"there": {revision: 3, status: v1alpha1.BundleStatus{ObservedRevision: 3}, want: importPresent,
			text: "as last reported"},
		"refused": {revision: 3, status: v1alpha1.BundleStatus{ObservedRevision: 3, Imports: refused},
			want: importAbsent, text: "as last reported: Refused: exceeded quota"},
		"of a cut list": {revision: 3, status: v1alpha1.BundleStatus{ObservedRevision: 3, ImportsLeftOut: 1},
			want: importUnknown, text: "as the broker wants it"},
	} {
		b := &v1alpha1.Bundle{Spec: v1alpha1.BundleSpec{Revision: tc.revision}, Status: tc.status}
		got, text := reportedImport(b, im)
		if got != tc.want || text != tc.text {
			t.Errorf("%s: got %v, %q, want %v, %q", name, got, text, tc.want, tc.text)
		}
	}
}
