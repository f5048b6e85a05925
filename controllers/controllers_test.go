// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// facts are what the agent of cluster number n finds: pods 10.<n>.0.0/16, services 10.<100+n>.0.0/16,
// one gateway.
func facts(n int) v1alpha1.PeeringStatus {
	return v1alpha1.PeeringStatus{
		Networks: v1alpha1.Networks{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", n)},
			ServiceCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", 100+n)}},
		NodeCIDRs: []string{fmt.Sprintf("192.168.%d.1/32", n)},
		Endpoints: []v1alpha1.Endpoint{{
			Gateway: "g", Slot: 0, MTU: 1420,
			PublicKey: base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(n)}, 32)),
			Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: fmt.Sprintf("192.168.%d.1", n)}},
		}},
		AgentVersion: "test", ReadsParts: true, ReadsText: true,
	}
}

// condition renders a condition as "Status/Reason".
func condition(conditions []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

func (f *fleet) accepted(cluster string) string {
	m := f.member(cluster)
	if m == nil {
		return ""
	}
	return condition(m.Status.Conditions, v1alpha1.MemberAccepted)
}

// connect makes a ClusterSet of c1, c2, … that know each other.
func (f *fleet) connect(count int) {
	f.t.Helper()
	var names []string
	for n := 1; n <= count; n++ {
		names = append(names, fmt.Sprintf("c%d", n))
		f.report(names[n-1], facts(n))
	}
	f.karmadaJoin(names...)
	f.set("blue", names...)
	f.eventually("all are told of each other", func() bool {
		for _, name := range names {
			if p := f.peering(name); p == nil || len(p.RemoteClusters) != count-1 {
				return false
			}
		}
		return true
	})
}

func TestMembersAreToldOfEachOther(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	p := f.peering("c1")
	if got := p.RemoteClusters[0].Networks.PodCIDRs; len(got) != 1 || got[0] != "10.2.0.0/16" {
		t.Errorf("c1 is told that c2 has %v", got)
	}
	f.eventually("it is recorded that c1 reads halves", func() bool { return f.member("c1").Status.ReadsParts })
	if len(p.RemoteClusters[0].Endpoints) != 1 || p.Networks.ServiceCIDRs[0] != "10.101.0.0/16" || p.Shards != 4 {
		t.Errorf("c1 is told %+v", p)
	}
	f.eventually("the bundle goes to both", func() bool { return f.spread() == "c1,c2" })
	one, two := facts(1), facts(2)
	one.Connections = []v1alpha1.MemberConnection{{Cluster: "c2", Status: v1alpha1.ConnectionConnected}}
	two.Connections = []v1alpha1.MemberConnection{{Cluster: "c1", Status: v1alpha1.ConnectionConnected}}
	f.report("c1", one)
	f.report("c2", two)
	f.eventually("the ClusterSet is connected and ready", func() bool {
		var set v1alpha1.ClusterSet
		f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set))
		return condition(set.Status.Conditions, v1alpha1.ClusterSetConnected) == "True/Connected" &&
			condition(set.Status.Conditions, v1alpha1.ClusterSetReady) == "True/Ready"
	})
}

func TestOneChangeIsOneWritePerAffectedMember(t *testing.T) {
	f := newFleet(t)
	f.connect(3)
	f.settled()
	changed := facts(2)
	changed.Endpoints[0].Addresses[0].IP = "192.168.2.9"
	f.report("c2", changed)
	f.eventually("c3 is told", func() bool {
		p := f.peering("c3")
		return p.RemoteClusters[1].Endpoints[0].Addresses[0].IP == "192.168.2.9"
	})
	got := f.counted()
	f.never("Works are written that nobody needs", func() bool { return len(f.counted()) > 0 })
	if fmt.Sprint(got) != "map[c1 PUT:1 c3 PUT:1]" {
		t.Errorf("writes of Works: %v", got)
	}
	connected := facts(2)
	connected.Endpoints = changed.Endpoints
	connected.Connections = []v1alpha1.MemberConnection{{Cluster: "c1", Status: v1alpha1.ConnectionConnected}}
	f.report("c2", connected)
	f.eventually("the record says connected", func() bool { return len(f.member("c2").Status.Connections) == 1 })
	if got := f.counted(); len(got) > 0 {
		t.Errorf("a connection costs Works: %v", got)
	}
}

func TestUnknownIsNeverEmpty(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.settled()
	f.silence("c2")
	var work workv1alpha1.Work
	f.must(f.client.Get(t.Context(), propagation.PeeringKey("c2"), &work))
	before := f.peering("c2").Revision
	f.must(f.client.Delete(t.Context(), &work))
	f.eventually("the Work of c2 is back with a new revision", func() bool {
		p := f.peering("c2")
		return p != nil && p.Revision > before
	})
	f.never("c1 loses c2", func() bool { return f.remotes("c1") != "c2" })
	f.eventually("c2 is not reported", func() bool {
		return condition(f.member("c2").Status.Conditions, v1alpha1.MemberReported) == "False/Unknown"
	})

	f.stop()
	f.start()
	f.never("c1 loses c2 when the controller restarts", func() bool {
		return f.remotes("c1") != "c2" ||
			f.remotes("c2") != "c1"
	})
	f.report("c2", facts(2))
	f.eventually("c2 is reported", func() bool {
		return condition(f.member("c2").Status.Conditions, v1alpha1.MemberReported) == "True/Reported"
	})
}

func TestAReportOfAnOlderRevisionIsUnknown(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.settled()
	f.mu.Lock()
	f.raw["c2"] = []byte(`{"networks":{},"observedRevision":1}`)
	f.mu.Unlock()
	f.never("c1 loses c2", func() bool { return f.remotes("c1") != "c2" })
}

func TestRestartChangesNothing(t *testing.T) {
	f := newFleet(t)
	f.connect(3)
	f.settled()
	f.stop()
	f.counted()
	f.start()
	f.never("a restart writes Works", func() bool { return len(f.counted()) > 0 })
}

func TestOverlapRefusesTheNewcomer(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	late := facts(3)
	late.Networks.PodCIDRs = []string{"10.1.128.0/17"}
	f.report("c3", late)
	f.karmadaJoin("c3")
	f.choose("blue", "c1", "c2", "c3")
	f.eventually("c3 is refused", func() bool { return f.accepted("c3") == "False/CIDROverlap" })
	f.eventually("c1 is told", func() bool {
		c := meta.FindStatusCondition(f.member("c1").Status.Conditions, v1alpha1.MemberAccepted)
		return c.Status == "True" && strings.Contains(c.Message, "c3") && strings.Contains(c.Message, "10.1.128.0/17")
	})
	f.eventually("the ClusterSet names both", func() bool {
		var set v1alpha1.ClusterSet
		f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set))
		c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ClusterSetReady)
		return c.Status == "False" && strings.Contains(c.Message, "c1") && strings.Contains(c.Message, "c3") &&
			strings.Contains(c.Message, "10.1.0.0/16") && strings.Contains(c.Message, "10.1.128.0/17")
	})
	f.never("somebody is told of c3, or loses a peer", func() bool {
		return f.remotes("c1") != "c2" || f.remotes("c2") != "c1" || f.remotes("c3") != ""
	})
	f.eventually("c3 is told why", func() bool {
		return condition(f.peering("c3").Conditions, v1alpha1.MemberAccepted) == "False/CIDROverlap"
	})
	f.report("c3", facts(3))
	f.eventually("c3 is accepted once it has other networks", func() bool {
		return f.remotes("c1") == "c2,c3" &&
			f.accepted("c3") == "True/Accepted"
	})
	f.eventually("c1 is told that it is over", func() bool {
		return !strings.Contains(meta.FindStatusCondition(f.member("c1").Status.Conditions, v1alpha1.MemberAccepted).Message,
			"c3")
	})
}

func TestHostileReportsChangeNothing(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	with := func(change func(*v1alpha1.PeeringStatus)) v1alpha1.PeeringStatus {
		s := facts(2)
		change(&s)
		return s
	}
	for name, status := range map[string]v1alpha1.PeeringStatus{
		"default route":  with(func(s *v1alpha1.PeeringStatus) { s.Networks.PodCIDRs = []string{"0.0.0.0/0"} }),
		"half of it":     with(func(s *v1alpha1.PeeringStatus) { s.Networks.PodCIDRs = []string{"128.0.0.0/1"} }),
		"loopback":       with(func(s *v1alpha1.PeeringStatus) { s.Networks.PodCIDRs = []string{"127.0.0.0/16"} }),
		"a node of c1":   with(func(s *v1alpha1.PeeringStatus) { s.Networks.PodCIDRs = []string{"192.168.1.0/24"} }),
		"the pods of c1": with(func(s *v1alpha1.PeeringStatus) { s.Networks.PodCIDRs = []string{"10.1.0.0/16"} }),
		"nothing":        with(func(s *v1alpha1.PeeringStatus) { s.Networks = v1alpha1.Networks{} }),
		"malformed key":  with(func(s *v1alpha1.PeeringStatus) { s.Endpoints[0].PublicKey = "not a key" }),
		"the key of c1": with(func(s *v1alpha1.PeeringStatus) {
			s.Endpoints[0].PublicKey = facts(
				1).Endpoints[0].PublicKey
		}),
		"a pod of c1":   with(func(s *v1alpha1.PeeringStatus) { s.Endpoints[0].Addresses[0].IP = "10.1.0.5" }),
		"bad address":   with(func(s *v1alpha1.PeeringStatus) { s.Endpoints[0].Addresses[0].IP = "1.2.3.4; reboot" }),
		"loopback addr": with(func(s *v1alpha1.PeeringStatus) { s.Endpoints[0].Addresses[0].IP = "127.0.0.1" }),
	} {
		t.Run(name, func(t *testing.T) {
			f.report("c2", facts(2))
			f.eventually("no problem is left", func() bool { return len(f.problems()) == 0 })
			want := fmt.Sprint(f.peering("c1").RemoteClusters)
			f.report("c2", status)
			f.eventually("a problem names c2", func() bool { return strings.Contains(f.problems(), "c2") })
			if got := fmt.Sprint(f.peering("c1").RemoteClusters); got != want {
				t.Errorf("c1 is told %s, was told %s", got, want)
			}
		})
	}
}

// problems of the ClusterSet blue, as one text.
func (f *fleet) problems() string {
	var set v1alpha1.ClusterSet
	f.must(f.client.Get(f.t.Context(), client.ObjectKey{Name: "blue"}, &set))
	var b strings.Builder
	for _, p := range set.Status.Problems {
		fmt.Fprintln(&b, p.Cluster, p.Reason, p.Message)
	}
	return b.String()
}

func TestAStatusThatIsTooLargeOrBroken(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	for name, raw := range map[string]string{
		"too large": `{"agentVersion":"` + strings.Repeat("x", 1<<20) + `","observedRevision":99}`,
		"broken":    `{"networks":"all of them","observedRevision":99}`,
	} {
		t.Run(name, func(t *testing.T) {
			f.mu.Lock()
			f.raw["c2"] = []byte(raw)
			f.mu.Unlock()
			f.eventually("a problem names c2", func() bool { return strings.Contains(f.problems(), "c2") })
			f.never("c1 loses c2", func() bool { return f.remotes("c1") != "c2" })
			f.mu.Lock()
			delete(f.raw, "c2")
			f.mu.Unlock()
			f.eventually("the problem is gone", func() bool { return f.problems() == "" })
		})
	}
}

func TestAReportOnExportsThatIsTooLargeOrBroken(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	web := export("sample", "web", "10.102.0.7", "10.2.0.7")
	f.export("c2", web)
	f.eventually("c1 imports web", func() bool { return f.imported("c1", "web") != nil })
	for name, raw := range map[string]string{
		"too large": `{"x":"` + strings.Repeat("x", 1<<20) + `","observedRevision":99}`,
		"broken":    `{"exports":"all of them","observedRevision":99}`,
	} {
		t.Run(name, func(t *testing.T) {
			f.mu.Lock()
			f.rawBundle["c2"] = []byte(raw)
			f.mu.Unlock()
			f.eventually("a problem names c2", func() bool {
				return strings.Contains(f.problems(), "the report of cluster c2 on its exports is not used")
			})
			f.never("c1 loses the import", func() bool { return f.imported("c1", "web") == nil })
			f.mu.Lock()
			delete(f.rawBundle, "c2")
			f.mu.Unlock()
			f.eventually("the problem is gone", func() bool { return f.problems() == "" })
		})
	}
	f.mu.Lock()
	data, err := json.Marshal(web)
	f.must(err)
	f.rawBundle["c2"] = fmt.Appendf(nil, `{"observedRevision":999,"exports":[{"name":1},%s]}`, data)
	f.mu.Unlock()
	f.never("one export that cannot be decoded takes another along", func() bool { return f.imported("c1", "web") == nil })
}

func TestOfTwoClusterSetsTheOlderWins(t *testing.T) {
	f := newFleet(t)
	f.connect(1)
	f.set("red", "c1")
	f.eventually("the newer says so", func() bool {
		var set v1alpha1.ClusterSet
		f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "red"}, &set))
		return len(set.Status.Problems) == 1 && set.Status.Problems[0].Reason == "SelectedElsewhere" &&
			strings.Contains(set.Status.Problems[0].Message, "blue")
	})
	if m := f.member("c1"); m.Spec.ClusterSet != "blue" || m.Spec.Phase != v1alpha1.MemberActive {
		t.Errorf("c1 is now %+v", m.Spec)
	}
}

func TestLeaveIsAMessageWithAnAnswer(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.choose("blue", "c1")
	f.eventually("c2 is told to leave and c1 releases it", func() bool {
		p := f.peering("c2")
		return p.Phase == v1alpha1.MemberLeaving && f.remotes("c1") == ""
	})
	f.never("the Works go before the answer", func() bool { return f.peering("c2") == nil || f.member("c2") == nil })
	cleaned := facts(2)
	cleaned.Cleaned = true
	f.report("c2", cleaned)
	f.eventually("Works and Member are gone", func() bool { return f.peering("c2") == nil && f.member("c2") == nil })
	if got := f.spread(); got != "c1" {
		t.Errorf("the bundle goes to %s", got)
	}
	f.report("c2", facts(2))
	f.choose("blue", "c1", "c2")
	f.eventually("c2 is back", func() bool { return f.remotes("c1") == "c2" && f.remotes("c2") == "c1" })
}

func TestForcedLeaveAsksNobody(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.silence("c2")
	f.choose("blue", "c1")
	f.eventually("c2 is leaving", func() bool { return f.member("c2").Spec.Phase == v1alpha1.MemberLeaving })
	m := f.member("c2")
	before := m.DeepCopy()
	m.Annotations = map[string]string{v1alpha1.AnnotationForceLeave: "true"}
	f.must(f.client.Patch(t.Context(), m, client.MergeFrom(before)))
	f.eventually("Works and Member are gone", func() bool { return f.peering("c2") == nil && f.member("c2") == nil })
}

func TestUnjoinDropsTheRecord(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.silence("c2")
	f.must(f.client.Delete(t.Context(), f.cluster("c2")))
	f.eventually("c1 releases c2 and its record is gone", func() bool {
		return f.remotes("c1") == "" &&
			f.member("c2") == nil
	})
}

func TestAnotherClusterUnderTheSameName(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	old := f.member("c2")
	f.silence("c2")
	c := f.cluster("c2")
	c.Spec.ID = "another"
	f.must(f.client.Update(t.Context(), c))
	f.eventually("the old record is gone and c1 has released c2", func() bool {
		m := f.member("c2")
		return m != nil && m.UID != old.UID && m.Spec.ClusterUID == "another" && f.remotes("c1") == ""
	})
	f.report("c2", facts(7))
	f.eventually("the new one is accepted", func() bool { return f.remotes("c1") == "c2" })
}

func TestDeletedClusterSetWaitsForItsMembers(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	var set v1alpha1.ClusterSet
	f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set))
	f.must(f.client.Delete(t.Context(), &set))
	f.eventually("both are told to leave", func() bool {
		return f.peering("c1").Phase == v1alpha1.MemberLeaving && f.peering("c2").Phase == v1alpha1.MemberLeaving
	})
	for n, c := range []string{"c1", "c2"} {
		cleaned := facts(n + 1)
		cleaned.Cleaned = true
		f.report(c, cleaned)
	}
	f.eventually("the ClusterSet is gone", func() bool {
		return client.IgnoreNotFound(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set)) == nil &&
			f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set) != nil
	})
	if f.member("c1") != nil || f.member("c2") != nil {
		t.Error("a Member is left")
	}
}

func TestExportsReachEveryMember(t *testing.T) {
	f := newFleet(t)
	f.connect(3)
	f.settled()
	f.export("c2", export("sample", "web", "10.102.0.7", "10.2.0.7"))
	f.eventually("c1 imports it", func() bool {
		b := f.bundle("c1", "sample", "web")
		return b != nil && len(b.Imports) == 1 && b.Imports[0].Clusters[0].Backends[0].Addresses[0].IP == "10.2.0.7"
	})
	f.eventually("c2's export is ready", func() bool {
		b := f.bundle("c2", "sample", "web")
		return b != nil && len(b.ExportConditions) == 2
	})
	f.settled()
	f.silence("c2")
	var work workv1alpha1.Work
	f.must(f.client.Get(t.Context(), propagation.BundleKey("c2", v1alpha1.Shard("sample", "web", 4)), &work))
	f.must(f.client.Delete(t.Context(), &work))
	gone := func() bool { b := f.bundle("c1", "sample", "web"); return b == nil || len(b.Imports) != 1 }
	f.never("the import is lost with the Work", gone)
	f.stop()
	f.start()
	f.never("the import is lost with the restart", gone)
	f.export("c2")
	f.report("c2", facts(2))
	f.eventually("the import goes with the export", gone)
}

// export of a service with one port, one ClusterIP and one ready pod.
func export(namespace, name, clusterIP, pod string) v1alpha1.Export {
	return v1alpha1.Export{
		Namespace: namespace, Name: name, CreatedAt: metav1.Unix(1700000000, 0),
		Settings: v1alpha1.ServiceSettings{
			Type:            v1alpha1.ClusterSetIP,
			Ports:           []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			SessionAffinity: corev1.ServiceAffinityNone,
			IPFamilies:      []corev1.IPFamily{corev1.IPv4Protocol},
		},
		ClusterIPs: []string{clusterIP},
		Backends: []v1alpha1.Backends{{
			Ports:     []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}},
			Addresses: []v1alpha1.Backend{{IP: pod, Ready: true, Serving: true}},
		}},
	}
}
