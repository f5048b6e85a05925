// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// checkCables says what of spec.cable and spec.cables cannot be put into force.
func checkCables(spec v1alpha1.ClusterSetSpec) []error {
	errs := []error{checkDriver("cable", spec.Cable.Driver, spec.Cable.Unencrypted)}
	vxlan, ipsec := spec.Cable.Driver == v1alpha1.CableVXLAN, spec.Cable.Driver == v1alpha1.CableIPsec
	for i, c := range spec.Cables {
		if n := len(c.Clusters); n < 1 || n > 2 {
			errs = append(errs, fmt.Errorf("cables[%d]: clusters has %d selectors: expected 1, that both clusters of a pair "+
				"match, or 2, one for each", i, n))
		}
		errs = append(errs, checkDriver(fmt.Sprintf("cables[%d]", i), c.Driver, c.Unencrypted))
		vxlan, ipsec = vxlan || c.Driver == v1alpha1.CableVXLAN, ipsec || c.Driver == v1alpha1.CableIPsec
	}
	switch spec.Cable.IPsecAlgorithms {
	case "", v1alpha1.IPsecDefault, v1alpha1.IPsecFIPS:
	default:
		errs = append(errs, fmt.Errorf("cable: ipsecAlgorithms %q are unknown: expected %s or %s", spec.Cable.IPsecAlgorithms,
			v1alpha1.IPsecDefault, v1alpha1.IPsecFIPS))
	}
	if vxlan {
		if _, err := netfacts.VXLANCablePort(spec.Cable.Port, spec.Cable.VXLANPort); err != nil {
			errs = append(errs, fmt.Errorf("cable: %w", err))
		}
	}
	if ipsec {
		if _, err := netfacts.IPsecPort(spec.Cable.Port, spec.Cable.VXLANPort); err != nil {
			errs = append(errs, fmt.Errorf("cable: %w", err))
		}
	}
	return errs
}

func checkDriver(field string, driver v1alpha1.CableDriver, unencrypted bool) error {
	encrypts := driver == v1alpha1.CableWireGuard || driver == v1alpha1.CableIPsec
	switch {
	case encrypts && !unencrypted, driver == v1alpha1.CableVXLAN && unencrypted:
		return nil
	case encrypts:
		return fmt.Errorf("%s: unencrypted is true, and driver %s encrypts: take unencrypted away, or choose vxlan", field,
			driver)
	case driver == v1alpha1.CableVXLAN:
		return errors.New(field + ": driver vxlan does not encrypt, and unencrypted is not true: set it to say that the " +
			"network between the gateways is trusted, or choose wireguard or ipsec")
	}
	return fmt.Errorf("%s: driver %q is unknown: expected wireguard, vxlan or ipsec", field, driver)
}
