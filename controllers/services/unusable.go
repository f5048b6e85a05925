// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxUnusable is how many clusters the condition of an export names that cannot use it.
	maxUnusable = 3
	// maxWords is how many bytes of what one of them says it shows.
	maxWords = 120
)

// unusableIn says, for the Ready condition of a service's exports, which clusters report that they lack the import or
// cannot use it, and why. What they say is anybody's text.
func unusableIn(members []*member) map[key]string {
	clusters := map[key][]string{}
	for _, m := range members {
		if !m.Known {
			continue
		}
		for _, p := range m.Unusable {
			words := p.Message
			if len(words) > maxWords {
				words = words[:maxWords]
			}
			reason := p.Reason
			if len(reason) > 63 || len(validation.IsQualifiedName(reason)) > 0 {
				reason = "Unknown"
			}
			for _, name := range p.Names {
				k := key{p.Namespace, name}
				clusters[k] = append(clusters[k], fmt.Sprintf("%s (%s: %q)", m.Cluster, reason, words))
			}
		}
	}
	out := make(map[key]string, len(clusters))
	for k, list := range clusters {
		text := "; not usable in " + strings.Join(list[:min(len(list), maxUnusable)], ", ")
		if more := len(list) - maxUnusable; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		out[k] = text
	}
	return out
}
