// SPDX-License-Identifier: Apache-2.0

// Package mailbox writes what this cluster reports: Peering.status and Bundle.status. Every write travels
// through Karmada to all other clusters, so there is one only when something changed, at once for the first
// change, and one for all changes of the next 100 ms. What is measured waits for longer (measuredPace), and exports
// that change all the time for a second (internal/reportpace).
package mailbox

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/internal/reportpace"
)

// pace is the least time between two writes of one mailbox, nodesPace where the second only tells of nodes.
const (
	pace      = 100 * time.Millisecond
	nodesPace = time.Second
	// maxNodesPace is for a cluster of very many.
	maxNodesPace = 30 * time.Second
)

// countingPace is nodesPace where nothing is worse than it was. Each node reads the whole Peering for each write: the
// more nodes there are, the more of them are told of by one.
func countingPace(nodes int) time.Duration {
	const each = 10 * time.Millisecond
	return min(max(nodesPace, time.Duration(nodes)*each), maxNodesPace)
}

// pacer spaces the writes of mailboxes by name.
type pacer struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func newPacer() *pacer { return &pacer{last: map[string]time.Time{}} }

// wait returns how long the next write must wait, 0 for not at all.
func (p *pacer) wait(name string, now time.Time) time.Duration { return p.waitFor(name, pace, now) }

func (p *pacer) waitFor(name string, pace time.Duration, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(pace-now.Sub(p.last[name]), 0)
}

func (p *pacer) wrote(name string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[name] = now
}

// exportsPacer has the limiters of Bundles by name. The zero value is ready for use.
type exportsPacer struct {
	mu     sync.Mutex
	limits map[string]*rate.Limiter
}

func (p *exportsPacer) of(name string) *rate.Limiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limits == nil {
		p.limits = map[string]*rate.Limiter{}
	}
	if p.limits[name] == nil {
		p.limits[name] = reportpace.Exports()
	}
	return p.limits[name]
}

// wait returns how long the next report of exports must wait, 0 for not at all.
func (p *exportsPacer) wait(name string, now time.Time) time.Duration {
	missing := 1 - p.of(name).TokensAt(now)
	return max(time.Duration(missing*float64(reportpace.Every)), 0)
}

func (p *exportsPacer) wrote(name string, now time.Time) { p.of(name).AllowN(now, 1) }

// operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// replaceStatus replaces the whole status of exactly this object: one that was deleted and made anew is
// not written to, since the report was made for the old one.
func replaceStatus(ctx context.Context, c client.Client, o client.Object, status any) error {
	patch, err := json.Marshal([]operation{
		{Op: "test", Path: "/metadata/uid", Value: o.GetUID()},
		{Op: "add", Path: "/status", Value: status},
	})
	if err != nil {
		return fmt.Errorf("encode the status of %s: %w", o.GetName(), err)
	}
	// Of the answer nothing is read, and a Bundle is large.
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}
	kind, err := c.GroupVersionKindFor(o)
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", o.GetName(), err)
	}
	metadata.SetGroupVersionKind(kind)
	err = c.Status().Patch(ctx, metadata, client.RawPatch(types.JSONPatchType, patch))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", o.GetName(), err)
	}
	return nil
}
