// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// unrecorded is a client that fails to write ExportRecords for as long as it is told to.
type unrecorded struct {
	*shelf
	fails bool
}

func (u *unrecorded) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if _, ok := o.(*v1alpha1.ExportRecord); ok && u.fails {
		return errors.New("the API server does not answer")
	}
	return u.shelf.Create(ctx, o, opts...)
}

func (u *unrecorded) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if _, ok := o.(*v1alpha1.ExportRecord); ok && u.fails {
		return errors.New("the API server does not answer")
	}
	return u.shelf.Update(ctx, o, opts...)
}

// TestAnExportIsSeenForTheFirstTimeOnce: that the record of it is late, or cannot be written, makes it no younger with
// each look. All Bundles that have it would be written anew.
func TestAnExportIsSeenForTheFirstTimeOnce(t *testing.T) {
	for name, late := range map[string]func(p *played) (recovers func()){
		"the cache does not show what was recorded": func(p *played) func() {
			l := &lagging{shelf: p.shelf}
			l.catchUp()
			p.Client, p.Works = l, propagation.Writer{Client: l, Live: p.shelf}
			return l.catchUp
		},
		"it cannot be recorded": func(p *played) func() {
			u := &unrecorded{shelf: p.shelf, fails: true}
			p.Client = u
			return func() { u.fails = false }
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, manyServices(3, 40, 1))
			e := p.members[0].Exports[0]
			e.Name = "late"
			p.members[0].Exports = append(p.members[0].Exports, e)
			p.answer(0, 0)
			recovers := late(p)
			seen := func() map[string]time.Time {
				out := map[string]time.Time{}
				for _, m := range p.members[1:] {
					for _, i := range readSpec(p.own(m.Cluster)).Imports {
						if i.Name == e.Name {
							out[m.Cluster] = i.Clusters[0].CreatedAt.Time
						}
					}
				}
				return out
			}
			decide := func() {
				_, err := p.Reconcile(t.Context(), Shard{"blue", 0})
				if u, ok := p.Client.(*unrecorded); (err != nil) != (ok && u.fails) {
					t.Fatal(err)
				}
			}
			decide()
			first, writes := seen(), p.shelf.writes["Work"]
			if len(first) != 2 {
				t.Fatalf("the export has come to %v, want c2 and c3", first)
			}
			for range 29 {
				p.now = p.now.Add(time.Second)
				decide()
			}
			if n := p.shelf.writes["Work"] - writes; n > 0 {
				t.Errorf("%d writes in half a minute in which nothing has changed", n)
			}
			recovers()
			decide()
			var record v1alpha1.ExportRecord
			if err := p.shelf.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ExportRecordName("c1", 0)}, &record); err != nil {
				t.Fatal(err)
			}
			for _, s := range record.Spec.Seen {
				if s.Name == e.Name && !s.FirstSeen.Truncate(time.Second).Equal(first["c2"]) {
					t.Errorf("recorded as seen %s, told as of %s", s.FirstSeen, first["c2"])
				}
			}
			p.forget()
			p.seen = nil // a restart
			decide()
			if last := seen(); !maps.Equal(last, first) {
				t.Errorf("since %v, and then since %v", first, last)
			}
		})
	}
}
