// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/imports"
)

// imported waits until the ServiceImport is as check wants it.
func (m *member) imported(service types.NamespacedName, check func(*mcs.ServiceImport) error) *mcs.ServiceImport {
	m.t.Helper()
	out := &mcs.ServiceImport{}
	m.eventually("ServiceImport "+service.String(), func(ctx context.Context) error {
		out = &mcs.ServiceImport{}
		if err := m.Get(ctx, service, out); err != nil {
			return err
		}
		return check(out)
	})
	return out
}

// labelled waits until the derived Service names its import.
func (m *member) labelled(service types.NamespacedName, want string) {
	m.t.Helper()
	m.eventually("the label of the Service of "+service.String(), func(ctx context.Context) error {
		s := m.behind(ctx, service)
		return expect("label", s != nil && s.Labels[v1alpha1.LabelImport] == want, true)
	})
}

// orphaned waits until the derived Service is marked, and returns it.
func (m *member) orphaned(service types.NamespacedName) *corev1.Service {
	m.t.Helper()
	var s *corev1.Service
	m.eventually("the mark of an orphan", func(ctx context.Context) error {
		s = m.behind(ctx, service)
		return expect("marked", s != nil && s.Annotations["sealane.io/orphaned-at"] != "", true)
	})
	return s
}

// expired waits until the derived Service is marked, ages the mark and waits until the Service is gone. A mark that is
// set before the agent has seen that the import is gone would be taken off again.
func (m *member) expired(service types.NamespacedName) {
	m.t.Helper()
	s := m.orphaned(service)
	change(m, s, func(s *corev1.Service) { s.Annotations["sealane.io/orphaned-at"] = "2020-01-01T00:00:00Z" })
	m.gone(s)
}

// behind returns the derived Service, nil if there is none.
func (m *member) behind(ctx context.Context, service types.NamespacedName) *corev1.Service {
	s := &corev1.Service{}
	if m.Get(ctx, key(service.Namespace, imports.DerivedName(service)), s) != nil {
		return nil
	}
	return s
}

// run of n addresses.
func run(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s.%d.%d", prefix, i/250, i%250+1))
	}
	return out
}

// TestRulesOfAServiceImport has one part for each thing that the MCS API says of an import.
func TestRulesOfAServiceImport(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	web := key("sample", "web")
	m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}, "c3": {"10.7.0.1"}}))
	m.derived(web)

	m.run("status lists the exporting clusters, Ready and that there are EndpointSlices", func(*testing.T) {
		m.imported(web, func(i *mcs.ServiceImport) error {
			ready := meta.FindStatusCondition(i.Status.Conditions, "Ready")
			return errors.Join(expect("clusters", i.Status.Clusters, []mcs.ClusterStatus{{Cluster: "c2"}, {Cluster: "c3"}}),
				expect("ready", ready != nil && ready.Status == metav1.ConditionTrue && ready.Reason == "Ready" &&
					ready.ObservedGeneration == i.Generation, true),
				expect("slices", i.Status.EndpointSliceObjects, "Present"), expect("families", i.Spec.IPFamilies, "[IPv4]"))
		})
	})
	m.run("settings follow the merge: ports, session affinity, traffic policies", func(*testing.T) {
		i := imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}})
		i.Settings.Ports = append(i.Settings.Ports, v1alpha1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53,
			AppProtocol: ptr.To("example.org/dns")})
		i.Settings.SessionAffinity = corev1.ServiceAffinityClientIP
		i.Settings.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(77))},
		}
		i.Settings.InternalTrafficPolicy, i.Settings.TrafficDistribution = ptr.To(corev1.ServiceInternalTrafficPolicyLocal),
			ptr.To("PreferClose")
		i.Settings.Labels, i.Settings.Annotations = map[string]string{"team": "a"}, map[string]string{"note": "b"}
		m.imports(i)
		m.imported(web, func(i *mcs.ServiceImport) error {
			s := m.behind(t.Context(), web)
			if s == nil || s.Spec.SessionAffinityConfig == nil || i.Spec.InternalTrafficPolicy == nil ||
				i.Spec.TrafficDistribution == nil {
				return errors.New("not yet")
			}
			return errors.Join(expect("ports", len(i.Spec.Ports), 2), expect("ports of the Service", len(s.Spec.Ports), 2),
				expect("affinity", i.Spec.SessionAffinity, s.Spec.SessionAffinity), expect("affinity", s.Spec.SessionAffinity,
					"ClientIP"),
				expect("timeout", *s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, 77),
				expect("policy", *s.Spec.InternalTrafficPolicy, "Local"), expect("policy", *i.Spec.InternalTrafficPolicy, "Local"),
				expect("distribution", *i.Spec.TrafficDistribution, "PreferClose"),
				expect("label and annotation", i.Labels["team"]+i.Annotations["note"], "ab"))
		})
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
		m.imported(web, func(i *mcs.ServiceImport) error {
			return errors.Join(expect("ports", len(i.Spec.Ports), 1), expect("affinity", i.Spec.SessionAffinity, "None"),
				expect("label", i.Labels["team"], ""))
		})
	})
	m.run("the type changes: to headless and back", func(*testing.T) {
		i := imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}})
		i.Settings.Type = v1alpha1.Headless
		m.imports(i)
		m.imported(web, func(i *mcs.ServiceImport) error {
			return errors.Join(expect("type", i.Spec.Type, mcs.Headless), expect("ips", len(i.Spec.IPs), 0),
				expect("families", i.Spec.IPFamilies, "[IPv4]"))
		})
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
		m.derived(web)
	})
	m.run("no family in common is not ready, and has no address", func(*testing.T) {
		i := imported("sample", "six", map[string][]string{"c2": {"fd00::4"}})
		i.Settings.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
		m.imports(i)
		m.imported(key("sample", "six"), func(i *mcs.ServiceImport) error {
			ready := meta.FindStatusCondition(i.Status.Conditions, "Ready")
			if ready == nil {
				return errors.New("no condition")
			}
			return errors.Join(expect("reason", ready.Reason, "IPFamilyNotSupported"), expect("ips", len(i.Spec.IPs), 0),
				expect("families", i.Spec.IPFamilies, "[]"))
		})
	})
	m.run("an export without a ready backend keeps the import and its address", func(*testing.T) {
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
		_, s := m.derived(web)
		m.imports(imported("sample", "web", map[string][]string{"c2": nil}))
		m.endpoints(web, "")
		i, _ := m.derived(web)
		if i.Spec.IPs[0] != s.Spec.ClusterIP {
			t.Errorf("address %s, was %s", i.Spec.IPs[0], s.Spec.ClusterIP)
		}
	})
}

// TestEverythingOfAnImportIsRestored has one part for each thing that somebody may do to it.
func TestEverythingOfAnImportIsRestored(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	web, ss := key("sample", "web"), key("sample", "ss")
	headless := imported("sample", "ss", map[string][]string{"c2": {"10.9.0.9"}})
	headless.Settings.Type = v1alpha1.Headless
	m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}), headless)
	m.endpoints(web, "c2 10.9.0.4:8080")
	m.endpoints(ss, "c2 10.9.0.9:8080")
	i, s := m.derived(web)
	ip := s.Spec.ClusterIP
	restored := func(t *testing.T) {
		t.Helper()
		m.endpoints(web, "c2 10.9.0.4:8080")
		m.endpoints(ss, "c2 10.9.0.9:8080")
		i, s = m.derived(web)
		if s.Spec.ClusterIP != ip || s.Labels[v1alpha1.LabelImport] != "web" || i.Labels[v1alpha1.LabelImport] != "web" {
			t.Errorf("address %s, was %s; labels %v and %v", s.Spec.ClusterIP, ip, s.Labels, i.Labels)
		}
	}
	stripped := func(o client.Object) { o.SetLabels(nil) }

	m.run("the ServiceImport loses every label", func(t *testing.T) {
		change(m, i, func(i *mcs.ServiceImport) { stripped(i) })
		m.imported(web, func(i *mcs.ServiceImport) error { return expect("label", i.Labels[v1alpha1.LabelImport], "web") })
		restored(t)
	})
	m.run("a headless ServiceImport loses every label and its ports", func(t *testing.T) {
		change(m, &mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "ss"}},
			func(i *mcs.ServiceImport) {
				stripped(i)
				i.Spec.Ports, i.Spec.Type = []mcs.ServicePort{}, mcs.ClusterSetIP
			})
		m.imported(ss, func(i *mcs.ServiceImport) error {
			return errors.Join(expect("label", i.Labels[v1alpha1.LabelImport], "ss"), expect("ports", len(i.Spec.Ports), 1),
				expect("type", i.Spec.Type, mcs.Headless))
		})
		restored(t)
	})
	m.run("the status is edited", func(t *testing.T) {
		m.eventually("another status", func(ctx context.Context) error {
			if err := m.Get(ctx, web, i); err != nil {
				return err
			}
			i.Status = mcs.ServiceImportStatus{Clusters: []mcs.ClusterStatus{{Cluster: "nobody"}}}
			return m.Status().Update(ctx, i)
		})
		m.imported(web, func(i *mcs.ServiceImport) error {
			return errors.Join(expect("clusters", i.Status.Clusters, "[{c2}]"), expect("slices", i.Status.EndpointSliceObjects,
				"Present"))
		})
		restored(t)
	})
	m.run("a slice loses every label", func(t *testing.T) {
		slice := m.slices(t.Context(), web)[0]
		change(m, &slice, func(s *discoveryv1.EndpointSlice) { stripped(s) })
		restored(t)
	})
	m.run("a slice gets another port", func(t *testing.T) {
		slice := m.slices(t.Context(), ss)[0]
		change(m, &slice, func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr.To(int32(1)) })
		restored(t)
	})
	m.run("the Service loses every label", func(t *testing.T) {
		change(m, s, func(s *corev1.Service) { stripped(s) })
		m.labelled(web, "web")
		restored(t)
	})
	m.run("the Service becomes an ExternalName", func(t *testing.T) {
		change(m, s, func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
		})
		m.eventually("a ClusterIP", func(ctx context.Context) error {
			s := m.behind(ctx, web)
			if s == nil {
				return errors.New("no Service")
			}
			return errors.Join(expect("type", s.Spec.Type, corev1.ServiceTypeClusterIP), expect("address", s.Spec.ClusterIP, ip))
		})
		restored(t)
	})
	m.run("everything is deleted at once", func(t *testing.T) {
		m.delete(m.behind(t.Context(), web))
		m.delete(&mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "ss"}})
		for _, service := range []types.NamespacedName{web, ss} {
			for _, slice := range m.slices(t.Context(), service) {
				m.delete(&slice)
			}
		}
		restored(t)
		m.imported(ss, func(i *mcs.ServiceImport) error { return expect("type", i.Spec.Type, mcs.Headless) })
	})
}

// TestModeOfAServiceInUse: from ClusterSetIP to ClusterIP and back, clients find an address that works throughout.
func TestModeOfAServiceInUse(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	web := key("sample", "web")
	m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
	_, s := m.derived(web)

	other := imported("sample", "web", map[string][]string{"c2": {"10.99.0.10"}})
	other.Mode, other.Clusters[0].Backends[0].Ports[0].Port = v1alpha1.ServiceModeClusterIP, 80
	m.imports(other)
	m.endpoints(web, "c2 10.99.0.10:80")
	m.imported(web, func(i *mcs.ServiceImport) error {
		return errors.Join(expect("type", i.Spec.Type, mcs.ClusterSetIP), expect("ips", len(i.Spec.IPs), 0),
			expect("ready", meta.IsStatusConditionTrue(i.Status.Conditions, "Ready"), true))
	})
	if behind := m.orphaned(web); behind.Spec.ClusterIP != s.Spec.ClusterIP {
		t.Errorf("address %s, was %s", behind.Spec.ClusterIP, s.Spec.ClusterIP)
	}
	list := &discoveryv1.EndpointSliceList{}
	if err := m.List(t.Context(), list, client.InNamespace("sample"),
		client.MatchingLabels{discoveryv1.LabelServiceName: s.Name}); err != nil || len(list.Items) != 1 {
		t.Errorf("the address should go on working: %v, %v", list.Items, err)
	}

	m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
	m.endpoints(web, "c2 10.9.0.4:8080")
	if _, back := m.derived(web); back.Spec.ClusterIP != s.Spec.ClusterIP || back.UID != s.UID {
		t.Errorf("address %s, was %s", back.Spec.ClusterIP, s.Spec.ClusterIP)
	}

	m.imports(other)
	m.expired(web)
	m.eventually("only the published slice", func(ctx context.Context) error {
		list := &discoveryv1.EndpointSliceList{}
		if err := m.List(ctx, list, client.InNamespace("sample"), client.HasLabels{v1alpha1.LabelImport}); err != nil {
			return err
		}
		return expect("slices", len(list.Items), 1)
	})
	m.endpoints(web, "c2 10.99.0.10:80")
}

// TestEndpointsOfAnImport is about what EndpointSlices hold.
func TestEndpointsOfAnImport(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	web, big, ss := key("sample", "web"), key("sample", "big"), key("sample", "ss")

	m.run("a thousand of a headless service are ten slices, and one change is one write", func(t *testing.T) {
		ips := run("10.9", 1000)
		i := imported("sample", "big", map[string][]string{"c2": ips})
		i.Settings.Type = v1alpha1.Headless
		m.imports(i)
		count := func(ctx context.Context) (slices, endpoints int, versions map[string]string) {
			versions = map[string]string{}
			for _, s := range m.slices(ctx, big) {
				if len(s.Endpoints) > 100 {
					t.Errorf("%s has %d endpoints", s.Name, len(s.Endpoints))
				}
				endpoints += len(s.Endpoints)
				versions[s.Name] = s.ResourceVersion
			}
			return len(versions), endpoints, versions
		}
		var before map[string]string
		m.eventually("all of them", func(ctx context.Context) error {
			n, endpoints, versions := count(ctx)
			before = versions
			return expect("slices and endpoints", []int{n, endpoints}, []int{10, 1000})
		})
		changed := imported("sample", "big", map[string][]string{"c2": slices.Replace(slices.Clone(ips), 500, 501,
			"10.9.100.100")})
		changed.Settings.Type = v1alpha1.Headless
		m.imports(changed)
		m.eventually("the change", func(ctx context.Context) error {
			n, endpoints, after := count(ctx)
			written := 0
			for name, version := range after {
				if before[name] != version {
					written++
				}
			}
			return errors.Join(expect("slices and endpoints", []int{n, endpoints}, []int{10, 1000}),
				expect("written", written, 1))
		})
	})

	m.run("conditions, zone, hostname and hints are carried", func(t *testing.T) {
		i := imported("sample", "web", map[string][]string{"c2": {"10.9.0.1", "10.9.0.2", "10.9.0.3"}})
		i.Settings.TrafficDistribution = ptr.To("PreferSameNode")
		a := i.Clusters[0].Backends[0].Addresses
		a[0].Zone, a[0].Hostname = "zone-a", "first"
		a[1].Zone, a[1].Ready, a[1].Terminating = "zone-b", false, true
		a[2].Ready, a[2].Serving = false, false
		m.imports(i)
		m.eventually("the endpoints", func(ctx context.Context) error {
			list := m.slices(ctx, web)
			if len(list) != 1 || len(list[0].Endpoints) != 2 {
				return fmt.Errorf("got %v", list)
			}
			one, two := list[0].Endpoints[0], list[0].Endpoints[1]
			return errors.Join(expect("zone and hostname", *one.Zone+" "+*one.Hostname, "zone-a first"),
				expect("node", one.NodeName == nil, true),
				expect("zone hint", one.Hints.ForZones, "[{zone-a}]"), expect("hints of one that is not ready", two.Hints == nil,
					true),
				expect("conditions", fmt.Sprint(*two.Conditions.Ready, *two.Conditions.Serving, *two.Conditions.Terminating),
					"false true true"))
		})
	})

	m.run("hints for nodes, where all endpoints are here", func(t *testing.T) {
		slice := m.service("sample", "web", "10.8.0.7")
		change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Zone = ptr.To("zone-a") })
		i := imported("sample", "web", map[string][]string{"c1": nil, "c2": {"10.9.0.1"}})
		i.Settings.TrafficDistribution = ptr.To("PreferSameNode")
		m.imports(i)
		m.eventually("the hint", func(ctx context.Context) error {
			list := m.slices(ctx, web)
			if len(list) != 1 || len(list[0].Endpoints) != 1 || list[0].Endpoints[0].Hints == nil {
				return fmt.Errorf("got %v", list)
			}
			h := list[0].Endpoints[0].Hints
			return errors.Join(expect("zones", h.ForZones, "[{zone-a}]"), expect("nodes", h.ForNodes, "[{node-a}]"))
		})
	})

	m.run("weights are numbers of pods", func(t *testing.T) {
		i := imported("sample", "weighted", map[string][]string{"c2": run("10.9", 9), "c3": run("10.7", 9)})
		i.Choice = &v1alpha1.ClusterChoice{Weights: []v1alpha1.ClusterWeight{{Cluster: "c2", Weight: 1},
			{Cluster: "c3", Weight: 3}}}
		m.imports(i)
		m.eventually("the shares", func(ctx context.Context) error {
			got := map[string]int{}
			for _, s := range m.slices(ctx, key("sample", "weighted")) {
				got[s.Labels[mcs.LabelSourceCluster]] += len(s.Endpoints)
			}
			return expect("shares", got, map[string]int{"c2": 3, "c3": 9})
		})
	})

	m.run("a headless service without selector, its endpoints made by hand", func(t *testing.T) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "ss"}}
		s.Spec.ClusterIP = corev1.ClusterIPNone
		m.create(s)
		byHand := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "by-hand",
				Labels: map[string]string{discoveryv1.LabelServiceName: "ss"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.8.0.77"}, Hostname: ptr.To("db-0")}},
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("sql"), Port: ptr.To(int32(5432))}},
		}
		m.create(byHand)
		m.export("sample", "ss")
		m.exports("sample/ss 10.8.0.77;")
		i := imported("sample", "ss", map[string][]string{"c1": nil, "c2": {"10.9.0.77"}})
		i.Settings.Type, i.Settings.Ports = v1alpha1.Headless, []v1alpha1.ServicePort{}
		i.Clusters[1].Backends[0].Ports, i.Clusters[0].Ports, i.Clusters[1].Ports = []v1alpha1.BackendPort{},
			[]string{}, []string{}
		m.imports(i)
		m.eventually("both", func(ctx context.Context) error {
			var got []string
			for _, s := range m.slices(ctx, ss) {
				for _, e := range s.Endpoints {
					got = append(got, s.Labels[mcs.LabelSourceCluster]+" "+e.Addresses[0])
				}
			}
			slices.Sort(got)
			return expect("endpoints", got, []string{"c1 10.8.0.77", "c2 10.9.0.77"})
		})
	})

	m.run("what no slice may hold does not cost the rest", func(t *testing.T) {
		i := imported("sample", "bad", map[string][]string{"c2": {"127.0.0.1", "fe80::1%eth0", "fd00::1", "junk", "0.0.0.0",
			"10.9.0.1", "10.9.0.1", "::ffff:10.9.0.2"}})
		i.Settings.Ports = append(i.Settings.Ports, v1alpha1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP,
			Port: 81}, v1alpha1.ServicePort{Name: "http-again", Protocol: corev1.ProtocolTCP, Port: 80})
		i.Settings.Labels = map[string]string{"not a label": "!"}
		g := &i.Clusters[0].Backends[0]
		g.Ports = append(g.Ports, v1alpha1.BackendPort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 9090})
		for j := range g.Addresses {
			g.Addresses[j].Hostname, g.Addresses[j].Zone = strings.Repeat("X", 300), "not/a/zone"
		}
		m.imports(i)
		m.endpoints(key("sample", "bad"), "c2 10.9.0.1:8080, c2 10.9.0.2:8080")
		m.derived(key("sample", "bad"))
	})
}

// TestKarmadaTakesAServiceImportOver: a propagated ServiceImport of the same name that overwrites ours is Karmada's,
// and ours comes back when it goes.
func TestKarmadaTakesAServiceImportOver(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	web := key("sample", "web")
	m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
	i, s := m.derived(web)

	// What Karmada does where its policy says to overwrite: labels stay, its own are added.
	change(m, i, func(i *mcs.ServiceImport) {
		i.Labels["karmada.io/managed"] = "true"
		i.Spec.Ports, i.Spec.IPs = []mcs.ServicePort{{Port: 99, Protocol: corev1.ProtocolTCP}}, nil
	})
	m.endpoints(web, "")
	m.peeringCondition("ImportsApplied", metav1.ConditionFalse, "NameTaken", "sample/web: Karmada propagates")
	if err := m.Get(t.Context(), web, i); err != nil || i.Spec.Ports[0].Port != 99 {
		t.Errorf("the ServiceImport was touched: %v, %v", i.Spec, err)
	}
	m.delete(i)
	m.endpoints(web, "c2 10.9.0.4:8080")
	if _, again := m.derived(web); again.Spec.ClusterIP != s.Spec.ClusterIP {
		t.Errorf("address %s, was %s", again.Spec.ClusterIP, s.Spec.ClusterIP)
	}
	m.peeringCondition("ImportsApplied", metav1.ConditionTrue, "Applied", "")

	// Karmada reports the EndpointSlices that carry the name of a service with a ServiceExport: none of ours does.
	list := &discoveryv1.EndpointSliceList{}
	if err := m.List(t.Context(), list, client.InNamespace("sample"),
		client.MatchingLabels{discoveryv1.LabelServiceName: "web"}); err != nil || len(list.Items) > 0 {
		t.Errorf("slices that Karmada would collect: %v, %v", list.Items, err)
	}
	m.export("sample", imports.DerivedName(web))
	m.condition("sample", imports.DerivedName(web), "Valid", metav1.ConditionFalse, "InvalidServiceType")
}
