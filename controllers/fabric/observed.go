// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/claim"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// sightings are where a member says to see the gateways of others, by cluster: one address for each gateway that there
// is, the first of several. While the member's report is unknown, those of its record hold.
func sightings(s *state, states map[string]*state) map[string][]v1alpha1.ObservedGateway {
	if !s.accepted || !s.active() {
		return nil
	}
	reported := s.Report.Status.Connections
	if !s.Report.Known {
		reported = s.Record.Status.Connections
	}
	out := map[string][]v1alpha1.ObservedGateway{}
	looked := map[string]bool{s.name(): true}
	for _, c := range reported {
		other := states[c.Cluster]
		if other == nil || looked[c.Cluster] {
			continue
		}
		looked[c.Cluster] = true
		for _, e := range other.endpoints {
			for _, o := range c.Observed[:min(len(c.Observed), maxEndpoints)] {
				ip, err := netfacts.ParseAddr(o.IP)
				if err == nil && o.Gateway == e.Gateway && o.Port >= 0 && o.Port <= 65535 {
					o.IP = ip.String()
					out[c.Cluster] = append(out[c.Cluster], o)
					break
				}
			}
		}
	}
	return out
}

// observed is where other members see the gateways of one, by the gateway's name.
func observed(s *state, states []*state, others claim.Others) map[string][]v1alpha1.ObservedAddress {
	claims, inForce := map[string][]v1alpha1.ObservedAddress{}, map[string][]v1alpha1.ObservedAddress{}
	for _, o := range states {
		for _, seen := range o.sees[s.name()] {
			claims[seen.Gateway] = append(claims[seen.Gateway], seen.ObservedAddress)
		}
	}
	if len(claims) == 0 {
		return nil
	}
	for _, e := range s.Record.Status.Endpoints {
		inForce[e.Gateway] = e.Observed
	}
	out := map[string][]v1alpha1.ObservedAddress{}
	for _, e := range s.endpoints {
		out[e.Gateway] = claim.Observed(e, inForce[e.Gateway], claims[e.Gateway], others)
	}
	return out
}

// told are the endpoints that the others are told, with where they are seen. That is nothing that the member has: it
// keeps nobody from a network.
func (s *state) told() []v1alpha1.Endpoint {
	out := slices.Clone(s.endpoints)
	for i := range out {
		out[i].Observed = s.observed[out[i].Gateway]
	}
	return out
}
