// SPDX-License-Identifier: Apache-2.0

package propagation

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWriteBehind(t *testing.T) {
	type spec struct{ revision int }
	newer := func(written, cached *spec) bool { return written.revision > cached.revision }
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		wrote  int // revision, 0 for nothing
		cached int // revision, 0 for nothing
		after  time.Duration
		want   int
		again  time.Duration
	}{
		"nothing was written":                   {0, 0, 0, 0, 0},
		"the cache alone":                       {0, 3, 0, 3, 0},
		"a write that does not show yet":        {4, 3, time.Second, 4, time.Second},
		"a creation that does not show yet":     {1, 0, 500 * time.Millisecond, 1, 1500 * time.Millisecond},
		"a write that shows":                    {4, 4, time.Second, 4, 0},
		"somebody else wrote later":             {4, 9, time.Second, 9, 0},
		"a write that never showed was undone":  {4, 3, CacheLag, 3, 0},
		"an object that was deleted afterwards": {4, 0, CacheLag, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var w WriteBehind[spec]
			of := func(revision int) *spec {
				if revision == 0 {
					return nil
				}
				return &spec{revision}
			}
			if c.wrote > 0 {
				w.Wrote(of(c.wrote), start)
			}
			got, again := w.Latest(CacheLag, of(c.cached), newer, start.Add(c.after))
			if revision := got; (revision == nil) != (c.want == 0) || revision != nil && revision.revision != c.want ||
				again != c.again {
				t.Errorf("%+v again after %v, want revision %d after %v", got, again, c.want, c.again)
			}
		})
	}
}

// What was read once is known after the object is gone.
func TestWriteBehindRemembers(t *testing.T) {
	var w WriteBehind[int]
	never := func(_, _ *int) bool { return false }
	now, value := time.Unix(1000, 0), 7
	w.Latest(CacheLag, &value, never, now)
	if got, again := w.Latest(CacheLag, nil, never, now); got != nil || again != 0 || *w.Remembered() != 7 {
		t.Errorf("%v again after %v, remembered %v", got, again, w.Remembered())
	}
}

// Where the generation tells that the cache lags behind it may take long to catch up.
func TestLag(t *testing.T) {
	for name, c := range map[string]struct {
		uid        types.UID
		generation int64
		want       time.Duration
	}{
		"an older one":         {"a", 3, MaxCacheLag},
		"what was written":     {"a", 4, 0},
		"somebody wrote later": {"a", 9, 0},
		"one in its place":     {"b", 1, CacheLag},
	} {
		if got := Lag("a", 4, &metav1.ObjectMeta{UID: c.uid, Generation: c.generation}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
