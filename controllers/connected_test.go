// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// connections are the facts of cluster number n with its connections, as "c2=Connected c3=Error/ProbesLost".
func connections(n int, list string) v1alpha1.PeeringStatus {
	s := facts(n)
	for text := range strings.FieldsSeq(list) {
		cluster, rest, _ := strings.Cut(text, "=")
		status, reason, _ := strings.Cut(rest, "/")
		s.Connections = append(s.Connections, v1alpha1.MemberConnection{
			Cluster: cluster, Status: v1alpha1.ConnectionStatus(status), Reason: reason,
		})
	}
	return s
}

// connectedness of the ClusterSet blue: its conditions, and the pairs that are not connected.
func (f *fleet) connectedness() string {
	var set v1alpha1.ClusterSet
	f.must(f.client.Get(f.t.Context(), client.ObjectKey{Name: "blue"}, &set))
	out := []string{condition(set.Status.Conditions, v1alpha1.ClusterSetReady),
		condition(set.Status.Conditions, v1alpha1.ClusterSetConnected),
		fmt.Sprintf("%d/%d", set.Status.ConnectedPairs, set.Status.Pairs)}
	for _, p := range set.Status.UnconnectedPairs {
		out = append(out, fmt.Sprintf("%s-%s=%s/%s", p.Cluster, p.RemoteCluster, p.Status, p.Reason))
	}
	return strings.Join(out, " ")
}

// becomes waits until the ClusterSet blue is connected as stated, and returns how long that took.
func (f *fleet) becomes(why, want string) time.Duration {
	f.t.Helper()
	start, got := time.Now(), ""
	defer func() {
		if f.t.Failed() {
			f.t.Logf("found %s, want %s", got, want)
		}
	}()
	f.eventually(why, func() bool { got = f.connectedness(); return got == want })
	return time.Since(start)
}

// reach says whether Karmada reaches a cluster.
func (f *fleet) reach(cluster string, reached metav1.ConditionStatus) {
	f.t.Helper()
	f.eventually("the condition of "+cluster, func() bool {
		c := f.cluster(cluster)
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: clusterv1alpha1.ClusterConditionReady,
			Status: reached, Reason: "Test"})
		return f.client.Status().Update(f.t.Context(), c) == nil
	})
}

const (
	allWell  = "True/Ready True/Connected 1/1"
	unknown  = "Unknown/ConnectionUnknown Unknown/ConnectionUnknown 0/1 c1-c2=Unknown/"
	brokenBy = "False/NotConnected False/NotConnected 0/1 c1-c2=Error/"
)

// TestTheStatusIsTrueDuringAnOutage: what is not known counts as unknown, what one side sees counts for both.
func TestTheStatusIsTrueDuringAnOutage(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.ready("c1")
	f.ready("c2")
	well := func() {
		f.report("c1", connections(1, "c2=Connected"))
		f.report("c2", connections(2, "c1=Connected"))
		f.becomes("all is well", allWell)
	}
	well()
	f.settled()

	f.report("c1", connections(1, "c2=Unknown/AgentSilent"))
	f.becomes("the gateways of c1 are silent", unknown+"AgentSilent")
	f.report("c2", connections(2, "c1=Error/ProbesLost"))
	f.becomes("c2 gets no answers", brokenBy+"ProbesLost")
	if got := f.counted(); len(got) > 0 {
		t.Errorf("the state of connections costs Works: %v", got)
	}
	well()

	f.reach("c2", metav1.ConditionFalse)
	f.becomes("Karmada does not reach c2", unknown+"ClusterNotReady")
	if m := f.member("c2"); m.Status.Connections[0].Status != v1alpha1.ConnectionUnknown ||
		condition(m.Status.Conditions, v1alpha1.MemberConnected) != "Unknown/ConnectionUnknown" {
		t.Errorf("the record of c2 says %+v", m.Status)
	}
	f.never("c1 loses c2", func() bool { return f.remotes("c1") != "c2" })
	f.reach("c2", metav1.ConditionTrue)
	f.becomes("c2 is back", allWell)
	f.settled()

	// c2's agent is dead, and Karmada does not know: that shows by what it is asked.
	f.silence("c2")
	changed := connections(1, "c2=Connected")
	changed.Endpoints[0].Addresses[0].IP = "192.168.1.9"
	f.report("c1", changed)
	took := f.becomes("c2 answers no more", unknown+"Unanswered")
	t.Logf("unanswered after %v", took)
	if took > 15*time.Second {
		t.Errorf("unknown after %v", took)
	}
	well()
}

// TestOneLostClusterIsFewWritesOfTheClusterSet: all others say so one after the other.
func TestOneLostClusterIsFewWritesOfTheClusterSet(t *testing.T) {
	const count = 12
	f := newFleet(t)
	f.connect(count)
	others := func(n int, lost string) string {
		var list []string
		for o := 1; o <= count; o++ {
			switch o {
			case n:
			case 1:
				list = append(list, "c1="+lost)
			default:
				list = append(list, fmt.Sprintf("c%d=Connected", o))
			}
		}
		return strings.Join(list, " ")
	}
	for n := 1; n <= count; n++ {
		f.report(fmt.Sprintf("c%d", n), connections(n, others(n, "Connected")))
	}
	f.eventually("all are connected", func() bool {
		return strings.HasPrefix(f.connectedness(), "True/Ready True/Connected 66/66")
	})
	f.settled() // the next write need not wait
	version := func() string {
		var set v1alpha1.ClusterSet
		f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set))
		return set.ResourceVersion
	}
	start, seen, writes := time.Now(), version(), 0
	look := func() {
		if v := version(); v != seen {
			seen, writes = v, writes+1
		}
	}
	for n := 2; n <= count; n++ {
		name := fmt.Sprintf("c%d", n)
		f.report(name, connections(n, others(n, "Error/ProbesLost")))
		f.eventually(name+" has lost c1", func() bool {
			look()
			return condition(f.member(name).Status.Conditions, v1alpha1.MemberConnected) == "False/NotConnected" &&
				f.member(name).Status.Connections[0].Status == v1alpha1.ConnectionError
		})
	}
	f.eventually("c1 is lost", func() bool {
		look()
		return strings.HasPrefix(f.connectedness(), "False/NotConnected False/NotConnected 55/66 c1-c10=Error/ProbesLost")
	})
	took := time.Since(start)
	t.Logf("%d writes of the ClusterSet in %v", writes, took)
	if most := 2 + int(took/setPace); writes > most {
		t.Errorf("%d writes of the ClusterSet in %v, want %d at most", writes, took, most)
	}
}

// setPace is the least time between two writes of a ClusterSet's status.
const setPace = 500 * time.Millisecond
