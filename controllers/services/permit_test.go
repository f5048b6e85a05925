// SPDX-License-Identifier: Apache-2.0

package services

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestExporters(t *testing.T) {
	named := func(clusters ...string) v1alpha1.ExporterScope { return v1alpha1.ExporterScope{ClusterNames: clusters} }
	byZone := v1alpha1.ExporterScope{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}}
	broken := v1alpha1.ExporterScope{ClusterNames: []string{"c1"}, ClusterSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Near"}},
	}}
	rule := func(namespace, name string, s v1alpha1.ExporterScope) v1alpha1.ExporterRule {
		out := v1alpha1.ExporterRule{ExporterScope: s}
		if namespace != "" {
			out.Namespaces = []string{namespace}
		}
		if name != "" {
			out.Names = []string{name}
		}
		return out
	}
	for name, c := range map[string]struct {
		rules  []v1alpha1.ExporterRule
		policy *v1alpha1.ExporterScope
		want   string // who exports sample/web, of c1 (zone a), c2
		says   string // to c2 if it may not
	}{
		"nothing is stated": {nil, nil, "c1 c2", ""},
		"a rule for all": {[]v1alpha1.ExporterRule{rule("", "", named("c1"))}, nil, "c1",
			"spec.services.exporters"},
		"a rule for the namespace": {[]v1alpha1.ExporterRule{rule("sample", "", named("c1"))}, nil, "c1",
			"spec.services.exporters"},
		"a rule for another namespace": {[]v1alpha1.ExporterRule{rule("other", "", named("c1"))}, nil, "c1 c2", ""},
		"a rule for another service":   {[]v1alpha1.ExporterRule{rule("sample", "db", named("c1"))}, nil, "c1 c2", ""},
		"rules add up": {[]v1alpha1.ExporterRule{rule("", "", named("c1")),
			rule("sample", "web", named("c2"))}, nil, "c1 c2", ""},
		"by labels": {[]v1alpha1.ExporterRule{rule("sample", "", byZone)}, nil, "c1",
			"spec.services.exporters"},
		"nobody": {[]v1alpha1.ExporterRule{rule("sample", "", named())}, nil, "",
			"spec.services.exporters"},
		"a selector that cannot be used": {[]v1alpha1.ExporterRule{rule("sample", "", broken)}, nil, "c1",
			"spec.services.exporters"},
		"a policy": {nil, &v1alpha1.ExporterScope{ClusterNames: []string{"c1"}}, "c1",
			"ServicePolicy sample/web"},
		"a policy narrows, and no more": {[]v1alpha1.ExporterRule{rule("sample", "", named("c1"))},
			&v1alpha1.ExporterScope{ClusterNames: []string{"c2"}}, "", "spec.services.exporters"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Shards: 1, Now: now, Members: []Member{cluster(1, web(1)), cluster(2, web(2)), cluster(3)}}
			in.Members[0].Labels = map[string]string{"zone": "a"}
			in.Services.Exporters = c.rules
			if c.policy != nil {
				p := servicePolicy("web", nil, nil)
				p.Spec.Exporters = c.policy
				in.Policies = []v1alpha1.ServicePolicy{p}
			}
			d := Decide(in)
			var exporters []string
			for _, i := range d.Bundles["c3"].Imports {
				for _, x := range i.Clusters {
					exporters = append(exporters, x.Cluster)
				}
			}
			if got := strings.Join(exporters, " "); got != c.want {
				t.Errorf("exported by %q, want %q", got, c.want)
			}
			ready := conditionOf(t, d, "c2", "Ready")
			switch {
			case c.says == "" && ready.Status != metav1.ConditionTrue:
				t.Errorf("c2 is told %s %s: %s", ready.Status, ready.Reason, ready.Message)
			case c.says != "" && (ready.Status != metav1.ConditionFalse || ready.Reason != ReasonNotPermitted ||
				!strings.Contains(ready.Message, c.says) ||
				!strings.Contains(ready.Message, "delete the ServiceExport")):
				t.Errorf("c2 is told %s %s: %s", ready.Status, ready.Reason, ready.Message)
			}
			if c.says != "" && condition(d, "c1", "Conflict") == "True PortConflict" {
				t.Error("a refused export makes a conflict")
			}
		})
	}
	if InvalidExporters(&v1alpha1.ServicesSpec{Exporters: []v1alpha1.ExporterRule{rule("", "", broken)}}) == nil {
		t.Error("a selector that cannot be used is no problem")
	}
}

// What was exported before the rule came is withdrawn by it, and what is kept of it serves nobody.
func TestARuleEndsAnExport(t *testing.T) {
	w := newWalk(t, cluster(1, web(1)), cluster(2))
	w.in.Services.Exporters = []v1alpha1.ExporterRule{{
		ExporterScope: v1alpha1.ExporterScope{ClusterNames: []string{"c2"}},
	}}
	w.in.Scheduled = map[string][]string{"sample/web": {"c1", "c2"}}
	w.after(0)
	if got := w.has("c2"); got != "" {
		t.Errorf("c2 imports %s", got)
	}
	w.in.Members[0].Known = false
	if w.after(0); w.has("c2") != "" {
		t.Errorf("c2 imports %s", w.has("c2"))
	}
}
