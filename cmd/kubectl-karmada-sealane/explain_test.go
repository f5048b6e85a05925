// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/explain"
)

// wired is the snapshot that is well, with what the node agents of both members go by: c1-gw and c2-gw are gateways.
func wired(t *testing.T) *snapshot {
	t.Helper()
	s := well()
	for i, name := range []string{"c1", "c2"} {
		p, other := s.member(name), s.members[1-i].name
		p.api = nil
		g := the[*v1alpha1.Gateway](t, p, name+"-gw")
		g.Status.Endpoint = g.Status.Endpoint.DeepCopy()
		g.Status.Endpoint.PublicKey = keyOf(name)
		remote := the[*v1alpha1.Gateway](t, s.member(other), other+"-gw").Status.Endpoint.DeepCopy()
		remote.PublicKey = keyOf(other)
		networks := func(cluster string) v1alpha1.Networks {
			return the[*v1alpha1.Member](t, &s.karmada, cluster).Status.Networks
		}
		p.objects = append(p.objects, &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
			Spec: v1alpha1.PeeringSpec{Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: name, Shards: 1,
				Cable: v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard}, Networks: networks(name),
				DNS: v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}},
				RemoteClusters: []v1alpha1.RemoteCluster{{Name: other, Networks: networks(other),
					Endpoints: []v1alpha1.Endpoint{*remote}}}}})
		for n, node := range []string{name + "-w1", name + "-gw"} {
			p.objects = append(p.objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node},
				Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", 8+i, n+1)}},
				Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
					Address: fmt.Sprintf("172.30.%d.%d", i+1, 10+n)}}}})
		}
	}
	return s
}

// silent is a member that could not be asked.
func silent(name string) place {
	return place{name: name, context: name, unread: map[string]string{everything: "unreachable: timeout"}}
}

// keyOf a member's gateway: 32 bytes in base64.
func keyOf(cluster string) string {
	return strings.Repeat(map[string]string{"c1": "C", "c2": "D"}[cluster], 42) + "A="
}

func explained(t *testing.T, s *snapshot, from, to string) (*explain.Explanation, error) {
	t.Helper()
	source, err := explain.ParsePlace(from)
	if err != nil {
		t.Fatal(err)
	}
	destination, err := explain.ParseDestination(to)
	if err != nil {
		t.Fatal(err)
	}
	return s.explain(t.Context(), source, destination)
}

// TestExplainFromAFile: what gather wrote is explained as what it was made of, whichever way it ends.
func TestExplainFromAFile(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		change         func(t *testing.T, s *snapshot)
		arrives        explain.Arrival
		step           string
	}{
		{"a pod", "c1/10.8.1.5", "10.9.1.7:80", nil, explain.Arrives, "way back"},
		{"a node", "c1/c1-w1", "c2/10.9.1.7", nil, explain.Arrives, "way back"},
		{"a service that nobody exports", "c1/10.8.1.5", "nothing.sample", nil, explain.Lost, ""},
		{"a cable is down", "c1/10.8.1.5", "10.9.1.7", func(t *testing.T, s *snapshot) {
			c := &the[*v1alpha1.Gateway](t, s.member("c1"), "c1-gw").Status.Connections[0]
			c.Status, c.Reason = v1alpha1.ConnectionError, "NoAnswer"
		}, explain.Lost, "cable"},
		{"nobody asked c2", "c1/10.8.1.5", "10.9.1.7", func(_ *testing.T, s *snapshot) {
			*s.member("c2") = silent("c2")
		}, explain.Unknown, "reachable"},
		{"c2's nodes may not be read", "c1/10.8.1.5", "10.9.1.7", func(_ *testing.T, s *snapshot) {
			s.member("c2").misses("Node", "forbidden: nodes is forbidden")
		}, explain.Unknown, "reachable"},
		{"the ledger of a block may not be read", "c1/10.8.1.5", "10.9.1.7", func(t *testing.T, s *snapshot) {
			the[*v1alpha1.Peering](t, s.member("c2"), v1alpha1.PeeringName).Spec.GlobalCIDR = "242.2.0.0/16"
			s.member("c2").misses("GlobalAllocation", "not served")
		}, explain.Unknown, "reachable"},
		{"nobody asked c1", "c1/10.8.1.5", "cart.shop", func(_ *testing.T, s *snapshot) {
			*s.member("c1") = silent("c1")
		}, explain.Unknown, "source"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := wired(t)
			if c.change != nil {
				c.change(t, s)
			}
			want, err := explained(t, s, c.from, c.to)
			if err != nil {
				t.Fatal(err)
			}
			last := want.Steps[len(want.Steps)-1]
			if want.Arrives != c.arrives || c.step != "" && last.Name != c.step {
				text, _ := json.MarshalIndent(want, "", " ")
				t.Errorf("arrives %s, ends at %s; want %s and %s:\n%s", want.Arrives, last.Name, c.arrives, c.step, text)
			}
			back, err := offline().readArchive(archived(t, s), defaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			got, err := explained(t, back, c.from, c.to)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("the file is explained as\n%+v (%v), want\n%+v", got, err, want)
			}
		})
	}
}

// TestExplainSaysWhatItCannotFollow: what was expected, what was found and what to do, before anything is followed.
func TestExplainSaysWhatItCannotFollow(t *testing.T) {
	s := wired(t)
	for _, c := range []struct{ from, to, want string }{
		{"c1/shop/web-0", "10.9.1.7", "name the pod by its address"},
		{"c1/10.8.1.5", "c2/shop/web-0", "name the pod by its address"},
		{"c9/10.8.1.5", "10.9.1.7", `"c9" to be a member`},
		{"c1/10.8.1.5", "c9/10.9.1.7", `"c9" to be a member`},
		{"c1/10.8.1.5", "www.example.org", "none of the domains clusterset.local"},
		{"c1/10.8.1.5", "dns-version.clusterset.local", "a text, and no address"},
	} {
		if _, err := explained(t, s, c.from, c.to); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "to do:") {
			t.Errorf("%s to %s: %v, want %q", c.from, c.to, err, c.want)
		}
	}
}

// TestExplainOfCommandLines: the exit code says whether the packet arrives.
func TestExplainOfCommandLines(t *testing.T) {
	file := archived(t, wired(t))
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"c1/10.8.1.5 10.9.1.7:80", "arrives: yes", 0},
		{"c1/10.8.1.5 10.9.1.7:80 -o json", `"arrives": "yes"`, 0},
		{"c1/10.8.1.5 192.0.2.1", "no packet arrives: lost at route of c1/c1-w1", 1},
		{"c1/10.8.1.5 192.0.2.1 -o yaml", "arrives: \"no\"", 1},
		{"c1", "explain SOURCE DESTINATION", 1},
		{"c1 10.9.1.7", "c1/worker-1", 1},
		{"c1/10.8.1.5 cart.shop:http", `port "http"`, 1},
		{"c1/10.8.1.5 10.9.1.7 -o foo", `"foo"`, 1},
	} {
		out, code := commandLine(append([]string{"explain", "--from", file}, strings.Fields(c.line)...)...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, want %d and %q in\n%s", c.line, code, c.code, c.want, out)
		}
	}
	out, code := commandLine("explain", "--from", filepath.Join(t.TempDir(), "none"), "c1/10.8.1.5", "10.9.1.7")
	if code == 0 || !strings.Contains(out, "gather has written") {
		t.Errorf("a file that is not there: exit code %d, %s", code, out)
	}
}

// TestEndpointOfAPod: its own addresses, and those of a pod on the host network are the node's and not its own.
func TestEndpointOfAPod(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"},
		Spec:   corev1.PodSpec{NodeName: "w1"},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.8.1.5"}, {IP: "fd00:8:1::5"}, {IP: "none"}}}}
	e := endpointOf("c1", &pod)
	if e.Host || e.Node != "w1" || len(e.Addresses) != 2 || e.String() != "pod shop/web-0 of c1" {
		t.Errorf("%+v", e)
	}
	pod.Spec.HostNetwork = true
	if e := endpointOf("c1", &pod); !e.Host || len(e.Addresses) != 0 {
		t.Errorf("%+v", e)
	}
}
