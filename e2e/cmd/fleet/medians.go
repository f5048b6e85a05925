// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sealane-io/sealane/e2e/fleet"
)

// alike says whether tables are of runs that may have a median: of fleets of one size, and with the same flags.
func alike(a, b *table) bool { return a.Size == b.Size && a.Machine.Command == b.Machine.Command }

// sameSize says whether tables stand for each other in the figures.
func sameSize(a, b *table) bool {
	return a.Size.Clusters == b.Size.Clusters && a.Size.Services == b.Size.Services
}

// withTable returns tables with t, in order of size. Of earlier runs of that size the latest stay beside it, so that
// there are no more than runs, and none that was asked for with other flags.
func withTable(tables []table, t table, runs int) []table {
	var out []table
	stay := runs - 1
	for i := range slices.Backward(tables) {
		old := &tables[i]
		switch {
		case !sameSize(old, &t):
			out = append(out, *old)
		case stay > 0 && alike(old, &t):
			out = append(out, *old)
			stay--
		}
	}
	slices.Reverse(out)
	out = append(out, t)
	slices.SortStableFunc(out, func(a, b table) int {
		return cmp.Or(cmp.Compare(a.Size.Clusters, b.Size.Clusters), cmp.Compare(a.Size.Services, b.Size.Services))
	})
	return out
}

// medians returns one table for each size, of which each figure is the median of its runs: of two the larger.
func medians(tables []table) []table {
	var out []table
	for begin := 0; begin < len(tables); {
		end := begin + 1
		for end < len(tables) && sameSize(&tables[begin], &tables[end]) {
			end++
		}
		out = append(out, medianOf(tables[begin:end]))
		begin = end
	}
	return out
}

// medianOf has the rows of the last of the runs, which are alike.
func medianOf(runs []table) table {
	out := runs[len(runs)-1]
	if len(runs) == 1 {
		return out
	}
	out.Machine = machines(runs)
	out.Stored = median(each(runs, func(t *table) int64 { return t.Stored }))
	out.Logged = nil
	for i := range runs {
		out.Logged = append(out.Logged, runs[i].Logged...)
	}
	out.Rows = slices.Clone(out.Rows)
	for i := range out.Rows {
		var same []reflect.Value
		for k := range runs {
			if r := runs[k].row(named(&out.Rows[i])); r != nil {
				same = append(same, reflect.ValueOf(r).Elem())
			}
		}
		setMedian(reflect.ValueOf(&out.Rows[i]).Elem(), same)
	}
	return out
}

// machines names what differs between runs one after the other.
func machines(runs []table) machine {
	out := runs[len(runs)-1].Machine
	fields := reflect.ValueOf(&out).Elem()
	for i := range fields.NumField() {
		if fields.Field(i).Kind() != reflect.String {
			continue
		}
		var texts []string
		for k := range runs {
			if text := reflect.ValueOf(runs[k].Machine).Field(i).String(); !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
		fields.Field(i).SetString(strings.Join(texts, "; "))
	}
	return out
}

// setMedian sets each number in out, and each quantile of latencies, to the median of those in the same place of the
// runs. What was lost is that of the run which lost most, for no loss may hide; and texts stay.
func setMedian(out reflect.Value, runs []reflect.Value) {
	switch {
	case out.Type() == reflect.TypeFor[fleet.Lost]():
		out.Set(slices.MaxFunc(runs, func(a, b reflect.Value) int {
			x, y := a.Interface().(fleet.Lost), b.Interface().(fleet.Lost)
			return cmp.Or(cmp.Compare(x.Exporters, y.Exporters), cmp.Compare(x.Stale, y.Stale),
				cmp.Compare(x.Imports, y.Imports))
		}))
	case out.Type() == reflect.TypeFor[[]time.Duration]():
		out.Set(reflect.ValueOf(medianLatencies(each(runs, func(v *reflect.Value) []time.Duration {
			return v.Interface().([]time.Duration)
		}))))
	case out.CanInt():
		out.SetInt(median(each(runs, func(v *reflect.Value) int64 { return v.Int() })))
	case out.CanFloat():
		out.SetFloat(median(each(runs, func(v *reflect.Value) float64 { return v.Float() })))
	case out.Kind() == reflect.Struct:
		for i := range out.NumField() {
			setMedian(out.Field(i), each(runs, func(v *reflect.Value) reflect.Value { return v.Field(i) }))
		}
	}
}

// medianLatencies has the medians of quantiles, of those runs that have latencies.
func medianLatencies(runs [][]time.Duration) []time.Duration {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r []time.Duration) bool { return len(r) == 0 })
	if len(runs) == 0 {
		return nil
	}
	out := make([]time.Duration, quantiles)
	for k := range out {
		out[k] = median(each(runs, func(r *[]time.Duration) time.Duration { return (*r)[k*len(*r)/quantiles] }))
	}
	return out
}

// median of at least one value: of two the larger.
func median[T cmp.Ordered](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

func each[T, V any](of []T, value func(*T) V) []V {
	out := make([]V, len(of))
	for i := range of {
		out[i] = value(&of[i])
	}
	return out
}
