// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Board shows which reports on exports are refused to whoever sums up a ClusterSet.
type Board struct {
	// Changed tells of a ClusterSet whose Problems have changed.
	Changed chan event.GenericEvent

	mu    sync.Mutex
	shown map[Shard][]v1alpha1.Problem
}

// NewBoard returns an empty Board.
func NewBoard() *Board {
	return &Board{Changed: make(chan event.GenericEvent), shown: map[Shard][]v1alpha1.Problem{}}
}

// Problems of a ClusterSet, in no order.
func (b *Board) Problems(set string) []v1alpha1.Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []v1alpha1.Problem
	for shard, problems := range b.shown {
		if shard.Set == set {
			out = append(out, problems...)
		}
	}
	return out
}

// show replaces what is shown of a shard.
func (b *Board) show(ctx context.Context, shard Shard, problems []v1alpha1.Problem) {
	b.mu.Lock()
	same := slices.Equal(b.shown[shard], problems)
	if len(problems) == 0 {
		delete(b.shown, shard)
	} else {
		b.shown[shard] = problems
	}
	b.mu.Unlock()
	if same {
		return
	}
	select {
	case b.Changed <- event.GenericEvent{Object: &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: shard.Set}}}:
	case <-ctx.Done():
	}
}

// forget drops a ClusterSet that is gone.
func (b *Board) forget(set string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.shown, func(s Shard, _ []v1alpha1.Problem) bool { return s.Set == set })
}

// refused returns why reports are not used, by cluster.
func (in *Input) refused() []v1alpha1.Problem {
	var out []v1alpha1.Problem
	for i := range in.Members {
		if p := in.Members[i].Refused; p != nil {
			out = append(out, *p)
		}
	}
	return out
}
