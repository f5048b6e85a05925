// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"strings"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
)

// set is a valid ClusterSet that selects clusters by name; age counts down from the youngest, 0.
func set(name string, age int64, clusters ...string) v1alpha1.ClusterSet {
	s := v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{Finalizer},
		CreationTimestamp: metav1.Unix(1e9-age, 0)}}
	s.Spec.ClusterAffinity.ClusterNames = clusters
	s.Spec.Cable = v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800}
	s.Spec.DNS.Domains = []string{"clusterset.local"}
	s.Spec.Shards = 4
	return s
}

func deleted(s v1alpha1.ClusterSet) v1alpha1.ClusterSet {
	now := metav1.Unix(1e9, 0)
	s.DeletionTimestamp = &now
	return s
}

func cluster(name string) clusterv1alpha1.Cluster {
	return clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1alpha1.ClusterSpec{ID: "id-" + name}}
}

func member(name, set string, phase v1alpha1.MemberPhase) v1alpha1.Member {
	return v1alpha1.Member{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.MemberSpec{ClusterSet: set, ClusterUID: "id-" + name, Phase: phase},
	}
}

// cleaned is a member that has answered that its nodes are clean.
func cleaned(m v1alpha1.Member) v1alpha1.Member {
	m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.MemberCleaned, Status: metav1.ConditionTrue}}
	return m
}

// text renders a Decision.
func text(d Decision) string {
	var out []string
	add := func(verb string, names ...string) {
		slices.Sort(names)
		for _, n := range names {
			out = append(out, verb+" "+n)
		}
	}
	for _, m := range d.Create {
		add("create", m.Name+"@"+m.Spec.ClusterSet)
	}
	for _, m := range d.Update {
		add("update", m.Name+"="+string(m.Spec.Phase))
	}
	add("withdraw", d.Withdraw...)
	for _, m := range d.Drop {
		add("drop", m.Name)
	}
	add("hold", d.Hold...)
	add("release", d.Release...)
	add("reschedule for", d.Serving...)
	return strings.Join(append(out, "spread "+strings.Join(d.Spread, ",")), "; ")
}

func TestDecide(t *testing.T) {
	const active, leaving = v1alpha1.MemberActive, v1alpha1.MemberLeaving
	all := func(w ...clusterv1alpha1.Cluster) []clusterv1alpha1.Cluster { return w }
	forced := member("c1", "blue", leaving)
	forced.Annotations = map[string]string{v1alpha1.AnnotationForceLeave: "true"}
	other := cluster("c1")
	other.Spec.ID = "another"
	unknown := cluster("c1")
	unknown.Spec.ID = ""
	serving := cluster("c1")
	serving.Status.APIEnablements = []clusterv1alpha1.APIEnablement{{
		GroupVersion: "multicluster.x-k8s.io/v1alpha1", Resources: []clusterv1alpha1.APIResource{{Kind: "ServiceExport"}},
	}}
	exporter := member("c1", "blue", active)
	exporter.Spec.ServesExports = true
	broken := set("blue", 0, "c2")
	broken.Spec.Cable.Driver = "carrier-pigeon"
	unheld := set("blue", 0)
	unheld.Finalizers, unheld.Spec.ClusterAffinity.ClusterNames = nil, []string{"c9"}
	sets := func(s ...v1alpha1.ClusterSet) []v1alpha1.ClusterSet { return s }
	members := func(m ...v1alpha1.Member) []v1alpha1.Member { return m }

	for name, c := range map[string]struct {
		state fleet.State
		wire  Wire // of c1
		want  string
	}{
		"a selected cluster joins": {fleet.State{Sets: sets(set("blue", 0, "c1")),
			Clusters: all(cluster("c1"), cluster("c2"))}, Wire{}, "create c1@blue; spread c1"},
		"an empty affinity selects all": {fleet.State{Sets: sets(set("blue", 0)), Clusters: all(cluster("c1"),
			cluster("c2"))}, Wire{}, "create c1@blue; create c2@blue; spread c1,c2"},
		"without an ID it waits": {fleet.State{Sets: sets(set("blue", 0, "c1")), Clusters: all(unknown)},
			Wire{}, "spread "},
		"the older set wins": {fleet.State{Sets: sets(set("new", 0, "c1"), set("old", 9, "c1")),
			Clusters: all(cluster("c1"))}, Wire{}, "create c1@old; spread c1"},
		"a new ClusterSet is held": {fleet.State{Sets: sets(unheld)}, Wire{}, "hold blue; spread "},
		"invalid settings change nobody": {fleet.State{Sets: sets(broken), Clusters: all(cluster("c1"),
			cluster("c2")), Members: members(member("c1", "blue", active))}, Wire{}, "spread c1"},
		"no longer selected, it is asked to leave": {fleet.State{Sets: sets(set("blue", 0, "c2")),
			Clusters: all(cluster("c1")), Members: members(member("c1", "blue", active))}, Wire{},
			"update c1=Leaving; spread c1"},
		"it is waited for": {fleet.State{Sets: sets(set("blue", 0, "c2")),
			Clusters: all(cluster("c1")), Members: members(member("c1", "blue", leaving))}, Wire{Works: 5, Live: 5},
			"spread c1"},
		"clean before it leaves counts for nothing": {fleet.State{Sets: sets(set("blue", 0, "c1")),
			Clusters: all(cluster("c1")), Members: members(cleaned(member("c1", "blue", active)))}, Wire{Works: 5, Live: 5},
			"spread c1"},
		"clean, its Works go": {fleet.State{Sets: sets(set("blue", 0, "c2")),
			Clusters: all(cluster("c1")), Members: members(cleaned(member("c1", "blue", leaving)))}, Wire{Works: 5, Live: 5},
			"withdraw c1; spread c1"},
		"forced, they go at once": {fleet.State{Sets: sets(set("blue", 0, "c2")),
			Clusters: all(cluster("c1")), Members: members(forced)}, Wire{Works: 5, Live: 5}, "withdraw c1; spread c1"},
		"begun, it is finished": {fleet.State{Sets: sets(set("blue", 0, "c2")),
			Clusters: all(cluster("c1")), Members: members(cleaned(member("c1", "blue", leaving)))}, Wire{Works: 2, Live: 1},
			"withdraw c1; spread c1"},
		"a Work that somebody deleted is no answer": {fleet.State{Sets: sets(set("blue", 0, "c2")),
			Clusters: all(cluster("c1")), Members: members(member("c1", "blue", leaving))}, Wire{Works: 5, Live: 4},
			"spread c1"},
		"without Works bundle and record go": {fleet.State{Sets: sets(set("blue", 0, "c2")),
			Clusters: all(cluster("c1")), Members: members(member("c1", "blue", leaving))}, Wire{}, "drop c1; spread "},
		"selected again, it stays": {fleet.State{Sets: sets(set("blue", 0, "c1")),
			Clusters: all(cluster("c1")), Members: members(member("c1", "blue", leaving))}, Wire{Works: 5, Live: 5},
			"update c1=Active; spread c1"},
		"selected again while its Works go": {fleet.State{Sets: sets(set("blue", 0, "c1")),
			Clusters: all(cluster("c1")), Members: members(member("c1", "blue", leaving))}, Wire{Works: 5, Live: 2},
			"spread c1"},
		"claimed by another set, it leaves first": {fleet.State{Sets: sets(set("blue", 0, "c2"), set("red", 0, "c1")),
			Clusters: all(cluster("c1")), Members: members(member("c1", "blue", active))}, Wire{},
			"update c1=Leaving; spread c1"},
		"unjoined, it is dropped": {fleet.State{Sets: sets(set("blue", 0, "c1")),
			Members: members(member("c1", "blue", active))}, Wire{}, "withdraw c1; drop c1; spread "},
		"another cluster of that name": {fleet.State{Sets: sets(set("blue", 0, "c1")), Clusters: all(other),
			Members: members(member("c1", "blue", active))}, Wire{}, "withdraw c1; drop c1; spread c1"},
		"it serves ServiceExport": {fleet.State{Sets: sets(set("blue", 0, "c1")), Clusters: all(serving),
			Members: members(member("c1", "blue", active))}, Wire{}, "reschedule for c1; spread c1"},
		"it did already": {fleet.State{Sets: sets(set("blue", 0, "c1")), Clusters: all(serving),
			Members: members(exporter)}, Wire{}, "spread c1"},
		"it no longer does": {fleet.State{Sets: sets(set("blue", 0, "c1")),
			Clusters: all(cluster("c1")), Members: members(exporter)}, Wire{}, "update c1=Active; spread c1"},
		"a deleted ClusterSet lets its members go": {fleet.State{Sets: sets(deleted(set("blue", 0, "c1"))),
			Clusters: all(cluster("c1")), Members: members(member("c1", "blue", active))}, Wire{},
			"update c1=Leaving; spread c1"},
		"and goes after them": {fleet.State{Sets: sets(deleted(set("blue", 0, "c1"))), Clusters: all(cluster("c1"))}, Wire{},
			"release blue; spread "},
		"the last one waits for Karmada": {fleet.State{Sets: sets(deleted(set("blue", 0, "c1"))),
			Clusters: all(cluster("c1")), Bindings: []*workv1alpha2.ClusterResourceBinding{
				{Spec: workv1alpha2.ResourceBindingSpec{Clusters: []workv1alpha2.TargetCluster{{Name: "c1"}}}}}},
			Wire{}, "spread "},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text(Decide(c.state, map[string]Wire{"c1": c.wire})); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
