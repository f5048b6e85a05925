// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// TestEncoder: a Bundle is encoded as its type says, and what members share of it once.
func TestEncoder(t *testing.T) {
	e, imports := newEncoder(), 0
	for cluster, spec := range Decide(manyServices(5, 40, 4)).Bundles {
		spec.Revision, spec.Shard = 7, 3
		if cluster == "c2" {
			spec.Halves = []string{"0", "10", "11"}
		}
		got, err := e.bundle(&spec, true)
		if err != nil {
			t.Fatal(err)
		}
		want, err := propagation.Encode(specOf(spec))
		if err != nil {
			t.Fatal(err)
		}
		if len(spec.Imports) == 0 || len(spec.ExportConditions) == 0 || string(got) != string(want) {
			t.Errorf("%s has\n%s, want\n%s", cluster, got, want)
		}
		imports += len(spec.Imports)
	}
	// Of each service there is what most get, and what its two exporters do.
	if n := len(e.imports); n != imports*3/5 {
		t.Errorf("%d imports are encoded of %d, want three of each five", n, imports)
	}
}

// TestABundleIsAWholeSpec: all that the API's type has is read, kept and written.
func TestABundleIsAWholeSpec(t *testing.T) {
	want := v1alpha1.BundleSpec{}
	fill(reflect.ValueOf(&want).Elem())
	want.Imports = specOf(Decide(manyServices(5, 40, 4)).Bundles["c2"]).Imports
	raw, err := newEncoder().bundle(bundleOf(&want), true)
	if err != nil {
		t.Fatal(err)
	}
	var got v1alpha1.BundleSpec
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if len(want.Imports) == 0 || !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("read again it is\n%+v, want\n%+v", got, want)
	}
}

// TestOlderAgentsGetObjects: an agent that does not say that it reads text gets what its types read, and the same of
// it.
func TestOlderAgentsGetObjects(t *testing.T) {
	e, backends := newEncoder(), 0
	for cluster, spec := range Decide(manyServices(5, 40, 4)).Bundles {
		raw, err := e.bundle(&spec, false)
		if err != nil {
			t.Fatal(err)
		}
		// What an older agent has, as far as it concerns backends.
		var older struct {
			Imports []struct {
				Namespace, Name string
				Clusters        []struct {
					Cluster  string
					Backends []struct {
						Ports []struct {
							Name     string
							Protocol string
							Port     int32
						}
						Addresses []struct {
							IP, Zone       string
							Ready, Serving bool
						}
					}
				}
			}
		}
		if err := json.Unmarshal(raw, &older); err != nil {
			t.Fatalf("%s: an older agent does not read it: %v", cluster, err)
		}
		for i, imported := range older.Imports {
			for n, c := range imported.Clusters {
				for k, g := range c.Backends {
					want := spec.Imports[i].Clusters[n].Backends[k]
					if len(g.Addresses) != len(want.Addresses) || g.Ports[0].Port != want.Ports[0].Port ||
						g.Addresses[0].IP != want.Addresses[0].IP || g.Addresses[0].Ready != want.Addresses[0].Ready {
						t.Fatalf("%s: an older agent reads %+v, want %+v", cluster, g, want)
					}
					backends += len(g.Addresses)
				}
			}
		}
		var again v1alpha1.BundleSpec
		if err := json.Unmarshal(raw, &again); err != nil ||
			!equality.Semantic.DeepEqual(again.Imports, specOf(spec).Imports) {
			t.Errorf("%s: it is read as other imports, %v", cluster, err)
		}
	}
	if backends < 100 {
		t.Errorf("%d backends were compared: this shows little", backends)
	}
}
