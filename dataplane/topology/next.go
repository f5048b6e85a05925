// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Replacement says where a gateway stands in replacing its private key.
type Replacement int

// The states of a replacement.
const (
	// NoReplacement: there is one key.
	NoReplacement Replacement = iota
	// Offered: there are cables with the next key beside the usual ones, and traffic moves there.
	Offered
	// Promoted: the usual cables have the new key as well, and traffic moves back.
	Promoted
)

// Replacement of a gateway's key, as it publishes it.
func (g Gateway) Replacement() Replacement {
	switch g.NextKey {
	case Key{}:
		return NoReplacement
	case g.PublicKey:
		return Promoted
	}
	return Offered
}

// WithNextKeys adds to a topology, for a local gateway whose own replacement is given, the cables with next keys: each
// remote gateway that replaces its key, or every one while the local gateway replaces its own, is there twice, as
// itself and as a gateway NextKeySlots higher that has its next key, if it has one.
func (t Topology) WithNextKeys(own Replacement) Topology {
	remotes := make([]Remote, len(t.Remotes))
	for i, r := range t.Remotes {
		remotes[i] = r
		remotes[i].Gateways = slices.Clone(r.Gateways)
		for _, g := range r.Gateways {
			theirs := g.Replacement()
			if own == NoReplacement && theirs == NoReplacement {
				continue
			}
			next := g
			next.Next, next.Slot = true, g.Slot+v1alpha1.NextKeySlots
			next.Preferred = own == Offered || theirs == Offered
			if theirs != NoReplacement {
				next.PublicKey = g.NextKey
			}
			remotes[i].Gateways = append(remotes[i].Gateways, next)
		}
	}
	t.Remotes = remotes
	return t
}
