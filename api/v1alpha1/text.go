// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScopeAll is the text of a scope that nothing narrows.
const ScopeAll = "all"

// Text tells who imports: "all", "none", or names and labels joined by commas.
func (s *ImportScope) Text() string {
	if s == nil {
		return ScopeAll
	}
	parts := slices.Clone(s.ClusterNames)
	if s.ClusterSelector != nil {
		parts = append(parts, "labels "+strconv.Quote(metav1.FormatLabelSelector(s.ClusterSelector)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ",")
}

// Text tells the choice: "failover Local>c2 at 3 backends", "weights c1=3,c2=1", or "" for the default.
func (c *ClusterChoice) Text() string {
	switch {
	case c == nil:
		return ""
	case c.Failover != nil:
		text := "failover " + strings.Join(c.Failover.Clusters, ">")
		if n := c.Failover.MinReadyBackends; n > 1 {
			text += fmt.Sprintf(" at %d backends", n)
		}
		return text
	case len(c.Weights) > 0:
		parts := make([]string, 0, len(c.Weights))
		for _, w := range c.Weights {
			parts = append(parts, w.Cluster+"="+strconv.Itoa(int(w.Weight)))
		}
		return "weights " + strings.Join(parts, ",")
	}
	return ""
}
