// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestAClusterThatCannotBeReachedDropsOut of DNS answers and endpoints within 2 s, and returns.
func TestAClusterThatCannotBeReachedDropsOut(t *testing.T) {
	s, flat := suite.NewNamespace(t), suite.NewNamespace(t)
	for _, cluster := range []string{"c2", "c3"} {
		s.Serve(cluster)
		s.Export(cluster)
		flat.Serve(cluster, suite.Headless)
		flat.Export(cluster)
	}
	both := []string{suite.PodIP(t, "c2", "server-c2-gw"), suite.PodIP(t, "c3", "server-c3-gw")}
	suite.Resolves(t, "c1", flat.DNSName(), "A", both...)
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 40, "c2", "c3")

	suite.Isolate(t, "c3-gw")
	suite.WaitConnection(t, "c1", "c3",
		func(status v1alpha1.ConnectionStatus) bool { return status != v1alpha1.ConnectionConnected })
	declared := time.Now()
	suite.Resolves(t, "c1", flat.DNSName(), "A", both[0])
	took := time.Since(declared)
	// What one look-up takes on this machine now, the start of a program in a pod included, is not DNS's.
	again := time.Now()
	suite.Resolves(t, "c1", flat.DNSName(), "A", both[0])
	lookUp := time.Since(again)
	t.Logf("out of DNS %s after the cable was declared down; a look-up takes %s", took, lookUp)
	if took > 2*time.Second+2*lookUp {
		t.Errorf("expected c3's records to be gone within 2 s and two look-ups of %s, found %s", lookUp, took)
	}
	suite.Resolves(t, "c1", flat.DNSName("c3"), "A")
	suite.Resolves(t, "c1", s.DNSName("c3"), "A")
	s.WaitEndpoints("c1", map[string]int{"c2": 1})
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 20, "c2")
	// c3 goes on with what it has.
	suite.AnsweredByAll(t, "c3", "http://"+s.DNSName(), 10, "c3")

	suite.Reconnect(t, "c3-gw")
	suite.WaitConnection(t, "c1", "c3",
		func(status v1alpha1.ConnectionStatus) bool { return status == v1alpha1.ConnectionConnected })
	declared = time.Now()
	suite.Resolves(t, "c1", flat.DNSName(), "A", both...)
	t.Logf("back in DNS %s after the tunnel was declared up", time.Since(declared))
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 40, "c2", "c3")
}
