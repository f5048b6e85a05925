// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/reach"
	"github.com/sealane-io/sealane/memberagent/cluster/discovery"
)

// now is the time of every report, unless a test says otherwise.
var now = time.Unix(1e9, 0)

// reportedAgo is a Gateway whose last report has an age.
func reportedAgo(g v1alpha1.Gateway, age time.Duration) v1alpha1.Gateway {
	at := metav1.NewTime(now.Add(-age))
	g.Status.ReportedAt = &at
	return g
}

// silent is a Gateway whose agent is heard of no more.
func silent(g v1alpha1.Gateway) v1alpha1.Gateway {
	since := metav1.NewTime(now)
	g.Status.SilentSince = &since
	return g
}

func gateway(name string, slot int32, state v1alpha1.HAState, status v1alpha1.ConnectionStatus) v1alpha1.Gateway {
	reported := metav1.NewTime(now)
	g := v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.GatewaySpec{Slot: slot}}
	g.Status = v1alpha1.GatewayStatus{
		HAState: state, ReportedAt: &reported,
		Endpoint: &v1alpha1.Endpoint{Gateway: "another", Slot: 9, PublicKey: "key-of-" + name},
	}
	if status != "" {
		g.Status.Connections = []v1alpha1.Connection{{Cluster: "c2", Status: status}}
		if status == v1alpha1.ConnectionError {
			g.Status.Connections[0].Reason = v1alpha1.ReasonProbesLost
		}
	}
	return g
}

func peeringInput(gateways ...v1alpha1.Gateway) Input {
	return Input{
		Peering: &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Generation: 4}, Spec: v1alpha1.PeeringSpec{
			Revision: 5, RemoteClusters: []v1alpha1.RemoteCluster{{Name: "c3"}, {Name: "c2"}},
		}},
		Gateways:   gateways,
		Now:        now,
		NodeExists: func(name string) bool { return name != "gone" },
		DNS:        metav1.Condition{Type: v1alpha1.PeeringDNSConfigured, Status: metav1.ConditionTrue, Reason: "Configured"},
	}
}

// TestRelaysAreInForceWhereAllGatewaysSaySo that others are told of, whether they are heard of or not.
func TestRelaysAreInForceWhereAllGatewaysSaySo(t *testing.T) {
	of := func(relays string) v1alpha1.Gateway {
		g := gateway("a", 0, v1alpha1.GatewayActive, v1alpha1.ConnectionConnected)
		g.Status.Version, g.Status.Relays, g.Status.RelaysVersion = "v1.2.0", relays, "v1.2.0"
		return g
	}
	rolledBack := of("x")
	rolledBack.Status.Version = "v1.1.0"
	unpublished := of("y")
	unpublished.Status.Endpoint = nil
	gone := of("y")
	gone.Name = "gone"
	in := peeringInput()
	in.Peering.Spec.Relays = []v1alpha1.RelayedClusters{{Clusters: []string{"c2"}, With: []string{"c3"}}}
	told := v1alpha1.DigestOfRelays(in.Peering.Spec.Relays)
	for _, c := range []struct {
		name     string
		gateways []v1alpha1.Gateway
		want     string
	}{
		{"no gateway", nil, ""},
		{"one has it", []v1alpha1.Gateway{of(told)}, told},
		{"one has something else", []v1alpha1.Gateway{of("x")}, "x"},
		{"both have it", []v1alpha1.Gateway{of(told), of(told)}, told},
		{"the second has something else", []v1alpha1.Gateway{of(told), of("x")}, "x"},
		{"the first has something else", []v1alpha1.Gateway{of("x"), of(told)}, "x"},
		{"one knows nothing of relays", []v1alpha1.Gateway{of("x"), of("")}, ""},
		{"the other one", []v1alpha1.Gateway{of(""), of(told)}, ""},
		{"a silent one may carry on", []v1alpha1.Gateway{of(told), silent(of("x"))}, "x"},
		{"a silent one that has it", []v1alpha1.Gateway{of(told), silent(of(told))}, told},
		{"an older agent leaves what a later one has said", []v1alpha1.Gateway{of(told), rolledBack}, ""},
		{"others are not told of one", []v1alpha1.Gateway{of(told), unpublished, gone}, told},
	} {
		in.Gateways = c.gateways
		if got := PeeringStatus(in).Relays; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestACableThatDoesNotAnswerIsReported where one of several gateways sends by another one instead.
func TestACableThatDoesNotAnswerIsReported(t *testing.T) {
	a := gateway("a", 0, v1alpha1.GatewayActive, v1alpha1.ConnectionConnected)
	b := gateway("b", 1, v1alpha1.GatewayActive, v1alpha1.ConnectionConnected)
	b.Status.Connections[0].Reason = v1alpha1.ReasonCableSilent
	c2 := PeeringStatus(peeringInput(a, b)).Connections[0]
	if c2.Cluster != "c2" || c2.Status != v1alpha1.ConnectionConnected || c2.Reason != v1alpha1.ReasonCableSilent {
		t.Errorf("%+v, want c2 connected, with the reason of b", c2)
	}
	if c2 := PeeringStatus(peeringInput(a)).Connections[0]; c2.Reason != "" {
		t.Errorf("%+v, want no reason", c2)
	}
}

// TestAClusterBehindARelay is as its gateways say, and through which one the broker has said.
func TestAClusterBehindARelay(t *testing.T) {
	g := gateway("a", 0, v1alpha1.GatewayActive, v1alpha1.ConnectionConnected)
	behind := g.Status.Connections[0]
	behind.Cluster, behind.Through = "c3", "c2"
	behind.Status, behind.Reason = v1alpha1.ConnectionError, v1alpha1.ReasonRelayNotConnected
	g.Status.Connections = append(g.Status.Connections, behind)
	in := peeringInput(g)
	in.Peering.Spec.RemoteClusters[0].Relay = "c2"
	for _, c := range PeeringStatus(in).Connections {
		through, status := "", v1alpha1.ConnectionConnected
		if c.Cluster == "c3" {
			through, status = "c2", v1alpha1.ConnectionError
		}
		if c.Through != through || c.Status != status || c.Measured != nil && through != "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestPeeringStatus(t *testing.T) {
	active, standby := v1alpha1.GatewayActive, v1alpha1.GatewayStandby
	empty := gateway("new", 3, "", "")
	empty.Status.Endpoint = nil
	for _, c := range []struct {
		name     string
		gateways []v1alpha1.Gateway
		want     string
	}{
		{"no gateway", nil, "c2=Unknown/NoGateway c3=Unknown/NoGateway"},
		{"a gateway that has not reported yet", []v1alpha1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
			"c2=Unknown/NotReported c3=Unknown/NotReported"},
		{"its agent is silent, whatever it said", []v1alpha1.Gateway{
			silent(gateway("a", 0, active, v1alpha1.ConnectionConnected)),
		}, "a/0 c2=Unknown/AgentSilent c3=Unknown/AgentSilent"},
		{"the active one is silent, and another is not", []v1alpha1.Gateway{
			silent(gateway("a", 0, active, v1alpha1.ConnectionConnected)), gateway("b", 1, standby, v1alpha1.ConnectionError),
		}, "a/0 b/1 c2=Error/ProbesLost c3=Connecting/NotReported"},
		{"connected", []v1alpha1.Gateway{gateway("a", 0, active, v1alpha1.ConnectionConnected)},
			"a/0 c2=Connected c3=Connecting/NotReported"},
		{"its last report just counts", []v1alpha1.Gateway{
			reportedAgo(gateway("a", 0, active, v1alpha1.ConnectionConnected), reach.ReportLifetime-time.Second),
		}, "a/0 c2=Connected c3=Connecting/NotReported"},
		{"quiet for long: it stays, and what it said does not", []v1alpha1.Gateway{
			reportedAgo(gateway("a", 0, active, v1alpha1.ConnectionConnected), reach.ReportLifetime),
		}, "a/0 c2=Unknown/AgentSilent c3=Unknown/AgentSilent"},
		{"another says what the quiet one no longer can", []v1alpha1.Gateway{
			reportedAgo(gateway("a", 0, active, v1alpha1.ConnectionConnected), reach.ReportLifetime),
			gateway("b", 1, standby, v1alpha1.ConnectionError),
		}, "a/0 b/1 c2=Error/ProbesLost c3=Connecting/NotReported"},
		{"by slot", []v1alpha1.Gateway{gateway("a", 1, standby, v1alpha1.ConnectionError),
			gateway("b", 0, active, v1alpha1.ConnectionConnected), empty}, "b/0 a/1 c2=Connected c3=Connecting/NotReported"},
		{"the active one says", []v1alpha1.Gateway{gateway("a", 1, standby, v1alpha1.ConnectionConnected),
			gateway("b", 0, active, v1alpha1.ConnectionError)}, "b/0 a/1 c2=Error/ProbesLost c3=Connecting/NotReported"},
		{"its node is gone", []v1alpha1.Gateway{gateway("gone", 0, active, v1alpha1.ConnectionConnected)},
			"c2=Unknown/NoGateway c3=Unknown/NoGateway"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := peeringInput(c.gateways...)
			status := PeeringStatus(in)
			var got []string
			for _, e := range status.Endpoints {
				got = append(got, fmt.Sprintf("%s/%d", e.Gateway, e.Slot))
			}
			for _, x := range status.Connections {
				got = append(got, strings.TrimSuffix(fmt.Sprintf("%s=%s/%s", x.Cluster, x.Status, x.Reason), "/"))
			}
			if got := strings.Join(got, " "); got != c.want || status.ObservedRevision != 5 {
				t.Errorf("got %s of revision %d, want %s", got, status.ObservedRevision, c.want)
			}
			in.Peering.Status = status
			if again := PeeringStatus(in); !equality.Semantic.DeepEqual(again, status) {
				t.Errorf("not the same twice: %v and %v", again, status)
			}
		})
	}
}

func TestPeeringConditions(t *testing.T) {
	in := peeringInput()
	for i := range 12 {
		in.ImportProblems = append(in.ImportProblems, v1alpha1.ImportProblem{
			Namespace: fmt.Sprintf("ns-%02d", i), Names: []string{"web"}, Reason: v1alpha1.ReasonNamespaceMissing,
		})
	}
	in.Limited = true
	status := PeeringStatus(in)
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.PeeringImportsApplied)
	if c.Reason != "NamespaceMissing" || !strings.Contains(c.Message, "ns-09 and 2 more") || c.ObservedGeneration != 4 {
		t.Errorf("missing namespaces: %+v", c)
	}
	in.ImportProblems = append(in.ImportProblems, v1alpha1.ImportProblem{
		Namespace: "shop", Names: []string{"cart"}, Reason: v1alpha1.ReasonImportRefused, Message: "exceeded quota",
	})
	if c := meta.FindStatusCondition(PeeringStatus(in).Conditions,
		v1alpha1.PeeringImportsApplied); c.Reason != "Refused" ||
		c.Message != "shop/cart: exceeded quota" || c.Status != metav1.ConditionFalse {
		t.Errorf("refused: %+v", c)
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.MemberMCSAPI); c.Reason != "Limited" ||
		c.Status != metav1.ConditionFalse {
		t.Errorf("old API: %+v", c)
	}
	if c := meta.FindStatusCondition(status.Conditions,
		v1alpha1.PeeringNetworksDiscovered); c.Status != metav1.ConditionFalse {
		t.Errorf("no networks: %+v", c)
	}
	if c := networks(discovery.Found{Problem: "too many"}); c.Status != metav1.ConditionFalse || c.Message != "too many" {
		t.Errorf("too many networks: %+v", c)
	}
	in.Peering.Spec.Phase, in.Remaining = v1alpha1.MemberLeaving, []string{"pod x"}
	if s := PeeringStatus(in); s.Cleaned || meta.IsStatusConditionTrue(s.Conditions, v1alpha1.MemberCleaned) {
		t.Errorf("not clean yet: %+v", s)
	}
	in.Remaining = nil
	in.Peering.Status = PeeringStatus(in)
	if !in.Peering.Status.Cleaned {
		t.Error("clean")
	}
	in.Peering.Spec.Phase = v1alpha1.MemberActive
	if s := PeeringStatus(in); s.Cleaned || meta.FindStatusCondition(s.Conditions, v1alpha1.MemberCleaned) != nil {
		t.Errorf("back again: %+v", s)
	}
}

func TestPace(t *testing.T) {
	p, now := newPacer(), time.Unix(1700000000, 0)
	if w := p.wait("a", now); w != 0 {
		t.Errorf("the first write waits %s", w)
	}
	p.wrote("a", now)
	if w := p.wait("a", now.Add(30*time.Millisecond)); w != 70*time.Millisecond {
		t.Errorf("the next waits %s", w)
	}
	if w := p.wait("b", now); w != 0 {
		t.Errorf("another mailbox waits %s", w)
	}
	if w := p.wait("a", now.Add(time.Second)); w != 0 {
		t.Errorf("a later one waits %s", w)
	}
}

// TestPaceOfExports: ten in a row, and then one each second; who was quiet for ten has all of them again.
func TestPaceOfExports(t *testing.T) {
	var r Bundles
	r.pacer = newPacer()
	start := time.Unix(1700000000, 0)
	// counts the reports within a time, where there is something to tell each 10 ms.
	var last time.Time
	counts := func(name string, from time.Time, length time.Duration) (n int) {
		for now := from; now.Before(from.Add(length)); now = now.Add(10 * time.Millisecond) {
			if r.wait(name, true, now) == 0 {
				r.pacer.wrote(name, now)
				r.exports.wrote(name, now)
				last = now
				n++
			}
		}
		return n
	}
	if n := counts("a", start, 20*time.Second); n < 28 || n > 30 {
		t.Errorf("%d reports in 20 s, want 28 to 30", n)
	}
	busy := last
	if w := r.wait("a", true, busy); w <= 900*time.Millisecond || w > time.Second {
		t.Errorf("what is told of all the time waits for %s, want about a second", w)
	}
	if w := r.wait("a", false, busy); w > 100*time.Millisecond {
		t.Errorf("an answer waits for %s, want 100 ms at most", w)
	}
	if n := counts("b", busy, time.Second); n != 10 {
		t.Errorf("another Bundle has %d reports in a second, want 10", n)
	}
	if n := counts("a", busy.Add(10*time.Second), time.Second); n < 9 || n > 10 {
		t.Errorf("after a pause of 10 s %d reports in a second, want 9 or 10", n)
	}
}

// TestOnlyExports: what else is in a report does not wait for long.
func TestOnlyExports(t *testing.T) {
	before := v1alpha1.BundleStatus{ObservedRevision: 3, Exports: []v1alpha1.Export{{Namespace: "shop", Name: "web"}},
		Imports: []v1alpha1.ImportProblem{{Namespace: "blog", Reason: v1alpha1.ReasonNamespaceMissing}}}
	for what, c := range map[string]struct {
		change func(*v1alpha1.BundleStatus)
		want   bool
	}{
		"an export":              {func(s *v1alpha1.BundleStatus) { s.Exports = nil }, true},
		"what is left out":       {func(s *v1alpha1.BundleStatus) { s.LeftOut = 3 }, true},
		"an answer":              {func(s *v1alpha1.BundleStatus) { s.ObservedRevision++ }, false},
		"an answer and a export": {func(s *v1alpha1.BundleStatus) { s.ObservedRevision++; s.Exports = nil }, false},
		"a namespace that exists": {func(s *v1alpha1.BundleStatus) {
			s.Imports, s.Exports = nil, nil
		}, false},
	} {
		after := *before.DeepCopy()
		c.change(&after)
		if got := onlyExports(before, after); got != c.want {
			t.Errorf("%s: only exports %t, want %t", what, got, c.want)
		}
	}
}

func TestNodesProgrammed(t *testing.T) {
	for _, c := range []struct {
		name    string
		agents  string // pod=state
		desired int
		want    string
	}{
		{"all", "a=Programmed,b=Programmed", 2, "True Programmed: 2 of 2 nodes are programmed"},
		{"none yet", "", 0, "False Programming: 0 of 0 nodes are programmed, waiting for pods of DaemonSet sealane-node"},
		{"pods are yet to come", "a=Programmed", 2, "False Programming: 1 of 2 nodes are programmed, waiting for pods of " +
			"DaemonSet sealane-node"},
		{"one has not spoken", "a=Programmed,b=", 2,
			"False Programming: 1 of 2 nodes are programmed, waiting for pod b of node nb"},
		{"one was killed", "a=Programmed,b=Programmed!", 2,
			"False Programming: 1 of 2 nodes are programmed, waiting for pod b of node nb"},
		{"back from leaving", "a=Cleaned", 1, "False Programming: 0 of 1 nodes are programmed, waiting for pod a of node na"},
		{"a failure comes first", "a=,b=ProgrammingFailed: no such device,c=ProgrammingFailed", 3,
			"False ProgrammingFailed: 0 of 3 nodes are programmed, 2 failed: pod b: node nb: no such device; pod c: node nc"},
		{"a node is being replaced", "a=Programmed,b=Programmed,c=Programmed", 2, "True Programmed: 3 of 3 nodes are " +
			"programmed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var agents []nodeAgent
			for a := range strings.SplitSeq(c.agents, ",") {
				if pod, state, ok := strings.Cut(a, "="); ok {
					state, unready := strings.CutSuffix(state, "!")
					reason, message, _ := strings.Cut(state, ": ")
					agents = append(agents, nodeAgent{pod: pod, node: "n" + pod, programmed: reason, message: message,
						unready: unready})
				}
			}
			got := nodesProgrammed(agents, c.desired)
			if text := fmt.Sprintf("%s %s: %s", got.Status, got.Reason, got.Message); text != c.want {
				t.Errorf("got %s\nwant %s", text, c.want)
			}
		})
	}
}

func TestThePodOfAnAgentThatIsNotReady(t *testing.T) {
	pod := &corev1.Pod{}
	programmed := corev1.PodCondition{Type: v1alpha1.PodNodeProgrammed, Reason: v1alpha1.ReasonNodeProgrammed}
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: false, corev1.ConditionFalse: true,
		corev1.ConditionUnknown: true} {
		pod.Status.Conditions = []corev1.PodCondition{programmed, {Type: corev1.PodReady, Status: status}}
		if got := agentOf(pod); got.unready != want || got.programmed != v1alpha1.ReasonNodeProgrammed {
			t.Errorf("Ready=%s: %+v", status, got)
		}
	}
	pod.Status.Conditions = pod.Status.Conditions[:1]
	if agentOf(pod).unready {
		t.Error("a pod of which the kubelet has said nothing yet is not ready")
	}
}

func TestNetworksAccepted(t *testing.T) {
	refusing := func(node, what string) nodeAgent { return nodeAgent{pod: "p" + node, node: node, refused: what} }
	const c2, c3 = "RemoteCluster/c2: Overlap: a", "RemoteCluster/c3: CoversAPIServer: b"
	for _, c := range []struct {
		name   string
		agents []nodeAgent
		want   string
	}{
		{"nothing known", nil, "True Accepted: no node refuses anything"},
		{"nothing refused", []nodeAgent{refusing("n1", "")}, "True Accepted: no node refuses anything"},
		{"one node", []nodeAgent{refusing("n1", c2), refusing("n2", "")}, "False NetworksRefused: " + c2 + " (node n1)"},
		{"all nodes", []nodeAgent{refusing("n3", c2), refusing("n1", c2), refusing("n2", c2)},
			"False NetworksRefused: " + c2 + " (node n1 and 2 more)"},
		{"not the same", []nodeAgent{refusing("n1", c3), refusing("n2", c2)},
			"False NetworksRefused: " + c2 + " (node n2); " + c3 + " (node n1)"},
		{"more than fit", []nodeAgent{refusing("n1", "d"), refusing("n2", "c"), refusing("n3", "b"), refusing("n4", "a")},
			"False NetworksRefused: a (node n4); b (node n3); c (node n2); and 1 more"},
	} {
		got := networksAccepted(c.agents)
		if text := fmt.Sprintf("%s %s: %s", got.Status, got.Reason, got.Message); text != c.want {
			t.Errorf("%s: got %s\nwant %s", c.name, text, c.want)
		}
	}
}

func TestCountingNodesIsNotUrgent(t *testing.T) {
	in := peeringInput()
	in.Nodes = nodesProgrammed(nil, 2)
	before := PeeringStatus(in)
	in.Peering.Status = before
	in.Nodes = nodesProgrammed([]nodeAgent{{pod: "a", programmed: v1alpha1.ReasonNodeProgrammed}}, 2)
	after := PeeringStatus(in)
	if got := paceOf(before, after); got != nodesPace {
		t.Errorf("a node more: %s", got)
	}
	in.Peering.Status, in.Routed = after, &metav1.Condition{Type: v1alpha1.PeeringPodsRouted,
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPodsNotRouted}
	if got := paceOf(after, PeeringStatus(in)); got != nodesPace {
		t.Errorf("pods that are not routed: %s", got)
	}
	in.Peering.Status, in.Routed = PeeringStatus(in), nil
	if !meta.IsStatusConditionFalse(PeeringStatus(in).Conditions, v1alpha1.PeeringPodsRouted) {
		t.Error("what was said of pods is gone with an agent that knows nothing yet")
	}
	after.Networks.PodCIDRs = []string{"10.8.0.0/16"}
	if got := paceOf(before, after); got != pace {
		t.Errorf("a network: %s", got)
	}
}

// TestOfAThousandNodesSomeAreToldAtOnce, and not each of its own: all of them read what is told. What is worse is told
// as soon as in a small cluster.
func TestOfAThousandNodesSomeAreToldAtOnce(t *testing.T) {
	const nodes = 1000
	in := peeringInput()
	in.Nodes = nodesProgrammed(nil, nodes)
	for i := range nodes {
		in.Found.NodeCIDRs = append(in.Found.NodeCIDRs, fmt.Sprintf("172.16.%d.%d/32", i>>8, i&255))
	}
	before := PeeringStatus(in)
	in.Peering.Status = before
	one := []nodeAgent{{pod: "a", programmed: v1alpha1.ReasonNodeProgrammed}}
	in.Nodes = nodesProgrammed(one, nodes)
	if got := paceOf(before, PeeringStatus(in)); got != 10*time.Second {
		t.Errorf("a node more that is programmed: %s", got)
	}
	in.Found.NodeCIDRs = append(in.Found.NodeCIDRs, "172.17.0.1/32")
	if got, want := paceOf(before, PeeringStatus(in)), 1001*10*time.Millisecond; got != want {
		t.Errorf("a node more: %s, expected %s", got, want)
	}
	in.Nodes = nodesProgrammed(one, 1)
	before = PeeringStatus(in)
	in.Peering.Status = before
	in.Nodes = nodesProgrammed(one, 2)
	if got := paceOf(before, PeeringStatus(in)); got != nodesPace {
		t.Errorf("a node that is not programmed any more: %s", got)
	}
	for nodes, want := range map[int]time.Duration{0: time.Second, 100: time.Second, 500: 5 * time.Second,
		5000: 30 * time.Second} {
		if got := countingPace(nodes); got != want {
			t.Errorf("%d nodes: %s, expected %s", nodes, got, want)
		}
	}
}

func TestRefusedExports(t *testing.T) {
	export := func(name string, conditions ...string) mcs.ServiceExport {
		e := mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		for _, c := range conditions {
			f := strings.Fields(c)
			e.Status.Conditions = append(e.Status.Conditions, metav1.Condition{Type: f[0], Status: metav1.ConditionStatus(f[1]),
				Reason: f[2]})
		}
		return e
	}
	got := refused([]mcs.ServiceExport{
		export("pending", "Valid True Valid", "Ready False Pending"),
		export("no-service", "Valid False NoService", "Ready False Pending"),
		export("fine", "Valid True Valid", "Ready True Exported", "Conflict False NoConflicts"),
		export("wide", "Ready False BundleFull"),
		export("odd", "Valid False InvalidServiceType", "Ready False Pending"),
		export("disputed", "Ready True Exported", "Conflict True PortConflict"),
	})
	want := "ns/disputed (PortConflict), ns/odd (InvalidServiceType), ns/wide (BundleFull)"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	in := peeringInput()
	in.RefusedExports = got
	if c := meta.FindStatusCondition(PeeringStatus(in).Conditions, v1alpha1.PeeringExportsAccepted); c == nil ||
		c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "ns/odd") {
		t.Errorf("condition %+v", c)
	}
}
