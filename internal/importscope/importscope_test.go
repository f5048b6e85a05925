// SPDX-License-Identifier: Apache-2.0

package importscope_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sealane-io/sealane/internal/importscope"
)

func TestClusterNames(t *testing.T) {
	var many []string
	for i := range importscope.MaxClusters + 1 {
		many = append(many, fmt.Sprintf("c%d", i))
	}
	for text, want := range map[string]string{
		"":                             "[]",
		"  ":                           "[]",
		"c2, c1,c2":                    "[c1 c2]",
		"c1,":                          "no name of a cluster",
		"C1":                           "no name of a cluster",
		strings.Join(many, ","):        "more than 1000",
		strings.Join(many[:1000], ","): "[c0 ",
		"c1,$(reboot)":                 "no name of a cluster",
	} {
		names, err := importscope.ClusterNames(text)
		got := fmt.Sprint(names)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err != nil && len(err.Error()) > 200 {
			t.Errorf("%.40q: %.80s, want %s", text, got, want)
		}
	}
}

// TestSelector: what is parsed selects what kubectl's -l does.
func TestSelector(t *testing.T) {
	sets := []labels.Set{{}, {"env": "prod"}, {"env": "test"}, {"env": "prod", "region": "eu"}}
	for _, text := range []string{
		"env=prod", "env==prod", "env!=prod", "env", "!env", "env in (prod,test)", "env notin (prod),region",
		"env=prod,env=test",
	} {
		parsed, err := importscope.Selector(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := metav1.LabelSelectorAsSelector(parsed)
		if err != nil {
			t.Fatal(err)
		}
		want, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range sets {
			if got.Matches(set) != want.Matches(set) {
				t.Errorf("%s and %v: %v, want %v", text, set, got.Matches(set), want.Matches(set))
			}
		}
	}
	for _, text := range []string{"", "cpus>3", "cpus<3", "a b", "=x"} {
		if _, err := importscope.Selector(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
