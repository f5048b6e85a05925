// SPDX-License-Identifier: Apache-2.0

package services

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestKarmadaServices(t *testing.T) {
	for name, c := range map[string]struct {
		conflict string
		karmada  KarmadaServices
		want     string
		message  []string
	}{
		"none": {"False NoConflicts fine", KarmadaServices{}, "False NoConflicts", []string{"fine"}},
		"a ServiceImport": {"False NoConflicts fine", KarmadaServices{ServiceImport: true},
			"True DerivedServiceConflict", []string{"derived-web", "kubectl -n sample delete serviceimport web"}},
		"a MultiClusterService": {"Unknown Pending wait", KarmadaServices{MultiClusterService: true},
			"True MultiClusterServiceConflict", []string{"kubectl -n sample delete multiclusterservice web"}},
		"beside another conflict": {"True PortConflict ports", KarmadaServices{true, true},
			"True PortConflict,DerivedServiceConflict,MultiClusterServiceConflict",
			[]string{"ports. a ServiceImport", ". a MultiClusterService"}},
	} {
		t.Run(name, func(t *testing.T) {
			parts := strings.SplitN(c.conflict, " ", 3)
			was := metav1.Condition{Type: "Conflict", Status: metav1.ConditionStatus(parts[0]), Reason: parts[1],
				Message: parts[2]}
			got := c.karmada.Conflict(was, "sample", "web")
			if again := c.karmada.Conflict(got, "sample", "web"); again != got {
				t.Errorf("said twice: %+v", again)
			}
			if is := string(got.Status) + " " + got.Reason; is != c.want {
				t.Errorf("%s, want %s", is, c.want)
			}
			for _, m := range c.message {
				if !strings.Contains(got.Message, m) {
					t.Errorf("%q does not say %q", got.Message, m)
				}
			}
		})
	}
}

// All exporters are told, also those whose ServiceExport was made in the member; the import stays.
func TestKarmadaServicesAreToldToEveryExporter(t *testing.T) {
	in := Input{Shards: 1, Now: now, Members: []Member{cluster(1, web(1)), cluster(2, web(2)), cluster(3)}}
	in.Karmada = map[string]KarmadaServices{"sample/web": {ServiceImport: true},
		"sample/other": {MultiClusterService: true}}
	d := Decide(in)
	for _, c := range []string{"c1", "c2"} {
		if got := condition(d, c, "Conflict"); got != "True DerivedServiceConflict" {
			t.Errorf("Conflict in %s is %s", c, got)
		}
		if got := condition(d, c, "Ready"); got != "True Exported" {
			t.Errorf("Ready in %s is %s", c, got)
		}
	}
	if got := imports(d); got != "c1:c1,c2 c2:c1,c2 c3:c1,c2" {
		t.Errorf("imports %s", got)
	}
	in.Karmada = nil
	if got := condition(Decide(in), "c1", "Conflict"); got != "False NoConflicts" {
		t.Errorf("Conflict is %s", got)
	}
}
