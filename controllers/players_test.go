// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// counter counts what the broker reads and writes of single Works, and writes of Members' status.
type counter struct {
	next  http.RoundTripper
	fleet *fleet
}

func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	parts := strings.Split(req.URL.Path, "/")
	if works := len(parts) > 6 && parts[6] == "works"; works && req.Method == http.MethodGet {
		c.fleet.mu.Lock()
		c.fleet.reads++
		c.fleet.mu.Unlock()
	} else if works {
		c.fleet.mu.Lock()
		c.fleet.writes[strings.TrimPrefix(parts[5], "karmada-es-")+" "+req.Method]++
		c.fleet.sent += req.ContentLength
		c.fleet.mu.Unlock()
	} else if len(parts) > 5 && parts[4] == "members" && req.Method == http.MethodPut {
		c.fleet.mu.Lock()
		c.fleet.recorded[parts[5]]++
		c.fleet.mu.Unlock()
	}
	metadata := strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadataList")
	if metadata && len(parts) == 5 && parts[4] == "members" && c.fleet.keepsSilent() {
		return nil, errors.New("the test has the API server keep silent")
	}
	return c.next.RoundTrip(req)
}

// keepsSilent says whether the API server does not say what there is of the Members.
func (f *fleet) keepsSilent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.silent
}

// decided is how often the broker's controller of a name has decided.
func (f *fleet) decided(controller string) (times uint64) {
	f.t.Helper()
	families, err := f.registry.Gather()
	f.must(err)
	for _, family := range families {
		if family.GetName() != "sealane_decide_duration_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == controller {
				times += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return times
}

// records returns how often the status of a Member was written.
func (f *fleet) records(cluster string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recorded[cluster]
}

// counted returns the writes since the last call.
func (f *fleet) counted() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.writes
	f.writes = map[string]int{}
	return out
}

// playAgents does what Karmada and the agents do: a Work that is deleted goes, and a Work whose revision
// is not answered gets the status that its member reports.
func (f *fleet) playAgents(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var works workv1alpha1.WorkList
		if f.client.List(ctx, &works) != nil {
			continue
		}
		for i := range works.Items {
			f.playWork(ctx, &works.Items[i])
		}
	}
}

func (f *fleet) playWork(ctx context.Context, work *workv1alpha1.Work) {
	if !work.DeletionTimestamp.IsZero() {
		work.Finalizers = nil
		_ = f.client.Update(ctx, work)
		return
	}
	raw := f.answer(work)
	if raw == nil || string(raw) == string(propagation.Status(work)) {
		return
	}
	work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{
		Identifier: workv1alpha1.ResourceIdentifier{Version: "v1alpha1", Kind: "X", Resource: "x", Name: "x"},
		Status:     &runtime.RawExtension{Raw: raw},
	}}
	_ = f.client.Status().Update(ctx, work)
}

// answer is what the member would report on a Work, nil if it is silent.
func (f *fleet) answer(work *workv1alpha1.Work) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	cluster := propagation.ClusterOf(work)
	if work.Labels[propagation.LabelKind] == propagation.KindPeering {
		if raw, ok := f.raw[cluster]; ok {
			return raw
		}
	}
	report, ok := f.reports[cluster]
	if !ok {
		return nil
	}
	var status any
	if work.Labels[propagation.LabelKind] == propagation.KindPeering {
		var spec v1alpha1.PeeringSpec
		if propagation.Spec(work, &spec) != nil {
			return nil
		}
		report.ObservedRevision = spec.Revision
		status = report
	} else {
		if raw, ok := f.rawBundle[cluster]; ok {
			return raw
		}
		var spec v1alpha1.BundleSpec
		if propagation.Spec(work, &spec) != nil {
			return nil
		}
		bundle, half := v1alpha1.BundleStatus{ObservedRevision: spec.Revision}, work.Labels[propagation.LabelHalf]
		for _, e := range f.exports[cluster] {
			if half == "" && v1alpha1.Shard(e.Namespace, e.Name, 4) == spec.Shard {
				bundle.Exports = append(bundle.Exports, e)
			}
		}
		for _, p := range f.unusable[cluster] {
			p.Names = slices.DeleteFunc(slices.Clone(p.Names), func(name string) bool {
				return v1alpha1.Shard(p.Namespace, name, 4) != spec.Shard
			})
			if len(p.Names) > 0 {
				bundle.Imports = append(bundle.Imports, p)
			}
		}
		status = bundle
	}
	// The API server keeps the keys of raw JSON in order; so must a comparison.
	data, _ := json.Marshal(status)
	var sorted map[string]any
	_ = json.Unmarshal(data, &sorted)
	data, _ = json.Marshal(sorted)
	return data
}
