// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// Planned is what the agent wants of the node's kernel, and what there differs from it.
type Planned struct {
	// Holds are the lines of the plan, as plan.Plan prints it; none before there is one.
	Holds []string `json:"holds"`
	// Changes would make the kernel so; none if it is.
	Changes []string `json:"changes,omitempty"`
	// Problem is why the last sync failed; empty if it did not.
	Problem string `json:"problem,omitempty"`
}

// errNotAsked is what Planned returns of an agent whose loop does not come round.
var errNotAsked = errors.New("the agent's loop has not answered: it has not begun, or is busy")

// Planned asks the loop, which compares the plan with the kernel between two rounds and changes nothing by that.
func (a *Agent) Planned(ctx context.Context) (Planned, error) {
	answer := make(chan Planned, 1)
	select {
	case a.asked <- answer:
	case <-ctx.Done():
		return Planned{}, fmt.Errorf("%w: %w", errNotAsked, ctx.Err())
	}
	select {
	case p := <-answer:
		return p, nil
	case <-ctx.Done():
		return Planned{}, fmt.Errorf("%w: %w", errNotAsked, ctx.Err())
	}
}

// planned is the loop's answer.
func (a *Agent) planned(ctx context.Context) Planned {
	p := Planned{Holds: linesOf(a.plan.String())}
	if a.syncErr != nil {
		p.Problem = a.syncErr.Error()
	}
	have, err := a.kernel.Observe(ctx)
	if err != nil {
		p.Problem = errors.Join(a.syncErr, err).Error()
		return p
	}
	for _, c := range plan.Diff(a.plan, have) {
		p.Changes = append(p.Changes, c.String())
	}
	return p
}

func linesOf(text string) []string {
	out := []string{}
	for line := range strings.Lines(text) {
		out = append(out, strings.TrimRight(line, "\n"))
	}
	return out
}
