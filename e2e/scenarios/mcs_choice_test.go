// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// choosing is which clusters serve.
func choosing() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"remote clusters share, and one without a backend is left out": remoteClustersShare,
		"more than a hundred pods disturb no connection":               crossingTheCap,
	}
}

// backends replaces what stands behind web in a cluster.
func (s site) backends(cluster string, list ...discoveryv1.Endpoint) {
	s.Helper()
	change(s, cluster, &discoveryv1.EndpointSlice{ObjectMeta: named("web")}, func(slice *discoveryv1.EndpointSlice) { slice.Endpoints = list })
}

func remoteClustersShare(t *testing.T) {
	s := newSite(t)
	for _, cluster := range []string{"c2", "c3"} {
		s.serve(cluster)
		s.export(cluster)
	}
	s.sources("c1", map[string]int{"c2": 1, "c3": 1})
	found := shares(t, "c1", "http://"+s.name(), 60, "c2", "c3")
	if found["c2"] < 10 || found["c3"] < 10 {
		t.Errorf("expected about 30 answers of each cluster, found %v", found)
	}
	shares(t, "c2", "http://"+s.name(), 10, "c2")
	s.backends("c2")
	s.sources("c1", map[string]int{"c3": 1})
	shares(t, "c1", "http://"+s.name(), 20, "c3")
	shares(t, "c2", "http://"+s.name(), 10, "c3")
	s.backends("c2", s.server("c2-worker"))
	s.sources("c2", map[string]int{"c2": 1})
	shares(t, "c1", "http://"+s.name(), 60, "c2", "c3")
	shares(t, "c2", "http://"+s.name(), 10, "c2")
}

// crossingTheCap: above a hundred pods the cluster's ClusterIP stands for them, and a connection to a pod that
// is still there lives on.
func crossingTheCap(t *testing.T) {
	s := newSite(t, "c1", "c2")
	s.serve("c2")
	s.export("c2")
	s.sources("c1", map[string]int{"c2": 1})
	answeredBy(t, "c1", clientOf("c1"), s.name(), "c2")
	type result struct {
		out string
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := in(t.Context(), "c1", clientOf("c1"), "tcp", "-duration=15s", s.name()+":80")
		ended <- result{out, err}
	}()
	pod := s.server("c2-gw")
	many := []discoveryv1.Endpoint{pod}
	for n := range 100 {
		many = append(many, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.9.1.%d", 150+n)}})
	}
	stands := func(address string) {
		t.Helper()
		s.sources("c1", map[string]int{"c2": 1})
		eventually(t, patience, func(ctx context.Context) error {
			list, err := s.slices(ctx, "c1")
			if err == nil && (len(list) != 1 || list[0].Endpoints[0].Addresses[0] != address) {
				err = fmt.Errorf("expected %s to stand for c2, found %+v", address, list)
			}
			return err
		})
	}
	s.backends("c2", many...)
	stands(s.clusterIP("c2"))
	s.backends("c2", pod)
	stands(pod.Addresses[0])
	if r := <-ended; r.err != nil {
		t.Errorf("the connection did not survive: %v\n%s", r.err, r.out)
	}
}

// TestAClusterThatCannotBeReachedDropsOut of DNS answers and endpoints within 2 s, and returns.
func TestAClusterThatCannotBeReachedDropsOut(t *testing.T) {
	s, flat := newSite(t), newSite(t)
	for _, cluster := range []string{"c2", "c3"} {
		s.serve(cluster)
		s.export(cluster)
		flat.serve(cluster, headless)
		flat.export(cluster)
	}
	both := []string{podIP(t, "c2", "server-c2-gw"), podIP(t, "c3", "server-c3-gw")}
	resolves(t, "c1", flat.name(), "A", both...)
	shares(t, "c1", "http://"+s.name(), 40, "c2", "c3")

	cut(t, "c3-gw")
	connection(t, "c1", "c3", func(status v1alpha1.ConnectionStatus) bool { return status != v1alpha1.ConnectionConnected })
	declared := time.Now()
	resolves(t, "c1", flat.name(), "A", both[0])
	took := time.Since(declared)
	t.Logf("out of DNS %s after the tunnel was declared down", took)
	if took > 2*time.Second {
		t.Errorf("expected c3's records to be gone within 2 s, found %s", took)
	}
	resolves(t, "c1", flat.name("c3"), "A")
	resolves(t, "c1", s.name("c3"), "A")
	s.sources("c1", map[string]int{"c2": 1})
	shares(t, "c1", "http://"+s.name(), 20, "c2")
	// c3 goes on with what it has.
	shares(t, "c3", "http://"+s.name(), 10, "c3")

	mend(t, "c3-gw")
	connection(t, "c1", "c3", func(status v1alpha1.ConnectionStatus) bool { return status == v1alpha1.ConnectionConnected })
	declared = time.Now()
	resolves(t, "c1", flat.name(), "A", both...)
	t.Logf("back in DNS %s after the tunnel was declared up", time.Since(declared))
	shares(t, "c1", "http://"+s.name(), 40, "c2", "c3")
}

// cut keeps a gateway's tunnels from being heard, as a firewall on the way would, until mend.
func cut(t *testing.T, node string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		// It may be mended already.
		_, _ = shared.Lab.InNode(ctx, node, "nft", "delete", "table", "inet", "cut")
	})
	rules := "table inet cut {\n" +
		" chain in { type filter hook prerouting priority -500; udp dport 4500 drop; udp sport 4500 drop; }\n" +
		" chain out { type filter hook output priority -500; udp dport 4500 drop; udp sport 4500 drop; }\n}"
	if _, err := shared.Lab.InNode(t.Context(), node, "nft", rules); err != nil {
		t.Fatal(err)
	}
}

func mend(t *testing.T, node string) {
	t.Helper()
	if _, err := shared.Lab.InNode(t.Context(), node, "nft", "delete", "table", "inet", "cut"); err != nil {
		t.Fatal(err)
	}
}

// connection waits until what a cluster's gateways report of a remote cluster is as it should be.
func connection(t *testing.T, cluster, remote string, is func(v1alpha1.ConnectionStatus) bool) {
	t.Helper()
	a, err := shared.API(cluster)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func(ctx context.Context) error {
		list := &v1alpha1.GatewayList{}
		if err := a.List(ctx, list, client.InNamespace("")); err != nil {
			return err
		}
		var found []string
		for _, g := range list.Items {
			for _, c := range g.Status.Connections {
				if c.Cluster == remote && is(c.Status) {
					return nil
				}
				found = append(found, c.Cluster+": "+string(c.Status))
			}
		}
		return errors.New(strings.Join(found, ", "))
	})
}
