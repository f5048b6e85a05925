// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func scopeOf(clusters ...string) *v1alpha1.ImportScope {
	return &v1alpha1.ImportScope{ClusterNames: clusters}
}

func labelled(label, value string) *v1alpha1.ImportScope {
	return &v1alpha1.ImportScope{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}}
}

// broken is a scope whose selector no API server refuses and nobody can use.
func broken(clusters ...string) *v1alpha1.ImportScope {
	return &v1alpha1.ImportScope{ClusterNames: clusters, ClusterSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Near"}},
	}}
}

func servicePolicy(name string, choice *v1alpha1.ClusterChoice,
	importers *v1alpha1.ImportScope) v1alpha1.ServicePolicy {
	p := v1alpha1.ServicePolicy{Spec: v1alpha1.ServicePolicySpec{Choice: choice, Importers: importers}}
	p.Namespace, p.Name = "sample", name
	return p
}

// imports says who imports sample/web of whom: "c1:c2 c2:c1,c2".
func imports(d Decision) string {
	var out []string
	for n := 1; n <= len(d.Bundles); n++ {
		name := fmt.Sprintf("c%d", n)
		for _, i := range d.Bundles[name].Imports {
			var of []string
			for _, c := range i.Clusters {
				of = append(of, c.Cluster)
			}
			out = append(out, name+":"+strings.Join(of, ","))
		}
	}
	return strings.Join(out, " ")
}

func TestImportScope(t *testing.T) {
	scoped := func(s *v1alpha1.ImportScope) func(*v1alpha1.Export) {
		return func(e *v1alpha1.Export) { e.Scope = s }
	}
	both := labelled("zone", "a")
	both.ClusterNames = []string{"c3"}
	for _, tt := range []struct {
		name      string
		scope     *v1alpha1.ImportScope // of c1's export; c2 exports to all
		importers *v1alpha1.ImportScope
		want      string
	}{
		{"everybody by default", nil, nil, "c1:c1,c2 c2:c1,c2 c3:c1,c2 c4:c1,c2"},
		{"by name", scopeOf("c3"), nil, "c1:c1,c2 c2:c2 c3:c1,c2 c4:c2"},
		{"by label", labelled("zone", "a"), nil, "c1:c1,c2 c2:c1,c2 c3:c2 c4:c2"},
		{"by name or label", both, nil, "c1:c1,c2 c2:c1,c2 c3:c1,c2 c4:c2"},
		{"an empty scope admits nobody but the exporter", &v1alpha1.ImportScope{}, nil, "c1:c1,c2 c2:c2 c3:c2 c4:c2"},
		{"an empty selector selects all", &v1alpha1.ImportScope{ClusterSelector: &metav1.LabelSelector{}}, nil,
			"c1:c1,c2 c2:c1,c2 c3:c1,c2 c4:c1,c2"},
		{"the policy narrows", nil, scopeOf("c4"), "c1:c1 c2:c2 c4:c1,c2"},
		{"the policy never widens", scopeOf("c3"), scopeOf("c3", "c4"), "c1:c1 c2:c2 c3:c1,c2 c4:c2"},
		{"a policy's selector that cannot be used selects nobody", nil, broken("c4"), "c1:c1 c2:c2 c4:c1,c2"},
		{"a name that nobody has", scopeOf("c9"), nil, "c1:c1,c2 c2:c2 c3:c2 c4:c2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Shards: 1, Now: now, Members: []Member{cluster(1, web(1, scoped(tt.scope))), cluster(2, web(2)),
				cluster(3), cluster(4)}}
			in.Members[0].Labels = map[string]string{"zone": "a"}
			in.Members[1].Labels = map[string]string{"zone": "a"}
			in.Members[2].Labels = map[string]string{"zone": "b"}
			if tt.importers != nil {
				in.Policies = []v1alpha1.ServicePolicy{servicePolicy("web", nil, tt.importers)}
			}
			if got := imports(Decide(in)); got != tt.want {
				t.Errorf("imports\n %s, want\n %s", got, tt.want)
			}
		})
	}
}

// The merge is of what a member sees, the conflict is of all.
func TestMergeIsPerScopeAndConflictIsNot(t *testing.T) {
	d := decide(cluster(1, web(1, withPorts(port("http", 8080)), func(e *v1alpha1.Export) { e.Scope = scopeOf() })),
		cluster(2, web(2)), cluster(3))
	for c, want := range map[string]string{
		"c1": `ClusterSetIP http:8080/TCP: c1["http"]×0 c2[]×0`,
		"c2": `ClusterSetIP http:80/TCP: c2["http"]×0`,
		"c3": `ClusterSetIP http:80/TCP: c2["http"]×3`,
	} {
		if got := summary(d.Bundles[c].Imports[0]); got != want {
			t.Errorf("%s imports %s, want %s", c, got, want)
		}
	}
	for _, c := range []string{"c1", "c2"} {
		if got := condition(d, c, "Conflict"); got != "True PortConflict" {
			t.Errorf("Conflict in %s is %s", c, got)
		}
	}
}

func TestHostileScopesAreRefused(t *testing.T) {
	long := broken()
	long.ClusterSelector.MatchLabels = map[string]string{"a": strings.Repeat("x", maxSelector)}
	for name, s := range map[string]*v1alpha1.ImportScope{
		"names": scopeOf(make([]string, maxScopeNames+1)...), "a name": scopeOf("../c1"), "a selector": broken("c2"),
		"a long selector": long,
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(cluster(1, web(1, func(e *v1alpha1.Export) { e.Scope = s })), cluster(2, web(2)))
			if got := imports(d); got != "c1:c2 c2:c2" {
				t.Errorf("imports %s", got)
			}
			if len(d.Problems) != 1 || !strings.Contains(d.Problems[0].Message, "import scope") ||
				len(d.Problems[0].Message) > maxMessage {
				t.Errorf("problems %v", d.Problems)
			}
			if got := condition(d, "c1", "Ready"); got != "False Failed" {
				t.Errorf("Ready is %s", got)
			}
		})
	}
}

// The record has the backends of an exporter that cannot be heard, whoever imported them before.
func TestWiderScopeOfAnUnknownExporterIsFollowed(t *testing.T) {
	in := Input{Shards: 1, Now: now, Members: []Member{cluster(1, web(1)), cluster(2)},
		Policies: []v1alpha1.ServicePolicy{servicePolicy("web", nil, scopeOf("c1"))}}
	before := Decide(in)
	if got := imports(before); got != "c1:c1" {
		t.Fatalf("imports %s", got)
	}
	in.Members[0].Known = false
	for i := range in.Members {
		in.Members[i].Last, in.Members[i].Record = written(t, before, in.Members[i].Cluster)
	}
	in.Policies = nil
	now := Decide(in)
	if got := imports(now); got != "c1:c1 c2:c1" {
		t.Errorf("imports %s", got)
	}
	if got := condition(now, "c1", "Ready"); got != "True Exported" {
		t.Errorf("Ready is %s", got)
	}
	in.Members[0].Known = true
	if got := imports(Decide(in)); got != "c1:c1 c2:c1" {
		t.Errorf("imports %s", got)
	}
}

func TestSelects(t *testing.T) {
	by := func(s *v1alpha1.ImportScope) func(*v1alpha1.Export) { return func(e *v1alpha1.Export) { e.Scope = s } }
	unknown := cluster(1)
	unknown.Known = false
	_, unknown.Record = written(t, decide(cluster(1, web(1, by(labelled("a", "b"))))), "c1")
	for name, c := range map[string]struct {
		in   Input
		want bool
	}{
		"nothing":           {Input{Members: []Member{cluster(1, web(1))}}, false},
		"names":             {Input{Members: []Member{cluster(1, web(1, by(scopeOf("c1"))))}}, false},
		"an export":         {Input{Members: []Member{cluster(1, web(1, by(labelled("a", "b"))))}}, true},
		"a policy":          {Input{Policies: []v1alpha1.ServicePolicy{servicePolicy("web", nil, labelled("a", "b"))}}, true},
		"a restored export": {Input{Members: []Member{unknown}}, true},
	} {
		if got := c.in.Selects(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
