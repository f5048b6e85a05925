// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// moment is so many seconds after a time.
func moment(seconds int) time.Time { return time.Unix(1e9+int64(seconds), 0) }

func TestUnderWay(t *testing.T) {
	for name, c := range map[string]struct {
		// sent are "revision@second" of changes, and answers "revision/newest@second" with what they count.
		sent, answers string
	}{
		"at once":                       {"7@0", "7/7@0=0s"},
		"later":                         {"7@0", "6/7@1= 7/7@3=3s 7/7@4="},
		"by a later one":                {"7@0", "8/9@2=2s"},
		"two":                           {"7@0 8@5", "7/8@6=6s 8/8@9=4s"},
		"two at once":                   {"7@0 8@5", "8/8@6=6s,1s"},
		"one of them":                   {"7@0 9@5", "8/9@6=6s"},
		"never":                         {"7@0", "6/7@299= 6/7@300=5m0s 7/7@301="},
		"by one that says nothing":      {"7@0", "0/7@30= 0/7@600=5m0s 0/7@900="},
		"long ago":                      {"7@0", "7/7@86400=5m0s"},
		"what was not sent":             {"7@0 8@1", "99/8@2= 8/8@3="},
		"more than are followed":        {"1@0 2@1 3@2 4@3 5@4 6@5", "6/6@6=6s,5s,4s,3s"},
		"and again":                     {"1@0 2@1 3@2 4@3", "4/4@6=6s,5s,4s,3s 4/4@7="},
		"before the clock was set back": {"7@100", "7/7@0=0s"},
	} {
		t.Run(name, func(t *testing.T) {
			var u underWay
			for s := range strings.FieldsSeq(c.sent) {
				var revision int64
				var second int
				if _, err := fmt.Sscanf(s, "%d@%d", &revision, &second); err != nil {
					t.Fatal(err)
				}
				u.carry(revision, moment(second))
			}
			for s := range strings.FieldsSeq(c.answers) {
				ask, want, _ := strings.Cut(s, "=")
				var revision, newest int64
				var second int
				if _, err := fmt.Sscanf(ask, "%d/%d@%d", &revision, &newest, &second); err != nil {
					t.Fatal(err)
				}
				var took []string
				for _, d := range u.answered(revision, newest, moment(second)) {
					took = append(took, d.String())
				}
				if got := strings.Join(took, ","); got != want {
					t.Errorf("%s: %s, want %s", ask, got, want)
				}
				if next := u.next(moment(second)); len(u) == 0 != (next == 0) || next > giveUp {
					t.Errorf("%s: look again after %s, %d are under way", ask, next, len(u))
				}
			}
		})
	}
}

// TestExportedAfterAStart: what is found first is no change, whenever it came about.
func TestExportedAfterAStart(t *testing.T) {
	var e exported
	e.note(&report{digest: 1}, moment(0))
	e.note(&report{digest: 1}, moment(1))
	if !e.changed.IsZero() {
		t.Errorf("changed at %s", e.changed)
	}
	e.note(&report{digest: 2}, moment(2))
	e.note(&report{digest: 3}, moment(3))
	if !e.changed.Equal(moment(2)) {
		t.Errorf("changed at %s, want the first", e.changed)
	}
}

// TestExportsThatChangeAreCounted, and not the reports of them: how many changes one tells of is the member's to say.
func TestExportsThatChangeAreCounted(t *testing.T) {
	var e exported
	reports := func(exports string) float64 {
		t.Helper()
		said := new(report)
		if err := said.decode([]byte(exports)); err != nil {
			t.Fatal(err)
		}
		e.note(said, moment(0))
		return e.rate(moment(0))
	}
	a, b, c := `{"namespace":"x","name":"a"`, `{"namespace":"x","name":"b"`, `{"namespace":"x","name":"c"`
	for _, step := range []struct {
		what, exports string
		want          float64
	}{
		{"what is found first", `[` + a + `},` + b + `},` + c + `}]`, 0},
		{"the same", `[` + a + `},` + b + `},` + c + `}]`, 0},
		{"two are other", `[` + a + `,"type":"Headless"},` + b + `},` + c + `,"type":"Headless"}]`, 2},
		{"one is gone", `[` + a + `,"type":"Headless"},` + b + `}]`, 3},
		{"two are new", `[` + a + `,"type":"Headless"},` + b + `},` + c + `},{"namespace":"x","name":"d"}]`, 5},
		{"all are gone", `[]`, 6},
	} {
		if got := reports(step.exports); got != step.want {
			t.Errorf("%s: %v changes, want %v", step.what, got, step.want)
		}
	}
}

// TestCarries: only other clusters' changes, that change what the member imports.
func TestCarries(t *testing.T) {
	imports := func(names ...string) Bundle {
		var spec Bundle
		for _, n := range names {
			spec.Imports = append(spec.Imports, &v1alpha1.Import{Namespace: "sample", Name: n})
		}
		return spec
	}
	before := imports("a")
	other := imports("a")
	other.ExportConditions = []v1alpha1.ExportCondition{{Name: "b"}}
	member := func(cluster string, changed time.Time) target {
		mem := &memory{exported: exported{changed: changed}}
		return target{cluster: cluster, mem: mem, sentBundle: sentBundle{sent: &before, box: &mem.mailbox}}
	}
	for name, c := range map[string]struct {
		own, others time.Time
		unsent      time.Time
		spec        Bundle
		change      func(*target)
		want        time.Time
	}{
		"another's change":          {time.Time{}, moment(5), time.Time{}, imports("a", "b"), nil, moment(5)},
		"its own":                   {moment(1), time.Time{}, time.Time{}, imports("a", "b"), nil, time.Time{}},
		"both":                      {moment(1), moment(5), time.Time{}, imports("a", "b"), nil, moment(5)},
		"nobody's, as by a policy":  {time.Time{}, time.Time{}, time.Time{}, imports("a", "b"), nil, time.Time{}},
		"which it does not import":  {time.Time{}, moment(5), time.Time{}, other, nil, time.Time{}},
		"one that was not written":  {time.Time{}, time.Time{}, moment(2), imports("a", "b"), nil, moment(2)},
		"that one and a later":      {time.Time{}, moment(5), moment(2), imports("a", "b"), nil, moment(2)},
		"and is not to be any more": {time.Time{}, moment(5), moment(2), imports("a"), nil, time.Time{}},
		"the first Bundle": {time.Time{}, moment(5), time.Time{}, imports("a", "b"), func(t *target) { t.sent = nil },
			time.Time{}},
		"one in place of a lost Work": {time.Time{}, moment(5), time.Time{}, imports("a", "b"),
			func(t *target) { t.missing = true }, time.Time{}},
	} {
		to := member("c1", c.own)
		to.mem.unsent = c.unsent
		if c.change != nil {
			c.change(&to)
		}
		all := []target{to, member("c2", c.others), member("c3", time.Time{})}
		if got := to.carries(&to.sentBundle, &c.spec, all, comparison{}); !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
