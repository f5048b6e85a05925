// SPDX-License-Identifier: Apache-2.0

package nodenetworks

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestPodsThatAreNotReached are counted, and the oldest two named.
func TestPodsThatAreNotReached(t *testing.T) {
	n1 := node("n1", "172.31.0.1", "10.8.1.0/24")
	hostNetwork := pod("n1", 1, "172.31.0.1")
	hostNetwork.Spec.HostNetwork = true
	outside := func(n int) (out []corev1.Pod) {
		for i := range n {
			out = append(out, pod("n1", i, fmt.Sprintf("192.0.2.%d", i)))
		}
		return out
	}
	const set = ": set networks that hold them in the ClusterSet under spec.clusters[].networks.podCIDRs"
	for name, c := range map[string]struct {
		networks []netip.Prefix
		pods     []corev1.Pod
		want     string
	}{
		"all are": {pods: []corev1.Pod{pod("n1", 1, "10.8.1.1"), pod("n1", 1, "10.8.9.1"), hostNetwork,
			pod("gone", 1, "192.0.2.1"), pod("", 1, "192.0.2.1"), pod("n1", 1, "")}},
		"one": {pods: outside(1), want: "1 pod with addresses outside the cluster's pod networks: " +
			"a/p0 [192.0.2.0] (192.0.2.0 on node n1)" + set},
		"three": {pods: outside(3), want: "3 pods with addresses outside the cluster's pod networks: " +
			"a/p0 [192.0.2.0] (192.0.2.0 on node n1), a/p1 [192.0.2.1] (192.0.2.1 on node n1)" + set},
		"many": {pods: outside(99), want: "10 pods or more with addresses outside the cluster's pod networks: " +
			"a/p0 [192.0.2.0] (192.0.2.0 on node n1), a/p1 [192.0.2.1] (192.0.2.1 on node n1)" + set},
		"another family than the cluster's": {pods: []corev1.Pod{pod("n1", 1, "10.8.1.1", "2001:db8::1")}},
		"of that family alone": {pods: []corev1.Pod{pod("n1", 1, "2001:db8::1")},
			want: "1 pod with addresses outside the cluster's pod networks: a/p1 [2001:db8::1] (2001:db8::1 on node n1)" + set},
		"one of both families": {networks: prefixes("10.8.0.0/16", "fd00:8::/32"),
			pods: []corev1.Pod{pod("n1", 1, "10.8.1.1", "2001:db8::1")}, want: "1 pod with addresses outside the cluster's " +
				"pod networks: a/p1 [10.8.1.1 2001:db8::1] (2001:db8::1 on node n1)" + set},
	} {
		t.Run(name, func(t *testing.T) {
			if c.networks == nil {
				c.networks = prefixes("10.8.0.0/16")
			}
			in := input{nodes: []corev1.Node{n1}, networks: c.networks, pods: c.pods}
			got := notRouted(in, decide(in)).condition()
			if status := metav1.ConditionStatus("True"); c.want == "" && got.Status != status {
				t.Errorf("got %+v", got)
			}
			if c.want != "" && (got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonPodsNotRouted ||
				got.Message != "not reached from other clusters: "+c.want) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestPodsThatThereIsNoRoomFor: a pod on the node that is in a network with room is not one of them, nor are others'.
func TestPodsThatThereIsNoRoomFor(t *testing.T) {
	in := input{nodes: []corev1.Node{node("n1", "172.31.0.1"), node("n2", "172.31.0.2", "10.8.220.0/24")},
		networks: prefixes("10.8.0.0/16"), ranges: map[string][]netip.Prefix{"n1": prefixes("10.8.200.0/24")},
		pods: []corev1.Pod{pod("n1", 1, "10.8.200.7"), pod("n2", 1, "10.8.220.7")}}
	for i := range v1alpha1.MaxNodePodCIDRs {
		in.pods = append(in.pods, pod("n1", 2, fmt.Sprintf("10.8.%d.%d", i/100, 2*(i%100)))) // none beside another
	}
	in.pods = append(in.pods, pod("n1", 3, "10.8.220.201"))
	decided := decide(in)
	got := notRouted(in, decided)
	if len(got.outside) > 0 || len(got.noRoom) != int(decided["n1"].LeftOut) || len(got.noRoom) != 2 {
		t.Fatalf("%d outside, %d without room of %d", len(got.outside), len(got.noRoom), decided["n1"].LeftOut)
	}
	if text := got.condition().Message; !strings.Contains(text,
		"2 pods on nodes with more networks than there is room for (4096): a/p2 [10.8.40.190] (10.8.40.190 on node n1), "+
			"a/p3 [10.8.220.201] (10.8.220.201 on node n1)") {
		t.Error(text)
	}
}

// TestWhatIsSaidOfPodsIsHeld: that pods are missed is said at once, and that none is after a minute without; the text
// changes once a minute. After a change of networks all is said at once.
func TestWhatIsSaidOfPodsIsHeld(t *testing.T) {
	s, p := NewState(), &v1alpha1.Peering{}
	start := time.Unix(1700000000, 0)
	n1 := node("n1", "172.31.0.1")
	for _, step := range []struct {
		second   int
		networks string
		missed   int
		want     string // how the condition begins; "" for none
		wait     int    // seconds
		event    bool
	}{
		{0, "", 3, "", 0, false},
		{0, "10.8.0.0/16", 0, "True", 0, true},
		{1, "10.8.0.0/16", 0, "True", 0, false},
		{2, "10.8.0.0/16", 2, "False 2 pods", 0, true},
		{3, "10.8.0.0/16", 3, "False 2 pods", 59, false},
		{62, "10.8.0.0/16", 3, "False 3 pods", 0, true},
		{63, "10.8.0.0/16", 0, "False 3 pods", 59, false},
		{100, "10.8.0.0/16", 3, "False 3 pods", 0, false},
		{101, "10.8.0.0/16", 0, "False 3 pods", 59, false},
		{160, "10.8.0.0/16", 0, "True", 0, true},
		{161, "10.8.0.0/16", 1, "False 1 pod", 0, true},
		{162, "10.0.0.0/8", 0, "True", 0, true},
		{163, "10.8.0.0/16", 4, "False 4 pods", 0, true},
		{164, "", 4, "", 0, false},
	} {
		p.Spec.Networks.PodCIDRs = nil
		if step.networks != "" {
			p.Spec.Networks.PodCIDRs = []string{step.networks}
		}
		if step.networks == "10.0.0.0/8" && s.Condition(p) != nil {
			t.Error("what was said is of other networks")
		}
		var m missed
		for i := range step.missed {
			one := pod(n1.Name, i, "192.0.2.1")
			m.outside = append(m.outside, lost{&one, netip.MustParseAddr("192.0.2.1")})
		}
		wait := s.set(p, m, start.Add(time.Duration(step.second)*time.Second))
		var got string
		if c := s.Condition(p); c != nil {
			got, _, _ = strings.Cut(string(c.Status)+" "+strings.TrimPrefix(c.Message, "not reached from other clusters: "),
				" with")
		}
		event := false
		select {
		case <-s.Changed():
			event = true
		default:
		}
		if step.want == "True" {
			got, _, _ = strings.Cut(got, " ")
		}
		if got != step.want || wait != time.Duration(step.wait)*time.Second || event != step.event {
			t.Errorf("%+v: %q, wait %s, event %t", step, got, wait, event)
		}
	}
}
