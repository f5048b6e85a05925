// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// TestServicesAreCalled by names that lead back to them, and each is in the one shard that its name says.
func TestServicesAreCalled(t *testing.T) {
	s := Size{Clusters: 5, Services: 77, Exporters: 2, Backends: 3, Namespaces: 9}
	c := s.catalogue()
	in := make([]int, s.Services)
	for shard, of := range c.inShard {
		for _, i := range of {
			in[i]++
			namespace, name := s.service(i)
			if want := v1alpha1.Shard(namespace, name, shards); int(want) != shard {
				t.Errorf("%s/%s is in shard %d, not %d", namespace, name, shard, want)
			}
			if found, ok := s.index(namespace, name); !ok || found != i {
				t.Errorf("%s/%s is found to be service %d, %t; it is %d", namespace, name, found, ok, i)
			}
			if _, ok := s.index(namespace+"x", name); ok {
				t.Errorf("%s is found in another namespace", name)
			}
		}
	}
	if slices.Max(in) != 1 || slices.Min(in) != 1 {
		t.Errorf("the services are in so many shards: %v", in)
	}
	for _, name := range []string{"", "service-", "service-x", "service--0001", "service-00077", "other-00001"} {
		if i, ok := s.index("team-001", name); ok {
			t.Errorf("%q is found to be service %d", name, i)
		}
	}
	if i := s.Services; s.named(i) != nameOf(i, s.Namespaces) {
		t.Errorf("service %d, of which there is none, is called %v", i, s.named(i))
	}
}

// TestReportsAreSorted, as an agent's are: exports and imports by namespaces and names.
func TestReportsAreSorted(t *testing.T) {
	s := Size{Clusters: 22, Services: 200, Exporters: 1, Backends: 1, Namespaces: 11}
	m := newMember(s, 0)
	m.unpublished = &unpublished{}
	exports, imports := 0, 0
	for shard := range int32(shards) {
		raw, err := m.report(carried{kind: propagation.KindBundle, shard: shard, revision: 2})
		if err != nil {
			t.Fatal(err)
		}
		var said v1alpha1.BundleStatus
		if err := json.Unmarshal(raw, &said); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range said.Exports {
			names = append(names, e.Namespace+"/"+e.Name)
		}
		exports += len(names)
		if !slices.IsSorted(names) {
			t.Errorf("the exports of shard %d are %v", shard, names)
		}
		names = nil
		for _, i := range said.Imports {
			for _, name := range i.Names {
				names = append(names, i.Namespace+"/"+name)
			}
			if m.has[i.Namespace] {
				t.Errorf("the namespace %s is said to be missing", i.Namespace)
			}
		}
		imports += len(names)
		if !slices.IsSorted(names) {
			t.Errorf("the imports of shard %d that have no namespace are %v", shard, names)
		}
	}
	missing := 0
	for i := range s.Services {
		if namespace, _ := s.service(i); !m.has[namespace] {
			missing++
		}
	}
	if exports != len(m.pods) || imports != missing || missing == 0 {
		t.Errorf("%d exports and %d imports without namespace, not %d and %d", exports, imports, len(m.pods), missing)
	}
}
