// SPDX-License-Identifier: Apache-2.0

package dnszone_test

import (
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/internal/dnszone"
)

// The CRD of ClusterSet states in CEL what Allowed says, for domains of the letters that it takes.
func TestTheCRDAgrees(t *testing.T) {
	crds, err := apiserver.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(apiserver.Start(t, crds), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	letters := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	for _, domain := range []string{
		"clusterset.local", "mesh.example.org", "mycluster.local", "cluster.local.example.org", "arpa.example", "a.b.c.d",
		"local", "com", "arpa", "cluster.local", "svc.cluster.local", "a.svc.cluster.local", "in-addr.arpa",
		"10.in-addr.arpa",
		strings.Repeat("a", 63) + ".org", strings.Repeat("a", 64) + ".org",
		"", "a..b", "Example.org", "example.org.", "*.example.org", "-a.org",
	} {
		set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
		// One good domain does not make up for a bad one.
		set.Spec.DNS.Domains = []string{"good.example", domain}
		err := c.Create(t.Context(), set, client.DryRunAll)
		if err != nil && !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		if want := letters.MatchString(domain) && dnszone.Allowed(domain) == nil; (err == nil) != want {
			t.Errorf("%q: the CRD says %v, the controller allows it: %v", domain, err, want)
		}
	}
}
