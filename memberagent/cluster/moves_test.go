// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// kubelet says that a node is ready, or is not, since long ago.
func (m *member) kubelet(node string, ready corev1.ConditionStatus) {
	m.t.Helper()
	m.eventually("the condition of "+node, func(ctx context.Context) error {
		n := &corev1.Node{}
		if err := m.Get(ctx, client.ObjectKey{Name: node}, n); err != nil {
			return err
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}
		return m.Status().Update(ctx, n)
	})
}

// connects is the node agent of a gateway that is connected to c2.
func (m *member) connects(gateway string) {
	m.t.Helper()
	m.eventually("the report of "+gateway, func(ctx context.Context) error {
		g := &v1alpha1.Gateway{}
		if err := m.Get(ctx, client.ObjectKey{Name: gateway}, g); err != nil {
			return err
		}
		g.Status.ReportedAt = ptr.To(metav1.Now())
		g.Status.Connections = []v1alpha1.Connection{{Cluster: "c2", Gateway: "x", Link: "sl-c0",
			Status: v1alpha1.ConnectionConnected}}
		return m.Status().Update(ctx, g)
	})
}

// programs is a node agent, made after the pattern of another pod, that has programmed its node.
func (m *member) programs(pod *corev1.Pod, node string) {
	m.t.Helper()
	m.eventually("the node agent of "+node, func(ctx context.Context) error {
		p := pod.DeepCopy()
		p.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, Name: "sealane-node-" + node, Labels: pod.Labels,
			OwnerReferences: pod.OwnerReferences}
		p.Spec.NodeName = node
		if err := m.Create(ctx, p); err != nil {
			return err
		}
		p.Status.Conditions = []corev1.PodCondition{
			{Type: v1alpha1.PodNodeProgrammed, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonNodeProgrammed},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}
		return m.Status().Update(ctx, p)
	})
}

// TestAPickedGatewayIsReplaced when its node is not ready for ten seconds, or takes no pods any more, by one that is
// connected before it goes. One that is labelled stays, and the report says so.
func TestAPickedGatewayIsReplaced(t *testing.T) {
	m := newMember(t)
	m.node("node-b", "10.8.1.0/24", "192.0.2.2")
	m.node("node-c", "10.8.2.0/24", "192.0.2.3")
	pod := m.nodeAgent()
	for _, node := range []string{"node-a", "node-b", "node-c"} {
		m.kubelet(node, corev1.ConditionTrue)
		m.programs(pod, node)
	}
	m.start(m.config)
	m.peering(1)
	m.gateways("node-a=0")
	m.connects("node-a")
	m.peeringCondition("GatewaysReady", metav1.ConditionTrue, "Ready", "1 of 1")

	m.kubelet("node-a", corev1.ConditionUnknown)
	m.peeringCondition("GatewaysReady", metav1.ConditionFalse, "GatewaysNotReady", "node-a (the node is not ready)")
	took := m.within(20*time.Second, "a second gateway", func(ctx context.Context) error {
		return m.Get(ctx, client.ObjectKey{Name: "node-b"}, &v1alpha1.Gateway{})
	})
	if took < 5*time.Second {
		t.Errorf("replaced after %v, expected 10 s", took)
	}
	m.gateways("node-a=0 node-b=1")
	m.peeringCondition("GatewaysReady", metav1.ConditionTrue, "Ready", "the rest is being replaced")
	m.connects("node-b")
	m.gateways("node-b=1")

	// node-a may not have it back so soon; node-c was ready all the time.
	m.kubelet("node-a", corev1.ConditionTrue)
	cordon := func(yes bool) {
		change(m, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}},
			func(n *corev1.Node) { n.Spec.Unschedulable = yes })
	}
	cordon(true)
	m.gateways("node-b=1 node-c=0")
	m.connects("node-c")
	m.gateways("node-c=0")

	cordon(false)
	change(m, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}},
		func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, v1alpha1.LabelGateway, "true") })
	m.gateways("node-b=1 node-c=0")
	m.connects("node-b")
	m.gateways("node-b=1")
	m.kubelet("node-b", corev1.ConditionFalse)
	m.peeringCondition("GatewaysReady", metav1.ConditionFalse, "GatewaysNotReady", "not replaced, being labelled")
}

// TestGatewaysAreReplacedInTurn: the DaemonSet replaces both gateways at once, and one of the two agents that wait gets
// the turn, the other when that gateway is well.
func TestGatewaysAreReplacedInTurn(t *testing.T) {
	m := newMember(t)
	m.node("node-b", "10.8.1.0/24", "192.0.2.2")
	pod := m.nodeAgent()
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.ControllerRevisionHashLabelKey, "new")
	waits := func(node, reason string) {
		t.Helper()
		m.eventually("the agent that waits on "+node, func(ctx context.Context) error {
			p := &corev1.Pod{}
			if err := m.Get(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: "sealane-node-" + node}, p); err != nil {
				return err
			}
			p.Status.Conditions = []corev1.PodCondition{{Type: v1alpha1.PodMayProgram, Status: corev1.ConditionFalse,
				Reason: reason, LastTransitionTime: metav1.Now()}}
			return m.Status().Update(ctx, p)
		})
	}
	for _, node := range []string{"node-a", "node-b"} {
		m.kubelet(node, corev1.ConditionTrue)
		change(m, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, v1alpha1.LabelGateway, "true") })
		m.programs(pod, node)
		waits(node, v1alpha1.ReasonQueued)
	}
	m.start(m.config)
	m.peering(1)
	turns := func(want string) {
		t.Helper()
		m.within(40*time.Second, "the turn of "+want, func(ctx context.Context) error {
			list := &v1alpha1.GatewayList{}
			if err := m.List(ctx, list); err != nil {
				return err
			}
			got := ""
			for _, g := range list.Items {
				if g.Spec.Turn {
					got += g.Name
				}
			}
			return expect("turns", got, want)
		})
	}
	m.gateways("node-a=0 node-b=1")
	turns("node-a")
	m.connects("node-b")
	waits("node-a", v1alpha1.ReasonProgramming)
	m.reports("how far the roll-out has come", func(s *v1alpha1.PeeringStatus) error {
		if s.RollOut == nil {
			return errors.New("nothing is said")
		}
		return expect("roll-out", *s.RollOut, v1alpha1.RollOutReport{Revision: "new", Nodes: 2, LastNode: "node-a"})
	})
	turns("")
	m.connects("node-a")
	turns("node-b")
}
