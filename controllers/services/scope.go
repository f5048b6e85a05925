// SPDX-License-Identifier: Apache-2.0

package services

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// scope is an ImportScope or an ExporterScope, parsed. A nil scope admits everybody.
type scope struct {
	names    []string
	selector labels.Selector
}

// parseScope returns what a scope admits. With an error that is less than was asked for, never more: what
// cannot be parsed admits nobody.
func parseScope(s *v1alpha1.ImportScope) (*scope, error) {
	if s == nil {
		return nil, nil
	}
	return newScope(s.ClusterNames, s.ClusterSelector)
}

func newScope(names []string, by *metav1.LabelSelector) (*scope, error) {
	out := &scope{names: names, selector: labels.Nothing()}
	if by == nil {
		return out, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(by)
	if err != nil {
		return out, fmt.Errorf("the cluster selector cannot be used: %w", err)
	}
	out.selector = selector
	return out, nil
}

func (s *scope) admits(m *Member) bool {
	return s == nil || slices.Contains(s.names, m.Cluster) || s.selector.Matches(labels.Set(m.Labels))
}

// validScope says why a scope that a member reports is refused.
func validScope(s *v1alpha1.ImportScope) error {
	if s == nil {
		return nil
	}
	if len(s.ClusterNames) > maxScopeNames {
		return fmt.Errorf("its import scope names %d clusters, at most %d are possible", len(s.ClusterNames), maxScopeNames)
	}
	for _, name := range s.ClusterNames {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("its import scope names %s, which is no cluster's name", clip.Quote(name))
		}
	}
	if s.ClusterSelector == nil {
		return nil
	}
	if size := sizeOf(s.ClusterSelector); size > maxSelector {
		return fmt.Errorf("the selector of its import scope has %d bytes, at most %d are possible", size, maxSelector)
	}
	if _, err := parseScope(s); err != nil {
		return errors.New("the selector of its import scope cannot be used: " + clip.Text(err.Error(), maxReason))
	}
	return nil
}

// Importers says why a policy's importers cannot be used as they are; such a selector selects nobody.
func Importers(p *v1alpha1.ServicePolicy) error {
	_, err := parseScope(p.Spec.Importers)
	return err
}

// Exporters says why a policy's exporters cannot be used as they are; such a selector selects nobody.
func Exporters(p *v1alpha1.ServicePolicy) error {
	if p.Spec.Exporters == nil {
		return nil
	}
	_, err := newScope(p.Spec.Exporters.ClusterNames, p.Spec.Exporters.ClusterSelector)
	return err
}

// Selects says that a scope depends on the labels of clusters.
func (in *Input) Selects() bool {
	byLabels := func(s *v1alpha1.ImportScope) bool { return s != nil && s.ClusterSelector != nil }
	if slices.ContainsFunc(in.Services.Exporters, func(r v1alpha1.ExporterRule) bool { return r.ClusterSelector != nil }) {
		return true
	}
	if slices.ContainsFunc(in.Policies, func(p v1alpha1.ServicePolicy) bool {
		return byLabels(p.Spec.Importers) || p.Spec.Exporters != nil && p.Spec.Exporters.ClusterSelector != nil
	}) {
		return true
	}
	scoped := func(e v1alpha1.Export) bool { return byLabels(e.Scope) }
	return slices.ContainsFunc(in.Members, func(m Member) bool {
		// The exports of a member that cannot be heard are those of its record.
		return slices.ContainsFunc(m.Exports, scoped) || m.Record != nil && slices.ContainsFunc(m.Record.Exports, scoped)
	})
}

// policy is what a ServicePolicy asks for, parsed.
type policy struct {
	importers, exporters *scope
	choice               *v1alpha1.ClusterChoice
}

// parsePolicies returns the policies by the service that they steer.
func parsePolicies(all []v1alpha1.ServicePolicy) map[key]policy {
	out := make(map[key]policy, len(all))
	for i := range all {
		p := &all[i]
		// A selector that cannot be used selects nobody; the policy's status says so.
		importers, _ := parseScope(p.Spec.Importers)
		var exporters *scope
		if e := p.Spec.Exporters; e != nil {
			exporters, _ = newScope(e.ClusterNames, e.ClusterSelector)
		}
		out[key{p.Namespace, p.Name}] = policy{importers, exporters, chosen(p.Spec.Choice)}
	}
	return out
}

// chosen returns a choice with every field filled, nil where it says nothing.
func chosen(c *v1alpha1.ClusterChoice) *v1alpha1.ClusterChoice {
	switch {
	case c == nil:
	case c.Failover != nil:
		failover := *c.Failover
		failover.MinReadyBackends = max(failover.MinReadyBackends, 1)
		return &v1alpha1.ClusterChoice{Failover: &failover}
	case len(c.Weights) > 0:
		return &v1alpha1.ClusterChoice{Weights: c.Weights}
	}
	return nil
}

// view is a service as those members see it that import the same exports of it.
type view struct {
	*merged
	exports []accepted // the oldest first
}

// merged is an import that several members have.
type merged struct {
	sized
	// own are what those members have of it that export the service, by cluster.
	own map[string]*sized
}

// sized is an import as members have it, and its size.
type sized struct {
	imported *v1alpha1.Import
	size     int
	// withheld is the same import, of which no more is written than its settings and the names of the clusters; nil where
	// nobody has needed that yet.
	withheld *v1alpha1.Import
}

func (s *sized) asWithheld() *v1alpha1.Import {
	if s.withheld == nil {
		withheld := *s.imported
		withheld.Withheld = true
		s.withheld = &withheld
	}
	return s.withheld
}

// see makes the views of a service: one per distinct set of exports. A member imports an export if it is the
// exporter, or if both the export's scope and the policy's importers admit it.
func (s *service) see(members []*member, byName map[string]*member, rules *rules) {
	s.views = make([]*view, len(members))
	global := slices.ContainsFunc(members, func(m *member) bool { return m.Global.Block.IsValid() })
	scoped := s.policy.importers != nil || slices.ContainsFunc(s.exports, func(a accepted) bool { return a.scope != nil })
	if !scoped && !global {
		all := newView(s.exports, s.policy.choice, rules)
		for i := range members {
			s.views[i] = all
		}
		return
	}
	for i, m := range members {
		invited := s.policy.importers.admits(m.Member)
		s.views[i] = s.view(rules, func(a *accepted) visibility {
			switch {
			case a.cluster != m.Cluster && (!invited || !a.scope.admits(m.Member)):
				return invisible
			case m.byBlock(byName[a.cluster]):
				return visibleByBlock
			}
			return visible
		})
	}
}

// visibility of an export to a member.
type visibility byte

const (
	invisible visibility = iota
	visible
	visibleByBlock
)

// view returns the view of those exports that are visible, nil if none is.
func (s *service) view(rules *rules, of func(*accepted) visibility) *view {
	seen := make([]byte, len(s.exports))
	exports := make([]accepted, 0, len(s.exports))
	for i := range s.exports {
		v := of(&s.exports[i])
		if seen[i] = byte(v); v == invisible {
			continue
		}
		exports = append(exports, s.exports[i])
		exports[len(exports)-1].byBlock = v == visibleByBlock
	}
	if len(exports) == 0 {
		return nil
	}
	if s.byVisible[string(seen)] == nil {
		if s.byVisible == nil {
			s.byVisible = map[string]*view{}
		}
		s.byVisible[string(seen)] = newView(exports, s.policy.choice, rules)
	}
	return s.byVisible[string(seen)]
}

func newView(exports []accepted, choice *v1alpha1.ClusterChoice, rules *rules) *view {
	return &view{rules.imports.again(merge(exports, choice, rules)), exports}
}

// mergedImports are those of the decision before and of this one, by service. One that says what it said has the memory
// that it had, so that whoever compares the two, for each member, has nothing to read.
type mergedImports struct {
	before, made map[key][]*merged
}

// again returns the import of the decision before that says the same, or else makes one.
func (i *mergedImports) again(imported *v1alpha1.Import) *merged {
	k := keyOf(imported)
	var out *merged
	if at := slices.IndexFunc(i.before[k], func(m *merged) bool { return sameContents(m.imported, imported) }); at >= 0 {
		out = i.before[k][at]
	} else {
		out = &merged{sized: sized{imported: imported, size: sizeOf(imported)}}
	}
	i.made[k] = append(i.made[k], out)
	return out
}
