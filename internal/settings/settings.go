// SPDX-License-Identifier: Apache-2.0

// Package settings judges the spec of a ClusterSet. It is pure, and imports of Karmada only API types.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/dnszone"
	"github.com/sealane-io/sealane/internal/external"
	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Validate says why a ClusterSet cannot be put into force. The CRD refuses most of it already.
func Validate(set *v1alpha1.ClusterSet) error {
	var errs []error
	spec := set.Spec
	errs = append(errs, checkSelectors(spec)...)
	errs = append(errs, checkCables(spec)...)
	errs = append(errs, checkRelays(spec)...)
	if err := netfacts.CheckPorts(spec.Cable.Port, spec.Cable.VXLANPort); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, checkTopology(spec)...)
	if spec.Shards < v1alpha1.MinShards || spec.Shards > v1alpha1.MaxShards {
		errs = append(errs, fmt.Errorf("shards is %d: expected %d to %d", spec.Shards, v1alpha1.MinShards,
			v1alpha1.MaxShards))
	}
	if len(spec.DNS.Domains) == 0 {
		errs = append(errs, errors.New("dns.domains is empty: expected at least clusterset.local"))
	}
	for _, domain := range spec.DNS.Domains {
		if err := dnszone.Allowed(domain); err != nil {
			errs = append(errs, fmt.Errorf("dns.domains: %w", err))
		}
	}
	if _, err := netfacts.ParseAllowed(spec.AllowedCIDRs); err != nil {
		errs = append(errs, fmt.Errorf("allowedCIDRs: %w", err))
	}
	if mode := spec.Globalnet.Mode; mode != "" && mode != v1alpha1.GlobalnetOff || len(spec.Globalnet.CIDRs) > 0 ||
		spec.Globalnet.IPv6CIDR != "" {
		if _, err := globalnet.PoolOf(spec.Globalnet); err != nil {
			errs = append(errs, fmt.Errorf("globalnet: %w", err))
		}
	}
	for _, c := range spec.Clusters {
		if c.Globalnet.CIDR != "" {
			if _, err := netfacts.ParseGlobal(c.Globalnet.CIDR); err != nil {
				errs = append(errs, fmt.Errorf("global CIDR of cluster %s: %w", c.Name, err))
			}
		}
		for _, text := range slices.Concat(c.Networks.PodCIDRs, c.Networks.ServiceCIDRs) {
			if _, err := netfacts.ParsePrefix(text); err != nil {
				errs = append(errs, fmt.Errorf("network of cluster %s: %w", c.Name, err))
			}
		}
		errs = append(errs, checkExternal(spec, c)...)
	}
	return errors.Join(errs...)
}

// checkExternal says which hosts outside the clusters one cannot export: none has an address of those that clusters
// have, or may get.
func checkExternal(spec v1alpha1.ClusterSetSpec, c v1alpha1.ClusterOverride) []error {
	taken := map[string][]string{"the pool of global addresses": spec.Globalnet.CIDRs}
	for _, other := range spec.Clusters {
		taken["cluster "+other.Name] = slices.Concat(other.Networks.PodCIDRs, other.Networks.ServiceCIDRs,
			[]string{other.Globalnet.CIDR})
	}
	var errs []error
	for _, text := range c.ExternalCIDRs {
		p, err := external.Parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("externalCIDRs of cluster %s: %w", c.Name, err))
			continue
		}
		for _, owner := range slices.Sorted(maps.Keys(taken)) {
			for _, other := range taken[owner] {
				if q, err := netip.ParsePrefix(other); err == nil && p.Overlaps(q) {
					errs = append(errs, fmt.Errorf("externalCIDRs of cluster %s: %s overlaps %s, of %s", c.Name, p, q, owner))
				}
			}
		}
	}
	return errs
}
