// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// set is a valid ClusterSet that selects clusters by name; age counts down from the youngest, 0.
func set(name string, age int64, clusters ...string) v1alpha1.ClusterSet {
	s := v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{Finalizer}, CreationTimestamp: metav1.Unix(1e9-age, 0)}}
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
	return clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1alpha1.ClusterSpec{ID: "id-" + name}}
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
	for c, labels := range d.Labels {
		if set, ok := labels[v1alpha1.LabelClusterSet]; ok {
			add("label", c+"="+set)
		}
	}
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
	labelled := cluster("c1")
	labelled.Labels = map[string]string{v1alpha1.LabelClusterSet: "blue"}
	broken := set("blue", 0, "c2")
	broken.Spec.Cable.Driver = "carrier-pigeon"
	unheld := set("blue", 0)
	unheld.Finalizers, unheld.Spec.ClusterAffinity.ClusterNames = nil, []string{"c9"}
	sets := func(s ...v1alpha1.ClusterSet) []v1alpha1.ClusterSet { return s }
	members := func(m ...v1alpha1.Member) []v1alpha1.Member { return m }

	for name, c := range map[string]struct {
		world World
		wire  Wire // of c1
		want  string
	}{
		"a selected cluster joins":                  {World{Sets: sets(set("blue", 0, "c1")), Clusters: all(cluster("c1"), cluster("c2"))}, Wire{}, "create c1@blue; spread c1"},
		"an empty affinity selects all":             {World{Sets: sets(set("blue", 0)), Clusters: all(cluster("c1"), cluster("c2"))}, Wire{}, "create c1@blue; create c2@blue; spread c1,c2"},
		"without an ID it waits":                    {World{Sets: sets(set("blue", 0, "c1")), Clusters: all(unknown)}, Wire{}, "spread "},
		"the older set wins":                        {World{Sets: sets(set("new", 0, "c1"), set("old", 9, "c1")), Clusters: all(cluster("c1"))}, Wire{}, "create c1@old; spread c1"},
		"a new ClusterSet is held":                  {World{Sets: sets(unheld)}, Wire{}, "hold blue; spread "},
		"invalid settings change nobody":            {World{Sets: sets(broken), Clusters: all(cluster("c1"), cluster("c2")), Members: members(member("c1", "blue", active))}, Wire{}, "spread c1"},
		"no longer selected, it is asked to leave":  {World{Sets: sets(set("blue", 0, "c2")), Clusters: all(cluster("c1")), Members: members(member("c1", "blue", active))}, Wire{}, "update c1=Leaving; spread c1"},
		"it is waited for":                          {World{Sets: sets(set("blue", 0, "c2")), Clusters: all(cluster("c1")), Members: members(member("c1", "blue", leaving))}, Wire{Works: 5, Live: 5}, "spread c1"},
		"clean before it leaves counts for nothing": {World{Sets: sets(set("blue", 0, "c1")), Clusters: all(cluster("c1")), Members: members(cleaned(member("c1", "blue", active)))}, Wire{Works: 5, Live: 5}, "spread c1"},
		"clean, its Works go":                       {World{Sets: sets(set("blue", 0, "c2")), Clusters: all(cluster("c1")), Members: members(cleaned(member("c1", "blue", leaving)))}, Wire{Works: 5, Live: 5}, "withdraw c1; spread c1"},
		"forced, they go at once":                   {World{Sets: sets(set("blue", 0, "c2")), Clusters: all(cluster("c1")), Members: members(forced)}, Wire{Works: 5, Live: 5}, "withdraw c1; spread c1"},
		"begun, it is finished":                     {World{Sets: sets(set("blue", 0, "c2")), Clusters: all(cluster("c1")), Members: members(cleaned(member("c1", "blue", leaving)))}, Wire{Works: 2, Live: 1}, "withdraw c1; spread c1"},
		"a Work that somebody deleted is no answer": {World{Sets: sets(set("blue", 0, "c2")), Clusters: all(cluster("c1")), Members: members(member("c1", "blue", leaving))}, Wire{Works: 5, Live: 4}, "spread c1"},
		"without Works bundle and record go":        {World{Sets: sets(set("blue", 0, "c2")), Clusters: all(cluster("c1")), Members: members(member("c1", "blue", leaving))}, Wire{}, "drop c1; spread "},
		"selected again, it stays":                  {World{Sets: sets(set("blue", 0, "c1")), Clusters: all(cluster("c1")), Members: members(member("c1", "blue", leaving))}, Wire{Works: 5, Live: 5}, "update c1=Active; spread c1"},
		"selected again while its Works go":         {World{Sets: sets(set("blue", 0, "c1")), Clusters: all(cluster("c1")), Members: members(member("c1", "blue", leaving))}, Wire{Works: 5, Live: 2}, "spread c1"},
		"claimed by another set, it leaves first":   {World{Sets: sets(set("blue", 0, "c2"), set("red", 0, "c1")), Clusters: all(cluster("c1")), Members: members(member("c1", "blue", active))}, Wire{}, "update c1=Leaving; spread c1"},
		"unjoined, it is dropped":                   {World{Sets: sets(set("blue", 0, "c1")), Members: members(member("c1", "blue", active))}, Wire{}, "withdraw c1; drop c1; spread "},
		"another cluster of that name":              {World{Sets: sets(set("blue", 0, "c1")), Clusters: all(other), Members: members(member("c1", "blue", active))}, Wire{}, "withdraw c1; drop c1; spread c1"},
		"it serves ServiceExport":                   {World{Sets: sets(set("blue", 0, "c1")), Clusters: all(serving), Members: members(member("c1", "blue", active))}, Wire{}, "label c1=blue; spread c1"},
		"a label that is no longer true":            {World{Sets: sets(set("blue", 0, "c2")), Clusters: all(labelled)}, Wire{}, "label c1=; spread "},
		"a deleted ClusterSet lets its members go":  {World{Sets: sets(deleted(set("blue", 0, "c1"))), Clusters: all(cluster("c1")), Members: members(member("c1", "blue", active))}, Wire{}, "update c1=Leaving; spread c1"},
		"and goes after them":                       {World{Sets: sets(deleted(set("blue", 0, "c1"))), Clusters: all(cluster("c1"))}, Wire{}, "release blue; spread "},
		"the last one waits for Karmada": {World{Sets: sets(deleted(set("blue", 0, "c1"))), Clusters: all(cluster("c1")), Bindings: []*workv1alpha2.ClusterResourceBinding{
			{Spec: workv1alpha2.ResourceBindingSpec{Clusters: []workv1alpha2.TargetCluster{{Name: "c1"}}}}}}, Wire{}, "spread "},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text(Decide(c.world, map[string]Wire{"c1": c.wire})); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestTheBundleFollowsTheLabel: exactly the clusters that the bundle goes to are labelled, and what is right
// already is not written again.
func TestTheBundleFollowsTheLabel(t *testing.T) {
	joined := func(name string) clusterv1alpha1.Cluster {
		c := cluster(name)
		c.Labels = map[string]string{v1alpha1.LabelMember: "true"}
		return c
	}
	leaving := member("c3", "blue", v1alpha1.MemberLeaving)
	w := World{
		Sets:     []v1alpha1.ClusterSet{set("blue", 0, "c1", "c2")},
		Clusters: []clusterv1alpha1.Cluster{cluster("c1"), joined("c2"), joined("c3"), joined("c4"), cluster("c5")},
		Members:  []v1alpha1.Member{member("c2", "blue", v1alpha1.MemberActive), leaving},
	}
	d := Decide(w, map[string]Wire{"c3": {Works: 5, Live: 5}})
	const want = "map[c1:map[sealane.io/member:true] c4:map[sealane.io/member:]]"
	if got := fmt.Sprint(d.Labels); got != want {
		t.Errorf("labels %s, want %s", got, want)
	}
}

func TestProblems(t *testing.T) {
	broken := set("broken", 0, "c3")
	broken.Spec.Cable = v1alpha1.CableSpec{Driver: "ipx", Port: 4500, VXLANPort: 4501}
	w := World{
		Sets:     []v1alpha1.ClusterSet{set("old", 9, "c1"), set("new", 0, "c1", "c2"), broken},
		Clusters: []clusterv1alpha1.Cluster{cluster("c1"), cluster("c3")},
		Members:  []v1alpha1.Member{member("c3", "old", v1alpha1.MemberLeaving)},
	}
	for name, want := range map[string][]string{
		"old":     {"c3 Leaving", "leave --force"},
		"new":     {"c1 SelectedElsewhere", "the older ClusterSet old", "c2 ClusterNotFound"},
		"broken":  {"InvalidSettings", `"ipx"`, "vxlanPort 4501"},
		"missing": nil,
	} {
		var b strings.Builder
		for _, p := range Problems(w, name) {
			fmt.Fprintf(&b, "%s %s %s\n", p.Cluster, p.Reason, p.Message)
		}
		for _, part := range want {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s: %q lacks %q", name, b.String(), part)
			}
		}
	}
}

// overdue asks an Echo every second and returns the seconds at which it said to send anew.
func overdue(e *Echo, c *clusterv1alpha1.Cluster, failed bool, from time.Time, seconds int) string {
	var at []string
	for i := range seconds {
		if sent, _ := e.Overdue(c, false, failed, from.Add(time.Duration(i)*time.Second)); sent {
			at = append(at, fmt.Sprint(i))
		}
	}
	return strings.Join(at, " ")
}

func TestWhatIsNotAnsweredIsSentAnew(t *testing.T) {
	turned := time.Unix(1e9, 0)
	long := turned.Add(time.Hour)
	c := cluster("c1")
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(turned)}}
	down := c.DeepCopy()
	down.Status.Conditions[0].Status = metav1.ConditionFalse
	for name, x := range map[string]struct {
		cluster *clusterv1alpha1.Cluster
		failed  bool
		from    time.Time
		want    string
	}{
		"it has just turned ready":           {&c, false, turned, "5 10 15 20 25 32 40 50 100"},
		"Karmada could not apply it":         {&c, true, long, "5 10 15 20 25 32 40 50 63 79 99"},
		"nothing says that there is trouble": {&c, false, long, "30 60"},
		"it is not ready":                    {down, true, turned, ""},
		"it is gone":                         {nil, true, turned, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := overdue(new(Echo), x.cluster, x.failed, x.from, 120); got != x.want {
				t.Errorf("sent anew at %q, want %q", got, x.want)
			}
		})
	}
	t.Run("trouble that stays costs one write a minute", func(t *testing.T) {
		e := new(Echo)
		overdue(e, &c, true, long, 3600)
		if got := strings.Fields(overdue(e, &c, true, long.Add(time.Hour), 600)); len(got) != 10 {
			t.Errorf("sent anew %d times in ten minutes", len(got))
		}
	})
	t.Run("an answer starts it over", func(t *testing.T) {
		e := new(Echo)
		overdue(e, &c, true, long, 50)
		if sent, again := e.Overdue(&c, true, true, long.Add(50*time.Second)); sent || again != 0 {
			t.Errorf("%v, %v for what is answered", sent, again)
		}
		if sent, again := e.Overdue(&c, false, true, long.Add(51*time.Second)); sent || again != echoPatience {
			t.Errorf("%v, %v for what was just sent", sent, again)
		}
	})
}

func TestDomainsThatClustersHaveAreNotPutIntoForce(t *testing.T) {
	for domain, want := range map[string]bool{"clusterset.local": true, "cluster.local": false, "a.cluster.local": false, "local": false, "com": false} {
		set := &v1alpha1.ClusterSet{}
		set.Spec.Cable.Driver, set.Spec.Cable.Port, set.Spec.Cable.VXLANPort = v1alpha1.CableWireGuard, 4500, 4800
		set.Spec.Shards, set.Spec.DNS.Domains = 1, []string{domain}
		if err := Validate(set); (err == nil) != want {
			t.Errorf("%s: %v", domain, err)
		}
	}
}
