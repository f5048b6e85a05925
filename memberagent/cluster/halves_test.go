// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// half sets what the broker says in one half of shard 0.
func (m *member) half(bits string, list ...v1alpha1.Import) {
	m.t.Helper()
	b := bundle(0)
	b.Name = v1alpha1.HalfName(b.Name, bits)
	if m.Get(m.t.Context(), client.ObjectKeyFromObject(b), b) != nil {
		b.Spec.Imports = sorted(list)
		m.create(b)
		return
	}
	change(m, b, func(b *v1alpha1.Bundle) {
		b.Spec.Revision++
		b.Spec.Imports = sorted(list)
	})
}

// lists sets which halves mean something.
func (m *member) lists(halves []string, own ...v1alpha1.Import) {
	m.t.Helper()
	change(m, bundle(0), func(b *v1alpha1.Bundle) {
		b.Spec.Revision++
		b.Spec.Imports, b.Spec.Halves = sorted(own), halves
	})
}

// answers waits until the agent has answered a Bundle, with as many problems with its imports.
func (m *member) answers(name string, problems int) {
	m.t.Helper()
	m.eventually("the answer of "+name, func(ctx context.Context) error {
		b := &v1alpha1.Bundle{}
		if err := m.Get(ctx, types.NamespacedName{Name: name}, b); err != nil {
			return err
		}
		return errors.Join(expect("revision", b.Status.ObservedRevision, b.Spec.Revision),
			expect("problems", len(b.Status.Imports), problems), expect("exports", len(b.Status.Exports), 0))
	})
}

// TestImportsInHalves: the shard's own Bundle says which Bundle an import is looked for in. While that changes, halves
// come in any order, one is lost and the agent starts anew, nothing of an import goes for a moment.
func TestImportsInHalves(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	m.reports("that the agent reads halves", func(s *v1alpha1.PeeringStatus) error {
		return expect("reads halves", s.ReadsParts, true)
	})
	// By their hashes, web is in "10" and db in "0".
	web, db := key("sample", "web"), key("sample", "db")
	at := func(name, ip string) v1alpha1.Import {
		return imported("sample", name, map[string][]string{"c2": {ip}})
	}
	m.imports(at("web", "10.9.0.1"), at("db", "10.9.1.1"))
	m.endpoints(web, "c2 10.9.0.1:8080")
	m.endpoints(db, "c2 10.9.1.1:8080")
	objects := func() (uids string) {
		for _, k := range []types.NamespacedName{web, db} {
			i, s := m.derived(k)
			uids += fmt.Sprint(i.UID, s.UID, m.slices(t.Context(), k)[0].UID, " ")
		}
		return uids
	}
	before := objects()

	// Not listed, they mean nothing, and are answered.
	m.half("1", at("web", "10.9.0.2"))
	m.half("0", at("db", "10.9.1.2"), imported("nowhere", "x", map[string][]string{}))
	m.answers("sealane-0-1", 0)
	m.answers("sealane-0-0", 1)
	m.imports(at("web", "10.9.0.3"), at("db", "10.9.1.1"))
	m.endpoints(web, "c2 10.9.0.3:8080")
	m.endpoints(db, "c2 10.9.1.1:8080")

	m.lists([]string{"0", "1"})
	m.answers("sealane-0", 0)
	m.endpoints(web, "c2 10.9.0.2:8080")
	m.endpoints(db, "c2 10.9.1.2:8080")
	m.half("1", at("web", "10.9.0.4"))
	m.endpoints(web, "c2 10.9.0.4:8080")

	// Unknown is never empty: one that is listed and gone changes nothing, also for an agent that starts.
	m.delete(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "sealane-0-1"}})
	m.stop()
	m.start(m.config)
	m.half("0", at("db", "10.9.1.3"))
	m.endpoints(db, "c2 10.9.1.3:8080")
	m.endpoints(web, "c2 10.9.0.4:8080")

	// Another half of web, and what is left over of the last means nothing.
	m.lists([]string{"0", "10", "11"})
	m.half("1", at("web", "10.9.0.5"))
	m.answers("sealane-0-1", 0)
	m.endpoints(web, "c2 10.9.0.4:8080")
	m.half("10", at("web", "10.9.0.6"))
	m.endpoints(web, "c2 10.9.0.6:8080")

	// And back, as a broker does that does not know halves.
	m.lists(nil, at("web", "10.9.0.7"), at("db", "10.9.1.4"))
	m.endpoints(web, "c2 10.9.0.7:8080")
	m.endpoints(db, "c2 10.9.1.4:8080")
	m.half("10", at("web", "10.9.0.8"))
	m.answers("sealane-0-10", 0)
	m.endpoints(web, "c2 10.9.0.7:8080")
	if after := objects(); after != before {
		t.Errorf("objects of the imports were made anew: %s, before %s", after, before)
	}
	// What a half that is listed does not have is withdrawn.
	announced, _ := m.derived(db)
	m.lists([]string{"0", "10"})
	m.half("0")
	m.gone(announced)
	m.endpoints(web, "c2 10.9.0.8:8080")
}

// TestOtherHalvesOfWhatIsWithdrawn: where a shard lists other halves, each of its services is looked for where it is
// now, also one of which the half before is gone already.
func TestOtherHalvesOfWhatIsWithdrawn(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	web, db := key("sample", "web"), key("sample", "db") // in "10" and in "0"
	at := func(name, ip string) v1alpha1.Import {
		return imported("sample", name, map[string][]string{"c2": {ip}})
	}
	m.half("0", at("db", "10.9.1.1"))
	m.half("1", at("web", "10.9.0.1"))
	m.lists([]string{"0", "1"}, at("db", "10.9.1.2"))
	m.endpoints(web, "c2 10.9.0.1:8080")
	m.endpoints(db, "c2 10.9.1.1:8080")
	withdrawn, _ := m.derived(web)

	m.half("10")
	m.half("11")
	m.answers("sealane-0-10", 0)
	m.answers("sealane-0-11", 0)
	m.delete(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "sealane-0-1"}})
	m.lists([]string{"0", "10", "11"}, at("db", "10.9.1.2"))
	m.gone(withdrawn)
	m.endpoints(db, "c2 10.9.1.1:8080")

	m.lists(nil, at("db", "10.9.1.2"))
	m.endpoints(db, "c2 10.9.1.2:8080")
	m.lists([]string{"10"}, at("db", "10.9.1.2"))
	m.half("0")
	m.answers("sealane-0-0", 0)
	m.delete(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "sealane-0-0"}})
	m.lists(nil, at("db", "10.9.1.3"))
	m.endpoints(db, "c2 10.9.1.3:8080")
}
