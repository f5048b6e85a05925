// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/transitions"
)

// Reasons of Events on a ServiceImport.
const (
	EventServedBy  = "ServedBy"
	EventNotServed = "NotServed"
)

// maxServing is how many clusters an Event names.
const maxServing = 10

// announce tells which clusters connections to an import go to now, where that has changed: backends came or went, a
// cluster is not reached or is again, or the policy is another.
func (r *Reconciler) announce(in *Input, d *Decision) {
	if in.ServiceImport == nil || d.ServiceImport == nil {
		r.announced.forget(in.Key)
		return
	}
	after := serving(d.Slices)
	before, news := r.announced.news(in.Key, serving(in.Slices), after)
	if !news {
		return
	}
	if len(after) == 0 {
		transitions.Say(r.Events, in.ServiceImport, corev1.EventTypeWarning, EventNotServed, fmt.Sprintf(
			"no cluster that is connected has a ready backend; the last to serve: %s", clip.List(before, maxServing)))
		return
	}
	text := "connections go to " + clip.List(after, maxServing)
	if len(before) > 0 {
		text += "; before, to " + clip.List(before, maxServing)
	}
	transitions.Say(r.Events, in.ServiceImport, corev1.EventTypeNormal, EventServedBy, text)
}

// announced remembers what was told last of each import: the slices in the cache may be older than that.
type announced struct {
	mu   sync.Mutex
	last map[types.NamespacedName][]string
}

// news says whether clusters are others than were told last, or where nothing was told, than there are; and which those
// were.
func (a *announced) news(key types.NamespacedName, there, clusters []string) (before []string, news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, told := a.last[key]
	if !told {
		before = there
	}
	if slices.Equal(before, clusters) {
		return before, false
	}
	if a.last == nil {
		a.last = map[types.NamespacedName][]string{}
	}
	a.last[key] = clusters
	return before, true
}

func (a *announced) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.last, key)
}

// serving are the clusters that have ready endpoints in the slices of an import, sorted.
func serving(of []discoveryv1.EndpointSlice) []string {
	var out []string
	for i := range of {
		ready := slices.ContainsFunc(of[i].Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Ready == nil || *e.Conditions.Ready
		})
		if cluster := of[i].Labels[mcs.LabelSourceCluster]; ready && cluster != "" && !slices.Contains(out, cluster) {
			out = append(out, cluster)
		}
	}
	slices.Sort(out)
	return out
}
