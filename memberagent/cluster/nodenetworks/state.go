// SPDX-License-Identifier: Apache-2.0

package nodenetworks

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// hold is for how long the condition keeps its text, and for how long no pod may be missed until it is True: pods come
// and go, and what is said travels to Karmada.
const hold = time.Minute

// State is the latest condition PodsRouted, and which networks of the Peering it is about.
type State struct {
	mu        sync.Mutex
	networks  []string
	condition *metav1.Condition
	// said is when the condition was last set, amiss when a pod was last missed.
	said, amiss time.Time
	changed     chan event.GenericEvent
}

// NewState knows nothing.
func NewState() *State { return &State{changed: make(chan event.GenericEvent, 1)} }

// Changed returns the channel that receives an event after a change; several changes may share one.
func (s *State) Changed() <-chan event.GenericEvent { return s.changed }

// Condition PodsRouted; nil while it is not known of the Peering's networks, or there are none.
func (s *State) Condition(p *v1alpha1.Peering) *metav1.Condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.holds(p) {
		return nil
	}
	c := *s.condition
	return &c
}

// holds says whether the condition is about the Peering's networks.
func (s *State) holds(p *v1alpha1.Peering) bool {
	return s.condition != nil && slices.Equal(s.networks, p.Spec.Networks.PodCIDRs)
}

// set takes over what is missed. That something is, is said at once, and so is all after a change of networks; else
// what was said is held. It returns when to look again, 0 for nothing that is held.
func (s *State) set(p *v1alpha1.Peering, m missed, now time.Time) time.Duration {
	c := m.condition()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p.Spec.Networks.PodCIDRs) == 0 {
		s.condition = nil // the cluster is not accepted, which says more
		return 0
	}
	if c.Status == metav1.ConditionFalse {
		s.amiss = now
	}
	if s.holds(p) {
		if *s.condition == c {
			return 0
		}
		since := s.said
		if c.Status == metav1.ConditionTrue {
			since = s.amiss
		}
		if wait := hold - now.Sub(since); wait > 0 && s.condition.Status == metav1.ConditionFalse {
			return wait
		}
	}
	s.networks, s.condition, s.said = slices.Clone(p.Spec.Networks.PodCIDRs), &c, now
	select {
	case s.changed <- event.GenericEvent{Object: p}:
	default:
	}
	return 0
}
