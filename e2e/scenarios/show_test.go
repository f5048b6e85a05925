// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"strings"
	"testing"
)

// TestShowTellsTheTruth is scenario 4 of the walkthrough: each table names what really is.
func TestShowTellsTheTruth(t *testing.T) {
	for command, words := range map[string][]string{
		"clusterset":  {"default"},
		"connections": {"c1", "c2", "c3", "c1-gw", "c2-gw", "c3-gw", "Connected"},
		"endpoints":   {"c1-gw", "c2-gw", shared.Lab.NodeAddress("c1-gw", "IPv4"), shared.Lab.NodeAddress("c2-gw", "IPv4")},
		"gateways":    {"c1-gw", "c2-gw", "c3-gw", "Active", "Userspace"},
		"networks":    {"10.8.0.0/16", "10.88.0.0/16", "10.9.0.0/16", "10.99.0.0/16", "10.110.0.0/16"},
		"versions":    {"c1", "c2", "c3"},
	} {
		t.Run(command, func(t *testing.T) {
			out := plugin(t, "show", command)
			for _, word := range words {
				if !strings.Contains(out, word) {
					t.Errorf("show %s: expected %q in\n%s", command, word, out)
				}
			}
		})
	}
}
