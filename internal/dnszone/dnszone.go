// SPDX-License-Identifier: Apache-2.0

// Package dnszone says which DNS zones a ClusterSet may answer. The controller and every member's agent apply
// the same rules; the validation of ClusterSet.spec.dns.domains in the CRD states what can be said in CEL.
package dnszone

import (
	"fmt"
	"strings"
)

// ClusterDomain is the domain of a cluster's own names unless the kubelets are told another.
const ClusterDomain = "cluster.local"

// Normalize returns a domain name in lower case and without the trailing dot; the root is "".
func Normalize(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Within says whether a name is the zone itself or lies below it. Both are normalized; all names lie below the
// root, "".
func Within(name, zone string) bool {
	return zone == "" || name == zone || strings.HasSuffix(name, "."+zone)
}

// Overlap says whether two zones are the same, or one lies below the other.
func Overlap(a, b string) bool { return Within(a, b) || Within(b, a) }

// Allowed returns why no ClusterSet may answer a domain, which is normalized, or nil. What else a member's own
// DNS serves, only its agent knows.
func Allowed(domain string) error {
	switch {
	case !strings.Contains(domain, "."):
		return fmt.Errorf("the domain %q has one label, as top-level domains have: use two or more, as clusterset.local has",
			domain)
	case Overlap(domain, ClusterDomain):
		return fmt.Errorf("the domain %q is, holds or lies within %s, the domain of a cluster's own names", domain,
			ClusterDomain)
	case Within(domain, "arpa"):
		return fmt.Errorf("the domain %q lies within arpa, which has the names of addresses", domain)
	}
	for label := range strings.SplitSeq(domain, ".") {
		if len(label) > 63 {
			return fmt.Errorf("the domain %q has a label of more than 63 characters", domain)
		}
	}
	return nil
}
