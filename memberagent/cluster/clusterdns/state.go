// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// State is the latest condition DNSConfigured, and what of the Peering it holds for.
type State struct {
	mu        sync.Mutex
	known     bool
	phase     v1alpha1.MemberPhase
	domains   []string
	networks  v1alpha1.Networks
	condition metav1.Condition
	listeners []chan event.GenericEvent
}

// Changed returns a channel of its own for each caller, which receives an event after every change; several changes may
// share one.
func (s *State) Changed() <-chan event.GenericEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan event.GenericEvent, 1)
	s.listeners = append(s.listeners, c)
	return c
}

func (s *State) set(p *v1alpha1.Peering, c metav1.Condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := s.holds(p) && s.condition == c
	s.known, s.phase, s.domains, s.networks = true, p.Spec.Phase, slices.Clone(p.Spec.DNS.Domains),
		*p.Spec.Networks.DeepCopy()
	s.condition = c
	if same {
		return
	}
	for _, l := range s.listeners {
		select {
		case l <- event.GenericEvent{Object: p}:
		default:
		}
	}
}

// holds says whether the condition is about what the Peering says.
func (s *State) holds(p *v1alpha1.Peering) bool {
	return s.known && s.phase == p.Spec.Phase && slices.Equal(s.domains, p.Spec.DNS.Domains) &&
		equality.Semantic.DeepEqual(s.networks, p.Spec.Networks)
}

// Condition DNSConfigured. Until an agent that has just started has looked, it is the one that the Peering has; of a
// leaving cluster it is Pending then.
func (s *State) Condition(p *v1alpha1.Peering) metav1.Condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds(p) {
		return s.condition
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PeeringDNSConfigured); c != nil && !s.known &&
		p.Spec.Phase != v1alpha1.MemberLeaving {
		return *c
	}
	return no(ReasonPending, "the configuration of the cluster's DNS is about to be changed")
}
