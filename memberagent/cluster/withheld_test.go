// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// withheld is an import without its endpoints.
func withheld(i v1alpha1.Import) v1alpha1.Import {
	i.Withheld = true
	for n := range i.Clusters {
		i.Clusters[n].Ports, i.Clusters[n].ClusterIPs, i.Clusters[n].Backends = []string{}, []string{}, []v1alpha1.Backends{}
	}
	return i
}

// TestAnImportThatIsWithheld: the agent says when it has the namespace, and makes nothing until the rest has come; nor
// does it take away what there is.
func TestAnImportThatIsWithheld(t *testing.T) {
	none := func(all []v1alpha1.ImportProblem) error { return expect("problems", len(all), 0) }
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	web, later := key("sample", "web"), key("later", "web")
	here := imported("sample", "web", map[string][]string{"c2": {"10.9.0.1"}})
	m.imports(here, withheld(imported("later", "web", map[string][]string{"c2": nil})))
	m.endpoints(web, "c2 10.9.0.1:8080")
	m.problems("no namespace", oneProblem("later", v1alpha1.ReasonNamespaceMissing, "web"))
	m.namespace("later")
	m.problems("it waits", oneProblem("later", v1alpha1.ReasonImportWithheld, "web"))
	if err := m.Get(t.Context(), later, &mcs.ServiceImport{}); !apierrors.IsNotFound(err) {
		t.Errorf("a ServiceImport is made without endpoints: %v", err)
	}
	m.imports(here, imported("later", "web", map[string][]string{"c2": {"10.9.0.6"}}))
	m.endpoints(later, "c2 10.9.0.6:8080")
	m.problems("none", none)

	i, s := m.derived(later)
	m.imports(here, withheld(imported("later", "web", map[string][]string{"c2": nil})))
	m.problems("it waits", oneProblem("later", v1alpha1.ReasonImportWithheld, "web"))
	m.endpoints(later, "c2 10.9.0.6:8080")
	if after, service := m.derived(later); after.UID != i.UID || service.UID != s.UID {
		t.Error("the import was made anew")
	}
	m.imports(here)
	m.endpoints(later, "")
	m.problems("none", none)
}
