// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestStormBrokers: a broker of before, and one with deltas again.
func TestStormBrokers(t *testing.T) {
	storms(t, 60, func(s *storm, seed uint64, crash float64) {
		s.brokers = true
		turn := func() {
			s.early = !s.early
			s.note("early %t", s.early)
			s.tell()
			if s.rnd.IntN(2) == 0 {
				s.restart()
			}
		}
		for round := range 2 {
			s.whirl(60, crash, turn)
			s.early = false
			s.tell()
			s.calm(fmt.Sprint("round ", round), crash/5)
		}
	})
}

// TestStormAgents: an agent that reads deltas, and does not.
func TestStormAgents(t *testing.T) {
	storms(t, 60, func(s *storm, seed uint64, crash float64) {
		turn := func() {
			s.deltas = !s.deltas
			s.lenient = true
			s.note("deltas %t", s.deltas)
			if s.rnd.IntN(2) == 0 {
				s.tell()
			}
		}
		for round := range 2 {
			s.lenient = false
			s.whirl(60, crash, turn, func() { s.tell() })
			s.deltas = true
			s.tell()
			s.look()
			s.calm(fmt.Sprint("round ", round), crash/5)
			s.lenient = false
			s.whirl(30, crash)
			s.calm(fmt.Sprint("round later ", round), crash/5)
		}
	})
}

// TestStormVandals: Works are deleted and tampered with.
func TestStormVandals(t *testing.T) {
	storms(t, 60, func(s *storm, seed uint64, crash float64) {
		some := func() *workv1alpha1.Work {
			works := s.works()
			if s.rnd.IntN(2) == 0 {
				if _, ok := v1alpha1.ParseDeltaName(s.object(&works[len(works)-1]).Name); ok {
					return &works[len(works)-1]
				}
			}
			return &works[s.rnd.IntN(len(works))]
		}
		write := func(work *workv1alpha1.Work, f func(b *v1alpha1.Bundle)) {
			b := s.object(work)
			s.note("tamper %s", b.Name)
			f(b)
			raw, _ := json.Marshal(b)
			work.Spec.Workload.Manifests[0].Raw = raw
			s.shelf.put(work)
		}
		kinds := []func(){
			func() { w := some(); s.note("delete %s", s.object(w).Name); _ = s.shelf.Delete(s.t.Context(), w) },
			func() {
				write(some(), func(b *v1alpha1.Bundle) {
					b.Spec.Sequence = []int64{1 << 53, 1<<52 + 5, 1 << 52, 1<<52 - 1, 1<<52 - 7, s.now.UnixMilli() + 3600_000,
						s.now.UnixMilli() - 3600_000, 1, 0}[s.rnd.IntN(9)]
				})
			},
			func() { write(some(), func(b *v1alpha1.Bundle) { b.Spec.Imports = nil }) },
			func() {
				write(some(), func(b *v1alpha1.Bundle) {
					for i := range b.Spec.Imports {
						b.Spec.Imports[i].Name += "-x"
					}
				})
			},
			func() { write(&s.works()[0], func(b *v1alpha1.Bundle) { b.Spec.Deltas = int32(s.rnd.IntN(128)) }) },
			func() { write(some(), func(b *v1alpha1.Bundle) { b.Spec.Revision = 1 << 52 }) },
			func() { // in the member
				for _, o := range s.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()] {
					s.note("delete in the member %s", o.GetName())
					_ = s.bundles.Delete(s.t.Context(), o)
					return
				}
			},
		}
		s.lenient = true
		for round := range 2 {
			s.whirl(40, crash, kinds...)
			s.calm(fmt.Sprint("round ", round), crash/5)
		}
	})
}

// TestStormDeletions: Works and the member's Bundles are deleted, without a crash.
func TestStormDeletions(t *testing.T) {
	storms(t, 60, func(s *storm, seed uint64, _ float64) {
		kinds := []func(){
			func() {
				works := s.works()
				w := &works[s.rnd.IntN(len(works))]
				s.note("delete %s", s.object(w).Name)
				_ = s.shelf.Delete(s.t.Context(), w)
			},
			func() { // in the member
				for _, o := range s.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()] {
					s.note("delete in the member %s", o.GetName())
					_ = s.bundles.Delete(s.t.Context(), o)
					return
				}
			},
		}
		for round := range 2 {
			s.whirl(40, 0, kinds...)
			s.calm(fmt.Sprint("round ", round), 0)
		}
	})
}

// TestStormRestores: Karmada is restored from a backup.
func TestStormRestores(t *testing.T) {
	storms(t, 60, func(s *storm, seed uint64, crash float64) {
		for round := range 3 {
			s.lenient = false
			s.whirl(20, crash)
			backup := s.works()
			s.whirl(30, crash)
			s.lenient = true
			s.left = map[string]bool{}
			for _, o := range s.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()] {
				s.left[o.GetName()] = true
			}
			for _, w := range s.works() {
				if !slices.ContainsFunc(backup, func(b workv1alpha1.Work) bool { return b.Name == w.Name }) {
					_ = s.shelf.Delete(s.t.Context(), &w)
				}
			}
			for i := range backup {
				s.shelf.put(&backup[i])
			}
			if seed%2 == 0 {
				s.now = s.now.Add(-time.Hour)
			}
			s.restart()
			s.look()
			if s.rnd.IntN(2) == 0 {
				s.whirl(20, crash)
			}
			s.calm(fmt.Sprint("round ", round), crash/5)
		}
	})
}

// TestStormAll: all at once, but for what nobody can know after a crash.
func TestStormAll(t *testing.T) {
	storms(t, 60, func(s *storm, seed uint64, crash float64) {
		kinds := append(s.ofServices(),
			func() { s.absent = !s.absent; s.note("absent %t", s.absent); s.look() },
			func() { // in the member
				for _, o := range s.bundles.objects[reflect.TypeFor[*v1alpha1.Bundle]()] {
					s.note("delete in the member %s", o.GetName())
					_ = s.bundles.Delete(s.t.Context(), o)
					return
				}
			})
		if crash == 0 {
			kinds = append(kinds, func() {
				works := s.works()
				w := &works[s.rnd.IntN(len(works))]
				s.note("terminate %s", s.object(w).Name)
				w.DeletionTimestamp = &metav1.Time{Time: s.now}
				s.shelf.put(w)
			}, s.terminated)
		}
		for round := range 2 {
			s.whirl(60, crash, kinds...)
			s.absent = false
			s.look()
			s.terminated()
			s.calm(fmt.Sprint("round ", round), crash/5)
		}
	})
}
