// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestANamespaceThatTheImporterLacks is reported, no name of its services exists there, and their endpoints are
// withheld when they change. Once it is there, they are what they are then.
func TestANamespaceThatTheImporterLacks(t *testing.T) {
	setIP, headless, perCluster := suite.NewNamespace(t, "c2"), suite.NewNamespace(t, "c2"), suite.NewNamespace(t, "c2")
	setIP.Serve("c2")
	setIP.Export("c2")
	headless.Serve("c2", suite.Headless)
	headless.Export("c2")
	perCluster.Serve("c2")
	perCluster.Export("c2", annotated(v1alpha1.AnnotationServiceMode, "ClusterIP"))
	// What the names answer, where they exist, with a backend on a node; the ClusterSetIP is each importer's own.
	answers := map[string]string{
		perCluster.DNSName():     perCluster.ClusterIP("c2"),
		perCluster.DNSName("c2"): perCluster.ClusterIP("c2"),
		setIP.DNSName("c2"):      setIP.ClusterIP("c2"),
	}
	dashed := func(pod string) string { return headless.DNSName(strings.ReplaceAll(pod, ".", "-"), "c2") }
	onNode := func(node string) (pod string) {
		pod = headless.Server(node).Addresses[0]
		answers[headless.DNSName()], answers[headless.DNSName("c2")], answers[dashed(pod)] = pod, pod, pod
		return pod
	}
	first := onNode("c2-gw")

	all := []suite.Namespace{setIP, headless, perCluster}
	peering := []string{"peering", "sealane"}
	for _, cluster := range []string{"c1", "c3"} {
		suite.WaitContains(t, cluster, suite.ConditionText("ImportsApplied"), peering,
			"False/NamespaceMissing", setIP.Name, headless.Name, perCluster.Name, "create them")
	}
	resolve := func(cluster string) {
		t.Helper()
		suite.Resolves(t, cluster, setIP.DNSName(), "A", setIP.WaitImported(withAddress, cluster).Spec.IPs[0])
		for name, want := range answers {
			suite.Resolves(t, cluster, name, "A", want)
		}
	}
	lack := func(cluster string) {
		t.Helper()
		suite.NoSuchName(t, cluster, setIP.DNSName())
		for name := range answers {
			suite.NoSuchName(t, cluster, name)
		}
	}
	resolve("c2")
	lack("c1")
	lack("c3")

	for _, s := range all {
		s.Backends("c2", s.Server("c2-worker"))
	}
	delete(answers, dashed(first))
	onNode("c2-worker")
	const isWithheld = "{range .items[*].spec.imports[?(@.withheld==true)]}{.namespace} {end}"
	suite.WaitContains(t, "c1", isWithheld, []string{"bundles"}, setIP.Name, headless.Name) // a ClusterIP stays the same

	for _, s := range all {
		s.CreateIn("c1")
		s.WaitImported(suite.ExportedBy("c2"), "c1")
	}
	suite.WaitContains(t, "c1", suite.ConditionText("ImportsApplied"), peering, "True/Applied")
	resolve("c1")
	suite.NoSuchName(t, "c1", dashed(first))
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), setIP.DNSName(), "c2")
	lack("c3")
}
