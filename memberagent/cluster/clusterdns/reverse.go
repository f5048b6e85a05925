// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/sealane-io/sealane/internal/dnszone"
)

// maxReverseZones of the block. A network has up to 128 where its length is no multiple of 8.
const maxReverseZones = 128

// reverse is the part of the block for the names of addresses. Without zones there is none.
type reverse struct {
	// zones that hold the addresses of the cluster's Services, and no others.
	zones []string
	// clusterDomain of the names that the cluster itself gives to addresses.
	clusterDomain string
}

// notDerived selects the Services that the cluster itself names, and no EndpointSlices: these carry the name of a
// Service, and none is at an address of the service network.
const notDerived = "!sealane.io/import,!kubernetes.io/service-name"

// write the server block. The cluster's own Services are answered by the kubernetes plugin, whether or not Sealane's
// DNS runs; what that knows nothing of, derived Services among them, goes to Sealane's DNS.
func (r reverse) write(b *strings.Builder, port string, to netip.Addr) {
	if len(r.zones) == 0 {
		return
	}
	writeKeys(b, r.zones, port)
	fmt.Fprintf(b, ` {
    errors
    kubernetes %s in-addr.arpa ip6.arpa {
        labels %s
        fallthrough
    }
    forward . %s
}
`, r.clusterDomain, notDerived, to)
}

// reverse returns the part of the block for the names of addresses, or why there is none: it must not take a name
// away from an address that has one.
func (f Forward) reverse(served []Served) (reverse, error) {
	zones, err := f.reverseZones()
	if err != nil {
		return reverse{}, err
	}
	domain := ""
	for _, zone := range zones {
		answered := false
		for i := range served {
			s := &served[i]
			switch {
			case strings.Contains(s.Zone, "/"):
				return reverse{}, fmt.Errorf("%s is served by %s: reverse zones in CIDR notation are not compared", s.Zone, s.By)
			case s.Zone == "" || !dnszone.Overlap(s.Zone, zone):
				continue
			case !s.Cluster || !dnszone.Within(zone, s.Zone):
				return reverse{}, fmt.Errorf("%s overlaps %s, which is served by %s", zone, s.Zone, s.By)
			case s.Limited != "":
				return reverse{}, fmt.Errorf("%s has the property %s", s.By, s.Limited)
			case domain != "" && s.Domain != domain || s.Domain == "":
				return reverse{}, fmt.Errorf("the cluster domain of %s is not known", s.By)
			}
			answered, domain = true, s.Domain
		}
		if !answered {
			return reverse{}, fmt.Errorf("the cluster's DNS gives no names to addresses in %s", zone)
		}
	}
	return reverse{zones: zones, clusterDomain: domain}, nil
}

// reverseZones of the service networks.
func (f Forward) reverseZones() ([]string, error) {
	if len(f.Networks.ServiceCIDRs) == 0 {
		return nil, errors.New("the cluster's service network is not accepted yet")
	}
	var zones []string
	for _, text := range f.Networks.ServiceCIDRs {
		services, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("parse the service network: %w", err)
		}
		for _, text := range f.Networks.PodCIDRs {
			if pods, err := netip.ParsePrefix(text); err != nil || pods.Overlaps(services) {
				return nil, fmt.Errorf("the service network %s overlaps the pods' %s", services, text)
			}
		}
		of := zonesOf(services.Masked())
		if len(of) == 0 || len(zones)+len(of) > maxReverseZones {
			return nil, fmt.Errorf("the service network %s has too many addresses", services)
		}
		zones = append(zones, of...)
	}
	slices.Sort(zones)
	return slices.Compact(zones), nil
}

// zonesOf returns the reverse zones that hold the addresses of a network and no others (RFC 1035 §3.5, RFC 3596 §2.5);
// none for one that is larger than Kubernetes lets a service network be.
func zonesOf(p netip.Prefix) (out []string) {
	step, format, suffix, least := 8, "%d.", "in-addr.arpa", 12
	if p.Addr().Is6() {
		step, format, suffix, least = 4, "%x.", "ip6.arpa", 64
	}
	if p.Bits() < least {
		return nil
	}
	length := (p.Bits() + step - 1) / step * step
	for part := netip.PrefixFrom(p.Addr(), length); part.IsValid() && p.Contains(part.Addr()); {
		var b strings.Builder
		raw := part.Addr().AsSlice()
		for at := length - step; at >= 0; at -= step {
			fmt.Fprintf(&b, format, raw[at/8]>>(8-step-at%8)&(1<<step-1))
		}
		out = append(out, b.String()+suffix)
		part = netip.PrefixFrom(netipx.PrefixLastIP(part).Next(), length)
	}
	return out
}
