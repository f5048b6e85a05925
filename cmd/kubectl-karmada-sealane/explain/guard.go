// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"regexp"
	"strings"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// guardChain is the chain of our nftables table that looks at what a cable delivers.
const guardChain = "guard"

// verdictRule is a rule of the guard that decides by link, source and destination alone.
var verdictRule = regexp.MustCompile(
	`^iifname "([^"]+)"(?: ip6? saddr @(\S+))?(?: ip6? daddr @(\S+))?(?: notrack| counter)? (accept|drop)$`)

// guarded evaluates the guard chain of a node for a packet from a cable, rule by rule as the kernel does. It returns
// the rule that decides, and whether that accepts the packet; without such a rule it passes.
func guarded(p plan.Plan, pk packet) (rule string, passes bool) {
	f := plan.FamilyOf(pk.dst)
	in := func(name string, holds bool) bool { return name == "" || holds }
	for _, t := range p.Tables {
		if t.Family != f {
			continue
		}
		for _, c := range t.Chains {
			if c.Name != guardChain {
				continue
			}
			for _, rule := range c.Rules {
				m := verdictRule.FindStringSubmatch(rule)
				if m == nil || !linkMatches(m[1], pk.iif) {
					continue
				}
				if in(m[2], within(set(p, f, m[2]), pk.src)) && in(m[3], within(set(p, f, m[3]), pk.dst)) {
					return rule, m[4] == "accept"
				}
			}
		}
	}
	return "", true
}

// linkMatches says whether nft's pattern of a link's name matches it.
func linkMatches(pattern, link string) bool {
	if prefix, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(link, prefix)
	}
	return pattern == link
}
