// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// ProblemIndex holds what is wrong with the exports of each ClusterSet, for whoever sums that up.
type ProblemIndex struct {
	// Changed tells of a ClusterSet whose Problems have changed.
	Changed chan event.GenericEvent

	mu      sync.Mutex
	byShard map[Shard][]v1alpha1.Problem
}

// NewProblemIndex returns an empty index.
func NewProblemIndex() *ProblemIndex {
	return &ProblemIndex{Changed: make(chan event.GenericEvent), byShard: map[Shard][]v1alpha1.Problem{}}
}

// Problems of a ClusterSet, in no order.
func (x *ProblemIndex) Problems(set string) []v1alpha1.Problem {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []v1alpha1.Problem
	for shard, problems := range x.byShard {
		if shard.Set == set {
			out = append(out, problems...)
		}
	}
	return out
}

// set replaces the Problems of a shard.
func (x *ProblemIndex) set(ctx context.Context, shard Shard, problems []v1alpha1.Problem) {
	x.mu.Lock()
	same := slices.Equal(x.byShard[shard], problems)
	if len(problems) == 0 {
		delete(x.byShard, shard)
	} else {
		x.byShard[shard] = problems
	}
	x.mu.Unlock()
	if same {
		return
	}
	select {
	case x.Changed <- event.GenericEvent{Object: &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: shard.Set}}}:
	case <-ctx.Done():
	}
}

// forget drops a ClusterSet that is gone.
func (x *ProblemIndex) forget(set string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.byShard, func(s Shard, _ []v1alpha1.Problem) bool { return s.Set == set })
}

// fleetWide returns the Problems of a decision that somebody has to act on who sees no export: reports that are
// not used at all, members that ask for more than their share, and rules that cannot be used.
func fleetWide(in *Input, d *Decision) []v1alpha1.Problem {
	var out []v1alpha1.Problem
	for i := range in.Members {
		if p := in.Members[i].Refused; p != nil {
			out = append(out, *p)
		}
	}
	for _, p := range d.Problems {
		if p.Reason == v1alpha1.ReasonBundleFull {
			out = append(out, p)
		}
	}
	if err := InvalidExporters(&in.Services); err != nil && in.Shard == 0 {
		out = append(out, v1alpha1.Problem{Reason: ReasonInvalidExporters, Message: fmt.Sprintf(
			"%v; until it is corrected it selects no cluster, and only clusters that are named may export", err)})
	}
	return out
}
