// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/dataplane/topology"
)

// refused says what was left out of a topology and why, as many as there is room for; empty if nothing.
func refused(problems []topology.Problem) string {
	var out strings.Builder
	for i, p := range problems {
		text := fmt.Sprintf("%s: %s: %s", p.Ref, p.Reason, p.Message)
		if i > 0 {
			text = "; " + text
		}
		if out.Len()+len(text) > maxRefused {
			fmt.Fprintf(&out, "; and %d more", len(problems)-i)
			break
		}
		out.WriteString(text)
	}
	return strings.ToValidUTF8(out.String(), "?")
}

func (a *Agent) logProblems(ctx context.Context, top topology.Topology) {
	for _, p := range top.Problems {
		logr.FromContextOrDiscard(ctx).V(1).Info("left out of the network", "object", p.Ref, "reason", p.Reason,
			"message", p.Message)
	}
}
