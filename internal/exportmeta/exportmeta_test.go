// SPDX-License-Identifier: Apache-2.0

package exportmeta

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestWhatSteersOtherControllersIsDropped(t *testing.T) {
	for key, passes := range map[string]bool{
		"team":                                        true,
		"example.org/team":                            true,
		"app.kubernetes.io/name":                      true,
		"app.kubernetes.io/version":                   true,
		"app.kubernetes.io/component":                 true,
		"app.kubernetes.io/part-of":                   true,
		"notkubernetes.io/x":                          true,
		"kubernetes.io.example.org/x":                 true,
		"app.kubernetes.io/instance":                  false,
		"app.kubernetes.io/managed-by":                false,
		"argocd.argoproj.io/instance":                 false,
		"argocd.argoproj.io/tracking-id":              false,
		"kustomize.toolkit.fluxcd.io/name":            false,
		"helm.toolkit.fluxcd.io/namespace":            false,
		"meta.helm.sh/release-name":                   false,
		"helm.sh/chart":                               false,
		"kubectl.kubernetes.io/last-applied":          false,
		"service.kubernetes.io/topology-mode":         false,
		"multicluster.kubernetes.io/service-name":     false,
		"endpointslice.kubernetes.io/managed-by":      false,
		"kubernetes.io/service-name":                  false,
		"config.k8s.io/owning-inventory":              false,
		"multicluster.x-k8s.io/derived":               false,
		"propagationpolicy.karmada.io/name":           false,
		"namespace.karmada.io/skip-auto-propagation":  false,
		"sealane.io/import":                           false,
		"gateway.sealane.io/public-ip":                false,
		"kapp.k14s.io/app":                            false,
		"objectset.rio.cattle.io/hash":                false,
		"applyset.kubernetes.io/part-of":              false,
		"unlisted-by-anybody.kubernetes.io/invention": false,
		"unlisted-by-anybody.k8s.io/invention":        false,
		"app.kubernetes.io/created-by":                false,
	} {
		for what, pass := range map[string]func(map[string]string) (map[string]string, []Dropped){"label": Labels,
			"annotation": Annotations} {
			kept, dropped := pass(map[string]string{key: "x"})
			if (len(kept) == 1) != passes || (len(dropped) == 0) != passes {
				t.Errorf("%s %s: kept %v, dropped %v", what, key, kept, dropped)
			}
			if !passes && Text(what, dropped) != fmt.Sprintf("%s %q steers other controllers", what, key) {
				t.Errorf("says %s", Text(what, dropped))
			}
		}
	}
	if _, dropped := Annotations(map[string]string{"Argocd.Argoproj.IO/tracking-id": "x"}); len(dropped) != 1 {
		t.Error("upper case gets round the rule")
	}
}

func TestOneBadEntryCostsTheOthersNothing(t *testing.T) {
	good := map[string]string{"a": "1", "example.org/b": "2"}
	for what, bad := range map[string]map[string]string{
		"a value that is no label's": {"bad": "no spaces"},
		"a key that is none":         {"b@d": "x"},
		"no key":                     {"": "x"},
	} {
		all := maps.Clone(good)
		maps.Copy(all, bad)
		if kept, dropped := Labels(all); !maps.Equal(kept, good) || len(dropped) != 1 {
			t.Errorf("%s: kept %v, dropped %v", what, kept, dropped)
		}
	}
	kept, dropped := Annotations(map[string]string{"a": strings.Repeat("x", MaxValue+1),
		"b": strings.Repeat("x", MaxValue), "c d": "x"})
	if len(kept) != 1 ||
		Text("annotation", dropped) != `annotation "a" has more than 1024 bytes, annotation "c d" is no valid annotation` {
		t.Errorf("kept %d, %s", len(kept), Text("annotation", dropped))
	}
	if kept, dropped := Labels(nil); kept != nil || dropped != nil || Text("label", dropped) != "" {
		t.Error("something becomes of nothing")
	}
}

func TestLimits(t *testing.T) {
	many := map[string]string{}
	for i := range 100 {
		many[fmt.Sprintf("k%02d", i)] = "x"
	}
	kept, dropped := Labels(many)
	if len(kept) != MaxEntries || kept["k00"] == "" || len(dropped) != 100-MaxEntries {
		t.Errorf("kept %d, dropped %d", len(kept), len(dropped))
	}
	if got := Text("label", dropped); !strings.HasSuffix(got, "and 65 more labels") {
		t.Error(got)
	}
	large := map[string]string{"a": strings.Repeat("x", 1000), "b": strings.Repeat("x", 1000),
		"c": strings.Repeat("x", 1000),
		"d": strings.Repeat("x", 1000), "e": strings.Repeat("x", 1000), "f": "x"}
	kept, dropped = Annotations(large)
	if got := slices.Sorted(maps.Keys(kept)); !slices.Equal(got, []string{"a", "b", "c", "d", "f"}) || len(dropped) != 1 {
		t.Errorf("kept %v, dropped %v", got, dropped)
	}
}

// Whatever a member reports: what passes, passes again, stays within the limits, and nothing is lost in silence.
func FuzzLabelsAndAnnotations(f *testing.F) {
	f.Add("app.kubernetes.io/instance", "x", "Team", "blue")
	f.Add("", "", "a/b/c", "\x00")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		all := map[string]string{k1: v1, k2: v2}
		for what, pass := range map[string]func(map[string]string) (map[string]string, []Dropped){"label": Labels,
			"annotation": Annotations} {
			kept, dropped := pass(all)
			if len(kept)+len(dropped) != len(all) {
				t.Errorf("%ss: %d kept, %d dropped of %d", what, len(kept), len(dropped), len(all))
			}
			again, lost := pass(kept)
			if !reflect.DeepEqual(again, kept) || lost != nil {
				t.Errorf("%ss: %v, then %v", what, kept, again)
			}
			if size := len(Text(what, dropped)); size > 2000 {
				t.Errorf("a message of %d bytes", size)
			}
		}
	})
}
