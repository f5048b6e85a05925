// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	broker "github.com/sealane-io/sealane/controllers/services"
)

// importer is a member beside those of a Size, which exports nothing and has all namespaces.
const importer = "importer"

// Peering is what the broker writes to a member that imports from all others.
func (s Size) Peering(shards int32) *v1alpha1.Peering {
	yes := true
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}, Spec: v1alpha1.PeeringSpec{
		Revision: 1, Phase: v1alpha1.MemberActive, ClusterSet: setName, ClusterID: importer, Shards: shards,
		Cable:       v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
		DNS:         v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}, ClusterNames: &yes},
		HealthCheck: v1alpha1.HealthCheckSpec{IntervalMilliseconds: 250, FailureThreshold: 4},
		Conditions:  []metav1.Condition{},
	}}
	for n := range s.Clusters {
		f := facts(n)
		p.Spec.RemoteClusters = append(p.Spec.RemoteClusters, v1alpha1.RemoteCluster{Name: s.cluster(n),
			Networks: f.Networks, Endpoints: f.Endpoints})
	}
	return p
}

// NamespacesOf are those that services are in.
func (s Size) NamespacesOf() []string {
	var out []string
	for i := range min(s.Namespaces, s.Services) {
		namespace, _ := s.service(i)
		out = append(out, namespace)
	}
	return out
}

// Bundles are what the broker writes to that member, in halves where it would halve them.
func (s Size) Bundles(shards int32) ([]*v1alpha1.Bundle, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	members := make([]broker.Member, s.Clusters, s.Clusters+1)
	exports := make([]map[int32][]v1alpha1.Export, s.Clusters)
	for n := range members {
		m := newMember(s, n)
		members[n] = broker.Member{Cluster: s.cluster(n), Known: true, Pods: []netip.Prefix{pods(n)},
			Services: []netip.Prefix{services(n)}}
		exports[n] = map[int32][]v1alpha1.Export{}
		for i, offsets := range m.pods {
			e := s.export(n, i, offsets)
			shard := v1alpha1.Shard(e.Namespace, e.Name, shards)
			exports[n][shard] = append(exports[n][shard], e)
		}
	}
	members = append(members, broker.Member{Cluster: importer, Known: true, ReadsParts: true})
	var out []*v1alpha1.Bundle
	for shard := range shards {
		for n := range s.Clusters {
			members[n].Exports = exports[n][shard]
		}
		decided := broker.Decide(broker.Input{Shard: shard, Shards: shards, Members: members}).Bundles[importer].Imports
		all := make([]v1alpha1.Import, len(decided))
		for i := range decided {
			all[i] = *decided[i]
		}
		own := bundleOf(v1alpha1.BundleName(shard), shard, []v1alpha1.Import{})
		halves, err := halve(all, "")
		if err != nil {
			return nil, err
		}
		for half, imports := range halves {
			if half == "" {
				own.Spec.Imports = imports
				break
			}
			own.Spec.Halves = append(own.Spec.Halves, half)
			out = append(out, bundleOf(v1alpha1.HalfName(own.Name, half), shard, imports))
		}
		out = append(out, own)
	}
	return out, nil
}

func bundleOf(name string, shard int32, imports []v1alpha1.Import) *v1alpha1.Bundle {
	return &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.BundleSpec{Revision: 1,
		Shard: shard, Imports: imports, ExportConditions: []v1alpha1.ExportCondition{}}}
}

// maxHalf is how large the imports of a Bundle are, in JSON, that the broker does not halve.
const maxHalf = 15 << 10

// halve returns the imports by the half that they are in, which is "" if one Bundle holds them.
func halve(imports []v1alpha1.Import, half string) (map[string][]v1alpha1.Import, error) {
	raw, err := json.Marshal(imports)
	if err != nil {
		return nil, fmt.Errorf("encode imports: %w", err)
	}
	if len(raw) <= maxHalf || len(imports) == 1 {
		return map[string][]v1alpha1.Import{half: imports}, nil
	}
	var sides [2][]v1alpha1.Import
	for _, i := range imports {
		side := v1alpha1.HalfHash(i.Namespace, i.Name) >> (63 - len(half)) & 1
		sides[side] = append(sides[side], i)
	}
	out := map[string][]v1alpha1.Import{}
	for side, of := range sides {
		found, err := halve(of, half+string('0'+rune(side)))
		if err != nil {
			return nil, err
		}
		maps.Copy(out, found)
	}
	return out, nil
}
