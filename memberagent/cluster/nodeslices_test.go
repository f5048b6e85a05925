// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/nodeslice"
)

// nodesTold waits until node agents are told of these nodes, as "name address podCIDR public;", and returns how long
// that took. Empty is of no NodeSlice at all.
func (m *member) nodesTold(want string) time.Duration {
	m.t.Helper()
	return m.eventually("the NodeSlices", func(ctx context.Context) error {
		var list v1alpha1.NodeSliceList
		if err := m.List(ctx, &list); err != nil {
			return err
		}
		if want == "" {
			return expect("slices", len(list.Items), 0)
		}
		nodes, all := nodeslice.Join(list.Items)
		var got []string
		for _, n := range nodes {
			var at []string
			for _, a := range n.Status.Addresses {
				at = append(at, a.Address)
			}
			got = append(got, strings.Trim(fmt.Sprintf("%s %s %s %s", n.Name, strings.Join(at, ","),
				strings.Join(n.Spec.PodCIDRs, ","), n.Annotations[v1alpha1.AnnotationPublicIP]), " ")+";")
		}
		if !all || len(list.Items) != len(nodeslice.Names()) {
			return fmt.Errorf("%d slices", len(list.Items))
		}
		return expect("nodes", strings.Join(got, " "), want)
	})
}

// TestNodeSlices: node agents are told of all nodes once there is a Peering, of what changes, and of nothing else.
func TestNodeSlices(t *testing.T) {
	m := newMember(t)
	m.node("node-b", "10.8.1.0/24", "192.0.2.2")
	m.create(&v1alpha1.NodeSlice{ObjectMeta: metav1.ObjectMeta{Name: "nodes-99"}})
	m.start(m.config)
	m.peering(1)
	m.nodesTold("node-a 192.0.2.1 10.8.0.0/24; node-b 192.0.2.2 10.8.1.0/24;")
	b := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}

	m.run("a node has other addresses, and one for the internet", func(t *testing.T) {
		change(m, b, func(n *corev1.Node) {
			n.Annotations = map[string]string{v1alpha1.AnnotationPublicIP: "ipv4:203.0.113.7", "other": "unread"}
		})
		b.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "b.example.org"},
			{Type: corev1.NodeInternalIP, Address: "fd00::2"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.22"}}
		if err := m.Status().Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		m.nodesTold("node-a 192.0.2.1 10.8.0.0/24; node-b fd00::2,192.0.2.22 10.8.1.0/24 ipv4:203.0.113.7;")
	})
	m.run("what nodes do not read of a node writes nothing", func(t *testing.T) {
		before := m.revisions()
		b.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastHeartbeatTime: metav1.Now()}}
		if err := m.Status().Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		m.node("node-c", "10.8.2.0/24", "192.0.2.3") // by when this is told, the other would have been
		m.nodesTold("node-a 192.0.2.1 10.8.0.0/24; node-b fd00::2,192.0.2.22 10.8.1.0/24 ipv4:203.0.113.7; " +
			"node-c 192.0.2.3 10.8.2.0/24;")
		written := 0
		for name, revision := range m.revisions() {
			if before[name] != revision {
				written++
			}
		}
		if written != 1 {
			t.Errorf("%d slices were written, expected that of node-c alone", written)
		}
	})
	m.run("a node names the address of another", func(t *testing.T) {
		names := func(name, address string) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if err := m.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
				t.Fatal(err)
			}
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
			if err := m.Status().Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		// By name and age the first would have it.
		names("node-a", "192.0.2.3")
		m.nodesTold("node-a  10.8.0.0/24; node-b fd00::2,192.0.2.22 10.8.1.0/24 ipv4:203.0.113.7; " +
			"node-c 192.0.2.3 10.8.2.0/24;")
		m.eventually("the event", func(ctx context.Context) error {
			var list corev1.EventList
			if err := m.List(ctx, &list); err != nil {
				return err
			}
			var got []string
			for _, e := range list.Items {
				if e.InvolvedObject.Kind == "Node" {
					got = append(got, e.InvolvedObject.Name+" "+e.Reason)
				}
			}
			return expect("events of nodes", strings.Join(got, ", "), "node-a AddressTaken")
		})
		names("node-a", "192.0.2.1")
	})
	m.run("somebody changes them", func(*testing.T) {
		var list v1alpha1.NodeSliceList
		if err := m.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		m.delete(&list.Items[0])
		change(m, &list.Items[1], func(s *v1alpha1.NodeSlice) { s.Spec.Nodes = []v1alpha1.SliceNode{{Name: "node-a"}} })
		for i := range list.Items[2:] {
			change(m, &list.Items[2+i], func(s *v1alpha1.NodeSlice) { s.Spec.Nodes = nil })
		}
		m.delete(b)
		m.nodesTold("node-a 192.0.2.1 10.8.0.0/24; node-c 192.0.2.3 10.8.2.0/24;")
	})
	m.run("the Peering goes", func(*testing.T) {
		m.delete(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}})
		var list v1alpha1.NodeSliceList
		if err := m.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			m.delete(&list.Items[i])
		}
		time.Sleep(time.Second) // nothing comes that could be waited for
		m.nodesTold("")
	})
}

// revisions of all NodeSlices.
func (m *member) revisions() map[string]string {
	m.t.Helper()
	var list v1alpha1.NodeSliceList
	if err := m.List(m.t.Context(), &list); err != nil {
		m.t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range list.Items {
		out[s.Name] = s.ResourceVersion
	}
	return out
}
