// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// cableTold is what all members are told of cables. Each pair's driver is told beside: an agent that does not know it
// goes on with wireguard.
func cableTold(spec v1alpha1.CableSpec) v1alpha1.CableSpec {
	spec.Driver, spec.Unencrypted = v1alpha1.CableWireGuard, false
	return spec
}

// cableOf is the driver that a member is told of the pair with another; empty for wireguard. With settings that cannot
// be put into force it is what the member was told before.
func cableOf(in Input, s, other *state) v1alpha1.CableDriver {
	if !invalidSettings(in) {
		return in.Cables[[2]string{min(s.name(), other.name()), max(s.name(), other.name())}]
	}
	if s.Sent == nil {
		return ""
	}
	i := slices.IndexFunc(s.Sent.RemoteClusters, func(r v1alpha1.RemoteCluster) bool { return r.Name == other.name() })
	if i < 0 {
		return ""
	}
	return s.Sent.RemoteClusters[i].Cable
}

// unencrypted counts the pairs of accepted members that are told of a cable that does not encrypt.
func unencrypted(in Input, states []*state) int32 {
	var n int32
	for i, a := range states {
		for _, b := range states[i+1:] {
			if a.accepted && b.accepted && a.active() && b.active() &&
				(cableOf(in, a, b) == v1alpha1.CableVXLAN || cableOf(in, b, a) == v1alpha1.CableVXLAN) {
				n++
			}
		}
	}
	return n
}
