// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// answers are the revisions of Bundles of deltas that a member says to have, by their numbers, in the Work of a Bundle
// that has nothing else: what an API server does with an answer grows with the Work that it is in, and deltas are
// large. What the same Work says is not read again.
type answers struct {
	uid        types.UID
	version    string
	generation int64
	revisions  []int64
	// other says that the Work carries something else than it should, and terminating that it is being deleted.
	other, terminating bool
	// sent is what the Work was when it was last written by this controller, and written when that was.
	sent    propagation.Written
	written time.Time
}

// forAnswers is what the Work carries, which never changes.
func forAnswers() *Bundle {
	return &Bundle{Revision: 1, Imports: []*v1alpha1.Import{},
		ExportConditions: []v1alpha1.ExportCondition{}}
}

// maxAnswers is the largest status that is read, in bytes: several times what an agent writes.
const maxAnswers = 16 << 10

// read reads what is new of the Work, nil if there is none. What cannot be decoded is no answer, and what is too much
// is left out.
func (a *answers) read(work *workv1alpha1.Work) {
	if work, a.terminating = lasting(work); work == nil {
		*a = answers{terminating: a.terminating, sent: a.sent, written: a.written}
		return
	}
	if a.version != "" && a.uid == work.UID && a.version == work.ResourceVersion {
		return
	}
	if a.version == "" || a.uid != work.UID || a.generation != work.Generation {
		spec := readSpec(work)
		a.other = spec == nil || !comparison{}.bundles(spec, forAnswers())
	}
	a.uid, a.version, a.generation, a.revisions = work.UID, work.ResourceVersion, work.Generation, nil
	raw := propagation.Status(work)
	var status struct {
		Deltas []int64 `json:"deltas"`
	}
	if len(raw) > maxAnswers || json.Unmarshal(raw, &status) != nil {
		return
	}
	a.revisions = slices.Clone(status.Deltas[:min(len(status.Deltas), v1alpha1.MaxDeltas)])
}

// absent says that there is no Work that carries what it should, and that one may be written. What a webhook made of
// what was sent would be made of it again.
func (a *answers) absent() bool {
	asSent := a.sent.UID == a.uid && a.sent.Generation == a.generation
	return (a.version == "" || a.other && !asSent) && !a.terminating
}

// missing says that the Work is to be written. Who changes it all the time has it written each minute.
func (a *answers) missing(now time.Time) bool {
	return a.absent() && now.Sub(a.written) > propagation.MaxCacheLag
}

// wanted says that the Work is missing where there are deltas to answer, and later when it will be to be written; 0 is
// never.
func (a *answers) wanted(d *deltas, now time.Time) bool { return len(d.boxes) > 0 && a.missing(now) }

func (a *answers) later(d *deltas, now time.Time) time.Duration {
	if len(d.boxes) == 0 || !a.absent() || a.missing(now) {
		return 0
	}
	return a.written.Add(propagation.MaxCacheLag + time.Second).Sub(now)
}

// to is the revision that is answered of a Bundle of deltas, 0 if none is.
func (a *answers) to(n int) int64 {
	if n >= len(a.revisions) {
		return 0
	}
	return a.revisions[n]
}

// applyAnswers writes the Work of the Bundle that is to have the answers.
func (r *Reconciler) applyAnswers(ctx context.Context, d *deltas, encoded *encoder) error {
	raw, err := encoded.bundle(forAnswers(), true)
	if err != nil {
		return fmt.Errorf("encode the Bundle for answers of %s: %w", d.cluster, err)
	}
	// Also where that fails, as by rights of before: deltas do not wait for it, as members answer in these then.
	d.mu.Lock()
	d.answers.written = r.Now()
	d.mu.Unlock()
	written, err := r.Works.ApplyAnswers(ctx, d.cluster, raw)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.answers.sent = propagation.Written{UID: written.UID, Generation: written.Generation}
	d.mu.Unlock()
	r.Metrics.Wrote(propagation.KindBundle)
	return nil
}
