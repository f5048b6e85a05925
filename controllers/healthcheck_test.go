// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestAHealthCheckTakesTenSecondsAtMost: the API server takes the bounds, also where one of the two is left out, and
// says what is wrong beyond them.
func TestAHealthCheckTakesTenSecondsAtMost(t *testing.T) {
	f := newFleet(t)
	set := f.set("blue")
	want := v1alpha1.HealthCheckSpec{IntervalMilliseconds: 50, FailureThreshold: 3}
	if got := set.Spec.HealthCheck; got != want {
		t.Errorf("the default is %+v, want %+v", got, want)
	}
	const product = "intervalMilliseconds times failureThreshold is 10000 at most"
	for _, c := range []struct{ check, refused string }{
		{`{"intervalMilliseconds":50,"failureThreshold":1}`, ""},
		{`{"intervalMilliseconds":100,"failureThreshold":100}`, ""},
		{`{"intervalMilliseconds":10000,"failureThreshold":1}`, ""},
		{`{"intervalMilliseconds":3333}`, ""},
		{`{"failureThreshold":100}`, ""},
		{`{"intervalMilliseconds":101,"failureThreshold":100}`, product},
		{`{"intervalMilliseconds":10000,"failureThreshold":2}`, product},
		{`{"intervalMilliseconds":3334}`, product},
		{`{"intervalMilliseconds":10001,"failureThreshold":1}`, "should be less than or equal to 10000"},
		{`{"intervalMilliseconds":2147483647,"failureThreshold":100}`, "should be less than or equal to 10000"},
		{`{"intervalMilliseconds":49,"failureThreshold":1}`, "should be greater than or equal to 50"},
		{`{"intervalMilliseconds":50,"failureThreshold":101}`, "should be less than or equal to 100"},
		{`{"intervalMilliseconds":50,"failureThreshold":0}`, "should be greater than or equal to 1"},
	} {
		set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
		patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/healthCheck","value":%s}]`, c.check)
		err := f.client.Patch(t.Context(), set, client.RawPatch("application/json-patch+json", []byte(patch)))
		switch {
		case c.refused == "" && err != nil:
			t.Errorf("%s: %v", c.check, err)
		case c.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: expected a refusal with %q, found %v", c.check, c.refused, err)
		}
	}
}
