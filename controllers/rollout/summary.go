// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// Count returns how many members are in each state.
func Count(records map[string]*v1alpha1.MemberRollOut) map[v1alpha1.RollOutState]int {
	out := map[v1alpha1.RollOutState]int{}
	for _, r := range records {
		out[r.State]++
	}
	return out
}

// decision sums up.
func (c *decider) decision() Decision {
	d := Decision{Records: map[string]*v1alpha1.MemberRollOut{}, Again: c.again}
	var waiting []string
	for _, m := range c.members {
		d.Records[m.Name] = m.r
		if m.r.State == v1alpha1.RollOutWaiting {
			waiting = append(waiting, m.Name)
		}
	}
	slices.Sort(waiting)
	if len(d.Records) == 0 {
		return d
	}
	stopped := ""
	for _, m := range c.members {
		if m.r.State != v1alpha1.RollOutStopped {
			continue
		}
		message := fmt.Sprintf("the roll-out of node agents has stopped at %s: %s", m.Name, m.r.Message)
		if m == c.turn && len(waiting) > 0 {
			message += fmt.Sprintf("; waiting for it with old agents: %s", clip.List(waiting, maxNamed))
		}
		switch {
		case m.Lost && m == c.turn:
			message += "; they go on without it after " + patience.String() + ", unless it is the second: see to the cluster, " +
				"or make it leave"
		case m.Lost:
			message += "; the others go on without it: see to the cluster, or make it leave"
		default:
			message += "; it goes on when that is repaired: install a bundle that works, or the former one, with which the " +
				"old agents come back"
		}
		if stopped == "" || m == c.turn {
			stopped = message
		}
		d.Problems = append(d.Problems, v1alpha1.Problem{Cluster: m.Name, Reason: v1alpha1.ReasonRollOutStopped,
			Message: message})
	}
	d.Condition = c.condition(waiting, stopped, Count(d.Records))
	return d
}

func (c *decider) condition(waiting []string, stopped string, count map[v1alpha1.RollOutState]int) *metav1.Condition {
	o := &metav1.Condition{Type: v1alpha1.ClusterSetRolledOut, Status: metav1.ConditionFalse}
	total := len(c.members)
	switch {
	case stopped != "":
		o.Reason, o.Message = v1alpha1.ReasonRollOutStopped, stopped
	case count[v1alpha1.RollOutDone] == total:
		o.Status, o.Reason = metav1.ConditionTrue, v1alpha1.ReasonRolledOut
		o.Message = fmt.Sprintf("%d of %d members have the node agents that their DaemonSets bring", total, total)
	default:
		o.Reason = v1alpha1.ReasonRollingOut
		o.Message = fmt.Sprintf("%d of %d members have the node agents that their DaemonSets bring",
			count[v1alpha1.RollOutDone], total)
		if c.turn != nil {
			o.Message += fmt.Sprintf("; it is the turn of %s, where %s", c.turn.Name, c.turn.r.Message)
		}
		if len(waiting) > 0 {
			o.Message += "; waiting: " + clip.List(waiting, maxNamed)
		}
	}
	return o
}
