// SPDX-License-Identifier: Apache-2.0

package pairs_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/pairs"
	"github.com/sealane-io/sealane/internal/settings"
)

// some are values of a list, often none.
func some(rnd *rand.Rand, of ...string) []string {
	var out []string
	for range rnd.IntN(3) {
		out = append(out, of[rnd.IntN(len(of))])
	}
	return slices.Compact(out)
}

func anyCluster(rnd *rand.Rand) *clusterv1alpha1.Cluster {
	c := &clusterv1alpha1.Cluster{}
	c.Name = []string{"c1", "c2", "c3"}[rnd.IntN(3)]
	c.Spec.Provider = []string{"", "a", "b"}[rnd.IntN(3)]
	c.Spec.Region = []string{"", "a", "b"}[rnd.IntN(3)]
	c.Spec.Zone = "a" // which Karmada does not read
	c.Spec.Zones = some(rnd, "a", "b", "c")
	for _, label := range some(rnd, "x", "y") {
		c.Labels = map[string]string{label: []string{"", "a", "b"}[rnd.IntN(3)]}
	}
	return c
}

func anySelector(rnd *rand.Rand) policyv1alpha1.ClusterAffinity {
	a := policyv1alpha1.ClusterAffinity{ClusterNames: some(rnd, "c1", "c2", "c3", "c4"),
		ExcludeClusters: some(rnd, "c1", "c4", "c5")}
	if rnd.IntN(2) == 0 {
		a.LabelSelector = &metav1.LabelSelector{}
		for range rnd.IntN(3) {
			operators := []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
				metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Gt"}
			a.LabelSelector.MatchExpressions = append(a.LabelSelector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: []string{"x", "y", "%"}[rnd.IntN(3)], Operator: operators[rnd.IntN(5)], Values: some(rnd, "a", "b", "")})
		}
	}
	if rnd.IntN(2) == 0 {
		a.FieldSelector = &policyv1alpha1.FieldSelector{}
		for range rnd.IntN(3) {
			operators := []corev1.NodeSelectorOperator{corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn,
				corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt}
			a.FieldSelector.MatchExpressions = append(a.FieldSelector.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: []string{"provider", "region", "zone", "zone", "name"}[rnd.IntN(5)], Operator: operators[rnd.IntN(5)],
				Values: some(rnd, "a", "b", "c", "%", "")})
		}
	}
	return a
}

// TestMatchesAsKarmadaDoes: a selector that is valid selects the clusters here that it selects in Karmada's policies.
func TestMatchesAsKarmadaDoes(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	set := v1alpha1.ClusterSet{}
	set.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800}
	set.Spec.DNS.Domains, set.Spec.Shards = []string{"clusterset.local"}, 4
	if err := settings.Validate(&set); err != nil {
		t.Fatal(err)
	}
	matched := map[bool]int{}
	for range 300_000 {
		c, a := anyCluster(rnd), anySelector(rnd)
		set.Spec.ClusterAffinity = a
		if settings.Validate(&set) != nil {
			continue
		}
		got := pairs.Matches(c, a)
		matched[got]++
		if want := util.ClusterMatches(c, a); got != want {
			t.Fatalf("cluster %s with labels %v, %+v matches %+v, labels %+v, fields %+v: %t, want %t", c.Name, c.Labels,
				c.Spec, a, a.LabelSelector, a.FieldSelector, got, want)
		}
	}
	if matched[true] < 10_000 || matched[false] < 10_000 {
		t.Errorf("%v: the test has seen little", matched)
	}
}

// TestWhatIsNoSelectorSelectsNobody: settings.Validate says so of each of these, too.
func TestWhatIsNoSelectorSelectsNobody(t *testing.T) {
	t.Parallel()
	c := &clusterv1alpha1.Cluster{}
	c.Name, c.Spec.Provider = "c1", "a"
	for name, e := range map[string]corev1.NodeSelectorRequirement{
		"another field":    {Key: "name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"x"}},
		"another operator": {Key: "provider", Operator: corev1.NodeSelectorOpGt, Values: []string{"1"}},
	} {
		if pairs.Matches(c, policyv1alpha1.ClusterAffinity{FieldSelector: &policyv1alpha1.FieldSelector{
			MatchExpressions: []corev1.NodeSelectorRequirement{e}}}) {
			t.Errorf("%s: a cluster is selected", name)
		}
	}
	if pairs.Matches(c, policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "%", Operator: metav1.LabelSelectorOpDoesNotExist}}}}) {
		t.Error("a cluster is selected by a label that cannot be")
	}
}
