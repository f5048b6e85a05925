// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// bundle returns what the member's Bundle should say, and the sizes of its imports. Those that the member reports to
// have no namespace for are withheld: nothing is made of them there, and each change of an endpoint would cost a write.
func (m *member) bundle(shard int32) (Bundle, []int) {
	out := Bundle{Shard: shard, Imports: make([]*v1alpha1.Import, len(m.imports)), ExportConditions: m.conditions}
	sizes := make([]int, len(m.imports))
	for i, s := range m.imports {
		out.Imports[i], sizes[i] = s.imported, s.size
	}
	m.withhold(out.Imports)
	return out, sizes
}

// withhold marks imports of a member as withheld.
func (m *member) withhold(imports []*v1alpha1.Import) {
	if !m.ReadsParts || !m.Known {
		return
	}
	var imported map[key]int
	for _, p := range m.Unusable {
		if p.Reason != v1alpha1.ReasonNamespaceMissing {
			continue
		}
		if imported == nil {
			imported = make(map[key]int, len(imports))
			for i := range imports {
				imported[keyOf(imports[i])] = i
			}
		}
		for _, name := range p.Names {
			if i, ok := imported[key{p.Namespace, name}]; ok {
				imports[i] = m.imports[i].asWithheld()
			}
		}
	}
}

func keyOf(i *v1alpha1.Import) key { return key{i.Namespace, i.Name} }

// unwithheld returns a spec in which nothing is withheld of an import that was sent as it is now: nothing is written
// only to take something away.
func (b *sentBundle) unwithheld(spec *Bundle, compared comparison) *Bundle {
	if b.sent == nil {
		return spec
	}
	out := spec
	for i := range spec.Imports {
		wanted := spec.Imports[i]
		if !wanted.Withheld {
			continue
		}
		sent := b.sent.imported(keyOf(wanted))
		if sent == nil || sent.Withheld || !compared.contents(sent, wanted) {
			continue
		}
		if out == spec {
			c := *spec
			c.Imports = slices.Clone(spec.Imports)
			out = &c
		}
		if !identical(sent.Clusters, wanted.Clusters) {
			// Else what was read of a Work would be kept for as long as it stays the same.
			whole := *wanted
			whole.Withheld = false
			sent = &whole
		}
		out.Imports[i] = sent
	}
	return out
}

// onWire is an import as it is written.
func onWire(i *v1alpha1.Import) *v1alpha1.Import {
	if !i.Withheld {
		return i
	}
	out := *i
	out.Choice = nil
	out.Clusters = make([]v1alpha1.ImportCluster, len(i.Clusters))
	for n := range i.Clusters {
		out.Clusters[n] = v1alpha1.ImportCluster{Cluster: i.Clusters[n].Cluster, CreatedAt: i.Clusters[n].CreatedAt,
			Ports: []string{}, ClusterIPs: []string{}, Backends: []v1alpha1.Backends{}}
	}
	return &out
}

// sameRest says that two imports that are withheld say the same on the wire.
func sameRest(a, b *v1alpha1.Import) bool {
	return keyOf(a) == keyOf(b) && a.Mode == b.Mode && sameSettings(&a.Settings, &b.Settings) &&
		slices.EqualFunc(a.Clusters, b.Clusters, func(a, b v1alpha1.ImportCluster) bool {
			return a.Cluster == b.Cluster && a.CreatedAt.Equal(&b.CreatedAt)
		})
}
