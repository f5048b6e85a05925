// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

const (
	// maxUnusable is how many clusters the condition of an export names that cannot use it.
	maxUnusable = 3
	// maxWords is how many bytes of what one of them says it shows.
	maxWords = 120
)

// unusableIn says, for the Ready condition of a service's exports, which clusters report that they lack the import or
// cannot use it, and why. What they say is anybody's text, of services that they see alone. One that waits for an
// import, or is about to make it, is not told of: while it makes hundreds, each of its reports would be a write for
// every exporter.
func unusableIn(members []*member, services []*service) map[key]string {
	known := make(map[key]*service, len(services))
	for _, s := range services {
		known[s.key] = s
	}
	clusters := map[key][]string{}
	for i, m := range members {
		if !m.Known {
			continue
		}
		counted := map[*service]bool{}
		for _, p := range m.Unusable {
			if p.Reason == v1alpha1.ReasonImportWithheld || p.Reason == v1alpha1.ReasonImportPending {
				continue
			}
			text := ""
			for _, name := range p.Names {
				k := key{p.Namespace, name}
				s := known[k]
				if s == nil || s.views[i] == nil || counted[s] {
					continue
				}
				counted[s] = true
				if len(clusters[k]) >= maxUnusable {
					clusters[k] = append(clusters[k], "") // counted, and not named
					continue
				}
				if text == "" {
					text = unusableText(m.Cluster, &p)
				}
				clusters[k] = append(clusters[k], text)
			}
		}
	}
	out := make(map[key]string, len(clusters))
	for k, list := range clusters {
		out[k] = "; not usable in " + clip.List(list, maxUnusable)
	}
	return out
}

func unusableText(cluster string, p *v1alpha1.ImportProblem) string {
	reason := p.Reason
	if len(reason) > 63 || len(validation.IsQualifiedName(reason)) > 0 {
		reason = "Unknown"
	}
	return fmt.Sprintf("%s (%s: %q)", cluster, reason, clip.Text(p.Message, maxWords))
}
