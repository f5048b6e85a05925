// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
)

// walk is a sequence of decisions: what was decided is what the next sees.
type walk struct {
	in Input
	d  Decision
}

func newWalk(members ...Member) *walk {
	w := &walk{in: Input{Now: time.Unix(1e9, 0), Members: members}}
	w.in.Set.Name, w.in.Set.Spec.Shards = "blue", 4
	return w
}

// step decides and returns the clusters whose Peering is written.
func (w *walk) step() string {
	w.d = Decide(w.in)
	w.in.Now = w.in.Now.Add(time.Minute)
	var wrote []string
	for i := range w.in.Members {
		m := &w.in.Members[i]
		if spec, ok := w.d.Peerings[m.Record.Name]; ok {
			wrote = append(wrote, m.Record.Name)
			m.Sent = spec.DeepCopy()
			if m.Report.Known {
				m.Report.Status.ObservedRevision = spec.Revision
				if m.Report.Status.Relays != "" {
					m.Report.Status.Relays = v1alpha1.DigestOfRelays(spec.Relays)
				}
			}
		}
		m.Record.Status = w.d.Statuses[m.Record.Name]
		m.Refresh = false
	}
	w.in.Set.Status = w.d.Set
	return strings.Join(wrote, ",")
}

func (w *walk) member(name string) *Member {
	for i := range w.in.Members {
		if w.in.Members[i].Record.Name == name {
			return &w.in.Members[i]
		}
	}
	return nil
}

// silence makes a member's report unknown, until what it returns is called.
func (w *walk) silence(name string) (end func()) {
	m := w.member(name)
	report := m.Report
	m.Report = Report{}
	return func() {
		m.Report = report
		m.Report.Status.ObservedRevision = m.Sent.Revision
	}
}

// accepted renders the members' Accepted conditions.
func (w *walk) accepted() string {
	var out []string
	for _, m := range w.in.Members {
		c := meta.FindStatusCondition(m.Record.Status.Conditions, v1alpha1.MemberAccepted)
		if c == nil {
			c = &metav1.Condition{}
		}
		out = append(out, fmt.Sprintf("%s=%s/%s", m.Record.Name, c.Status, c.Reason))
	}
	return strings.Join(out, " ")
}

func (w *walk) remotes(name string) string {
	var out []string
	for _, r := range w.member(name).Sent.RemoteClusters {
		out = append(out, fmt.Sprintf("%s:%s:%d", r.Name, strings.Join(r.Networks.PodCIDRs, "+"), len(r.Endpoints)))
	}
	return strings.Join(out, " ")
}

func (w *walk) expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestNothingNewIsWrittenTwice(t *testing.T) {
	w := newWalk(known(1), known(2), known(3))
	w.expect(t, "first", w.step(), "c1,c2,c3")
	w.expect(t, "again", w.step(), "")
	w.expect(t, "c1 is told of", w.remotes("c1"), "c2:10.2.0.0/16:1 c3:10.3.0.0/16:1")
	w.member("c2").Report.Status.Endpoints = nil
	w.expect(t, "the gateway of c2 is gone", w.step(), "c1,c3")
	w.expect(t, "c1 is told of", w.remotes("c1"), "c2:10.2.0.0/16:0 c3:10.3.0.0/16:1")
	w.member("c3").Refresh = true
	w.expect(t, "c3 has not answered", w.step(), "c3")
}

func TestUnknownKeepsTheLastGood(t *testing.T) {
	w := newWalk(known(1), known(2))
	w.says("c2", "c1=Connected")
	w.step()
	w.step()
	answered := w.d.Statuses["c2"].ObservedRevision
	isReported := func() bool {
		return meta.IsStatusConditionTrue(w.d.Statuses["c2"].Conditions, v1alpha1.MemberReported)
	}
	if !isReported() {
		t.Error("Reported is not True while it reports")
	}
	w.silence("c2")
	w.expect(t, "c2 is unknown", w.step(), "")
	if got := w.d.Statuses["c2"].ObservedRevision; got != answered || got == 0 {
		t.Errorf("the newest revision answered is %d, and was %d", got, answered)
	}
	if isReported() {
		t.Error("Reported is True without a report")
	}
	if got := w.d.Statuses["c2"].Connections; len(got) != 1 || got[0].Status != v1alpha1.ConnectionUnknown {
		t.Errorf("connections %+v", got)
	}
	w.member("c2").Sent = nil
	w.expect(t, "its Work is gone", w.step(), "c2")
	if w.member("c2").Sent.Revision != 2 {
		t.Errorf("revision %d", w.member("c2").Sent.Revision)
	}
	w.expect(t, "c1 is told of", w.remotes("c1"), "c2:10.2.0.0/16:1")
}

func TestNobodyIsToldBeforeItsCRDsAreThere(t *testing.T) {
	late := known(2)
	late.Writable, late.Report = false, Report{}
	w := newWalk(known(1), late)
	w.expect(t, "only c1", w.step(), "c1")
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=False/WaitingForFacts")
	w.member("c2").Writable = true
	w.expect(t, "then c2", w.step(), "c2")
}

func TestFirstComeFirstServed(t *testing.T) {
	claim := func(m Member, pods ...string) Member {
		m.Report.Status.Networks.PodCIDRs = pods
		return m
	}
	t.Run("the newcomer is refused", func(t *testing.T) {
		w := newWalk(known(1), known(2))
		w.step()
		w.in.Members = append(w.in.Members, claim(known(3), "10.2.0.0/24"))
		w.expect(t, "c2 and c3 are told why", w.step(), "c2,c3")
		w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=True/Accepted c3=False/CIDROverlap")
		w.expect(t, "c1 is told of", w.remotes("c1"), "c2:10.2.0.0/16:1")
		w.expect(t, "c3 is told of", w.remotes("c3"), "")
	})
	t.Run("a member cannot grow into another, however old it is", func(t *testing.T) {
		w := newWalk(known(1), known(2))
		w.step()
		w.in.Members[0] = func(m Member) Member { m.Report.Status.Networks.PodCIDRs = []string{"10.0.0.0/14"}; return m }(
			w.in.Members[0])
		w.step()
		w.expect(t, "accepted", w.accepted(), "c1=True/KeptLastGood c2=True/Accepted")
		w.expect(t, "c2 is told of", w.remotes("c2"), "c1:10.1.0.0/16:1")
	})
	t.Run("of two newcomers the older comes first, and the other follows it when it leaves", func(t *testing.T) {
		w := newWalk(claim(known(2), "10.9.0.0/16"), claim(known(1), "10.9.0.0/16"))
		w.step()
		w.expect(t, "accepted", w.accepted(), "c2=False/CIDROverlap c1=True/Accepted")
		w.member("c1").Record.Spec.Phase = v1alpha1.MemberLeaving
		w.step()
		w.expect(t, "accepted", w.accepted(), "c2=True/Accepted c1=True/Accepted")
		w.member("c1").Record.Spec.Phase = v1alpha1.MemberActive
		w.step()
		w.expect(t, "c1 is back too late", w.accepted(), "c2=True/Accepted c1=False/CIDROverlap")
	})
	t.Run("of two records that overlap, as from a backup, the later counts as not accepted", func(t *testing.T) {
		w := newWalk(known(1), known(2))
		w.step()
		w.member("c2").Record.Status.Networks.PodCIDRs = []string{"10.1.9.0/24"}
		w.member("c2").Report = Report{}
		w.step()
		w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=False/WaitingForFacts")
	})
	t.Run("what an earlier version accepted is left out, and the rest stays", func(t *testing.T) {
		w := newWalk(known(1), known(2))
		w.step()
		c2 := w.member("c2")
		c2.Record.Status.Networks.PodCIDRs = append(c2.Record.Status.Networks.PodCIDRs, "240.0.0.0/8")
		c2.Record.Status.NodeCIDRs = append(c2.Record.Status.NodeCIDRs, "172.20.0.0/16")
		c2.Report = Report{}
		w.step()
		w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=True/Accepted")
		w.expect(t, "c1 is told of", w.remotes("c1"), "c2:10.2.0.0/16:1")
	})
	t.Run("node addresses cannot be claimed, nor lie in another's networks", func(t *testing.T) {
		inside := known(3)
		inside.Report.Status.NodeCIDRs = []string{"10.1.0.9/32"}
		w := newWalk(known(1), claim(known(2), "192.168.1.0/24"), inside)
		w.step()
		w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=False/CIDROverlap c3=False/CIDROverlap")
	})
	t.Run("its own networks must not overlap", func(t *testing.T) {
		w := newWalk(claim(known(1), "10.101.0.0/24"))
		w.step()
		w.expect(t, "accepted", w.accepted(), "c1=False/InvalidNetworks")
	})
}

func TestLeavingIsReleasedAtOnce(t *testing.T) {
	w := newWalk(known(1), known(2), known(3))
	w.step()
	w.member("c2").Record.Spec.Phase = v1alpha1.MemberLeaving
	w.expect(t, "all are told", w.step(), "c1,c2,c3")
	w.expect(t, "c1 is told of", w.remotes("c1"), "c3:10.3.0.0/16:1")
	w.expect(t, "c2 is told of", w.remotes("c2"), "")
	w.member("c2").Record.Spec.Phase = v1alpha1.MemberActive
	w.step()
	w.expect(t, "c1 is told of", w.remotes("c1"), "c2:10.2.0.0/16:1 c3:10.3.0.0/16:1")
}

// What a leaving member's Work was deleted for decides whether it is written again.
func TestWhoIsReleasedIsNotWrittenTo(t *testing.T) {
	w := newWalk(known(1), known(2))
	w.step()
	c2 := w.member("c2")
	c2.Report.Status.Cleaned = true
	w.step()
	if fleet.Released(&c2.Record) {
		t.Error("clean without having been told to leave")
	}
	c2.Report.Status.Cleaned = false
	c2.Record.Spec.Phase = v1alpha1.MemberLeaving
	w.expect(t, "it is told to leave", w.step(), "c1,c2")
	c2.Sent = nil
	w.expect(t, "somebody deleted its Work", w.step(), "c2")
	c2.Report.Status.Cleaned, c2.Report.Status.ObservedRevision = true, c2.Sent.Revision-1
	w.step()
	if fleet.Released(&c2.Record) {
		t.Error("clean before it was told")
	}
	c2.Report.Status.ObservedRevision = c2.Sent.Revision
	w.step()
	if !fleet.Released(&c2.Record) {
		t.Errorf("not released: %+v", c2.Record.Status.Conditions)
	}
	c2.Sent, c2.Report = nil, Report{}
	w.expect(t, "its Work was withdrawn", w.step(), "")
	c2.Record.Spec.Phase = v1alpha1.MemberActive
	w.expect(t, "it is selected again", w.step(), "c2")
	c2.Report = Report{Known: true, Status: reported(2)}
	c2.Report.Status.ObservedRevision = c2.Sent.Revision
	w.expect(t, "it reports again", w.step(), "c1,c2")
	if meta.FindStatusCondition(c2.Record.Status.Conditions, v1alpha1.MemberCleaned) != nil {
		t.Error("still called clean")
	}
}

func TestWhatAMemberSaysIsWrongIsAProblem(t *testing.T) {
	w := newWalk(known(1), known(2))
	w.says("c1", "c2=Connected")
	w.says("c2", "c1=Connected")
	w.step()
	say := func(kind, reason string) {
		w.member("c2").Report.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionFalse,
			Reason: reason, Message: "1 of 2 \xff"}}
		w.step()
	}
	for _, x := range []struct {
		kind, reason string
		want         string
		ready        bool
	}{
		{v1alpha1.PeeringNodesProgrammed, v1alpha1.ReasonProgrammingFailed, "c2 reports: 1 of 2 ?", false},
		{v1alpha1.PeeringNodesProgrammed, "Programming", "", true},
		{v1alpha1.PeeringAgentsRunning, v1alpha1.ReasonAgentsFailing, "c2 reports: 1 of 2 ?", false},
		{v1alpha1.PeeringAgentsRunning, "Starting", "", true},
		{v1alpha1.PeeringGatewaysReady, v1alpha1.ReasonNoIPsecContainer, "c2 reports: 1 of 2 ?", false},
		{v1alpha1.PeeringDNSConfigured, v1alpha1.ReasonDomainTaken, "c2 reports: 1 of 2 ?", false},
		{v1alpha1.PeeringExportsAccepted, v1alpha1.ReasonExportsRefused, "c2 reports: 1 of 2 ?", true},
		{v1alpha1.PeeringImportsApplied, v1alpha1.ReasonNameTaken, "c2 reports: 1 of 2 ?", true},
		{v1alpha1.PeeringImportsApplied, v1alpha1.ReasonImportRefused, "c2 reports: 1 of 2 ?", true},
		{v1alpha1.PeeringImportsApplied, "NamespaceMissing", "", true},
		{v1alpha1.PeeringNetworksAccepted, v1alpha1.ReasonNetworksRefused, "c2 reports: 1 of 2 ?", false},
		{v1alpha1.PeeringNetworksAccepted, "Accepted", "", true},
		{v1alpha1.MemberAccepted, v1alpha1.ReasonCIDROverlap, "", true},
	} {
		say(x.kind, x.reason)
		var got []string
		for _, p := range w.d.Set.Problems {
			got = append(got, p.Message)
		}
		ready := meta.IsStatusConditionTrue(w.d.Set.Conditions, v1alpha1.ClusterSetReady)
		if strings.Join(got, ";") != x.want || ready != x.ready {
			t.Errorf("%s %s: problems %q, ready %v; want %q and %v", x.kind, x.reason, got, ready, x.want, x.ready)
		}
	}
	for _, kind := range []string{v1alpha1.PeeringNodesProgrammed, v1alpha1.PeeringAgentsRunning,
		v1alpha1.PeeringNetworksAccepted} {
		c := meta.FindStatusCondition(w.d.Statuses["c2"].Conditions, kind)
		if c == nil || c.Status != metav1.ConditionFalse || c.Message != "1 of 2 ?" {
			t.Errorf("the record says %+v of %s", c, kind)
		}
	}
}

func TestInvalidSettingsAreNotPutIntoForce(t *testing.T) {
	w := newWalk(known(1), known(2))
	w.in.Set.Spec.Cable.Port = 4500
	w.step()
	w.in.Set.Spec.Cable.Port = 4501
	w.in.Problems = []v1alpha1.Problem{{Reason: v1alpha1.ReasonInvalidSettings, Message: "no"}}
	w.expect(t, "nobody is told", w.step(), "")
	w.expect(t, "nor later", w.step(), "")
	if c := meta.FindStatusCondition(w.d.Set.Conditions, v1alpha1.ClusterSetReady); c.Status != "False" ||
		c.Reason != v1alpha1.ReasonInvalidSettings {
		t.Errorf("condition %+v", c)
	}
	w.member("c2").Report.Status.Endpoints = nil
	w.expect(t, "the rest goes on", w.step(), "c1")
	if got := w.member("c1").Sent.Cable.Port; got != 4500 {
		t.Errorf("port %d", got)
	}
	w.in.Problems = nil
	w.expect(t, "valid again", w.step(), "c1,c2")
}

// TestAClusterSetWithoutMembersIsNotReady, whether nothing is selected or it is being deleted.
func TestAClusterSetWithoutMembersIsNotReady(t *testing.T) {
	w := newWalk()
	w.step()
	w.expect(t, "nothing is selected", w.conditions(), "Ready=False/NoMembers Connected=False/NoMembers")
	w = newWalk(known(1), known(2))
	w.says("c1", "c2=Connected")
	w.says("c2", "c1=Connected")
	w.step()
	w.expect(t, "two", w.conditions(), "Ready=True/Ready Connected=True/Connected c1=True c2=True")
	w.member("c1").Record.Spec.Phase, w.member("c2").Record.Spec.Phase = v1alpha1.MemberLeaving, v1alpha1.MemberLeaving
	w.step()
	w.expect(t, "they leave", w.conditions(), "Ready=False/NoMembers Connected=False/NoMembers c1=False c2=False")
	w.in.Set.DeletionTimestamp = ptr.To(metav1.NewTime(w.in.Now))
	w.step()
	w.expect(t, "being deleted", w.conditions(), "Ready=False/Deleting Connected=False/Deleting c1=False c2=False")
	w.in.Set.DeletionTimestamp = nil
	w.in.Joining = []string{"c3"}
	w.step()
	w.expect(t, "one joins", w.conditions(), "Ready=False/WaitingForFacts Connected=False/NotConnected c1=False c2=False")
}

func TestClusterSetStatus(t *testing.T) {
	w := newWalk(known(1), known(2))
	w.step()
	if w.d.Set.Members != 2 || w.d.Set.AcceptedMembers != 2 || w.d.Set.ConnectedMembers != 0 {
		t.Errorf("status %+v", w.d.Set)
	}
	w.in.Joining = []string{"c3"}
	w.step()
	if c := meta.FindStatusCondition(w.d.Set.Conditions, v1alpha1.ClusterSetReady); w.d.Set.Members != 3 ||
		c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "c3") {
		t.Errorf("with a newcomer: %+v", w.d.Set)
	}
	w.in.Joining = nil
	connect := func(from, to string) {
		w.member(from).Report.Status.Connections = []v1alpha1.MemberConnection{
			{Cluster: to, Status: v1alpha1.ConnectionConnected}, {Cluster: "unlisted", Status: v1alpha1.ConnectionConnected},
			{Cluster: to, Status: "Nonsense"}}
	}
	connect("c1", "c2")
	connect("c2", "c1")
	w.expect(t, "connections cost no Peering", w.step(), "")
	if !meta.IsStatusConditionTrue(w.d.Set.Conditions, v1alpha1.ClusterSetConnected) ||
		!meta.IsStatusConditionTrue(w.d.Set.Conditions, v1alpha1.ClusterSetReady) {
		t.Errorf("conditions %+v", w.d.Set.Conditions)
	}
	if got := w.d.Statuses["c1"].Connections; len(got) != 1 || got[0].Cluster != "c2" {
		t.Errorf("connections %+v", got)
	}
}

// large is a fleet at rest, of which every cluster is connected to every other.
func large(t testing.TB, count int) *walk {
	t.Helper()
	var members []Member
	for n := range count {
		m := known(1)
		m.Record.Name = fmt.Sprintf("c%03d", n)
		s := &m.Report.Status
		s.Networks = v1alpha1.Networks{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", n)},
			ServiceCIDRs: []string{fmt.Sprintf("172.%d.%d.0/24", 16+n/16, n%16)}}
		address := fmt.Sprintf("192.168.%d.1", n)
		s.NodeCIDRs, s.Endpoints[0].PublicKey = []string{address + "/32"}, key(byte(n))
		s.Endpoints[0].Addresses = []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: address}}
		for other := range count {
			if other != n {
				s.Connections = append(s.Connections, v1alpha1.MemberConnection{Cluster: fmt.Sprintf("c%03d", other),
					Status: v1alpha1.ConnectionConnected, LastTransitionTime: ptr.To(metav1.Unix(1e9, 0))})
			}
		}
		members = append(members, m)
	}
	w := newWalk(members...)
	for range 2 {
		w.step()
	}
	if n := int(w.d.Set.ConnectedPairs); n != count*(count-1)/2 {
		t.Fatalf("%d pairs of %d clusters are connected: %.300v", n, count, w.d.Set.Problems)
	}
	return w
}

func BenchmarkDecide(b *testing.B) {
	for _, count := range []int{10, 100, 200} {
		b.Run(fmt.Sprintf("clusters=%d", count), func(b *testing.B) {
			w := large(b, count)
			b.ReportAllocs()
			for b.Loop() {
				Decide(w.in)
			}
		})
	}
}

// TestMembersAreToldToReplaceTheirKeys by age and by request, and of the keys that others are about to have.
func TestMembersAreToldToReplaceTheirKeys(t *testing.T) {
	w := newWalk(known(1), known(2), known(3))
	w.step()
	w.in.Set.Spec.Keys.MaxAgeDays = 90
	w.expect(t, "by age", w.step(), "c1,c2,c3")
	w.member("c2").Record.Annotations = map[string]string{v1alpha1.AnnotationRotateKeys: "2026-11-22T12:00:00+01:00"}
	w.expect(t, "by request", w.step(), "c2")
	keys := w.member("c2").Sent.Keys
	if keys.MaxAgeDays != 90 || keys.NotBefore == nil ||
		keys.NotBefore.UTC().Format(time.RFC3339) != "2026-11-22T11:00:00Z" {
		t.Errorf("c2 is told %+v", keys)
	}
	w.expect(t, "again", w.step(), "")
	w.member("c2").Record.Annotations[v1alpha1.AnnotationRotateKeys] = "tomorrow"
	w.expect(t, "a request that is no time", w.step(), "c2")
	if keys := w.member("c2").Sent.Keys; keys.NotBefore != nil {
		t.Errorf("c2 is told %+v", keys)
	}

	next := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{77}, 32))
	w.member("c1").Report.Status.Endpoints[0].NextPublicKey = next
	w.expect(t, "the next key", w.step(), "c2,c3")
	if got := w.member("c3").Sent.RemoteClusters[0].Endpoints[0].NextPublicKey; got != next {
		t.Errorf("c3 is told of the next key %q, want %q", got, next)
	}
	w.member("c2").Report.Status.Endpoints[0].NextPublicKey = next
	w.expect(t, "a next key that is another cluster's", w.step(), "")
}
