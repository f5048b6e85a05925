// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

func encoded(t testing.TB, status v1alpha1.BundleStatus) []byte {
	t.Helper()
	data, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReports(t *testing.T) {
	good := string(encoded(t, v1alpha1.BundleStatus{ObservedRevision: 7, Exports: []v1alpha1.Export{web(1)}}))
	bad := `{"namespace":"sample","name":"db","settings":{"ports":"all"}}`
	for name, c := range map[string]struct {
		raw  string
		want string
	}{
		"good":                     {good, "revision 7, 1 exports, 0 malformed"},
		"nothing yet":              {`{}`, "no report"},
		"an older agent's silence": {`{"exports":[]}`, "no report"},
		"one export that is malformed": {strings.Replace(good, `"exports":[`, `"exports":[`+bad+`,`, 1),
			"revision 7, 1 exports, 1 malformed"},
		"an export of another type": {`{"observedRevision":7,"exports":[null,1,"x",[],{}]}`,
			"revision 7, 0 exports, 5 malformed"},
		"unknown fields of a newer one": {`{"observedRevision":7,"exports":[],"more":{"a":1}}`,
			"revision 7, 0 exports, 0 malformed"},
		"no JSON":                 {`{"observedRevision":`, ReasonInvalidReport},
		"a list":                  {`[]`, ReasonInvalidReport},
		"exports of another type": {`{"observedRevision":7,"exports":"all"}`, ReasonInvalidReport},
		"deep":                    {strings.Repeat("[", 1<<16), ReasonInvalidReport},
		"long": {`{"observedRevision":7,"x":"` + strings.Repeat("x", maxReport) + `"}`,
			v1alpha1.ReasonStatusTooLarge},
		"many": {`{"observedRevision":7,"exports":[{}` + strings.Repeat(",{}", maxReported) + `]}`,
			v1alpha1.ReasonStatusTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := readReport([]byte(c.raw), nil)
			got := "no report"
			var refused *unusable
			if errors.As(err, &refused) {
				got = refused.reason
			} else if r != nil {
				got = fmt.Sprintf("revision %d, %d exports, %d malformed", r.revision, len(r.exports), r.malformed)
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A report that cannot be used changes nothing, and is a Problem; one export that cannot be decoded is gone.
func TestProblemsWithReports(t *testing.T) {
	before := decide(cluster(1, web(1)), cluster(2))
	first, second := cluster(1), cluster(2)
	first.Known, first.Refused = false, &v1alpha1.Problem{Cluster: "c1", Reason: ReasonInvalidReport, Message: "why"}
	first.Last, first.Record = written(t, before, "c1")
	second.Last, second.Record = written(t, before, "c2")
	d := decide(first, second)
	if text(t, d) != text(t, before) || !slices.Contains(d.Problems, *first.Refused) {
		t.Errorf("problems %v, Bundles\n%s", d.Problems, text(t, d))
	}
	first = cluster(1)
	first.Malformed = 3
	if d := decide(first, second); len(d.Problems) != 1 || !strings.Contains(d.Problems[0].Message,
		"3 exports are refused") {
		t.Errorf("problems %v", d.Problems)
	}
}

// manyExports are those of one shard of cluster n that exports services of one pod each.
func manyExports(n, services int, shards int32) []v1alpha1.Export {
	var out []v1alpha1.Export
	for i := range services {
		e := web(n)
		e.Name, e.CreatedAt = fmt.Sprintf("many-%05d", i), at(i)
		if v1alpha1.Shard(e.Namespace, e.Name, shards) == 0 {
			out = append(out, e)
		}
	}
	return out
}

// A member that exports 10,000 services gets what fits, oldest first, and is told of the rest as far as there
// is room; nobody else notices.
func TestTenThousandExportsOfOneMember(t *testing.T) {
	others := []Member{cluster(2, web(2)), cluster(3, web(3))}
	alone := decide(others...)
	for _, shards := range []int32{1, 4} {
		in := Input{Shards: shards, Members: []Member{cluster(1, manyExports(1, 10_000, shards)...), others[0], others[1]}}
		in.Shard = 0
		if shards > 1 {
			in.Members[1].Exports, in.Members[2].Exports = nil, nil
		}
		d := Decide(in)
		for name, b := range d.Bundles {
			data, err := json.Marshal(b)
			if err != nil || len(data) > maxBundle {
				t.Errorf("%d shards: the Bundle of %s has %d bytes (%v)", shards, name, len(data), err)
			}
		}
		mine := d.Bundles["c1"]
		if n := len(mine.ExportConditions); n < 500 || len(d.Bundles["c3"].Imports) < 500 {
			t.Errorf("%d shards: %d conditions, %d imports", shards, n, len(d.Bundles["c3"].Imports))
		}
		if !slices.ContainsFunc(d.Problems, func(p v1alpha1.Problem) bool { return p.Cluster == "c1" }) ||
			len(d.Problems) > maxProblems {
			t.Errorf("%d shards: %d problems", shards, len(d.Problems))
		}
		if shards > 1 {
			continue
		}
		for _, c := range []string{"c2", "c3"} {
			got, want := d.Bundles[c].ExportConditions, alone.Bundles[c].ExportConditions
			if !slices.Equal(got, want) {
				t.Errorf("the exports of %s are told %v, were told %v", c, got, want)
			}
			if !strings.Contains(imports(d), c+":c2,c3") {
				t.Errorf("%s lost the import of the others", c)
			}
		}
	}
}

func BenchmarkDecideTenThousand(b *testing.B) {
	for _, shards := range []int32{1, 4} {
		b.Run(fmt.Sprintf("exports=10000/clusters=10/shards=%d", shards), func(b *testing.B) {
			in := Input{Shards: shards, Members: []Member{cluster(1, manyExports(1, 10_000, shards)...)}}
			for n := 2; n <= 10; n++ {
				in.Members = append(in.Members, cluster(n))
			}
			b.ReportAllocs()
			for b.Loop() {
				Decide(in)
			}
		})
	}
}

func BenchmarkReadReport(b *testing.B) {
	for _, services := range []int{250, 1000} {
		raw := encoded(b, v1alpha1.BundleStatus{ObservedRevision: 1, Exports: manyExports(1, services, 1)})
		b.Run(fmt.Sprintf("exports=%d/bytes=%d", services, len(raw)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := readReport(raw, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzBundleStatus feeds the bytes that a member can write, from the wire to the Bundles of all.
func FuzzBundleStatus(f *testing.F) {
	scoped := web(1, func(e *v1alpha1.Export) { e.Scope, e.Mode = labelled("zone", "a"), v1alpha1.ServiceModeClusterIP })
	for _, e := range []v1alpha1.Export{web(1), web(1, headless), web(1, withPorts(port("", 80))), scoped} {
		data := encoded(f, v1alpha1.BundleStatus{ObservedRevision: 7, Exports: []v1alpha1.Export{e, e}})
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		first := cluster(1)
		if r, err := readReport(raw, nil); err != nil || r == nil {
			first.Known = false
		} else {
			first.Exports, first.Malformed = r.exports, r.malformed
		}
		d := decide(first, cluster(2, web(2)))
		checkBounds(t, d)
		checkWritable(t, d)
	})
}

// checkBounds checks what holds whatever c1 reports beside c2's export of sample/web.
func checkBounds(t *testing.T, d Decision) {
	t.Helper()
	if len(d.Bundles) != 2 || len(d.Problems) > 2*maxProblems {
		t.Fatalf("%d Bundles, %d Problems", len(d.Bundles), len(d.Problems))
	}
	mine, m := netfacts.Set(cluster(1).Pods), d.Bundles["c2"]
	if spec, err := json.Marshal(specOf(m)); err != nil || len(spec) > maxBundle {
		t.Fatalf("%d bytes, %v", len(spec), err)
	}
	if !slices.ContainsFunc(m.Imports, func(i *v1alpha1.Import) bool {
		return i.Name == "web" &&
			i.Namespace == "sample"
	}) {
		t.Fatal("the export of another cluster is gone")
	}
	for _, i := range m.Imports {
		if validPorts(i.Settings.Ports) != nil {
			t.Fatalf("ports %v", i.Settings.Ports)
		}
		for _, c := range i.Clusters {
			if c.Cluster == "c1" && c.Scope != nil && validScope(c.Scope) != nil {
				t.Fatalf("scope %v", c.Scope)
			}
			for _, g := range c.Backends {
				for _, b := range g.Addresses {
					ip, ok := parseIP(b.IP)
					if c.Cluster == "c1" && (!ok || !mine.Contains(ip)) && !slices.Contains(c.ClusterIPs, b.IP) {
						t.Fatalf("c1 contributes %s", b.IP)
					}
				}
			}
		}
	}
}

// checkWritable checks that records and Bundles are read as what was written: one that is not is written for ever, or
// refused.
func checkWritable(t *testing.T, d Decision) {
	t.Helper()
	for name := range d.Bundles {
		bundle, record := written(t, d, name)
		if want := d.Records[name]; !equality.Semantic.DeepEqual(*record, want) {
			t.Fatalf("the record of %s is read as\n%v\nand says\n%v", name, *record, want)
		}
		if want := d.Bundles[name]; !equality.Semantic.DeepEqual(*bundle, want) {
			t.Fatalf("the Bundle of %s is read as\n%v\nand says\n%v", name, *bundle, want)
		}
	}
}

// createdOn is a report of one export that was made at a time.
func createdOn(t *testing.T, at string) (*report, error) {
	t.Helper()
	raw := string(encoded(t, v1alpha1.BundleStatus{ObservedRevision: 1, Exports: []v1alpha1.Export{web(1)}}))
	old := `"createdAt":"2026-01-01T00:01:00Z"`
	if strings.Count(raw, old) != 1 {
		t.Fatalf("%s is not once in %s", old, raw)
	}
	return readReport([]byte(strings.Replace(raw, old, `"createdAt":"`+at+`"`, 1)), nil)
}

// TestCreationTimesAreThoseOfTheWire: whatever time a member reports, the record is read as it was written, and the
// next decision writes no other.
func TestCreationTimesAreThoseOfTheWire(t *testing.T) {
	for _, at := range []string{"2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-01T02:00:00.000000001+02:00",
		"9999-12-31T23:59:59.999Z"} {
		t.Run(at, func(t *testing.T) {
			r, err := createdOn(t, at)
			if err != nil || len(r.exports) != 1 {
				t.Fatalf("%v, %v", r, err)
			}
			members := []Member{cluster(1, r.exports...), cluster(2)}
			d := decide(members...)
			if len(d.Bundles["c2"].Imports) != 1 {
				t.Fatalf("imports %v, problems %v", d.Bundles["c2"].Imports, d.Problems)
			}
			checkWritable(t, d)
			_, members[0].Record = written(t, d, "c1")
			again := Decide(Input{Shards: 1, Now: now.Add(time.Second), Members: members})
			if !equality.Semantic.DeepEqual(again.Records["c1"], *members[0].Record) {
				t.Errorf("a second later the record is\n%v\nand was\n%v", again.Records["c1"], *members[0].Record)
			}
		})
	}
}

// TestTimesThatNobodyCanReadAreRefused: a time that is in another year in UTC than where it was written, one of five
// digits or none, costs its own export and no Bundle.
func TestTimesThatNobodyCanReadAreRefused(t *testing.T) {
	for _, at := range []string{"9999-12-31T23:59:59-14:00", "0000-01-01T00:00:00+14:00", "0000-12-31T00:00:00Z"} {
		t.Run(at, func(t *testing.T) {
			r, err := createdOn(t, at)
			if err != nil || len(r.exports) != 0 || r.malformed != 1 {
				t.Errorf("%v, %v, want 1 malformed export", r, err)
			}
			first := cluster(1, r.exports...)
			first.Malformed = r.malformed
			d := decide(first, cluster(2, web(2)))
			checkBounds(t, d)
			checkWritable(t, d)
		})
	}
}

// TestHostileReportsTakeLittleMemory: what is held of a report is no many times as large as the report.
func TestHostileReportsTakeLittleMemory(t *testing.T) {
	around := func(before, inner, after string) string {
		return before + inner + strings.Repeat(","+inner, (maxReport-200)/(len(inner)+1)) + after
	}
	for name, c := range map[string]struct {
		raw  string
		most uint64
	}{
		"backends": {around(`{"observedRevision":1,"exports":[{"namespace":"a","name":"b","backends":[{"addresses":[`,
			"{}", `]}]}]}`), 4 << 20},
		"groups": {around(`{"observedRevision":1,"exports":[{"namespace":"a","name":"b","backends":[`, "{}", `]}]}`),
			4 << 20},
		"ports": {around(`{"observedRevision":1,"exports":[{"namespace":"a","name":"b","settings":{"ports":[`, "{}",
			`]}}]}`), 4 << 20},
		"scope": {around(`{"observedRevision":1,"exports":[{"namespace":"a","name":"b","scope":{"clusterSelector":`+
			`{"matchExpressions":[`, "{}", `]}}}]}`), 4 << 20},
		"imports": {around(`{"observedRevision":1,"imports":[`, "{}", `]}`), 4 << 20},
		"exports": {`{"observedRevision":1,"exports":[{}` + strings.Repeat(",{}", maxReported-1) + `]}`, 1 << 20},
		// It takes as much as it can without being refused.
		"short addresses": {around(`{"observedRevision":1,"exports":[{"namespace":"a","name":"b","backends":[{"addresses":[`,
			`{"ip":"1.1.1.1"}`, `]}]}]}`), 12 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			if len(c.raw) > maxReport {
				t.Fatalf("%d bytes are not read at all", len(c.raw))
			}
			work := new(workv1alpha1.Work)
			work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{
				{Status: &runtime.RawExtension{Raw: []byte(c.raw)}}}
			heap := func() uint64 {
				goruntime.GC()
				var m goruntime.MemStats
				goruntime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			before := heap()
			var h held
			h.read(work)
			after := heap()
			if h.report == nil || after > before && after-before > c.most {
				t.Errorf("%d KiB of memory are held, at most %d are expected (%v)", (after-before)>>10, c.most>>10, h.err)
			}
			goruntime.KeepAlive(work)
			goruntime.KeepAlive(h)
		})
	}
}
