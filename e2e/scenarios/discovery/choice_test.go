// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sealane-io/sealane/e2e/suite"
)

// choosing is which clusters serve.
func choosing() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"remote clusters share, and one without a backend is left out": remoteClustersShare,
		"more than a hundred pods disturb no connection":               crossingTheCap,
	}
}

func remoteClustersShare(t *testing.T) {
	s := suite.NewNamespace(t)
	for _, cluster := range []string{"c2", "c3"} {
		s.Serve(cluster)
		s.Export(cluster)
	}
	s.WaitEndpoints("c1", map[string]int{"c2": 1, "c3": 1})
	// Once both answer kube-proxy knows both, of which it may have learnt a second apart.
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 20, "c2", "c3")
	found := suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 60, "c2", "c3")
	if found["c2"] < 10 || found["c3"] < 10 {
		t.Errorf("expected about 30 answers of each cluster, found %v", found)
	}
	suite.AnsweredByAll(t, "c2", "http://"+s.DNSName(), 10, "c2")
	s.Backends("c2")
	s.WaitEndpoints("c1", map[string]int{"c3": 1})
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 20, "c3")
	suite.AnsweredByAll(t, "c2", "http://"+s.DNSName(), 10, "c3")
	s.Backends("c2", s.Server("c2-worker"))
	s.WaitEndpoints("c2", map[string]int{"c2": 1})
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 60, "c2", "c3")
	suite.AnsweredByAll(t, "c2", "http://"+s.DNSName(), 10, "c2")
}

// crossingTheCap: above a hundred pods the cluster's ClusterIP stands for them, and a connection to a pod that
// is still there lives on.
func crossingTheCap(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	s.Serve("c2")
	s.Export("c2")
	s.WaitEndpoints("c1", map[string]int{"c2": 1})
	suite.AnsweredBy(t, "c1", suite.ClientOf("c1"), s.DNSName(), "c2")
	type result struct {
		out string
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := suite.InPod(t.Context(), "c1", suite.ClientOf("c1"), "tcp", "-duration=15s", s.DNSName()+":80")
		ended <- result{out, err}
	}()
	pod := s.Server("c2-gw")
	many := []discoveryv1.Endpoint{pod}
	for n := range 100 {
		many = append(many, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.9.1.%d", 150+n)}})
	}
	stands := func(address string) {
		t.Helper()
		s.WaitEndpoints("c1", map[string]int{"c2": 1})
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			list, err := s.Slices(ctx, "c1")
			if err == nil && (len(list) != 1 || list[0].Endpoints[0].Addresses[0] != address) {
				err = fmt.Errorf("expected %s to stand for c2, found %+v", address, list)
			}
			return err
		})
	}
	s.Backends("c2", many...)
	stands(s.ClusterIP("c2"))
	s.Backends("c2", pod)
	stands(pod.Addresses[0])
	if r := <-ended; r.err != nil {
		t.Errorf("the connection did not survive: %v\n%s", r.err, r.out)
	}
}
