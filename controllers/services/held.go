// SPDX-License-Identifier: Apache-2.0

package services

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// held is what was read of one Work. Where the Work has changed, only what is new of it is read again: in a large fleet
// nearly all that a decision goes by is what the one before went by.
type held struct {
	uid     types.UID
	version string
	// spec of the Bundle, nil if it cannot be decoded, and the generation of the Work that says so: the API server counts
	// one for each change of what a Work carries, and none for what a member reports.
	spec       *Bundle
	generation int64
	// status is what the member wrote, report what that says, and err why it is not used.
	status []byte
	report *report
	err    error
	// sent is what was last written, and what the Work was then: it need not be decoded to be known again.
	sent           *Bundle
	sentUID        types.UID
	sentGeneration int64
	// half says that the Work is of a half, where nothing is exported, and room how many bytes of a report are decoded.
	half bool
	room int
}

// read reads what is new of a Work.
func (h *held) read(work *workv1alpha1.Work) {
	if h.version != "" && h.uid == work.UID && h.version == work.ResourceVersion {
		return
	}
	switch {
	case h.sent != nil && work.UID == h.sentUID && work.Generation == h.sentGeneration:
		h.spec = h.sent
	case h.version == "" || work.UID != h.uid || work.Generation != h.generation:
		h.spec = readSpec(work)
	}
	h.generation = work.Generation
	if said := propagation.Status(work); h.version == "" || (said == nil) != (h.status == nil) ||
		!bytes.Equal(said, h.status) {
		if h.half {
			h.report, h.err = readHalf(said, h.report, h.room)
		} else {
			h.report, h.err = readReport(said, h.report)
		}
		h.status = said
	}
	h.uid, h.version = work.UID, work.ResourceVersion
}

// readSpec decodes the Bundle in a Work; nil if that is not one of ours. A member that pulls may write its own Works:
// what it makes of them is bounded in memory as its reports are.
func readSpec(work *workv1alpha1.Work) *Bundle {
	raw, err := propagation.Manifest(work)
	spec := new(v1alpha1.BundleSpec)
	if err != nil || len(raw) > maxReport || propagation.Spec(work, spec) != nil || spec.Revision > maxRevision ||
		spec.Sequence < 0 || spec.Sequence > maxRevision ||
		inflated(reflect.ValueOf(*spec), raw) {
		return nil
	}
	return bundleOf(spec)
}

// wrote notes what was written. Where the API server has something else, that is to be read.
func (h *held) wrote(spec *Bundle, written propagation.Written) {
	h.sent, h.sentUID, h.sentGeneration = spec, written.UID, written.Generation
}

// last is what was last written.
func (h *held) last() propagation.Written {
	return propagation.Written{UID: h.sentUID, Generation: h.sentGeneration}
}

// matches notes that what a Work says is what was decided, which shares its memory with the next decision.
func (h *held) matches(sent, decided *Bundle) {
	if h.spec == sent {
		h.spec = decided
	}
	if h.sent == sent {
		h.sent = decided
	}
}

// latest is the last decision on a shard.
type latest struct {
	in Input
	d  Decision
	// imports that it was made of.
	imports map[key][]*merged
}

// decide decides, unless nothing is new since the last decision on the shard and no time has come that it waited for.
func (l *latest) decide(in Input) Decision {
	left := time.Duration(0)
	if l.d.Again > 0 {
		left = l.in.Now.Add(l.d.Again).Sub(in.Now)
	}
	if l.d.Bundles != nil && (l.d.Again == 0 || left > 0) && l.same(&in) {
		d := l.d
		d.Again = left
		l.in.Members = in.Members
		return d
	}
	kept := &mergedImports{before: l.imports, made: make(map[key][]*merged, len(l.imports))}
	l.in, l.d = in, decideWith(in, kept)
	l.imports = kept.made
	return l.d
}

// same says that an Input differs from the last in nothing but the time. It is cheap: of large things it compares where
// they are, as what has not changed was not read again: so it may miss that two are the same, and never that they
// differ. The order of members and policies counts.
func (l *latest) same(in *Input) bool {
	return l.in.Shard == in.Shard && l.in.Shards == in.Shards &&
		slices.EqualFunc(l.in.Members, in.Members, func(a, b Member) bool {
			return sameMember(&a, &b) && (a.Record == b.Record || l.recorded(&b))
		}) &&
		slices.EqualFunc(l.in.Policies, in.Policies, samePolicy) &&
		maps.Equal(l.in.Karmada, in.Karmada) &&
		maps.EqualFunc(l.in.Scheduled, in.Scheduled, slices.Equal) &&
		maps.EqualFunc(l.in.Placed, in.Placed, slices.Equal) &&
		equality.Semantic.DeepEqual(l.in.Services, in.Services)
}

// recorded says that a member's record has become what was decided: the same is decided with it, unless it had no room
// for all names.
func (l *latest) recorded(m *Member) bool {
	decided := l.d.Records[m.Cluster]
	return m.Record != nil && len(m.Record.Seen) < maxSeen && sameRecord(m.Record, &decided)
}

// sameMember compares all but the records.
func sameMember(a, b *Member) bool {
	return a.Cluster == b.Cluster && a.UID == b.UID && a.Accepted.Equal(b.Accepted) && maps.Equal(a.Labels, b.Labels) &&
		slices.Equal(a.Pods, b.Pods) && slices.Equal(a.Services, b.Services) && slices.Equal(a.Nodes, b.Nodes) &&
		a.Global.same(&b.Global) && a.Known == b.Known && a.Malformed == b.Malformed &&
		identical(a.Exports, b.Exports) && identical(a.Unusable, b.Unusable) && a.ReadsParts == b.ReadsParts &&
		(a.Refused == nil) == (b.Refused == nil) && (a.Refused == nil || *a.Refused == *b.Refused) &&
		(a.Known || sameLast(a.Last, b.Last))
}

// sameLast says that what was last written for a member that is unknown says the same of its exports: nothing else is
// taken from it (Member.Last), and nothing at all where the member is known.
func sameLast(a, b *Bundle) bool {
	if a == nil || b == nil {
		return a == b
	}
	return identical(a.ExportConditions, b.ExportConditions) || slices.Equal(a.ExportConditions, b.ExportConditions)
}

func (g *Global) same(other *Global) bool {
	return g.Block == other.Block && g.IPv6 == other.IPv6 && g.ToAll == other.ToAll &&
		slices.Equal(g.Overlapping, other.Overlapping)
}

func samePolicy(a, b v1alpha1.ServicePolicy) bool {
	return a.UID == b.UID && a.ResourceVersion == b.ResourceVersion && a.Namespace == b.Namespace && a.Name == b.Name &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// identical says that two slices are one, or empty.
func identical[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// comparison is of the specs in force with those of a new decision. Members share imports, each of which is compared
// once: it remembers of which two it knows whether they say the same, by their lists of clusters. No other import has
// either.
type comparison map[[2]*v1alpha1.ImportCluster]bool

// bundles says that two specs are the same, whatever their sequences. What was decided once and is still in force
// shares its memory.
func (c comparison) bundles(a, b *Bundle) bool {
	return a.Revision == b.Revision && a.Shard == b.Shard && sameButImports(a, b) &&
		(identical(a.Imports, b.Imports) || slices.EqualFunc(a.Imports, b.Imports, c.imports))
}

func (c comparison) imports(a, b *v1alpha1.Import) bool {
	switch {
	case a == b:
		return true
	case a.Withheld != b.Withheld:
		return false
	case a.Withheld:
		return sameRest(a, b)
	}
	return c.contents(a, b)
}

// contents compares what two imports say if none of them is withheld.
func (c comparison) contents(a, b *v1alpha1.Import) bool {
	if len(a.Clusters) == 0 || len(b.Clusters) == 0 {
		return sameContents(a, b)
	}
	two := [2]*v1alpha1.ImportCluster{&a.Clusters[0], &b.Clusters[0]}
	if two[0] == two[1] && len(a.Clusters) == len(b.Clusters) {
		return true
	}
	same, known := c[two]
	if !known {
		same = sameContents(a, b)
		c[two] = same
	}
	return same
}
