// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// walk is a sequence of decisions, each with the records that those before it wrote.
type walk struct {
	t       *testing.T
	in      Input
	decided Decision
}

func newWalk(t *testing.T, members ...Member) *walk {
	w := &walk{t: t, in: Input{Shards: 1, Now: now, Members: members}}
	w.after(0)
	return w
}

// after lets time pass and decides.
func (w *walk) after(d time.Duration) Decision {
	w.t.Helper()
	w.in.Now = w.in.Now.Add(d)
	w.decided = Decide(w.in)
	for i := range w.in.Members {
		m := &w.in.Members[i]
		m.Last, m.Record = written(w.t, w.decided, m.Cluster)
	}
	return w.decided
}

// export replaces what cluster n reports, a second later.
func (w *walk) export(n int, exports ...v1alpha1.Export) Decision {
	w.t.Helper()
	w.in.Members[n-1].Exports = exports
	return w.after(time.Second)
}

// has summarises the first import of a cluster.
func (w *walk) has(cluster string) string {
	if len(w.decided.Bundles[cluster].Imports) == 0 {
		return ""
	}
	return summary(w.decided.Bundles[cluster].Imports[0])
}

func created(at time.Time) func(*v1alpha1.Export) {
	return func(e *v1alpha1.Export) { e.CreatedAt = metav1.NewTime(at) }
}

// An export that claims to be of 1970 takes nothing of the service that was there: neither its type, nor its ports
// or backends. Both are told of the conflict.
func TestABackdatedExportTakesNothing(t *testing.T) {
	for name, change := range map[string]struct {
		changes  []func(*v1alpha1.Export)
		want     string // of c3
		conflict string
	}{
		"the type": {[]func(*v1alpha1.Export){headless}, `ClusterSetIP http:80/TCP: c1["http"]×3 c2[]×0`,
			"True TypeConflict"},
		"the ports": {[]func(*v1alpha1.Export){withPorts(port("http", 8080))},
			`ClusterSetIP http:80/TCP: c1["http"]×3 c2[]×0`, "True PortConflict"},
		"the session affinity": {[]func(*v1alpha1.Export){func(
			e *v1alpha1.Export) {
			e.Settings.SessionAffinity = corev1.ServiceAffinityClientIP
		}},
			`ClusterSetIP http:80/TCP: c1["http"]×3 c2["http"]×3`, "True SessionAffinityConflict"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWalk(t, cluster(1, web(1)), cluster(2), cluster(3))
			forged := web(2, append(change.changes, created(time.Unix(0, 0)))...)
			d := w.export(2, forged)
			check := func(when string) {
				t.Helper()
				if got := w.has("c3"); got != change.want {
					t.Errorf("%s c3 imports %s", when, got)
				}
				for _, c := range []string{"c1", "c2"} {
					if got := condition(d, c, "Conflict"); got != change.conflict {
						t.Errorf("%s %s is told %s", when, c, got)
					}
				}
			}
			check("at once")
			// A restart: everything that is known is in the records.
			w.in.Members[0].Known = false
			d = w.after(time.Hour)
			check("when c1 is silent")
			w.in.Members[0].Known = true
			// Deleted and created again, with whatever date.
			w.export(2)
			d = w.after(time.Minute)
			d = w.export(2, forged)
			check("when it is created again")
		})
	}
}

// Seen in the second of an older export, a backdated one is the younger all the same.
func TestABackdatedExportOfTheSameSecondTakesNothing(t *testing.T) {
	w := newWalk(t, cluster(1), cluster(2), cluster(3))
	w.export(1, web(1, created(now)))
	w.after(time.Millisecond)
	w.export(2, web(2, created(time.Unix(0, 0)), headless))
	if got := w.has("c3"); got != `ClusterSetIP http:80/TCP: c1["http"]×3 c2[]×0` {
		t.Errorf("c3 imports %s", got)
	}
}

// The age of an export is when it was created or, if that is later, first seen; the order never changes after that.
func TestAgeOfAnExport(t *testing.T) {
	start := now
	for name, c := range map[string]struct {
		created  time.Time
		accepted time.Time
		recorded bool
		want     time.Time
	}{
		"an honest clock":       {start.Add(-time.Second), time.Time{}, true, start},
		"a clock that is ahead": {start.Add(time.Minute), time.Time{}, true, start.Add(time.Minute)},
		"a backdated one":       {time.Unix(0, 0), time.Time{}, true, start},
		"after an upgrade": {start.Add(-time.Hour), start.Add(-24 * time.Hour), false,
			start.Add(-time.Hour)},
		"after an upgrade, older than a join": {start.Add(-24 * time.Hour), start.Add(-time.Hour), false,
			start.Add(-time.Hour)},
		"after an upgrade, in the future":    {start.Add(time.Hour), start.Add(-time.Hour), false, start.Add(time.Hour)},
		"of a cluster that joins, backdated": {time.Unix(0, 0), start, false, start},
	} {
		t.Run(name, func(t *testing.T) {
			m := cluster(1, web(1, created(c.created)))
			m.Accepted = c.accepted
			if c.recorded {
				m.Record = &v1alpha1.ExportRecordSpec{}
			}
			w := newWalk(t, m)
			age := func() time.Time { return w.decided.Bundles["c1"].Imports[0].Clusters[0].CreatedAt.UTC() }
			if !age().Equal(c.want) {
				t.Errorf("it counts from %v, want %v", age(), c.want)
			}
			if w.after(time.Hour); !age().Equal(c.want) {
				t.Errorf("an hour later it counts from %v", age())
			}
		})
	}
}

// Of exports that the broker sees at once, as after its own absence, the older creation counts.
func TestExportsSeenAtOnceKeepTheirOrder(t *testing.T) {
	w := newWalk(t, cluster(1), cluster(2), cluster(3))
	w.in.Members[0].Exports = []v1alpha1.Export{web(1, created(now.Add(-time.Minute)), headless)}
	w.export(2, web(2, created(now.Add(-time.Hour))))
	if got := w.has("c3"); got != `ClusterSetIP http:80/TCP: c1[]×0 c2["http"]×3` {
		t.Errorf("c3 imports %s", got)
	}
}

// A member that reports under many names does not make the record exceed what etcd takes.
func TestRecordIsBounded(t *testing.T) {
	var many []v1alpha1.Export
	for i := range 3000 {
		e := web(1, withPorts(), created(now.Add(time.Duration(i)*time.Second)))
		e.Name = fmt.Sprintf("web-%s-%d", strings.Repeat("x", 40), i)
		if i%3 == 0 {
			e = web(1, func(e *v1alpha1.Export) { e.Name = fmt.Sprintf("web-%d", i) })
			e.Backends[0] = pods(1, 101, e.Backends[0].Ports...)
		}
		many = append(many, e)
	}
	d := newWalk(t, cluster(1, many...)).decided
	if size := sizeOf(d.Records["c1"]); size > 1400<<10 {
		t.Errorf("a record of %d bytes", size)
	}
	refused := 0
	for _, c := range d.Bundles["c1"].ExportConditions {
		if c.Reason == v1alpha1.ReasonBundleFull {
			refused++
		}
	}
	if refused == 0 {
		t.Error("nobody is told that there is no room")
	}
}

func TestUnexportedNamesGoAfterTheRetention(t *testing.T) {
	w := newWalk(t, cluster(1, web(1)), cluster(2))
	d := w.export(1)
	if got := w.has("c2"); got != "ClusterSetIP http:80/TCP:" {
		t.Errorf("at once c2 imports %q", got)
	}
	if len(d.Bundles["c1"].ExportConditions) != 0 {
		t.Errorf("c1 is told %v", d.Bundles["c1"].ExportConditions)
	}
	if d.Again <= 0 || d.Again > retention {
		t.Fatalf("decide again after %v", d.Again)
	}
	if w.after(d.Again); w.has("c2") != "" || len(w.decided.Records["c1"].Exports) != 0 || w.decided.Again != 0 {
		t.Errorf("after the retention c2 imports %q, record %+v", w.has("c2"), w.decided.Records["c1"])
	}
}

// Karmada moves an export from c1 to c2: its name stays, however long c2 takes.
func TestAMoveKeepsTheName(t *testing.T) {
	w := newWalk(t, cluster(1, web(1)), cluster(2), cluster(3))
	w.in.Scheduled = map[string][]string{"sample/web": {"c2"}}
	w.export(1)
	if got := w.has("c3"); got != `ClusterSetIP http:80/TCP: c1["http"]×3` {
		t.Errorf("at first c3 imports %q: the servers of c1 serve on", got)
	}
	w.after(retention)
	if got := w.has("c3"); got != "ClusterSetIP http:80/TCP:" {
		t.Errorf("then c3 imports %q", got)
	}
	w.after(time.Hour)
	if got := w.has("c3"); got != "ClusterSetIP http:80/TCP:" {
		t.Errorf("an hour later c3 imports %q", got)
	}
	// A restart in the middle, with c1 silent.
	w.in.Members[0].Known = false
	w.after(time.Second)
	if got := w.has("c3"); got != "ClusterSetIP http:80/TCP:" {
		t.Errorf("after a restart c3 imports %q", got)
	}
	w.in.Members[0].Known = true
	w.export(2, web(2))
	if got := w.has("c3"); got != `ClusterSetIP http:80/TCP: c2["http"]×3` {
		t.Errorf("at last c3 imports %q", got)
	}
	// Then Karmada schedules it nowhere: the name goes with its last export.
	w.in.Scheduled = nil
	w.export(2)
	if w.after(retention); w.has("c3") != "" {
		t.Errorf("unexported, c3 imports %q", w.has("c3"))
	}
}

// Between clusters that both have ready servers there is at no time an import without a backend.
func TestAMoveBetweenReadyClustersLosesNoBackend(t *testing.T) {
	w := newWalk(t, cluster(1, web(1)), cluster(2), cluster(3))
	w.in.Scheduled = map[string][]string{"sample/web": {"c2"}}
	steps := []func(){
		func() { w.export(1) },
		func() { w.after(2 * time.Second) },
		func() { w.export(2, web(2, func(e *v1alpha1.Export) { e.Backends[0].Addresses = nil })) }, // not known yet
		func() { w.after(2 * time.Second) },
		func() { w.export(2, web(2)) },
		func() { w.after(retention) },
	}
	for i, step := range steps {
		step()
		n := 0
		for _, c := range w.decided.Bundles["c3"].Imports[0].Clusters {
			for _, g := range c.Backends {
				n += len(g.Addresses)
			}
		}
		if n == 0 {
			t.Errorf("after step %d c3 has no backend: %s", i, w.has("c3"))
		}
	}
	if got := w.has("c3"); got != `ClusterSetIP http:80/TCP: c2["http"]×3` {
		t.Errorf("in the end c3 imports %s", got)
	}
}

// Where Karmada moves the Service along, its servers go: better no backend than dead ones.
func TestAMoveOfTheServiceTooLeavesNoDeadBackends(t *testing.T) {
	w := newWalk(t, cluster(1, web(1)), cluster(2), cluster(3))
	w.in.Scheduled = map[string][]string{"sample/web": {"c2"}}
	w.in.Placed = map[string][]string{"sample/web": {"c2"}}
	if w.export(1); w.has("c3") != "ClusterSetIP http:80/TCP:" {
		t.Errorf("c3 imports %s", w.has("c3"))
	}
	w = newWalk(t, cluster(1, web(1)), cluster(2), cluster(3))
	w.in.Scheduled = map[string][]string{"sample/web": {"c2"}}
	w.in.Placed = map[string][]string{"sample/web": {"c1", "c2"}}
	if w.export(1); w.has("c3") != `ClusterSetIP http:80/TCP: c1["http"]×3` {
		t.Errorf("where the Service stays c3 imports %s", w.has("c3"))
	}
}

// An export that is gone decides nothing: neither settings nor conflicts.
func TestAWithdrawnExportDecidesNothing(t *testing.T) {
	w := newWalk(t, cluster(1, web(1)), cluster(2), cluster(3))
	w.in.Scheduled = map[string][]string{"sample/web": {"c2"}}
	w.export(1)
	d := w.export(2, web(2, withPorts(port("http", 8080)), func(e *v1alpha1.Export) { e.Backends = nil }))
	if got := condition(d, "c2", "Conflict"); got != "False NoConflicts" {
		t.Errorf("c2 is told %s", got)
	}
	if ports := portsText(&d.Bundles["c3"].Imports[0].Settings); ports != "http:8080/TCP" {
		t.Errorf("c3 imports ports %s", ports)
	}
	if got := condition(d, "c1", "Ready"); got != "absent" {
		t.Errorf("c1 is told %s", got)
	}
}
