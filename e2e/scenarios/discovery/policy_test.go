// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
)

// steering is what annotations and policies change.
func steering() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"an ordered list of clusters with a threshold": failoverList,
		"weights, as finely as there are pods":         weightsByPods,
		"weights where DNS answers with ClusterIPs":    weightsByQuery,
		"the ClusterIP mode of an export":              clusterIPMode,
		"importers by name":                            importersByName,
		"importers by label":                           importersByLabel,
		"importers by policy":                          importersByPolicy,
		"an annotation that says nothing usable shows a new service to its own cluster alone": malformedScope,
		"hints for traffic that should stay near":                                             trafficStaysNear,
	}
}

// annotated is an export with an annotation.
func annotated(key, value string) func(*mcs.ServiceExport) {
	return func(e *mcs.ServiceExport) { metav1.SetMetaDataAnnotation(&e.ObjectMeta, key, value) }
}

// steer makes web's ServicePolicy and waits until it is in force.
func steer(s suite.Namespace, spec v1alpha1.ServicePolicySpec) {
	s.Helper()
	s.Create(lab.ContextKarmada, &v1alpha1.ServicePolicy{ObjectMeta: suite.Named("web"), Spec: spec})
	inForce(s)
}

func resteer(s suite.Namespace, edit func(*v1alpha1.ServicePolicySpec)) {
	s.Helper()
	suite.Update(s, lab.ContextKarmada, &v1alpha1.ServicePolicy{ObjectMeta: suite.Named("web")},
		func(p *v1alpha1.ServicePolicy) { edit(&p.Spec) })
	inForce(s)
}

func inForce(s suite.Namespace) {
	s.Helper()
	suite.WaitFor(s, lab.ContextKarmada, &v1alpha1.ServicePolicy{ObjectMeta: suite.Named("web")},
		func(p *v1alpha1.ServicePolicy) error {
			if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ServicePolicyAccepted); c == nil ||
				c.Status != metav1.ConditionTrue || c.ObservedGeneration != p.Generation {
				return fmt.Errorf("expected Accepted, found %+v", p.Status.Conditions)
			}
			return nil
		})
}

// spare is an endpoint that no pod has: of a network, and different for each number.
func spare(cluster string, number int) discoveryv1.Endpoint {
	second := map[string]int{"c1": 8, "c2": 9, "c3": 10}[cluster]
	return discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.0.%d", second, 200+number)}}
}

func failoverList(t *testing.T) {
	s := suite.NewKarmadaNamespace(t)
	for _, cluster := range suite.Members() {
		s.Serve(cluster)
		s.Export(cluster)
	}
	s.WaitEndpoints("c1", map[string]int{"c1": 1})
	steer(s,
		v1alpha1.ServicePolicySpec{Choice: &v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"c3",
			"c2"}, MinReadyBackends: 1}}})
	s.WaitEndpoints("c1", map[string]int{"c3": 1})
	s.WaitEndpoints("c2", map[string]int{"c3": 1})
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 20, "c3")
	resteer(s, func(p *v1alpha1.ServicePolicySpec) { p.Choice.Failover.MinReadyBackends = 2 })
	s.WaitEndpoints("c1", map[string]int{"c2": 1, "c3": 1})
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 40, "c2", "c3")
	s.Backends("c3", s.Server("c3-gw"), spare("c3", 0))
	s.WaitEndpoints("c1", map[string]int{"c3": 2})
	s.Backends("c3")
	s.WaitEndpoints("c1", map[string]int{"c1": 1, "c2": 1})
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 40, "c1", "c2")
	s.Delete(lab.ContextKarmada, &v1alpha1.ServicePolicy{ObjectMeta: suite.Named("web")})
	s.WaitEndpoints("c1", map[string]int{"c1": 1})
	s.WaitEndpoints("c3", map[string]int{"c1": 1, "c2": 1})
}

func weights(c2, c3 int32) v1alpha1.ServicePolicySpec {
	return v1alpha1.ServicePolicySpec{Choice: &v1alpha1.ClusterChoice{Weights: []v1alpha1.ClusterWeight{
		{Cluster: "c2", Weight: c2}, {Cluster: "c3", Weight: c3},
	}}}
}

func weightsByPods(t *testing.T) {
	s := suite.NewKarmadaNamespace(t)
	web := suite.Service()
	s.Create("c2", web, suite.EndpointSlice(web, spare("c2", 0), spare("c2", 1), spare("c2", 2), spare("c2", 3)))
	s.Serve("c3")
	s.Export("c2")
	s.Export("c3")
	s.WaitEndpoints("c1", map[string]int{"c2": 4, "c3": 1})
	steer(s, weights(1, 1))
	s.WaitEndpoints("c1", map[string]int{"c2": 1, "c3": 1})
	resteer(s, func(p *v1alpha1.ServicePolicySpec) { *p = weights(3, 1) })
	s.WaitEndpoints("c1", map[string]int{"c2": 3, "c3": 1})
	resteer(s, func(p *v1alpha1.ServicePolicySpec) { *p = weights(0, 1) })
	s.WaitEndpoints("c1", map[string]int{"c3": 1})
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 10, "c3")
	suite.AnsweredByAll(t, "c2", "http://"+s.DNSName(), 10, "c3")
}

func weightsByQuery(t *testing.T) {
	s := suite.NewKarmadaNamespace(t)
	for _, cluster := range []string{"c2", "c3"} {
		s.Serve(cluster)
		s.Export(cluster, annotated(v1alpha1.AnnotationServiceMode, "ClusterIP"))
	}
	steer(s, weights(3, 1))
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		// Each of the DNS servers takes turns for itself.
		answers, err := suite.Requests(ctx, "c1", suite.ClientOf("c1"), "http://"+s.DNSName(), 80)
		if err != nil {
			return err
		}
		found := 0
		for _, a := range answers {
			if a.Cluster == "c2" {
				found++
			}
		}
		if found < 50 || found > 70 {
			return fmt.Errorf("expected 60 of 80 answers of c2, three for each of c3, found %d", found)
		}
		return nil
	})
}

func clusterIPMode(t *testing.T) {
	s := suite.NewNamespace(t)
	for _, cluster := range []string{"c2", "c3"} {
		s.Serve(cluster)
		s.Export(cluster, annotated(v1alpha1.AnnotationServiceMode, "ClusterIP"))
	}
	for _, cluster := range suite.Members() {
		i := s.WaitImported(func(i *mcs.ServiceImport) error {
			if i.Spec.Type != mcs.ClusterSetIP || len(i.Spec.IPs) != 0 {
				return fmt.Errorf("expected type ClusterSetIP without an address, found %+v", i.Spec)
			}
			return suite.ExportedBy("c2", "c3")(i)
		}, cluster)
		if d := derived(s, cluster); d != nil && !metav1.HasAnnotation(d.ObjectMeta, "sealane.io/orphaned-at") {
			t.Errorf("%s: expected no derived Service for %s, found %s", cluster, i.Name, d.Name)
		}
	}
	ips := map[string]string{"c2": s.ClusterIP("c2"), "c3": s.ClusterIP("c3")}
	answers := func(cluster string, want ...string) {
		t.Helper()
		left := map[string]bool{}
		for _, c := range want {
			left[ips[c]] = true
		}
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			r, err := suite.LookUp(ctx, cluster, s.DNSName(), "A")
			if err != nil {
				return err
			}
			got := r.Data("A")
			if len(got) != 1 {
				return fmt.Errorf("%s: expected one address, found %+v", cluster, r)
			}
			if delete(left, got[0]); len(left) > 0 {
				return fmt.Errorf("%s: expected each of %v in turn, found %v, and %v is left", cluster, want, got, left)
			}
			return nil
		})
	}
	answers("c1", "c2", "c3")
	answers("c2", "c2")
	suite.Resolves(t, "c1", s.DNSName("c3"), "A", ips["c3"])
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 40, "c2", "c3")
	suite.AnsweredByAll(t, "c3", "http://"+s.DNSName(), 20, "c3")
	s.Backends("c2")
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		for range 6 {
			r, err := suite.LookUp(ctx, "c1", s.DNSName(), "A")
			if err != nil {
				return err
			}
			if got := r.Data("A"); len(got) != 1 || got[0] != ips["c3"] {
				return fmt.Errorf("expected %s of c3 alone, found %v", ips["c3"], got)
			}
		}
		return nil
	})
	suite.AnsweredByAll(t, "c2", "http://"+s.DNSName(), 20, "c3")
}

// importedBy waits until these clusters, and no others, import web.
func importedBy(s suite.Namespace, clusters ...string) {
	s.Helper()
	for _, cluster := range suite.Members() {
		if slices.Contains(clusters, cluster) {
			s.WaitImported(func(*mcs.ServiceImport) error { return nil }, cluster)
		} else {
			s.WaitGone(cluster)
		}
	}
}

func importersByName(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c2")
	s.Export("c2", annotated(v1alpha1.AnnotationImportClusters, "c1"))
	importedBy(s, "c1", "c2")
	suite.NoSuchName(t, "c3", s.DNSName())
	suite.Update(s, "c2", &mcs.ServiceExport{ObjectMeta: suite.Named("web")}, annotated(v1alpha1.AnnotationImportClusters,
		"c3"))
	importedBy(s, "c2", "c3")
	// Another exporter's scope is its own: c1 sees c3's part only, and serves nothing itself.
	s.Serve("c3")
	s.Export("c3")
	s.WaitEndpoints("c1", map[string]int{"c3": 1})
	s.WaitImported(suite.ExportedBy("c3"), "c1")
	s.WaitImported(suite.ExportedBy("c2", "c3"), "c2", "c3")
}

func importersByLabel(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c2")
	s.Export("c2", annotated(v1alpha1.AnnotationImportSelector, "imports="+s.Name))
	importedBy(s, "c2")
	label := func(cluster, value string) {
		t.Helper()
		suite.Kubectl(t, "--context", lab.ContextKarmada, "label", "--overwrite", clusterv1alpha1.ResourcePluralCluster,
			cluster, "imports"+value)
	}
	label("c3", "="+s.Name)
	importedBy(s, "c2", "c3")
	label("c3", "-")
	importedBy(s, "c2")
}

func importersByPolicy(t *testing.T) {
	s := suite.NewKarmadaNamespace(t)
	s.Serve("c2")
	s.Export("c2")
	importedBy(s, suite.Members()...)
	steer(s, v1alpha1.ServicePolicySpec{Importers: &v1alpha1.ImportScope{ClusterNames: []string{"c1"}}})
	importedBy(s, "c1", "c2")
	s.Delete(lab.ContextKarmada, &v1alpha1.ServicePolicy{ObjectMeta: suite.Named("web")})
	importedBy(s, suite.Members()...)
}

func malformedScope(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c2")
	s.Export("c2", annotated(v1alpha1.AnnotationImportSelector, "a in (b"))
	suite.WaitFor(s, "c2", &mcs.ServiceExport{ObjectMeta: suite.Named("web")}, func(e *mcs.ServiceExport) error {
		for _, c := range e.Status.Conditions {
			if c.Type == string(mcs.ServiceExportConditionValid) && c.Status == metav1.ConditionTrue &&
				strings.Contains(c.Message, v1alpha1.AnnotationImportSelector) {
				return nil
			}
		}
		return fmt.Errorf("expected a condition that names the annotation, found %+v", e.Status.Conditions)
	})
	importedBy(s, "c2")
	suite.Update(s, "c2", &mcs.ServiceExport{ObjectMeta: suite.Named("web")}, annotated(v1alpha1.AnnotationImportSelector,
		"a notin (b)"))
	importedBy(s, suite.Members()...)
}

func trafficStaysNear(t *testing.T) {
	s := suite.NewNamespace(t)
	zone := func(e discoveryv1.Endpoint, name string) discoveryv1.Endpoint {
		e.Zone = &name
		return e
	}
	near := corev1.ServiceTrafficDistributionPreferClose
	web := suite.Service(func(web *corev1.Service) { web.Spec.TrafficDistribution = &near })
	s.Create("c2", web, suite.EndpointSlice(web, zone(s.Server("c2-gw"), "east"), zone(s.Server("c2-worker"), "west")))
	s.Export("c2")
	s.WaitImported(func(i *mcs.ServiceImport) error {
		if d := i.Spec.TrafficDistribution; d == nil || *d != near {
			return fmt.Errorf("expected %s, found %v", near, d)
		}
		return nil
	}, suite.Members()...)
	hinted := func(want int) {
		t.Helper()
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			list, err := s.Slices(ctx, "c1")
			if err != nil {
				return err
			}
			found := 0
			for _, slice := range list {
				for _, e := range slice.Endpoints {
					if e.Hints != nil && len(e.Hints.ForZones) == 1 && e.Zone != nil && e.Hints.ForZones[0].Name == *e.Zone {
						found++
					}
				}
			}
			if found != want {
				return fmt.Errorf("expected %d endpoints with hints for their zone, found %+v", want, list)
			}
			return nil
		})
	}
	hinted(2)
	suite.Update(s, "c2", suite.Service(), func(web *corev1.Service) { web.Spec.TrafficDistribution = nil })
	hinted(0)
}

// TestTheClusterSetSaysHowServicesWork: the mode of those that do not say, what stands for a remote cluster, the
// domains of their names, and for how long an answer may be kept. All of it is in force without a new pod anywhere.
func TestTheClusterSetSaysHowServicesWork(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c2")
	s.Export("c2")
	address := s.WaitImported(withAddress, "c1").Spec.IPs[0]
	pods := podsOfDNS(t)
	suite.SetClusterSetAfter(t, `{"services":{"mode":"ClusterSetIP","endpoints":"Pods"},`+
		`"dns":{"domains":["clusterset.local"],"ttlSeconds":null}}`)
	stands := func(want string) {
		t.Helper()
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			list, err := s.Slices(ctx, "c1")
			if err == nil && (len(list) != 1 || list[0].Endpoints[0].Addresses[0] != want) {
				err = fmt.Errorf("expected %s to stand for c2, found %+v", want, list)
			}
			return err
		})
	}
	remote := s.ClusterIP("c2")
	suite.SetClusterSet(t, `{"services":{"endpoints":"ClusterIP"}}`)
	stands(remote)
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), s.DNSName(), "c2")
	suite.SetClusterSet(t, `{"services":{"endpoints":"Pods","mode":"ClusterIP"}}`)
	suite.Resolves(t, "c1", s.DNSName(), "A", remote)
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), s.DNSName(), "c2")
	suite.SetClusterSet(t, `{"services":{"mode":"ClusterSetIP"},"dns":{"domains":["clusterset.local","other.example"]}}`)
	stands(s.Server("c2-gw").Addresses[0])
	suite.Resolves(t, "c1", s.DNSName(), "A", address)
	suite.Resolves(t, "c1", "web."+s.Name+".svc.other.example", "A", address)
	suite.Resolves(t, "c1", "dns-version.other.example", "TXT", `"1.0.0"`)
	suite.SetClusterSet(t, `{"dns":{"domains":["clusterset.local"]}}`)
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		r, err := suite.LookUp(ctx, "c1", "web."+s.Name+".svc.other.example", "A", "-timeout=1s")
		if err == nil && len(r.Data("A")) > 0 {
			err = fmt.Errorf("expected no such domain any more, found %+v", r)
		}
		return err
	})
	suite.SetClusterSet(t, `{"dns":{"ttlSeconds":60}}`)
	answersLast(t, s.DNSName(), "60")
	answersLast(t, s.DNSName("c2"), "60")
	suite.SetClusterSet(t, `{"dns":{"ttlSeconds":null}}`)
	answersLast(t, s.DNSName(), "5")
	if now := podsOfDNS(t); now != pods {
		t.Errorf("expected the same pods and no restart, found\n%s\nafter\n%s", now, pods)
	}
}

// answersLast waits until the answer for a name has this TTL in every member.
func answersLast(t *testing.T, name, ttl string) {
	t.Helper()
	for _, cluster := range suite.Members() {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			r, err := suite.LookUp(ctx, cluster, name, "A")
			if err == nil && (len(r.Records) != 1 || r.Records[0].TTL != ttl) {
				err = fmt.Errorf("%s: %s: expected one record for %s s, found %+v", cluster, name, ttl, r)
			}
			return err
		})
	}
}

// podsOfDNS lists every member's pods of the cluster's DNS and of Sealane, with their UIDs and numbers of restarts.
func podsOfDNS(t *testing.T) string {
	t.Helper()
	const each = `{range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}`
	var out []string
	for _, cluster := range suite.Members() {
		for _, namespace := range []string{metav1.NamespaceSystem, v1alpha1.Namespace} {
			out = append(out, suite.Kubectl(t, "--context", cluster, "-n", namespace, "get", "pods", "--sort-by=.metadata.name",
				"-o", "jsonpath="+each))
		}
	}
	return strings.Join(out, "\n")
}
