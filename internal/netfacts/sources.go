// SPDX-License-Identifier: Apache-2.0

package netfacts

import "strings"

// PublicSources returns what a gateway node's annotation lists of where to find its public addresses, in its order.
func PublicSources(annotation string) []string {
	return strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' || r == ' ' })
}

// LoadBalancers returns the names of the Services that are among the sources of a gateway's public addresses.
func LoadBalancers(annotation string) []string {
	var out []string
	for _, source := range PublicSources(annotation) {
		if name, ok := strings.CutPrefix(source, "lb:"); ok && name != "" {
			out = append(out, name)
		}
	}
	return out
}
