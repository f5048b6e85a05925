// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// permits say who may export which service.
type permits struct {
	rules    []permit
	policies map[key]policy
}

// permit is an ExporterRule, parsed.
type permit struct {
	namespaces, names []string
	clusters          *scope
}

func newPermits(rules []v1alpha1.ExporterRule, policies map[key]policy) *permits {
	out := &permits{policies: policies}
	for _, r := range rules {
		// A selector that cannot be used selects nobody; see InvalidExporters.
		clusters, _ := newScope(r.ClusterNames, r.ClusterSelector)
		out.rules = append(out.rules, permit{r.Namespaces, r.Names, clusters})
	}
	return out
}

func (p *permit) covers(k key) bool {
	return (len(p.namespaces) == 0 || slices.Contains(p.namespaces, k.namespace)) &&
		(len(p.names) == 0 || slices.Contains(p.names, k.name))
}

// refuses says why a member may not export a service, with the remedy, or nothing. Where rules of the
// ClusterSet cover the service one of them must admit the cluster, and so must the exporters of its policy.
func (p *permits) refuses(m *Member, k key) string {
	covered, admitted := false, false
	for i := range p.rules {
		if p.rules[i].covers(k) {
			covered = true
			admitted = admitted || p.rules[i].clusters.admits(m)
		}
	}
	switch {
	case covered && !admitted:
		return fmt.Sprintf("no rule in spec.services.exporters of the ClusterSet that covers %s admits cluster %s: add the "+
			"cluster to one, or delete the ServiceExport there", k, m.Cluster)
	case !p.policies[k].exporters.admits(m):
		return fmt.Sprintf("spec.exporters of ServicePolicy %s on the Karmada API does not admit cluster %s: add it there, "+
			"or delete the ServiceExport in the cluster", k, m.Cluster)
	}
	return ""
}

// InvalidExporters says which rule of a ClusterSet cannot be used as it is; such a selector selects nobody.
func InvalidExporters(s *v1alpha1.ServicesSpec) error {
	for i, r := range s.Exporters {
		if _, err := newScope(r.ClusterNames, r.ClusterSelector); err != nil {
			return fmt.Errorf("spec.services.exporters[%d]: %w", i, err)
		}
	}
	return nil
}
