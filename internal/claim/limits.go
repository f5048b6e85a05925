// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// maxShown is how many bytes of a list of networks a message shows, and maxNamed how many networks it names.
const (
	maxShown = 256
	maxNamed = 5
)

// Limits is the address space that members may claim: what spec.clusters states for a cluster, and
// spec.allowedCIDRs for the rest. What is stated for one cluster need not be allowed to all.
type Limits struct {
	set     string
	allowed bounds
	stated  map[string]statement
}

// statement is what spec.clusters says of one cluster's networks; a list that is not given states nothing.
type statement struct{ pods, services *bounds }

// bounds are networks that a claim has to lie in.
type bounds struct {
	text string
	in   *netipx.IPSet
}

// LimitsOf reads a ClusterSet. Nothing is allowed by a list that cannot be parsed; membership reports it.
func LimitsOf(set *v1alpha1.ClusterSet) Limits {
	l := Limits{set: set.Name, allowed: boundsOf(set.Spec.Allowed()), stated: map[string]statement{}}
	for _, c := range set.Spec.Clusters {
		var s statement
		if list := c.Networks.PodCIDRs; len(list) > 0 {
			b := boundsOf(list)
			s.pods = &b
		}
		if list := c.Networks.ServiceCIDRs; len(list) > 0 {
			b := boundsOf(list)
			s.services = &b
		}
		l.stated[c.Name] = s
	}
	return l
}

func boundsOf(texts []string) bounds {
	in, err := netfacts.ParseAllowed(texts)
	if err != nil {
		in = new(netipx.IPSet)
	}
	return bounds{text: clip.Text(strings.Join(texts, ", "), maxShown), in: in}
}

// Outside says which networks of a claim a cluster may not have, and what to do; "" for none.
func (l Limits) Outside(cluster string, c Claim) string {
	stated := l.stated[cluster]
	for _, x := range []struct {
		kind   string
		claims []netip.Prefix
		stated *bounds
	}{{"pod", c.Pods, stated.pods}, {"service", c.Services, stated.services}} {
		within := &l.allowed
		if x.stated != nil {
			within = x.stated
		}
		bad := within.missing(x.claims)
		switch {
		case bad == "":
		case x.stated != nil:
			return fmt.Sprintf("%s network %s is not among those that spec.clusters of ClusterSet %s states for it (%s): "+
				"correct the list there, or see what reports another network", x.kind, bad, l.set, within.text)
		default:
			return fmt.Sprintf("%s network %s is not in spec.allowedCIDRs of ClusterSet %s (%s): if the cluster really has it, "+
				"state it there, or for this cluster alone in spec.clusters[].networks", x.kind, bad, l.set, within.text)
		}
	}
	return ""
}

// missing names the prefixes that do not lie in the bounds, at most five.
func (b *bounds) missing(claims []netip.Prefix) string {
	var out []string
	for _, p := range claims {
		if !b.in.ContainsPrefix(p) {
			out = append(out, p.String())
		}
	}
	return clip.List(out, maxNamed)
}
