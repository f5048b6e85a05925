// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	gatewayset "github.com/sealane-io/sealane/memberagent/cluster/gateways"
)

// rollOut says how far the nodes have come with the agents that the DaemonSet brings; nil while there is none. Its
// newest pods are of the revision that it brings: it makes no others. A node that is not ready has no say, for nothing
// can be brought to it.
func rollOut(agents []nodeAgent, nodes []corev1.Node) *v1alpha1.RollOutReport {
	agents = slices.DeleteFunc(slices.Clone(agents), func(a nodeAgent) bool { return a.ending || a.revision == "" })
	if len(agents) == 0 {
		return nil
	}
	r := &v1alpha1.RollOutReport{Revision: newest(agents).revision}
	ready := map[string]bool{}
	for i := range nodes {
		ready[nodes[i].Name] = gatewayset.Ready(&nodes[i])
	}
	has, updated, outdated := map[string]bool{}, map[string]bool{}, map[string]bool{}
	last, failing := int64(0), []string(nil)
	for _, a := range agents {
		if !ready[a.node] {
			continue
		}
		has[a.node] = true
		if a.revision == r.Revision && a.trouble() != "" {
			failing = append(failing, fmt.Sprintf("pod %s of node %s: %s", a.pod, a.node, a.trouble()))
		}
		switch {
		case a.revision != r.Revision:
			outdated[a.node] = true
		case !a.waits && !a.unready && a.programmed == v1alpha1.ReasonNodeProgrammed:
			updated[a.node] = true
		}
		if a.revision == r.Revision && !a.waits && a.turned > last {
			last, r.LastNode = a.turned, a.node
		}
	}
	r.Nodes, r.Failing = int32(len(has)), clip.Text(strings.Join(failing[:min(few, len(failing))], "; "), maxRollOut)
	for node := range has {
		switch {
		case updated[node]:
			r.Updated++
		case outdated[node]:
			r.Outdated++
		}
	}
	return r
}

// maxRollOut bounds, in bytes, what is told of agents that fail.
const maxRollOut = 1024

// trouble is why an agent does not do what it is to, "" if it does or is about to.
func (a *nodeAgent) trouble() string {
	switch {
	case a.failing != "":
		return a.failing
	case a.programmed == v1alpha1.ReasonProgrammingFailed:
		return cmp.Or(a.message, v1alpha1.ReasonProgrammingFailed)
	}
	return ""
}

// newest of some agents; of two pods of the same second one that waits for the other.
func newest(agents []nodeAgent) nodeAgent {
	return slices.MaxFunc(agents, func(a, b nodeAgent) int {
		waits := func(n nodeAgent) int {
			if n.waits {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(waits(a), waits(b)), cmp.Compare(a.pod, b.pod))
	})
}
