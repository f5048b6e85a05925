// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestJoinAndLeave(t *testing.T) {
	k := newKarmada(t)
	k.install(t, "-C", "c1")
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	for range 2 {
		k.succeeds(t, "join", "c2", "--wait=false")
	}
	k.get(t, set)
	if got := fmt.Sprint(set.Spec.ClusterAffinity.ClusterNames); got != "[c1 c2]" {
		t.Errorf("cluster names after join: %s", got)
	}
	k.report(t, []string{"c1", "c2"}, connected()...)
	k.succeeds(t, "join", "c2")

	k.get(t, set)
	set.Spec.RollOut.Canary = "c2"
	all := make([]policyv1alpha1.ClusterAffinity, 1)
	set.Spec.Relays = []v1alpha1.PairRelay{{Clusters: all, Through: "c1"}, {Clusters: all, Through: "c2"}}
	if err := k.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	out := k.succeeds(t, "leave", "c2", "--force", "--wait=false")
	if !strings.Contains(out, "c2 is the canary") {
		t.Errorf("leave of the canary does not say so: %s", out)
	}
	if !strings.Contains(out, "c2 is the relay of pairs of ClusterSet default by spec.relays[1]") ||
		strings.Contains(out, "spec.relays[0]") {
		t.Errorf("leave of one of two relays says of which entries: %s", out)
	}
	k.get(t, set)
	if got := fmt.Sprint(set.Spec.ClusterAffinity.ClusterNames); got != "[c1]" {
		t.Errorf("cluster names after leave: %s", got)
	}
	member := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c2"}}
	k.get(t, member)
	if member.Annotations[v1alpha1.AnnotationForceLeave] != "true" {
		t.Errorf("leave --force did not mark the member: %v", member.Annotations)
	}
	k.fails(t, []string{"c2: waiting for the controller", "leave --force"}, "leave", "c2", "--timeout=5s")
	if err := k.Delete(t.Context(), member); err != nil {
		t.Fatal(err)
	}
	k.succeeds(t, "leave", "c2")
	k.fails(t, []string{"nowhere", "[default]"}, "join", "c2", "--clusterset=nowhere")
	if out := k.succeeds(t, "leave", "c3", "--timeout=30s"); strings.Contains(out, "c3: left") ||
		!strings.Contains(out, "c3: is no member") {
		t.Errorf("leave of a cluster that is no member: %s", out)
	}

	// A name that stands for nothing changes nothing.
	k.get(t, set)
	before := set.ResourceVersion
	k.fails(t, []string{"did you mean c1", "cluster of this Karmada"}, "leave", "c11", "--wait=false")
	k.fails(t, []string{"did you mean c1"}, "join", "c11", "--wait=false")
	k.fails(t, []string{"did you mean c1"}, "export", "web", "-n", "default", "-C", "c11")
	k.fails(t, []string{"did you mean c1"}, "show", "connections", "-C", "c11")
	if k.get(t, set); set.ResourceVersion != before {
		t.Errorf("leave and join of a cluster that does not exist changed the ClusterSet: %+v", set.Spec.ClusterAffinity)
	}
	// The name of a cluster that Karmada no longer has can be taken out.
	set.Spec.ClusterAffinity.ClusterNames = []string{"c1", "former"}
	if err := k.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	k.succeeds(t, "leave", "former")
	if k.get(t, set); fmt.Sprint(set.Spec.ClusterAffinity.ClusterNames) != "[c1]" {
		t.Errorf("cluster names after leave of a cluster that is gone: %v", set.Spec.ClusterAffinity.ClusterNames)
	}
	other := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c3"},
		Spec: v1alpha1.MemberSpec{ClusterSet: "other", Phase: v1alpha1.MemberActive}}
	k.create(t, other)
	k.fails(t, []string{"leave c3 --clusterset other"}, "leave", "c3")
}

func TestDiagnoseNeedsANameAndAMember(t *testing.T) {
	k := newKarmada(t)
	k.install(t, "-C", "c1")
	k.fails(t, []string{"a member to look from"}, "diagnose", "dns", "whereami", "-n", "sample")
	k.fails(t, []string{"none of the domains clusterset.local", "the path is broken at name"}, "diagnose", "dns",
		"www.example.org")
	k.fails(t, []string{"which has a Peering"}, "diagnose", "dns", "whereami", "--context=lost-member")
	k.fails(t, []string{"no Member of that name"}, "diagnose", "dns", "whereami", "-n", "sample", "-C", "c1")
	k.fails(t, []string{"which has a Peering"}, "show", "imports", "--context=lost-member")
	if out := k.succeeds(t, "show", "imports", "-n", "sample"); !strings.Contains(out, "no imports") {
		t.Error("imports without a member")
	}
}
