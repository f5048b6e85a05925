// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"os"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/e2e/suite"
)

// TestNodesAreAsStrictAsRealOnes: what the other tests found to work, works against these settings.
func TestNodesAreAsStrictAsRealOnes(t *testing.T) {
	settings := map[string]string{"net/ipv4/conf/all/rp_filter": "1"}
	if _, err := os.Stat("/proc/sys/net/bridge"); err == nil {
		settings["net/bridge/bridge-nf-call-iptables"] = "1"
	} else {
		t.Log("bridge-nf-call-iptables: not tested, this kernel has no br_netfilter")
	}
	for _, c := range suite.Lab().Topology.Clusters {
		for _, node := range c.Nodes {
			for setting, want := range settings {
				out, err := suite.Lab().InNode(t.Context(), node.Name, "cat", "/proc/sys/"+setting)
				if got := strings.TrimSpace(string(out)); err != nil || got != want {
					t.Errorf("%s: %s is %q, expected %s: %v", node.Name, setting, got, want, err)
				}
			}
			out, err := suite.Lab().InNode(t.Context(), node.Name, "iptables", "-S", "FORWARD")
			if want := "-P FORWARD " + c.ForwardPolicy; err != nil || !strings.HasPrefix(string(out), want) {
				t.Errorf("%s: expected %q, found %v: %s", node.Name, want, err, out)
			}
		}
	}
}
