// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// FuzzScope: whatever the annotations say, a scope that is accepted selects exactly what kubectl would select, names
// nothing but clusters, and one that is refused is refused for a reason that fits a condition.
func FuzzScope(f *testing.F) {
	for _, seed := range [][2]string{{"c1,c2", "env=prod"}, {"", "a=1,a=2"}, {" c1 ", "a in (x,y),b!=z,!c"}, {"C1", "a>1"},
		{",", "="}, {"c1", ""}} {
		f.Add(seed[0], seed[1])
	}
	clusters := []labels.Set{nil, {"env": "prod"}, {"a": "1"}, {"a": "2"}, {"a": "x", "b": "y"}, {"a": "y", "b": "z"},
		{"c": ""}, {"a": ""}}
	f.Fuzz(func(t *testing.T, names, selector string) {
		s, err := scope(map[string]string{v1alpha1.AnnotationImportClusters: names,
			v1alpha1.AnnotationImportSelector: selector})
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
			return
		}
		for _, name := range s.ClusterNames {
			if !strings.Contains(names, name) || strings.ToLower(name) != name || strings.ContainsAny(name, ", ") {
				t.Errorf("cluster %q of %q", name, names)
			}
		}
		want, err := labels.Parse(selector)
		if err != nil {
			t.Fatalf("%q was accepted: %v", selector, err)
		}
		got, err := metav1.LabelSelectorAsSelector(s.ClusterSelector)
		if err != nil {
			t.Fatalf("%q became a selector that cannot be used: %v", selector, err)
		}
		for _, c := range clusters {
			if got.Matches(c) != want.Matches(c) {
				t.Errorf("%q and %v: %t, kubectl says %t", selector, c, got.Matches(c), want.Matches(c))
			}
		}
	})
}
