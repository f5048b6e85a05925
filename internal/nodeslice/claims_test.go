// SPDX-License-Identifier: Apache-2.0

package nodeslice_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/internal/nodeslice"
)

// aged is a node that was made some minutes after the first, with addresses.
func aged(name string, minutes int, addresses ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0).Add(time.Duration(minutes) * time.Minute))}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// TestAddressesOfOthers: a node keeps the address that it was told to have, whoever says that it has it, too, and no
// node has any in advance.
func TestAddressesOfOthers(t *testing.T) {
	gw, fresh := aged("gw", 5, "192.0.2.1", "2001:db8::1"), aged("gw-2", 9, "192.0.2.7")
	for name, tt := range map[string]struct {
		before, now []corev1.Node
		want        string
		disputes    []nodeslice.Dispute
	}{
		"nobody says the same": {nil, []corev1.Node{gw, aged("evil", 0, "192.0.2.2")},
			"evil 192.0.2.2; gw 192.0.2.1,2001:db8::1", nil},
		"an older node says so": {[]corev1.Node{gw, aged("evil", 0, "192.0.2.2")},
			[]corev1.Node{gw, aged("evil", 0, "192.0.2.1")}, "evil ; gw 192.0.2.1,2001:db8::1",
			[]nodeslice.Dispute{{Node: "evil", Address: "192.0.2.1", Owner: "gw"}}},
		"in other words, before its own": {[]corev1.Node{gw},
			[]corev1.Node{gw, aged("evil", 0, "2001:db8:0::1", "2001:db8::2")},
			"evil 2001:db8::2; gw 192.0.2.1,2001:db8::1",
			[]nodeslice.Dispute{{Node: "evil", Address: "2001:db8:0::1", Owner: "gw"}}},
		"both are new": {nil, []corev1.Node{gw, aged("evil", 6, "192.0.2.1")}, "evil ; gw 192.0.2.1,2001:db8::1",
			[]nodeslice.Dispute{{Node: "evil", Address: "192.0.2.1", Owner: "gw"}}},
		"and as old": {nil, []corev1.Node{gw, aged("hw", 5, "192.0.2.1")}, "gw 192.0.2.1,2001:db8::1; hw ",
			[]nodeslice.Dispute{{Node: "hw", Address: "192.0.2.1", Owner: "gw"}}},
		"the address of one that is to come": {[]corev1.Node{aged("evil", 0, "192.0.2.2", "192.0.2.7")},
			[]corev1.Node{aged("evil", 0, "192.0.2.2", "192.0.2.7"), fresh}, "evil 192.0.2.2; gw-2 192.0.2.7",
			[]nodeslice.Dispute{{Node: "evil", Address: "192.0.2.7", Owner: "gw-2"}}},
		"its owner is gone": {[]corev1.Node{gw, aged("evil", 0)}, []corev1.Node{aged("evil", 0, "192.0.2.1")},
			"evil 192.0.2.1", nil},
		"its owner has another": {[]corev1.Node{gw, aged("other", 0)},
			[]corev1.Node{aged("gw", 5, "192.0.2.9"), aged("other", 0, "192.0.2.1")}, "gw 192.0.2.9; other 192.0.2.1", nil},
		"two have each other's": {[]corev1.Node{aged("a", 0, "192.0.2.1"), aged("b", 0, "192.0.2.2")},
			[]corev1.Node{aged("a", 0, "192.0.2.2"), aged("b", 0, "192.0.2.1")}, "a 192.0.2.2; b 192.0.2.1", nil},
		"what is none is nobody's": {nil,
			[]corev1.Node{aged("a", 0, "127.0.0.1", "192.0.2.1"), aged("b", 0, "127.0.0.1", "no")},
			"a 127.0.0.1,192.0.2.1; b 127.0.0.1,no", nil},
	} {
		t.Run(name, func(t *testing.T) {
			have := objects(divide(tt.before))
			for range 2 { // and so it stays
				specs, disputes := nodeslice.Divide(tt.now, have)
				have = objects(specs)
				nodes, _ := nodeslice.Join(have)
				var got []string
				for _, n := range nodes {
					var at []string
					for _, a := range n.Status.Addresses {
						at = append(at, a.Address)
					}
					got = append(got, fmt.Sprintf("%s %s", n.Name, strings.Join(at, ",")))
				}
				if text := strings.Join(got, "; "); text != tt.want || !slices.Equal(disputes, tt.disputes) {
					t.Fatalf("nodes are told of %s, and disputes are %v; expected %s, and %v", text, disputes, tt.want, tt.disputes)
				}
			}
		})
	}
}

// TestManyAddressesOfOthers are all taken from whoever names them, and few are told of.
func TestManyAddressesOfOthers(t *testing.T) {
	var nodes []corev1.Node
	var all []string
	for i := range 100 {
		nodes = append(nodes, node(i))
		all = append(all, nodes[i].Status.Addresses[0].Address)
	}
	have := objects(divide(nodes))
	settled, disputes := nodeslice.Settled(append(nodes, aged("a", 0, all...)), have)
	if left := settled[100].Status.Addresses; len(left) > 0 || len(disputes) == 0 || len(disputes) > 10 {
		t.Errorf("%d addresses are left, and %d disputes told", len(left), len(disputes))
	}
}
