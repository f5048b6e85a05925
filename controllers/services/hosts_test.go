// SPDX-License-Identifier: Apache-2.0

package services

import (
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestHostsOutside: a host outside the exporter is imported by its global address where the exporter is known by its
// block. Nobody else gets it, nor anybody one without a global address of that block.
func TestHostsOutside(t *testing.T) {
	const pods = "web-0=242.1.0.10 web-2=242.1.0.12"
	for _, c := range []struct {
		name, ip, global string
		toAll, headless  bool
		toC2, toC3       string
		says             string
	}{
		{"known by its block to all", "172.31.1.50", "242.1.0.11", true, true,
			"web-0=242.1.0.10 web-1=242.1.0.11 web-2=242.1.0.12",
			"web-0=242.1.0.10 web-1=242.1.0.11 web-2=242.1.0.12", ""},
		{"known by its block to some", "172.31.1.50", "242.1.0.11", false, true,
			"web-0=242.1.0.10 web-1=242.1.0.11 web-2=242.1.0.12", "web-0=10.1.0.1 web-2=10.1.0.3",
			"1 hosts outside the cluster not reached by clusters that do not"},
		{"without a global address", "172.31.1.50", "", true, true, pods, pods,
			"complete these in the ClusterSet, spec.clusters, or externalCIDRs there"},
		{"with one of another", "172.31.1.50", "242.2.0.11", true, true, pods, pods,
			"externalCIDRs"},
		{"with one for what is sent", "172.31.1.50", "242.1.128.11", true, true, pods, pods,
			"externalCIDRs"},
		{"a service of the cluster", "10.101.0.10", "242.1.0.11", true, true, pods, pods,
			"externalCIDRs"},
		{"not headless", "172.31.1.50", "242.1.0.11", false, false, "", "web-0=10.1.0.1 web-2=10.1.0.3",
			"complete these in the ClusterSet, spec.clusters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := web(1, withPods("242.1.0.10", c.global, "242.1.0.12"))
			if !c.headless {
				e.Settings.Type = v1alpha1.ClusterSetIP
			}
			e.Backends[0].Addresses[1].IP = c.ip
			d := Decide(Input{Shards: 1, Now: now,
				Members: []Member{withBlock(cluster(1, e), 1, c.toAll, "c2"), cluster(2), cluster(3)}})
			for importer, want := range map[string]string{"c2": c.toC2, "c3": c.toC3} {
				if got := podsIn(d, importer); got != want {
					t.Errorf("%s gets %q, want %q", importer, got, want)
				}
			}
			var said []string
			for _, x := range d.Bundles["c1"].ExportConditions {
				said = append(said, x.Message)
			}
			if text := strings.Join(said, "\n"); !strings.Contains(text, c.says) {
				t.Errorf("conditions %q, want %q", text, c.says)
			}
		})
	}
}
