// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/suite"
)

// side runs tests side by side, each in a namespace of its own.
func side(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests[name](t)
		})
	}
}

// TestServiceDiscovery is the MCS API (KEP-1645), rule by rule.
func TestServiceDiscovery(t *testing.T) {
	for name, tests := range map[string]map[string]func(*testing.T){
		"a service is exported": exporting(),
		"a service is imported": importing(),
		"a name is resolved":    resolving(),
		"clusters are chosen":   choosing(),
		"a service is steered":  steering(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side(t, tests)
		})
	}
}

// exporting is all from what a ServiceExport says to what others import.
func exporting() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"an export made before its Service waits for it":         exportBeforeService,
		"a Service changes, goes and returns":                    serviceComesAndGoes,
		"an ExternalName Service is refused":                     externalName,
		"labels and annotations are those that are exported":     labelsAndAnnotations,
		"the oldest export wins until it goes":                   oldestWins,
		"ports are united":                                       portsUnited,
		"a port that clashes is served by its own cluster alone": portConflict,
		"a headless Service and one that is not":                 typeConflict,
		"all that differs is told to every exporter":             everyConflict,
		"pods of the host network are reached by the ClusterIP":  onTheHostNetwork,
	}
}

func exportBeforeService(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	s.Export("c2")
	s.WaitCondition(mcs.ServiceExportConditionValid, metav1.ConditionFalse, mcs.ServiceExportReasonNoService, "c2")
	s.WaitCondition(mcs.ServiceExportConditionReady, metav1.ConditionFalse, mcs.ServiceExportReasonPending, "c2")
	s.Serve("c2")
	s.WaitCondition(mcs.ServiceExportConditionValid, metav1.ConditionTrue, mcs.ServiceExportReasonValid, "c2")
	s.WaitCondition(mcs.ServiceExportConditionReady, metav1.ConditionTrue, mcs.ServiceExportReasonExported, "c2")
	s.WaitCondition(mcs.ServiceExportConditionConflict, metav1.ConditionFalse, mcs.ServiceExportReasonNoConflicts, "c2")
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), s.DNSName(), "c2")
}

func serviceComesAndGoes(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	s.Serve("c2")
	s.Export("c2")
	s.WaitImported(havePorts("http:80"), "c1", "c2")
	suite.Update(s, "c2", suite.Service(), suite.Ports(suite.Port("http", 81)))
	s.WaitImported(havePorts("http:81"), "c1", "c2")
	s.WaitEndpoints("c1", map[string]int{"c2": 1})
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), s.DNSName()+":81", "c2")

	s.Delete("c2", suite.Service())
	s.WaitCondition(mcs.ServiceExportConditionValid, metav1.ConditionFalse, mcs.ServiceExportReasonNoService, "c2")
	s.WaitGone("c1", "c2")
	s.Create("c2", suite.Service())
	s.WaitCondition(mcs.ServiceExportConditionReady, metav1.ConditionTrue, mcs.ServiceExportReasonExported, "c2")
	s.WaitImported(havePorts("http:80"), "c1", "c2")
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), s.DNSName(), "c2")
}

// havePorts expects an import with these ports, in any order.
func havePorts(want ...string) func(*mcs.ServiceImport) error {
	return func(i *mcs.ServiceImport) error {
		var found []string
		for _, p := range i.Spec.Ports {
			found = append(found, fmt.Sprintf("%s:%d", p.Name, p.Port))
		}
		slices.Sort(found)
		if !slices.Equal(found, want) {
			return fmt.Errorf("expected ports %v, found %v", want, found)
		}
		return nil
	}
}

func externalName(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	s.Create("c2", suite.Service(func(web *corev1.Service) {
		web.Spec.Type, web.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
	}))
	s.Export("c2")
	s.WaitCondition(mcs.ServiceExportConditionValid, metav1.ConditionFalse, mcs.ServiceExportReasonInvalidServiceType,
		"c2")
	s.WaitGone("c1", "c2")
	suite.Update(s, "c2", suite.Service(), func(web *corev1.Service) {
		web.Spec.Type, web.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
	})
	s.WaitCondition(mcs.ServiceExportConditionReady, metav1.ConditionTrue, mcs.ServiceExportReasonExported, "c2")
	s.WaitImported(suite.ExportedBy("c2"), "c1", "c2")
}

func labelsAndAnnotations(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	s.Serve("c2", func(web *corev1.Service) {
		web.Labels, web.Annotations = map[string]string{"own": "label"}, map[string]string{"own": "annotation"}
	})
	e := s.Export("c2", func(e *mcs.ServiceExport) {
		e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = map[string]string{"team": "blue"},
			map[string]string{"mail": "a@b"}
	})
	says := func(team, mail string) func(*mcs.ServiceImport) error {
		return func(i *mcs.ServiceImport) error {
			if i.Labels["team"] != team || i.Annotations["mail"] != mail || i.Labels["own"]+i.Annotations["own"] != "" {
				return fmt.Errorf("expected team %q and mail %q and nothing of the Service's own, found %v %v", team, mail,
					i.Labels, i.Annotations)
			}
			return nil
		}
	}
	s.WaitImported(says("blue", "a@b"), "c1", "c2")
	suite.Update(s, "c2", e, func(e *mcs.ServiceExport) {
		e.Spec.ExportedLabels["team"], e.Spec.ExportedAnnotations = "green", nil
	})
	s.WaitImported(says("green", ""), "c1", "c2")
}

func sticky(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }

// haveAffinity expects an import with a session affinity.
func haveAffinity(want corev1.ServiceAffinity) func(*mcs.ServiceImport) error {
	return func(i *mcs.ServiceImport) error {
		if i.Spec.SessionAffinity != want {
			return fmt.Errorf("expected session affinity %s, found %s", want, i.Spec.SessionAffinity)
		}
		return nil
	}
}

func oldestWins(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c2", sticky)
	s.Serve("c1")
	s.Export("c2")
	s.WaitImported(haveAffinity(corev1.ServiceAffinityClientIP), "c3")
	s.ExportAfter("c2", "c1")
	s.WaitCondition(mcs.ServiceExportConditionConflict, metav1.ConditionTrue,
		mcs.ServiceExportReasonSessionAffinityConflict, "c1", "c2")
	s.WaitImported(suite.ExportedBy("c1", "c2"), "c1", "c2", "c3")
	s.WaitImported(haveAffinity(corev1.ServiceAffinityClientIP), "c1", "c2", "c3")

	s.Unexport("c2")
	s.WaitImported(haveAffinity(corev1.ServiceAffinityNone), "c1", "c2", "c3")
	s.WaitCondition(mcs.ServiceExportConditionConflict, metav1.ConditionFalse, mcs.ServiceExportReasonNoConflicts, "c1")
}

func portsUnited(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c1")
	s.Serve("c2", suite.Ports(suite.Port("http", 80), suite.Port("admin", 81)))
	s.Export("c1")
	s.Export("c2")
	s.WaitImported(havePorts("admin:81", "http:80"), "c1", "c2", "c3")
	s.WaitCondition(mcs.ServiceExportConditionConflict, metav1.ConditionTrue, mcs.ServiceExportReasonPortConflict, "c1",
		"c2")
	s.WaitCondition(mcs.ServiceExportConditionReady, metav1.ConditionTrue, mcs.ServiceExportReasonExported, "c1", "c2")
	suite.AnsweredByAll(t, "c3", "http://"+s.DNSName(), 30, "c1", "c2")
	suite.AnsweredByAll(t, "c3", "http://"+s.DNSName()+":81", 10, "c2")
	// The choice is made port by port: c1 serves http itself and has no admin.
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 10, "c1")
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName()+":81", 10, "c2")
}

func portConflict(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c1")
	s.Serve("c2", suite.Ports(suite.Port("http", 8000)))
	s.Export("c1")
	s.ExportAfter("c1", "c2")
	s.WaitCondition(mcs.ServiceExportConditionConflict, metav1.ConditionTrue, mcs.ServiceExportReasonPortConflict, "c1",
		"c2")
	s.WaitImported(havePorts("http:80"), "c1", "c2", "c3")
	s.WaitEndpoints("c3", map[string]int{"c1": 1})
	suite.AnsweredByAll(t, "c3", "http://"+s.DNSName(), 10, "c1")
	suite.AnsweredByAll(t, "c2", "http://"+s.DNSName(), 10, "c1")

	suite.Update(s, "c2", suite.Service(), suite.Ports(suite.Port("http", 80)))
	s.WaitCondition(mcs.ServiceExportConditionConflict, metav1.ConditionFalse, mcs.ServiceExportReasonNoConflicts, "c1",
		"c2")
	s.WaitEndpoints("c3", map[string]int{"c1": 1, "c2": 1})
	suite.AnsweredByAll(t, "c3", "http://"+s.DNSName(), 30, "c1", "c2")
	suite.AnsweredByAll(t, "c2", "http://"+s.DNSName(), 10, "c2")
}

func typeConflict(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c1", suite.Headless)
	s.Serve("c2")
	s.Export("c2")
	s.ExportAfter("c2", "c1")
	s.WaitCondition(mcs.ServiceExportConditionConflict, metav1.ConditionTrue, mcs.ServiceExportReasonTypeConflict, "c1",
		"c2")
	for _, cluster := range suite.Members() {
		i := s.WaitImported(suite.ExportedBy("c1", "c2"), cluster)
		if i.Spec.Type != mcs.ClusterSetIP {
			t.Errorf("%s: expected the type of the oldest export, found %s", cluster, i.Spec.Type)
		}
		s.WaitEndpoints(cluster, map[string]int{"c2": 1})
	}
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), s.DNSName(), "c2")
	s.Unexport("c2")
	s.WaitCondition(mcs.ServiceExportConditionConflict, metav1.ConditionFalse, mcs.ServiceExportReasonNoConflicts, "c1")
	s.WaitEndpoints("c3", map[string]int{"c1": 1})
	suite.Resolves(t, "c3", s.DNSName(), "A", suite.PodIP(t, "c1", "server-c1-gw"))
}

func everyConflict(t *testing.T) {
	s := suite.NewNamespace(t)
	s.Serve("c1")
	s.Serve("c3")
	s.Serve("c2", sticky, func(web *corev1.Service) {
		local, near := corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceTrafficDistributionPreferClose
		web.Spec.InternalTrafficPolicy, web.Spec.TrafficDistribution = &local, &near
	})
	s.Export("c1")
	s.Export("c3")
	s.ExportAfter("c1", "c2")
	suite.Update(s, "c2", &mcs.ServiceExport{ObjectMeta: suite.Named("web")}, func(e *mcs.ServiceExport) {
		e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	})
	const all = "SessionAffinityConflict,LabelsConflict,AnnotationsConflict," +
		"InternalTrafficPolicyConflict,TrafficDistributionConflict"
	s.WaitCondition(mcs.ServiceExportConditionConflict, metav1.ConditionTrue, all, "c1", "c2", "c3")
	s.WaitImported(func(i *mcs.ServiceImport) error {
		if p := i.Spec.InternalTrafficPolicy; i.Labels["a"] != "" || p == nil ||
			*p != corev1.ServiceInternalTrafficPolicyCluster || i.Spec.TrafficDistribution != nil {
			return fmt.Errorf("expected what the oldest export says, found %+v %+v", i.Labels, i.Spec)
		}
		return nil
	}, "c1", "c2", "c3")
	s.Unexport("c2")
	s.WaitCondition(mcs.ServiceExportConditionConflict, metav1.ConditionFalse, mcs.ServiceExportReasonNoConflicts, "c1",
		"c3")
}
