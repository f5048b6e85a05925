// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

// packing reads from a shelf as from the controller's cache, which keeps Works packed.
type packing struct{ *shelf }

func (c packing) Get(ctx context.Context, key client.ObjectKey, out client.Object, _ ...client.GetOption) error {
	err := c.shelf.Get(ctx, key, out)
	if err == nil {
		_, err = propagation.Pack(out)
	}
	return err
}

func (c packing) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	unshared := false
	err := c.shelf.List(ctx, list, append(opts, &client.ListOptions{UnsafeDisableDeepCopy: &unshared})...)
	if works, ok := list.(*workv1alpha1.WorkList); ok && err == nil {
		for i := range works.Items {
			if _, err := propagation.Pack(&works.Items[i]); err != nil {
				return err
			}
		}
	}
	return err
}

// contents are the manifests of all Works without their revisions.
func (p *played) contents() map[client.ObjectKey]string {
	p.t.Helper()
	var works workv1alpha1.WorkList
	if err := p.shelf.List(p.t.Context(), &works); err != nil {
		p.t.Fatal(err)
	}
	out := map[client.ObjectKey]string{}
	for i := range works.Items {
		key := client.ObjectKeyFromObject(&works.Items[i])
		var bundle v1alpha1.Bundle
		if n := len(works.Items[i].Spec.Workload.Manifests); n != 1 {
			out[key] = fmt.Sprint(n, " manifests")
			continue
		}
		raw := works.Items[i].Spec.Workload.Manifests[0].Raw
		if err := json.Unmarshal(raw, &bundle); err != nil {
			out[key] = fmt.Sprintf("%.40q: %v", raw, err)
			continue
		}
		out[key] = strings.Replace(string(raw), fmt.Sprintf(`"revision":%d,`, bundle.Spec.Revision), "", 1)
	}
	return out
}

// TestOddWorksAreMended: whatever somebody makes of a Work, in a cache that keeps it packed, it says in the end what it
// said, and nobody else's is written.
func TestOddWorksAreMended(t *testing.T) {
	p := playWith(t, manyServices(3, 120, 1), true)
	p.Client, p.Works = packing{p.shelf}, propagation.Writer{Client: packing{p.shelf}, Live: p.shelf}
	p.forget()
	p.pass(10) // each member is called once more
	want := p.contents()
	var keys []client.ObjectKey
	large := 0
	for key := range p.revisions() {
		if key.Namespace == propagation.BundleKey("c2", 0).Namespace {
			keys = append(keys, key)
			large = max(large, len(want[key]))
		}
	}
	if len(keys) < 3 || large < 4<<10 {
		t.Fatalf("c2 has %d Works of at most %d bytes: the test sees little", len(keys), large)
	}
	manifest := func(raw string) workv1alpha1.Manifest {
		return workv1alpha1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}
	}
	filler := strings.Repeat("0123456789abcdef", 100)
	odd := map[string]func(raw string) []workv1alpha1.Manifest{
		"no manifest":  func(string) []workv1alpha1.Manifest { return nil },
		"an empty one": func(string) []workv1alpha1.Manifest { return []workv1alpha1.Manifest{manifest("{}")} },
		"null":         func(string) []workv1alpha1.Manifest { return []workv1alpha1.Manifest{{}} },
		"the same twice": func(raw string) []workv1alpha1.Manifest {
			return []workv1alpha1.Manifest{manifest(raw), manifest(raw)}
		},
		"another besides": func(raw string) []workv1alpha1.Manifest {
			return []workv1alpha1.Manifest{manifest(raw), manifest("{}")}
		},
		"no Bundle": func(string) []workv1alpha1.Manifest {
			return []workv1alpha1.Manifest{manifest(`{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"` + filler + `"}}`)}
		},
		"a spec that is none": func(string) []workv1alpha1.Manifest {
			return []workv1alpha1.Manifest{manifest(`{"spec":"` + filler + `"}`)}
		},
		"huge": func(raw string) []workv1alpha1.Manifest {
			return []workv1alpha1.Manifest{manifest(strings.Replace(raw, `"spec":{`,
				`"spec":{"filler":"`+strings.Repeat(filler, 1000)+`",`, 1))}
		},
		"changed by hand": func(raw string) []workv1alpha1.Manifest {
			return []workv1alpha1.Manifest{manifest(strings.ReplaceAll(raw, "web-", "bew-"))}
		},
		"a later revision": func(raw string) []workv1alpha1.Manifest {
			return []workv1alpha1.Manifest{manifest(strings.Replace(raw, `"revision":`, `"revision":7`, 1))}
		},
	}
	for name, make := range odd {
		for _, key := range keys {
			before := p.revisions()
			var work workv1alpha1.Work
			if err := p.shelf.Get(t.Context(), key, &work); err != nil {
				t.Fatal(err)
			}
			work.Spec.Workload.Manifests = make(string(work.Spec.Workload.Manifests[0].Raw))
			p.shelf.put(&work)
			p.now = p.now.Add(2 * time.Second)
			p.decide(0)
			p.decide(0)
			p.answerAll()
			p.pass(3)
			if got := p.contents(); !maps.Equal(got, want) {
				for k := range want {
					if got[k] != want[k] {
						t.Errorf("%s in %s: %s says %.200s", name, key.Name, k, got[k])
					}
				}
				t.FailNow()
			}
			for k, revision := range p.revisions() {
				if k.Namespace != key.Namespace && revision != before[k] {
					t.Errorf("%s in %s: %s was written", name, key.Name, k)
				}
			}
		}
	}
}
