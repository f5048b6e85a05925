// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// DigestOfRelays is what tells two lists of relayed clusters apart, whatever the order of their entries: FNV-1a 64, as
// 16 hexadecimal digits. That of no list at all is one, too.
func DigestOfRelays(relays []RelayedClusters) string {
	lines := make([]string, len(relays))
	for i, r := range relays {
		lines[i] = strings.Join(r.Clusters, ",") + ">" + strings.Join(r.With, ",")
	}
	slices.Sort(lines)
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join(lines, "\n")))
	return fmt.Sprintf("%016x", h.Sum64())
}

// RelaysInForce is the digest that the node's agent says is in force; empty for an agent that does not know of
// relays, which leaves what a later version has said before it.
func (s *GatewayStatus) RelaysInForce() string {
	if s.RelaysVersion != s.Version {
		return ""
	}
	return s.Relays
}
