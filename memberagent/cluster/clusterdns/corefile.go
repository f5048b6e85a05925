// SPDX-License-Identifier: Apache-2.0

// Package clusterdns makes the cluster's own DNS forward Sealane's domains to Sealane's DNS, with a marked
// block in CoreDNS's Corefile. What is outside the marks is never touched.
package clusterdns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/dnszone"
)

// The marks, each a line of its own.
const (
	begin = "# BEGIN sealane"
	end   = "# END sealane"
)

// Forward is what the block says.
type Forward struct {
	// Domains without a trailing dot.
	Domains []string
	// To is the address of Sealane's DNS Service.
	To netip.Addr
	// ClusterDomain of the cluster's own names, where it is known otherwise than from the Corefile; may be "".
	ClusterDomain string
	// Networks of the cluster, as accepted. The names of the addresses in its service networks are forwarded, too.
	Networks v1alpha1.Networks
	// Elsewhere is what the same program serves by other files.
	Elsewhere []Served
	// Bind has the addresses that a server block must bind to, separated by spaces; "" for all.
	Bind string
	// NoAddresses says why names of addresses are not forwarded; nil where they may be.
	NoAddresses error
}

// ErrMarkers says that the marks are not one block, so that nobody can tell what is Sealane's.
var ErrMarkers = errors.New("the marks of Sealane's block are broken")

// ErrDomainTaken says that the cluster's DNS answers a domain, or one above or below it, already. CoreDNS refuses
// to start with two server blocks of one zone, and of two zones the longer takes its names away from the other.
var ErrDomainTaken = errors.New("the cluster's DNS serves the domain already")

// ErrInvalidCorefile says that the Corefile cannot be parsed, so that nobody can tell which zones it serves.
var ErrInvalidCorefile = errors.New("the Corefile is invalid")

// Add returns the Corefile with the block for f, at its start or in place of the block that is there. A domain that a
// server block of a person's forwards to the same address is left out, and so is the block when none is left. It
// refuses a domain that is, holds or lies within a zone that the rest of the Corefile serves, in whichever plugin, or
// the cluster's own domain. The names of addresses are forwarded where that takes none away; unforwarded says why not.
func Add(corefile string, f Forward) (with string, unforwarded, err error) {
	before, after, found, err := split(corefile)
	if err != nil {
		return "", nil, err
	}
	served, err := ServedBy(before + after)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrInvalidCorefile, err)
	}
	f.Domains, served = f.notByHand(append(served, f.Elsewhere...))
	if len(f.Domains) == 0 {
		return before + after, nil, nil
	}
	if err := f.taken(served); err != nil {
		return "", nil, err
	}
	addresses, unforwarded := reverse{}, f.NoAddresses
	if unforwarded == nil {
		addresses, unforwarded = f.reverse(served)
	}
	block := f.block(portOf(served), addresses)
	if found {
		return before + block + after, unforwarded, nil
	}
	return block + corefile, unforwarded, nil
}

// portOf the server block of the root zone, at which the program listens.
func portOf(served []Served) string {
	if at := slices.IndexFunc(served, func(s Served) bool { return s.Block && s.Zone == "" }); at >= 0 {
		return served[at].Port
	}
	return "53"
}

// notByHand returns the domains that no person forwards as Sealane would, and what is served beside those that one
// does.
func (f Forward) notByHand(served []Served) (domains []string, others []Served) {
	byHand := func(s Served) bool {
		return s.Block && slices.Contains(f.Domains, s.Zone) && s.ForwardsTo(f.To)
	}
	for _, domain := range f.Domains {
		if !slices.ContainsFunc(served, func(s Served) bool { return s.Zone == domain && byHand(s) }) {
			domains = append(domains, domain)
		}
	}
	return domains, slices.DeleteFunc(slices.Clone(served), byHand)
}

// taken returns ErrDomainTaken, with the zone and where it is served, for the first domain that is not free.
func (f Forward) taken(served []Served) error {
	if f.ClusterDomain != "" {
		served = append(slices.Clip(served), Served{Zone: f.ClusterDomain, By: "the kubelet's configuration", Cluster: true})
	}
	for _, domain := range f.Domains {
		if err := dnszone.Allowed(domain); err != nil {
			return fmt.Errorf("%w: %w", ErrDomainTaken, err)
		}
		for i := range served {
			if served[i].takes(domain) {
				return fmt.Errorf("%w: %s overlaps %s, which is served by %s", ErrDomainTaken, domain, served[i].Zone, served[i].By)
			}
		}
	}
	return nil
}

// TakesClusterDomain says whether the block that is there answers names of the cluster itself, as one that an earlier
// version wrote may: such a block must go.
func TakesClusterDomain(corefile, clusterDomain string) bool {
	before, after, found, err := split(corefile)
	if err != nil || !found {
		return false
	}
	ours, err := ServedBy(corefile[len(before) : len(corefile)-len(after)])
	if err != nil {
		return false
	}
	served, err := ServedBy(before + after)
	if err != nil {
		return false
	}
	served = append(served, Served{Zone: clusterDomain, Cluster: true})
	return slices.ContainsFunc(ours, func(o Served) bool {
		return o.Block && !dnszone.Within(o.Zone, "arpa") &&
			slices.ContainsFunc(served, func(s Served) bool { return s.Cluster && s.takes(o.Zone) })
	})
}

// Remove returns the Corefile without the block.
func Remove(corefile string) (string, error) {
	before, after, _, err := split(corefile)
	if err != nil {
		return "", err
	}
	return before + after, nil
}

func (f Forward) block(port string, addresses reverse) string {
	var b strings.Builder
	b.WriteString(begin + "\n")
	writeKeys(&b, f.Domains, port)
	b.WriteString(" {\n    errors\n")
	if f.Bind != "" {
		b.WriteString("    bind " + f.Bind + "\n")
	}
	// No cache: a denial that is remembered would hide a service that has just been exported.
	fmt.Fprintf(&b, "    forward . %s\n}\n", f.To)
	addresses.write(&b, port, f.To)
	b.WriteString(end + "\n")
	return b.String()
}

// writeKeys writes the keys of a server block.
func writeKeys(b *strings.Builder, zones []string, port string) {
	for i, zone := range zones {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(zone + ":" + port)
	}
}

// split cuts the block, with its marks and the newline after it, out of a Corefile.
func split(corefile string) (before, after string, found bool, err error) {
	start, stop := -1, -1
	for offset := 0; offset < len(corefile); {
		line, _, _ := strings.Cut(corefile[offset:], "\n")
		next := min(offset+len(line)+1, len(corefile))
		switch strings.TrimSpace(line) {
		case begin:
			if start >= 0 {
				return "", "", false, fmt.Errorf("%w: %q twice", ErrMarkers, begin)
			}
			start = offset
		case end:
			if start < 0 || stop >= 0 {
				return "", "", false, fmt.Errorf("%w: %q without %q before it", ErrMarkers, end, begin)
			}
			stop = next
		}
		offset = next
	}
	switch {
	case start < 0:
		return corefile, "", false, nil
	case stop < 0:
		return "", "", false, fmt.Errorf("%w: %q without %q", ErrMarkers, begin, end)
	}
	return corefile[:start], corefile[stop:], true, nil
}
