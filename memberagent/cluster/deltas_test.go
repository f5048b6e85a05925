// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// delta sets what a Bundle of deltas says.
func (m *member) delta(n int32, sequence int64, list ...v1alpha1.Import) {
	m.t.Helper()
	b := bundle(0)
	b.Name = v1alpha1.DeltaName(n)
	if m.Get(m.t.Context(), client.ObjectKeyFromObject(b), b) != nil {
		b.Spec.Imports, b.Spec.Sequence = sorted(list), sequence
		m.create(b)
		return
	}
	change(m, b, func(b *v1alpha1.Bundle) {
		b.Spec.Revision++
		b.Spec.Imports, b.Spec.Sequence = sorted(list), sequence
	})
}

// base sets what the own Bundle of shard 0 says, and how many Bundles of deltas that lists.
func (m *member) base(deltas int32, sequence int64, list ...v1alpha1.Import) {
	m.t.Helper()
	change(m, bundle(0), func(b *v1alpha1.Bundle) {
		b.Spec.Revision++
		b.Spec.Imports, b.Spec.Deltas, b.Spec.Sequence = sorted(list), deltas, sequence
	})
}

// TestImportsInDeltas: of the Bundles that have an import the newest has it as it is. While these come and go in any
// order and the agent starts anew, nothing of an import goes for a moment, and what is not known stays.
func TestImportsInDeltas(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	m.reports("that the agent reads deltas", func(s *v1alpha1.PeeringStatus) error {
		return expect("reads deltas", s.ReadsDeltas, true)
	})
	web, db := key("sample", "web"), key("sample", "db")
	at := func(name, ip string) v1alpha1.Import {
		return imported("sample", name, map[string][]string{"c2": {ip}})
	}
	follows := func(forWeb, forDB string) {
		t.Helper()
		m.endpoints(web, "c2 "+forWeb+":8080")
		m.endpoints(db, "c2 "+forDB+":8080")
	}
	m.base(0, 5, at("web", "10.9.0.1"), at("db", "10.9.1.1"))
	follows("10.9.0.1", "10.9.1.1")
	objects := func() string {
		i, s := m.derived(web)
		return fmt.Sprint(i.UID, s.UID, m.slices(t.Context(), web)[0].UID)
	}
	before := objects()

	// Not listed they mean nothing, and are answered with nothing but that.
	m.delta(0, 6, at("web", "10.9.0.2"), imported("nowhere", "x", map[string][]string{}), at("other", "10.9.2.1"))
	m.answers("sealane-delta-0", 0)
	m.base(0, 5, at("web", "10.9.0.1"), at("db", "10.9.1.2"))
	follows("10.9.0.1", "10.9.1.2")

	m.base(1, 5, at("web", "10.9.0.1"), at("db", "10.9.1.2"))
	follows("10.9.0.2", "10.9.1.2")
	m.delta(0, 7, at("web", "10.9.0.3"))
	follows("10.9.0.3", "10.9.1.2")
	m.answers("sealane-0", 0)

	// The base is newer, and says what it did before.
	m.base(1, 8, at("web", "10.9.0.1"), at("db", "10.9.1.2"))
	follows("10.9.0.1", "10.9.1.2")
	// The deltas are newer, and say what they did before.
	m.delta(0, 9, at("web", "10.9.0.3"))
	follows("10.9.0.3", "10.9.1.2")

	// Unknown is never older: while one that is listed is missing nothing changes, also for an agent that starts.
	m.base(2, 9, at("web", "10.9.0.3"), at("db", "10.9.1.3"))
	m.answers("sealane-0", 0)
	m.delta(0, 10, at("web", "10.9.0.4"), at("db", "10.9.1.4"))
	m.answers("sealane-delta-0", 0)
	follows("10.9.0.3", "10.9.1.2")
	m.stop()
	m.start(m.config)
	m.base(2, 10, at("web", "10.9.0.4"), at("db", "10.9.1.4"))
	m.answers("sealane-0", 0)
	follows("10.9.0.3", "10.9.1.2")
	m.delta(1, 11, at("db", "10.9.1.5"))
	follows("10.9.0.4", "10.9.1.5")

	// It goes, and the broker lists it no more.
	m.delete(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "sealane-delta-1"}})
	m.delta(0, 12, at("web", "10.9.0.5"), at("db", "10.9.1.4"))
	m.answers("sealane-delta-0", 0)
	follows("10.9.0.4", "10.9.1.5")
	m.base(1, 10, at("web", "10.9.0.4"), at("db", "10.9.1.4"))
	follows("10.9.0.5", "10.9.1.4")

	// A half takes over what is in deltas, older and then newer.
	m.half("0", at("db", "10.9.1.6"))
	m.half("1", at("web", "10.9.0.6"))
	of := func(bits string, sequence int64) {
		b := bundle(0)
		b.Name = v1alpha1.HalfName(b.Name, bits)
		change(m, b, func(b *v1alpha1.Bundle) { b.Spec.Revision++; b.Spec.Sequence = sequence })
	}
	of("0", 11)
	of("1", 13)
	m.lists([]string{"0", "1"})
	follows("10.9.0.6", "10.9.1.4")
	of("0", 12)
	of("1", 11)
	follows("10.9.0.5", "10.9.1.6")

	// A broker that knows nothing of deltas.
	m.half("10", at("web", "10.9.0.7"))
	m.lists([]string{"0", "10"})
	follows("10.9.0.7", "10.9.1.6")
	if after := objects(); after != before {
		t.Errorf("objects of the import were made anew: %s, before %s", after, before)
	}
	gone, _ := m.derived(web)
	m.half("10")
	m.gone(gone)
}

// TestDeltasOfALeavingCluster are answered, and keep nothing.
func TestDeltasOfALeavingCluster(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	peering := m.peering(1)
	web := imported("sample", "web", map[string][]string{"c2": {"10.9.0.1"}})
	m.service("sample", "own", "10.8.0.1")
	m.export("sample", "own")
	m.exports("sample/own 10.8.0.1;")
	m.delta(0, 6, web)
	m.answers("sealane-delta-0", 0)
	m.base(1, 5, web)
	m.endpoints(key("sample", "web"), "c2 10.9.0.1:8080")
	there, _ := m.derived(key("sample", "web"))
	m.base(2, 5, web)
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.Revision++; p.Spec.Phase = v1alpha1.MemberLeaving })
	m.gone(there)
	m.delta(0, 7, web)
	m.answers("sealane-delta-0", 0)
}

// TestOneChangedDeltaIsOneWrite, of the EndpointSlice that has it; and where a base takes over what is in deltas, there
// is none.
func TestOneChangedDeltaIsOneWrite(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	const many = 20
	all := make([]v1alpha1.Import, many)
	for i := range all {
		all[i] = imported("sample", fmt.Sprintf("web-%02d", i), map[string][]string{"c2": {fmt.Sprintf("10.9.0.%d", i+1)}})
	}
	changed := func(i int) v1alpha1.Import {
		return imported("sample", all[i].Name, map[string][]string{"c2": {fmt.Sprintf("10.9.250.%d", i+1)}})
	}
	m.delta(0, 6, changed(3), changed(4))
	m.base(1, 5, all...)
	m.answers("sealane-0", 0)
	m.endpoints(key("sample", all[3].Name), "c2 10.9.250.4:8080")
	m.endpoints(key("sample", all[4].Name), "c2 10.9.250.5:8080")
	var before map[string]string
	since := time.Now()
	m.eventually("nothing is written for a second", func(ctx context.Context) error {
		found, err := m.madeVersions(ctx, "sample")
		if err != nil {
			return err
		}
		if !maps.Equal(found, before) {
			before, since = found, time.Now()
		}
		return errors.Join(expect("objects", len(before), 3*many), expect("quiet", time.Since(since) > time.Second, true))
	})

	m.delta(0, 7, changed(3), changed(4), changed(17))
	m.endpoints(key("sample", all[17].Name), "c2 10.9.250.18:8080")
	all[3], all[4], all[17] = changed(3), changed(4), changed(17)
	m.base(1, 8, all...)
	m.answers("sealane-0", 0)
	m.delta(0, 9)
	m.answers("sealane-delta-0", 0)
	after, err := m.madeVersions(t.Context(), "sample")
	if err != nil {
		t.Fatal(err)
	}
	var written []string
	for object, version := range after {
		if before[object] != version {
			written = append(written, object)
		}
	}
	if len(written) != 1 || len(after) != len(before) {
		t.Errorf("written were %v of %d objects, want one EndpointSlice", written, len(after))
	}
}
