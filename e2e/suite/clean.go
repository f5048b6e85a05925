// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/e2e/lab"
)

// NodesClean waits until no link, route, rule, table or firewall rule of Sealane is left on a cluster's nodes.
func NodesClean(t *testing.T, cluster string) {
	t.Helper()
	for _, c := range Lab().Topology.Clusters {
		for _, node := range c.Nodes {
			if c.Name == cluster {
				Eventually(t, Patience, func(ctx context.Context) error { return nodeClean(ctx, Lab(), node.Name) })
			}
		}
	}
}

func nodeClean(ctx context.Context, l *lab.Lab, node string) error {
	for what, argv := range map[string][]string{
		`sl-`:        {"ip", "-o", "link"},
		`proto 81`:   {"ip", "route", "show", "table", "all"},
		`lookup 510`: {"ip", "rule"},
		`sealane`:    {"nft", "list", "tables"},
		`"sl-`:       {"nft", "list", "ruleset"},
		`-i sl-`:     {"iptables-save"},
	} {
		out, err := l.InNode(ctx, node, argv...)
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(string(out), "\n") {
			if strings.Contains(line, what) {
				return fmt.Errorf("%s is not clean: %v: %s", node, argv, line)
			}
		}
	}
	return nil
}
